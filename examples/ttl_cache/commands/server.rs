//! What is asked about the server.

use std::{fmt::Write, time::Duration};

use tourbillon::{Handle, task};

use super::{COMMANDS, Context, Error, is};
use crate::{Server, resp::Args};

pub(super) fn dbsize(context: &mut Context<'_>, _: Args<'_>) -> Result<(), Error> {
    context.out.integer(context.server.stats.keys.get() as i64);
    Ok(())
}

/// `FLUSHALL [ASYNC | SYNC]`. All keys are gone with the reply.
pub(super) fn flush(context: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    match args.get(1) {
        None => {}
        Some(mode) if args.len() == 2 && (is(mode, "async") || is(mode, "sync")) => {}
        _ => return Err(Error::Syntax),
    }
    let keys = context.server.store.clear();
    // To free a million of them, and cancel as many timers, takes longer than others should wait for this worker.
    task::spawn_blocking(move || drop(keys));
    context.out.ok();
    Ok(())
}

/// `COMMAND [COUNT | DOCS … | INFO …]`: clients ask for what they want to help with, and do without.
pub(super) fn command(context: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    match args.get(1) {
        Some(sub) if is(sub, "count") => context.out.integer(COMMANDS.len() as i64),
        Some(sub) if !is(sub, "docs") && !is(sub, "info") && !is(sub, "list") => {
            return Err(Error::unknown_subcommand(sub, "COMMAND"));
        }
        _ => context.out.array(0),
    }
    Ok(())
}

/// `CONFIG GET name…`: what redis-benchmark shows, and the bounds. In a name `*` stands for any letters, `?` for one.
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
    let asked = |name: &str| args.from(2).any(|arg| matches(arg, name.as_bytes()));
    let found: Vec<_> = known.iter().filter(|(name, _)| asked(name)).collect();
    context.out.array(2 * found.len());
    for (name, value) in found {
        context.out.bulk(name.as_bytes());
        context.out.bulk(value.as_bytes());
    }
    Ok(())
}

/// Whether a name is one of those that a pattern stands for. Goes back to the last `*` alone, so that it takes no longer than
/// the two are long, multiplied.
fn matches(pattern: &[u8], name: &[u8]) -> bool {
    let (mut p, mut n) = (0, 0);
    // Where to go on if the letters so far were not all that the last `*` stands for.
    let mut star = None;
    loop {
        match (pattern.get(p), name.get(n)) {
            (None, None) => return true,
            (Some(b'*'), _) => {
                star = Some((p + 1, n));
                p += 1;
            }
            (Some(wanted), Some(letter))
                if *wanted == b'?' || wanted.eq_ignore_ascii_case(letter) =>
            {
                (p, n) = (p + 1, n + 1);
            }
            _ => match star {
                Some((after, from)) if from < name.len() => {
                    star = Some((after, from + 1));
                    (p, n) = (after, from + 1);
                }
                _ => return false,
            },
        }
    }
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
        // Strings take all that is written.
        let _ = write!(text, "# {name}\r\n");
        for (key, value) in lines {
            let _ = write!(text, "{key}:{value}\r\n");
        }
    }
    context.out.bulk(text.as_bytes());
    Ok(())
}

type Section = (&'static str, Vec<(&'static str, String)>);

/// Names that redis has where it has the thing.
fn sections(server: &Server) -> [Section; 6] {
    let stats = &server.stats;
    let us = |time: Duration| format!("{:.1}", time.as_nanos() as f64 / 1e3);
    let (by_timer, on_access) = (stats.expired_by_timer.get(), stats.expired_on_access.get());
    let metrics = Handle::current().metrics();
    let total = metrics.total();
    [
        (
            "Server",
            vec![
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
                // Keys, values, and a rough figure for the rest.
                ("used_memory_dataset", stats.bytes.get().to_string()),
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
