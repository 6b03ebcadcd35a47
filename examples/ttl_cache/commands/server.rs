//! Commands about the server.

use std::{fmt::Write, time::Duration};

use tourbillon::Handle;

use super::{
    COMMANDS, Context, Error,
    expiry::{amount, unix_now},
    is,
    keys::check_flush_mode,
};
use crate::{
    Server,
    glob::{self, Case},
    resp::Args,
};

/// The version of redis that this server imitates. Clients ask for it to learn a server's features.
const REDIS: &str = "7.0.15";

/// `TIME`: seconds since 1970, and microseconds of the current second.
pub(super) fn time(context: &mut Context<'_>, _: Args<'_>) -> Result<(), Error> {
    let now = unix_now();
    context.out.array(2);
    context.out.bulk(now.as_secs().to_string().as_bytes());
    let micros = now.subsec_micros().to_string();
    context.out.bulk(micros.as_bytes());
    Ok(())
}

/// `FUNCTION FLUSH [ASYNC | SYNC]`: does nothing, as there are no functions. Redis's own test suite
/// starts with it.
pub(super) fn function(context: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    if !is(&args[1], "flush") {
        return Err(Error::unknown_subcommand(&args[1], "FUNCTION"));
    }
    check_flush_mode(args, 2)?;
    context.out.ok();
    Ok(())
}

/// `DEBUG SET-ACTIVE-EXPIRE 0 | 1`: sets whether timers remove keys. If not, the next command that
/// finds an expired key removes it.
pub(super) fn debug(context: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    if !is(&args[1], "set-active-expire") {
        return Err(Error::unknown_subcommand(&args[1], "DEBUG"));
    }
    let active = args.get(2).ok_or(Error::Arity("debug"))?;
    let active = amount(active)? != 0;
    context.server.store.set_active(active);
    context.out.ok();
    Ok(())
}

/// `COMMAND [COUNT | LIST | DOCS … | INFO …]`. Clients use it for hints, and work without.
pub(super) fn command(context: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    match args.get(1) {
        Some(sub) if is(sub, "count") => context.out.integer(COMMANDS.len() as i64),
        Some(sub) if is(sub, "list") => {
            context.out.array(COMMANDS.len());
            for command in COMMANDS {
                context.out.bulk(command.name.as_bytes());
            }
        }
        Some(sub) if is(sub, "docs") => context.out.map(0),
        Some(sub) if !is(sub, "info") => return Err(Error::unknown_subcommand(sub, "COMMAND")),
        _ => context.out.array(0),
    }
    Ok(())
}

/// `CONFIG GET pattern…`: the settings that redis-benchmark shows, and the limits.
pub(super) fn config(context: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    if !is(&args[1], "get") {
        return Err(Error::unknown_subcommand(&args[1], "CONFIG"));
    }
    if args.len() < 3 {
        return Err(Error::Arity("config|get"));
    }
    let options = &context.server.options;
    let known = [
        ("save", String::new()),
        ("appendonly", "no".to_owned()),
        ("databases", "1".to_owned()),
        ("maxclients", options.max_clients.to_string()),
        ("maxmemory", options.max_memory.to_string()),
        ("maxmemory-policy", "noeviction".to_owned()),
        ("proto-max-bulk-len", options.max_bulk.to_string()),
        ("timeout", options.idle.as_secs().to_string()),
    ];
    let asked = |name: &str| {
        let mut patterns = args.from(2);
        patterns.any(|pattern| glob::matches(pattern, name.as_bytes(), Case::Ignored))
    };
    let found: Vec<_> = known.iter().filter(|(name, _)| asked(name)).collect();
    context.out.map(found.len());
    for (name, value) in found {
        context.out.bulk(name.as_bytes());
        context.out.bulk(value.as_bytes());
    }
    Ok(())
}

/// `INFO [section…]`
pub(super) fn info(context: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let all = ["all", "default", "everything"];
    let everything = args.len() == 1 || args.from(1).any(|arg| all.iter().any(|all| is(arg, all)));
    let mut text = String::new();
    for (name, lines) in sections(context.server) {
        if !everything && !args.from(1).any(|arg| is(arg, name)) {
            continue;
        }
        if !text.is_empty() {
            text += "\r\n";
        }
        // Writing to a string cannot fail.
        let _ = write!(text, "# {name}\r\n");
        for (key, value) in lines {
            let _ = write!(text, "{key}:{value}\r\n");
        }
    }
    context.out.text(&text);
    Ok(())
}

type Section = (&'static str, Vec<(&'static str, String)>);

/// Returns the sections of INFO. Fields that redis has, too, have redis's names.
fn sections(server: &Server) -> [Section; 6] {
    let stats = &server.stats;
    let us = |time: Duration| format!("{:.1}", time.as_nanos() as f64 / 1e3);
    let requests = stats.requests.get();
    let (by_timer, on_access) = (stats.expired_by_timer.get(), stats.expired_on_access.get());
    let metrics = Handle::current().metrics();
    let total = metrics.total();
    [
        (
            "Server",
            vec![
                ("redis_version", REDIS.to_owned()),
                ("tourbillon_version", env!("CARGO_PKG_VERSION").to_owned()),
                ("process_id", std::process::id().to_string()),
                (
                    "uptime_in_seconds",
                    server.started.elapsed().as_secs().to_string(),
                ),
            ],
        ),
        (
            "Clients",
            vec![
                ("connected_clients", stats.clients.get().to_string()),
                ("maxclients", server.options.max_clients.to_string()),
                (
                    "total_connections_received",
                    stats.connections.get().to_string(),
                ),
                ("rejected_connections", stats.rejected.get().to_string()),
                (
                    "closed_idle_connections",
                    stats.closed_idle.get().to_string(),
                ),
            ],
        ),
        (
            "Memory",
            vec![
                // With an estimate of the overhead of keys, and without what each client has.
                ("used_memory", stats.bytes.get().to_string()),
                (
                    "used_memory_dataset",
                    stats.bytes.get().saturating_sub(requests).to_string(),
                ),
                ("used_memory_requests", requests.to_string()),
                ("maxmemory", server.options.max_memory.to_string()),
            ],
        ),
        (
            "Stats",
            vec![
                ("total_commands_processed", stats.commands.get().to_string()),
                ("expired_keys", (by_timer + on_access).to_string()),
                ("expired_by_timer", by_timer.to_string()),
                ("expired_on_access", on_access.to_string()),
                ("expiry_lateness_us_p50", us(stats.lateness.per_mille(500))),
                ("expiry_lateness_us_p99", us(stats.lateness.per_mille(990))),
                ("expiry_lateness_us_max", us(stats.lateness.max())),
            ],
        ),
        (
            "Runtime",
            vec![
                ("workers", metrics.num_workers().to_string()),
                ("timers_armed", total.armed().to_string()),
                ("timers_fired", total.fired.to_string()),
                ("timers_cancelled", total.cancelled.to_string()),
                ("timers_rescued", total.rescued_timers.to_string()),
                ("polls", total.polls.to_string()),
                ("steals", total.steal_operations.to_string()),
                ("parks", total.parks.to_string()),
                ("stalls", total.stalls.to_string()),
                ("panics", total.panics.to_string()),
            ],
        ),
        (
            "Keyspace",
            vec![("db0", format!("keys={}", stats.keys.get()))],
        ),
    ]
}
