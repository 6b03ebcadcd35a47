//! A timer is late, and the flight recorder tells why.

use std::{fs::File, io, process::ExitCode, thread, time::Duration};

use tourbillon::{runtime::Builder, task, time::sleep};
use tourbillon_examples::say;
use tourbillon_flight::{late_timers, write_trace};

/// Computes for a while, as a handler should not do on a worker.
async fn parse() {
    thread::sleep(Duration::from_millis(31));
}

async fn idle() {
    sleep(Duration::from_millis(5)).await;
}

fn main() -> ExitCode {
    say::end("why_late", run())
}

fn run() -> io::Result<()> {
    let runtime = Builder::new()
        .worker_threads(1)
        .build()
        .map_err(io::Error::other)?;
    let named = |name| task::Builder::new().name(name);
    let waits = named("idle session").spawn_on(idle(), runtime.handle());
    thread::sleep(Duration::from_millis(1));
    named("parser").spawn_on(parse(), runtime.handle());
    runtime.block_on(waits).map_err(io::Error::other)?;

    let snapshot = runtime.flight_recorder().snapshot();
    for timer in late_timers(&snapshot, Duration::from_millis(1)) {
        say::say(timer);
    }
    let path = std::env::temp_dir().join("why_late.trace.json");
    write_trace(&snapshot, File::create(&path)?)?;
    say::say(format_args!("for a trace viewer: {}", path.display()));
    Ok(())
}
