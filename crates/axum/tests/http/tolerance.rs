//! Time limits of connections and keep-alive comments share wake-ups.

use std::{
    convert::Infallible,
    future::{Future, IntoFuture},
    pin::pin,
    task::{Context, Waker},
    time::Duration,
};

use axum::{Router, response::sse::Event};
use futures::{StreamExt, stream};
use hyper::rt::Timer;
use tourbillon::{Handle, Runtime, net::UnixStream, time::Instant};
use tourbillon_axum::{keep_alive, serve};
use tourbillon_hyper::TourbillonTimer;

use crate::common::{HOUR, alarm, eventually, runtime, unix::listen};

/// The largest tolerance by default.
const MOST: Duration = Duration::from_millis(250);

/// Makes a future that arms a timer of an hour, and polls it once, on a runtime of its own.
/// Returns how long the worker waits for the timer, counted from a start before the timer was
/// armed. Also returns the time that has passed since this start.
fn wait_of<F: Future>(make: impl FnOnce() -> F + Send + 'static) -> (Duration, Duration) {
    let runtime = runtime(1);
    let task = runtime.spawn(async move {
        let start = Instant::now();
        let mut future = pin!(make());
        let cx = &mut Context::from_waker(Waker::noop());
        assert!(future.as_mut().poll(cx).is_pending());
        let next = Handle::current().timers().next_deadline();
        (next.expect("a timer waits") - start, start.elapsed())
    });
    runtime.block_on(task).unwrap()
}

/// Checks the waits for three timers of an hour: with the default tolerance, with none, and with
/// one of an hour.
fn check([usual, exact, tolerant]: [(Duration, Duration); 3]) {
    let (wait, after) = usual;
    assert!((HOUR..=HOUR + after + MOST).contains(&wait), "{usual:?}");
    let (wait, after) = exact;
    assert!((HOUR..=HOUR + after).contains(&wait), "{exact:?}");
    // The deadline is always moved: it is never itself the roundest moment of the hour behind it.
    let (wait, after) = tolerant;
    assert!(
        (HOUR + after..=2 * HOUR + after).contains(&wait),
        "{tolerant:?}"
    );
}

#[test]
fn keep_alive_comments_have_a_tolerance() {
    let _alarm = alarm();
    let quiet = || keep_alive(stream::pending::<Result<Event, Infallible>>(), HOUR);
    check([
        wait_of(move || quiet().into_future()),
        wait_of(move || quiet().tolerance(Duration::ZERO).into_future()),
        wait_of(move || quiet().tolerance(HOUR).into_future()),
    ]);
}

#[test]
fn hypers_timers_have_a_tolerance() {
    let _alarm = alarm();
    let timer = TourbillonTimer::new();
    let set = [
        timer,
        timer.tolerance(Duration::ZERO),
        timer.tolerance(HOUR),
    ];
    check(set.map(|timer| wait_of(move || timer.sleep(HOUR))));
    check(set.map(|timer| wait_of(move || timer.sleep_until((Instant::now() + HOUR).into_std()))));
}

#[test]
fn the_limits_of_a_server_have_a_tolerance() {
    let _alarm = alarm();
    let wait = |tolerance: Option<Duration>| {
        let runtime: Runtime = runtime(1);
        let _entered = runtime.enter();
        let (listener, addr) = listen();
        let mut server = serve(listener, Router::new()).header_read_timeout(HOUR);
        if let Some(tolerance) = tolerance {
            server = server.timeout_tolerance(tolerance);
        }
        drop(runtime.spawn(server.into_future()));
        let start = Instant::now();
        let _client = runtime.block_on(UnixStream::connect_addr(&addr)).unwrap();
        eventually("the connection has a limit", || {
            runtime.timers().next_deadline().is_some()
        });
        let next = runtime.timers().next_deadline().unwrap();
        (next - start, start.elapsed())
    };
    check([None, Some(Duration::ZERO), Some(HOUR)].map(wait));
}
