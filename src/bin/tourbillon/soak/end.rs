//! What brings the soak to its end, whatever the soaked runtime is at: signals, a watchdog, and waiting by the clock of
//! the standard library. None of it asks anything of the runtime that is under test.

use std::{
    future::Future,
    pin::Pin,
    process,
    task::{Context, Poll, Waker},
    thread,
    time::{Duration, Instant},
};

use tourbillon::{JoinHandle, Runtime, task::JoinError};

use super::books::{Books, PATIENCE};
use crate::{complain, stop::Stop};

/// How often it is looked whether something is over.
pub(super) const GLANCE: Duration = Duration::from_millis(10);
/// How often the watchdog looks.
const ROUND: Duration = Duration::from_millis(100);
/// Steps of the soak's end of which each may take all of [`PATIENCE`]: tasks, the echo's server, the runtime beside,
/// the shutdown, descriptors, threads.
const STEPS: u32 = 6;

/// Listens to Ctrl-C and SIGTERM from here on, on a runtime that is there for nothing else: the first lets the soak come
/// to its end, the second ends the process. Nobody else may listen before, or signals were lost.
pub(super) fn listen(books: Books) -> Result<Runtime, String> {
    let builder = Runtime::builder().worker_threads(1).helpers(1..=1);
    let builder = builder.thread_name_fn(|_| "signals".to_owned());
    let runtime = builder.build().map_err(|error| error.to_string())?;
    let stop = runtime.block_on(async { Stop::new() });
    let mut stop = stop.map_err(|error| error.to_string())?;
    runtime.spawn(async move {
        if stop.recv().await.is_ok() {
            complain(format_args!("coming to an end; once more to stop at once"));
            books.stop();
        }
        if stop.recv().await.is_ok() {
            process::exit(130);
        }
    });
    Ok(runtime)
}

/// When the soak has to be over.
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

    /// Whether it should be over by `now`; who was told to stop has no more than the end takes.
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

/// Starts the thread that ends the process, with status 1 and with what is known by then, if the soak does not end.
pub(super) fn guard(books: Books, duration: Duration, grace: Duration) -> Result<(), String> {
    let mut limit = Limit::new(Instant::now(), duration, grace);
    let watchdog = move || {
        while !limit.is_past(Instant::now(), books.is_stopping()) {
            thread::sleep(ROUND);
        }
        for fault in books.faults.all() {
            complain(format_args!("{fault}"));
        }
        complain(format_args!("the soak came to no end"));
        process::exit(1);
    };
    let thread = thread::Builder::new().name("watchdog".to_owned());
    let thread = thread.spawn(watchdog);
    // It lasts as long as the process.
    thread
        .map(drop)
        .map_err(|error| format!("cannot start a thread: {error}"))
}

/// What a task that should end soon came to, if it has ended by the deadline.
pub(super) fn ended<T>(mut task: JoinHandle<T>, deadline: Instant) -> Option<Result<T, JoinError>> {
    while !task.is_finished() {
        if Instant::now() > deadline {
            return None;
        }
        thread::sleep(GLANCE);
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
    fn the_limit_is_counted_from_the_start_or_from_who_stops_it() {
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
    fn who_does_not_end_is_waited_for_until_the_deadline() {
        let runtime = Runtime::builder().worker_threads(1).build().unwrap();
        let never = runtime.spawn(std::future::pending::<()>());
        assert!(ended(never, Instant::now() + GLANCE).is_none());
        let deadline = Instant::now() + PATIENCE;
        let answer = ended(runtime.spawn(async { 7 }), deadline);
        assert!(matches!(answer, Some(Ok(7))));
        let panics = runtime.spawn(async { std::panic::panic_any(super::super::books::Meant) });
        let answer: Option<Result<(), _>> = ended(panics, deadline);
        assert!(answer.is_some_and(|answer| answer.is_err_and(|error| error.is_panic())));
    }
}
