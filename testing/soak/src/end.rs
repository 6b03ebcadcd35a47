//! Ending the soak in any case: signals, a watchdog, and waiting with a deadline. All of it uses
//! the clock of the standard library and nothing of the runtime under test.

use std::{
    future::Future,
    pin::Pin,
    process,
    task::{Context, Poll, Waker},
    thread,
    time::{Duration, Instant},
};

use tourbillon::{JoinHandle, Runtime, runtime::Builder, task::JoinError};
use tourbillon_cli::{say::complain, server::Stop};

use super::shared::{PATIENCE, Shared};

/// Interval at which to check whether something has ended.
pub(super) const POLL: Duration = Duration::from_millis(10);
/// Interval at which the watchdog checks the time.
const ROUND: Duration = Duration::from_millis(100);
/// Steps at the end that may each take [`PATIENCE`]: tasks, the echo server, the runtime beside,
/// the shutdown, descriptors, threads.
const STEPS: u32 = 6;

/// Listens to Ctrl-C and SIGTERM on a separate runtime. The first signal stops the soak, the second
/// one ends the process. No other code may listen to these signals before this one does.
pub(super) fn listen(shared: Shared) -> Result<Runtime, String> {
    let mut builder = Builder::new();
    builder
        .worker_threads(1)
        .helpers(1..=1)
        .thread_name("signals");
    let runtime = builder.build().map_err(|error| error.to_string())?;
    let stop = runtime.block_on(async { Stop::new() });
    let mut stop = stop.map_err(|error| error.to_string())?;
    runtime.spawn(async move {
        if stop.recv().await.is_ok() {
            complain(format_args!("stopping; press Ctrl-C again to stop at once"));
            shared.stop();
        }
        if stop.recv().await.is_ok() {
            process::exit(130);
        }
    });
    Ok(runtime)
}

/// The time by which the soak must be over.
struct Limit {
    start: Instant,
    duration: Duration,
    end: Duration,
    stopping: Option<Instant>,
}

impl Limit {
    fn new(start: Instant, duration: Duration, grace: Duration) -> Self {
        let end = grace.saturating_add(PATIENCE * STEPS);
        Self {
            start,
            duration,
            end,
            stopping: None,
        }
    }

    /// Returns whether the soak is overdue at `now`. After a stop only the time of the end phase is
    /// left.
    fn is_past(&mut self, now: Instant, is_stopping: bool) -> bool {
        if is_stopping && self.stopping.is_none() {
            self.stopping = Some(now);
        }
        if let Some(at) = self.stopping {
            return now.duration_since(at) > self.end;
        }
        now.duration_since(self.start) > self.duration.saturating_add(self.end)
    }
}

/// Starts the watchdog thread. If the soak does not end in time, it prints the known faults and
/// ends the process with status 1.
pub(super) fn guard(shared: Shared, duration: Duration, grace: Duration) -> Result<(), String> {
    let mut limit = Limit::new(Instant::now(), duration, grace);
    let watchdog = move || {
        while !limit.is_past(Instant::now(), shared.is_stopping()) {
            thread::sleep(ROUND);
        }
        for fault in shared.faults.all() {
            complain(format_args!("{fault}"));
        }
        complain(format_args!("the soak did not end in time"));
        process::exit(1);
    };
    let thread = thread::Builder::new().name("watchdog".to_owned());
    let thread = thread.spawn(watchdog);
    // The thread runs as long as the process.
    thread
        .map(drop)
        .map_err(|error| format!("cannot start a thread: {error}"))
}

/// Waits for a task until the deadline, and returns its result. Returns `None` if it has not ended.
pub(super) fn ended<T>(mut task: JoinHandle<T>, deadline: Instant) -> Option<Result<T, JoinError>> {
    while !task.is_finished() {
        if Instant::now() > deadline {
            return None;
        }
        thread::sleep(POLL);
    }
    match Pin::new(&mut task).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => Some(answer),
        Poll::Pending => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn the_limit_counts_from_the_start_or_from_the_stop() {
        let start = Instant::now();
        let end = 7 * SECOND + PATIENCE * STEPS;
        let mut limit = Limit::new(start, 60 * SECOND, 7 * SECOND);
        assert!(!limit.is_past(start + 60 * SECOND + end, false));
        assert!(limit.is_past(start + 61 * SECOND + end, false));
        let mut limit = Limit::new(start, 3_600 * SECOND, 7 * SECOND);
        assert!(!limit.is_past(start + SECOND, true));
        assert!(!limit.is_past(start + SECOND + end, true));
        assert!(limit.is_past(start + 2 * SECOND + end, true));
    }

    #[test]
    fn a_task_that_does_not_end_is_awaited_until_the_deadline() {
        let runtime = Builder::new().worker_threads(1).build().unwrap();
        let never = runtime.spawn(std::future::pending::<()>());
        assert!(ended(never, Instant::now() + POLL).is_none());
        let deadline = Instant::now() + PATIENCE;
        let answer = ended(runtime.spawn(async { 7 }), deadline);
        assert!(matches!(answer, Some(Ok(7))));
        let panics =
            runtime.spawn(async { std::panic::panic_any(super::super::shared::Deliberate) });
        let answer: Option<Result<(), _>> = ended(panics, deadline);
        assert!(answer.is_some_and(|answer| answer.is_err_and(|error| error.is_panic())));
    }
}
