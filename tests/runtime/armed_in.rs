//! Feature `tracing`: what a subscriber learns about the span that armed a timer. The tests read a
//! log of `tracing-subscriber`, which shows what a user sees.
//!
//! Each test has a process of its own, because a process has one global subscriber.

use std::{
    future::Future,
    io::{self, Write},
    pin::Pin,
    sync::{Arc, Mutex, mpsc},
    thread,
    time::Duration,
};

use futures::future::{join, pending};
use tourbillon::{
    Runtime, Timer,
    runtime::Builder,
    time::{interval, sleep, timeout},
};
use tracing::{Instrument, Level, info_span, span};
use tracing_subscriber::{
    fmt::MakeWriter,
    layer::{Context, Layer, SubscriberExt},
    registry::{LookupSpan, Registry},
};

use crate::common::{PATIENCE, alarm, blocked::in_a_task, eventually, process::alone};

const MS: Duration = Duration::from_millis(1);
/// A job of this length makes the timers of its worker very late.
const LONG: Duration = Duration::from_millis(100);

/// The text of a log.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

impl Log {
    /// Logs what happens in this process from now on.
    fn start() -> Self {
        let log = Self::default();
        tracing_subscriber::fmt()
            .without_time()
            .with_max_level(Level::INFO)
            .with_writer(log.clone())
            .init();
        log
    }

    /// Waits for a line with `text`, and returns it.
    #[track_caller]
    fn line(&self, text: &str) -> String {
        let mut found = None;
        eventually(text, || {
            let log = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
            found = log
                .lines()
                .find(|line| line.contains(text))
                .map(str::to_owned);
            found.is_some()
        });
        found.unwrap()
    }

    fn clear(&self) {
        self.0.lock().unwrap().clear();
    }
}

/// Builds a runtime with one worker that no thread rescues. A delay of 20 ms counts as very late.
fn runtime() -> Runtime {
    let mut builder = Builder::new();
    builder.worker_threads(1).helpers(0..=0);
    builder.late_threshold(20 * MS).build().unwrap()
}

/// The beginning of the line for a late timer that was armed in the span `request`.
const LATE: &str = " WARN request{id=7}: tourbillon::late: a timer was late worker=0 ";

#[test]
fn a_late_callback_is_reported_in_the_span_that_armed_it() {
    alone(|| {
        let _alarm = alarm();
        let log = Log::start();
        // A plain timer, one with options, and one that recurs.
        let arm: [fn(); 3] = [
            || drop(tourbillon::after(MS, || ())),
            || drop(Timer::after(MS).name("late").start(|| ())),
            || drop(Timer::every(MS).times(1).start(|| ())),
        ];
        for arm in arm {
            let runtime = runtime();
            let request = info_span!("request", id = 7);
            in_a_task(&runtime, {
                let request = request.clone();
                move || {
                    request.in_scope(arm);
                    thread::sleep(LONG);
                }
            });
            let line = log.line("tourbillon::late");
            assert!(line.starts_with(LATE), "{line}");
            let job = "job=\"runtime::armed_in::a_late_callback_is_reported";
            assert!(line.contains(job), "{line}");
            let (_, late) = line.split_once(" late_ms=").unwrap();
            assert!(late.parse::<u64>().unwrap() >= 98, "{line}");
            drop(runtime);
            log.clear();
        }
    });
}

#[test]
fn a_recurring_callback_is_reported_in_the_span_that_armed_it() {
    alone(|| {
        let _alarm = alarm();
        let log = Log::start();
        let runtime = runtime();
        let request = info_span!("request", id = 7);
        in_a_task(&runtime, {
            let request = request.clone();
            move || {
                let timer = request.in_scope(|| tourbillon::every(MS, || ()));
                thread::sleep(LONG);
                drop(timer);
            }
        });
        assert!(log.line("tourbillon::late").starts_with(LATE));
    });
}

#[test]
fn a_timer_does_not_keep_the_span_open_that_armed_it() {
    alone(|| {
        let _alarm = alarm();
        let log = Log::start();
        let runtime = runtime();
        in_a_task(&runtime, || {
            let request = info_span!("request", id = 7);
            request.in_scope(|| drop(tourbillon::after(MS, || ())));
            // Closes the span.
            drop(request);
            thread::sleep(LONG);
        });
        let line = log.line("tourbillon::late");
        assert!(line.starts_with(" WARN tourbillon::late:"), "{line}");
        assert_eq!(runtime.metrics().total().panics(), 0);
    });
}

