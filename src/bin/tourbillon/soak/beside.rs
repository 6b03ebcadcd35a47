//! Runtimes that are built and dropped beside the one that is soaked: each leaves nothing.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use tourbillon::{JoinHandle, Outcome, Runtime, Timer, task::spawn_blocking, time::sleep};

use super::{
    books::{Books, PATIENCE},
    end,
    tally::Count,
    watch::seen,
};
use crate::proc;

/// What their workers are called.
const NAME: &str = "beside";
const TIMERS: u64 = 200;
const HOUR: Duration = Duration::from_secs(3_600);

/// A thread that builds and drops one runtime after the other, until the soak ends. Descriptors are looked at unless
/// others, who watch the runtime, make some as they please.
pub(super) fn thread(books: Books, period: Duration, look_at_descriptors: bool) {
    books.enlist();
    while !books.is_stopping() {
        let before = seen(books, proc::event_descriptors());
        // One that could not be built, for want of a thread or a descriptor, is a fault, and the next may be.
        if let Err(error) = once(books) {
            books.faults.add("a runtime beside was not built", error);
        }
        settles(books, "a thread of a runtime that was dropped", 0, || {
            proc::threads_named(NAME)
        });
        if let Some(before) = before.filter(|_| look_at_descriptors) {
            let what = "a descriptor of a runtime that was dropped";
            settles(books, what, before, proc::event_descriptors);
        }
        let next = Instant::now() + period;
        while !books.is_stopping() && Instant::now() < next {
            thread::sleep(period.min(Duration::from_millis(50)));
        }
    }
}

/// Waits until there are so many, as a thread that was joined may be listed for a moment.
fn settles(
    books: Books,
    what: &'static str,
    wanted: usize,
    count: impl Fn() -> Result<usize, String>,
) {
    let start = Instant::now();
    while let Some(there) = seen(books, count()) {
        if there == wanted {
            return;
        }
        if start.elapsed() > PATIENCE {
            let detail = format_args!("{there}, and {wanted} before");
            return books.faults.add(what, detail);
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// One runtime, with timers and tasks, of which some are not over when it ends.
pub(super) fn once(books: Books) -> Result<(), String> {
    let builder = Runtime::builder().worker_threads(2);
    let builder = builder.thread_name_fn(|i| format!("{NAME}-{i}"));
    let runtime = builder.build().map_err(|error| error.to_string())?;
    let handle = runtime.handle().clone();
    let ends: Arc<[AtomicU64; 3]> = Arc::default();
    let mut kept = Vec::new();
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
    let sleeper = runtime.spawn(sleep(HOUR));
    let (task, job) = runtime.block_on(async {
        let task = tourbillon::spawn(sleep(Duration::from_millis(1)));
        (
            task,
            spawn_blocking(|| thread::sleep(Duration::from_millis(1))),
        )
    });
    // By the clock of the standard library, so that one that never ends is told.
    let deadline = Instant::now() + PATIENCE;
    let is_well = |task: JoinHandle<()>| matches!(end::ended(task, deadline), Some(Ok(())));
    let well = [task, job].map(is_well) == [true; 2];
    let what = "a task or a job of a runtime beside failed";
    books.faults.unless(well, what, "");
    match fastrand::u8(..3) {
        0 => drop(runtime),
        1 => {
            let ended = runtime.shutdown_timeout(PATIENCE);
            books.faults.unless(ended, "a shutdown took too long", "");
        }
        _ => {
            // Else it would be waited for.
            sleeper.abort();
            let ended = runtime.shutdown_graceful(PATIENCE);
            books
                .faults
                .unless(ended, "a graceful shutdown took too long", "");
        }
    }
    drop(kept);
    let told: Vec<_> = ends.iter().map(|end| end.load(Relaxed)).collect();
    let what = "a runtime that was dropped did not tell each timer once";
    let once = told.iter().sum::<u64>() == TIMERS && told[2] > 0;
    books
        .faults
        .unless(once, what, format_args!("{told:?} of {TIMERS}"));
    let total = handle.metrics().total();
    let what = "the counters of a runtime that was dropped do not balance";
    let even = total.armed() == total.over();
    books.faults.unless(even, what, format_args!("{total:?}"));
    books.tally.count(Count::Beside);
    Ok(())
}
