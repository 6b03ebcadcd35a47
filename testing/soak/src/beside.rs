//! Runtimes that are built and dropped beside the one under test. Each must leave nothing behind.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use tourbillon::{
    JoinHandle, Timer, runtime::Builder, task::spawn_blocking, time::sleep, timer::Outcome,
};
use tourbillon_cli::proc;

use super::{
    end,
    shared::{PATIENCE, Shared},
    tally::Count,
    watch::or_fault,
};

/// Prefix of their threads' names.
const NAME: &str = "beside";
const TIMERS: u64 = 200;
const HOUR: Duration = Duration::from_secs(3_600);

/// A thread that builds and drops one runtime after the other, until the soak ends. It checks
/// descriptors only if `check_descriptors` is set: clients of the dashboard open and close some.
pub(super) fn thread(shared: Shared, period: Duration, check_descriptors: bool) {
    shared.enlist();
    while !shared.is_stopping() {
        let before = or_fault(shared, proc::event_descriptors());
        // A runtime that could not be built is a fault. The next one may succeed.
        if let Err(error) = once(shared) {
            shared.faults.add("a runtime beside was not built", error);
        }
        // Its threads and descriptors must be gone.
        settles(shared, "a dropped runtime left a thread", 0, || {
            proc::threads_named(NAME)
        });
        if let Some(before) = before.filter(|_| check_descriptors) {
            let what = "a dropped runtime left a descriptor";
            settles(shared, what, before, proc::event_descriptors);
        }
        let next = Instant::now() + period;
        while !shared.is_stopping() && Instant::now() < next {
            thread::sleep(period.min(Duration::from_millis(50)));
        }
    }
}

/// Waits until `count` returns `wanted`. A joined thread may still be listed for a moment.
fn settles(
    shared: Shared,
    what: &'static str,
    wanted: usize,
    count: impl Fn() -> Result<usize, String>,
) {
    let start = Instant::now();
    while let Some(there) = or_fault(shared, count()) {
        if there == wanted {
            return;
        }
        if start.elapsed() > PATIENCE {
            let detail = format_args!("{there} instead of {wanted}");
            return shared.faults.add(what, detail);
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// Builds a runtime with timers and tasks, and ends it while some of them are pending.
pub(super) fn once(shared: Shared) -> Result<(), String> {
    let mut builder = Builder::new();
    builder
        .worker_threads(2)
        .thread_name_fn(|i| format!("{NAME}-{i}"));
    let runtime = builder.build().map_err(|error| error.to_string())?;
    let handle = runtime.handle().clone();
    let ends: Arc<[AtomicU64; 3]> = Arc::default();
    let mut kept = Vec::new();
    // Half of the timers fire soon, half are pending at the end. Cancel some, and keep some
    // handles.
    for i in 0..TIMERS {
        let delay = if i % 2 == 0 {
            Duration::from_micros(fastrand::u64(..3_000))
        } else {
            HOUR
        };
        let ends = ends.clone();
        let timer = Timer::after(delay).on(&handle).start_with(move |how| {
            let which = match how {
                Outcome::Fired => 0,
                Outcome::Cancelled => 1,
                _ => 2,
            };
            ends[which].fetch_add(1, Relaxed);
        });
        if i % 5 == 0 {
            timer.cancel();
        } else if i % 7 == 0 {
            kept.push(timer);
        }
    }
    // One task is pending at the end; another task and a job end before.
    let sleeper = runtime.spawn(sleep(HOUR));
    let (task, job) = runtime.block_on(async {
        let task = tourbillon::spawn(sleep(Duration::from_millis(1)));
        (
            task,
            spawn_blocking(|| thread::sleep(Duration::from_millis(1))),
        )
    });
    // Wait by the clock of the standard library, so that a runtime that hangs is reported.
    let deadline = Instant::now() + PATIENCE;
    let is_well = |task: JoinHandle<()>| matches!(end::ended(task, deadline), Some(Ok(())));
    let ok = [task, job].map(is_well) == [true; 2];
    let what = "a task or a job of a runtime beside failed";
    shared.check(ok, what, "");
    // End the runtime in one of three ways.
    match fastrand::u8(..3) {
        0 => drop(runtime),
        1 => {
            let ended = runtime.shutdown_timeout(PATIENCE);
            shared.check(ended, "a shutdown took too long", "");
        }
        _ => {
            // A graceful shutdown would wait for it.
            sleeper.abort();
            let ended = runtime.shutdown_graceful(PATIENCE);
            shared.check(ended, "a graceful shutdown took too long", "");
        }
    }
    // Each callback must have taken exactly one outcome.
    drop(kept);
    let outcomes: Vec<_> = ends.iter().map(|end| end.load(Relaxed)).collect();
    let what = "a dropped runtime did not end each timer once";
    let once = outcomes.iter().sum::<u64>() == TIMERS && outcomes[2] > 0;
    shared.check(once, what, format_args!("{outcomes:?} of {TIMERS}"));
    let total = handle.metrics().total();
    let what = "the counters of a dropped runtime do not balance";
    let even = total.armed() == total.over();
    shared.check(even, what, format_args!("{total:?}"));
    shared.tally.count(Count::Beside);
    Ok(())
}