#[test]
fn a_late_wait_of_a_task_is_reported_in_the_span_of_the_task() {
    alone(|| {
        let _alarm = alarm();
        let log = Log::start();
        type Wait = fn() -> Pin<Box<dyn Future<Output = ()> + Send>>;
        let waits: [Wait; 3] = [
            || Box::pin(sleep(MS)),
            || Box::pin(async { assert!(timeout(MS, pending::<()>()).await.is_err()) }),
            || {
                Box::pin(async {
                    let mut interval = interval(MS);
                    interval.tick().await;
                    interval.tick().await;
                })
            },
        ];
        for wait in waits {
            let runtime = runtime();
            let late = async move {
                // The wait is armed, and then the worker is stuck.
                join(wait(), async { thread::sleep(LONG) }).await;
            };
            let task = runtime.spawn(late.instrument(info_span!("request", id = 7)));
            runtime.block_on(task).unwrap();
            let line = log.line("tourbillon::late");
            assert!(line.starts_with(LATE), "{line}");
            assert!(
                line.contains("spawned=tests/runtime/armed_in.rs:"),
                "{line}"
            );
            drop(runtime);
            log.clear();
        }
    });
}

#[test]
fn late_timers_are_reported_once_a_second_at_most() {
    alone(|| {
        let _alarm = alarm();
        let log = Log::start();
        let runtime = runtime();
        let (sender, ran) = mpsc::channel();
        in_a_task(&runtime, move || {
            for _ in 0..100 {
                let sender = sender.clone();
                drop(tourbillon::after(MS, move || sender.send(()).unwrap()));
            }
            thread::sleep(LONG);
        });
        // All of them are taken in one batch, and each takes some µs.
        assert_eq!(
            (0..100)
                .filter_map(|_| ran.recv_timeout(PATIENCE).ok())
                .count(),
            100
        );
        log.line("tourbillon::late");
        let text = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
        let lines = text
            .lines()
            .filter(|line| line.contains("tourbillon::late"));
        assert!(lines.count() < 50, "{text}");
    });
}

#[test]
fn a_stalled_callback_is_reported_in_the_span_that_armed_it() {
    alone(|| {
        let _alarm = alarm();
        let log = Log::start();
        let request = info_span!("request", id = 7);
        let starts = " WARN request{id=7}: tourbillon::stall: ";
        // The worker reports it itself.
        let mut alone = Builder::new();
        alone.worker_threads(1).helpers(0..=0);
        let runtime = alone.stall_threshold(50 * MS).build().unwrap();
        request.in_scope(|| drop(runtime.handle().after(MS, || thread::sleep(LONG))));
        let line = log.line("is_running=false");
        assert!(line.starts_with(starts), "{line}");
        drop(runtime);
        // A peer reports it, while the callback runs.
        let mut two = Builder::new();
        two.worker_threads(2);
        let runtime = two.stall_threshold(50 * MS).build().unwrap();
        let (release, released) = mpsc::channel::<()>();
        request.in_scope(|| {
            drop(
                runtime
                    .handle()
                    .after(MS, move || _ = released.recv_timeout(PATIENCE)),
            );
        });
        let line = log.line("is_running=true");
        assert!(line.starts_with(starts), "{line}");
        drop(release);
    });
}

/// A layer that sends the names of two spans when the first follows from the second.
struct Follows(Mutex<mpsc::Sender<(&'static str, &'static str)>>);

impl<S: tracing::Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Follows {
    fn on_follows_from(&self, span: &span::Id, follows: &span::Id, subscriber: Context<'_, S>) {
        let name = |id| subscriber.span(id).expect("it is open").name();
        // The test may be over.
        _ = self.0.lock().unwrap().send((name(span), name(follows)));
    }
}

#[test]
fn the_span_of_a_callback_follows_from_the_span_that_armed_it() {
    alone(|| {
        let _alarm = alarm();
        let (sender, follows) = mpsc::channel();
        let subscriber = Registry::default().with(Follows(Mutex::new(sender)));
        tracing::subscriber::set_global_default(subscriber).unwrap();
        let runtime = runtime();
        let request = info_span!("request");
        request.in_scope(|| {
            drop(runtime.handle().after(MS, || ()));
            drop(Timer::after_boot(MS).on(runtime.handle()).start(|| ()));
        });
        for _ in 0..2 {
            let pair = follows.recv_timeout(PATIENCE).unwrap();
            assert_eq!(pair, ("tourbillon.callback", "request"));
        }
        // A timer that is armed outside of any span follows from no span.
        in_a_task(&runtime, || drop(tourbillon::after(MS, || ())));
        eventually("it has run", || runtime.metrics().total().fired() == 3);
        assert!(follows.try_recv().is_err());
    });
}
