//! A tolerance for all timers of a runtime or of a future, and workers that may not spin.
//!
//! Most tests check for which moment the only shard waits. A tolerance of an hour always changes
//! that moment: no deadline here is the roundest moment of its hour.

use std::{
    future::{Future, pending},
    panic::{AssertUnwindSafe, catch_unwind},
    pin::pin,
    sync::mpsc,
    task::{Context, Waker},
    time::{Duration, SystemTime},
};

use crate::common::{HOUR, PATIENCE, Random, alarm, eventually};
use tourbillon::{
    Handle, Timer,
    metrics::Activity,
    runtime::Builder,
    time::{
        DelayQueue, Instant, interval_at, sleep, sleep_until, timeout, timeout_at, tolerant,
        with_tolerance,
    },
    timer::Reset,
};

const MS: Duration = Duration::from_millis(1);

fn builder() -> Builder {
    let mut builder = Builder::new();
    builder.worker_threads(1);
    builder
}

/// Runs `test` as a task of a runtime with this tolerance.
fn on_a_worker(tolerance: Duration, test: impl Future<Output = ()> + Send + 'static) {
    let _alarm = alarm();
    let runtime = builder().timer_tolerance(tolerance).build().unwrap();
    let task = runtime.spawn(test);
    runtime.block_on(task).unwrap();
}

fn poll_once(future: impl Future) {
    let cx = &mut Context::from_waker(Waker::noop());
    assert!(pin!(future).poll(cx).is_pending());
}

/// Returns the moment for which the shard of this worker waits.
fn next() -> Instant {
    Handle::current().timers().next_deadline().unwrap()
}

#[track_caller]
fn is_tolerant(deadline: Instant) {
    let next = next();
    assert!(next > deadline, "it waits for the deadline, or less");
    assert!(next <= deadline + HOUR, "{:?}", next - deadline);
}

#[test]
fn all_kinds_of_timers_have_the_tolerance_of_their_runtime() {
    on_a_worker(HOUR, async {
        let at = Instant::now() + HOUR;
        {
            let mut sleep = pin!(sleep_until(at));
            poll_once(sleep.as_mut());
            is_tolerant(at);
            // The sleep keeps its tolerance when it is moved.
            sleep.as_mut().reset(at - HOUR / 2);
            is_tolerant(at - HOUR / 2);
        }
        {
            let mut limit = pin!(timeout_at(at, pending::<()>()));
            poll_once(limit.as_mut());
            is_tolerant(at);
        }
        {
            let mut interval = interval_at(at, MS);
            poll_once(pin!(interval.tick()));
            is_tolerant(at);
        }
        {
            let mut queue = DelayQueue::new();
            queue.insert_at((), at);
            poll_once(pin!(std::future::poll_fn(|cx| queue.poll_expired(cx))));
            is_tolerant(at);
        }
        let timers = [
            tourbillon::at(at, || ()),
            tourbillon::every(HOUR, || ()),
            Timer::at(at).start(|| ()),
            Timer::every(HOUR).start(|| ()),
        ];
        for timer in timers {
            let deadline = timer.deadline().unwrap();
            timer.reset_at(deadline - HOUR / 2);
            is_tolerant(deadline - HOUR / 2);
            // `deadline` is exact in spite of the tolerance.
            assert_eq!(timer.deadline(), Some(deadline - HOUR / 2));
            assert_eq!(timer.reset_at(deadline + HOUR), Reset::Pending);
            assert_eq!(timer.deadline(), Some(deadline + HOUR));
            timer.cancel();
        }
        assert_eq!(Handle::current().timers().pending(), 0);
    });
}

#[test]
fn timers_have_the_tolerance_of_the_innermost_future() {
    on_a_worker(Duration::ZERO, async {
        let at = Instant::now() + HOUR;
        let armed = |tolerance| with_tolerance(tolerance, sleep_until(at));
        {
            let mut sleep = pin!(armed(HOUR));
            poll_once(sleep.as_mut());
            is_tolerant(at);
        }
        {
            // The scope ends with each poll.
            let mut sleep = pin!(sleep_until(at));
            poll_once(sleep.as_mut());
            assert_eq!(next(), at);
        }
        {
            let mut sleep = pin!(with_tolerance(HOUR, armed(Duration::ZERO)));
            poll_once(sleep.as_mut());
            assert_eq!(next(), at);
        }
        {
            let mut sleep = pin!(with_tolerance(Duration::ZERO, armed(HOUR)));
            poll_once(sleep.as_mut());
            is_tolerant(at);
        }
        let callback = with_tolerance(HOUR, async { tourbillon::at(at, || ()) }).await;
        is_tolerant(at);
        callback.cancel();
        let callback = tolerant(HOUR, || tourbillon::at(at, || ()));
        is_tolerant(at);
        callback.cancel();
        let built = with_tolerance(HOUR, async { Timer::at(at).start(|| ()) }).await;
        is_tolerant(at);
        built.cancel();
        // A panic ends the scope, too.
        let panics = pin!(with_tolerance(HOUR, async { panic!("as planned") }));
        let cx = &mut Context::from_waker(Waker::noop());
        catch_unwind(AssertUnwindSafe(|| panics.poll(cx).is_ready())).unwrap_err();
        let callback = tourbillon::at(at, || ());
        assert_eq!(next(), at);
        callback.cancel();
    });
}

#[test]
fn a_timer_can_be_exact_on_a_runtime_with_a_tolerance() {
    on_a_worker(HOUR, async {
        let at = Instant::now() + HOUR;
        let own = Timer::at(at).tolerance(Duration::ZERO).start(|| ());
        assert_eq!(next(), at);
        own.cancel();
        let mut sleep = pin!(with_tolerance(Duration::ZERO, sleep_until(at)));
        poll_once(sleep.as_mut());
        assert_eq!(next(), at);
        // Timers of the wall clock are exact unless they have a tolerance of their own.
        let time = SystemTime::now() + 2 * HOUR;
        let wall = Timer::at_wall(time).start(|| ());
        let waits = Handle::current().timers().wall.next_deadline;
        assert_eq!(waits, Some(time));
        wall.cancel();
    });
}

#[test]
fn a_thread_that_is_no_worker_arms_tolerant_timers() {
    let _alarm = alarm();
    let runtime = builder().timer_tolerance(HOUR).build().unwrap();
    let parked = || {
        eventually("the worker sleeps", || {
            runtime.metrics().workers()[0].activity() == Activity::Parked
        });
    };
    let wakes = || runtime.metrics().total().tickles_written();
    let first = runtime.handle().after(HOUR, || ());
    eventually("the worker has read its inbox", || {
        runtime.timers().pending() == 1
    });
    parked();
    let deadline = first.deadline().unwrap();
    let key = runtime.timers().next_deadline().unwrap();
    assert!(deadline < key && key <= deadline + HOUR);
    // The deadline of the second timer comes before the end of the worker's sleep. But the timer
    // waits for the same moment as the first, so the worker is not woken.
    let before = wakes();
    let second = runtime.handle().at(deadline + (key - deadline) / 2, || ());
    assert_eq!(wakes(), before);
    // A timer without tolerance wakes the worker.
    let exact = Timer::at(deadline)
        .on(runtime.handle())
        .tolerance(Duration::ZERO);
    let exact = exact.start(|| ());
    assert_eq!(wakes(), before + 1);
    eventually("the worker has read its inbox", || {
        runtime.timers().pending() == 3
    });
    for timer in [first, second, exact] {
        timer.cancel();
    }
}

/// Returns how often the worker slept while this many timers fired at random moments of a second:
/// half of them callbacks that another thread arms, half of them sleeps.
fn sleeps(tolerance: Duration) -> u64 {
    const COUNT: u64 = 2_000;
    let runtime = builder().timer_tolerance(tolerance).build().unwrap();
    let mut random = Random::new(5);
    let (sender, receiver) = mpsc::channel();
    let start = Instant::now() + 100 * MS;
    for n in 0..COUNT {
        let at = start + Duration::from_micros(random.below(1_000_000));
        let sender = sender.clone();
        let ends = move || sender.send((at, Instant::now())).unwrap();
        match n % 2 {
            0 => drop(runtime.handle().at(at, ends)),
            _ => drop(runtime.spawn(async move {
                sleep_until(at).await;
                ends();
            })),
        }
    }
    let parks = || runtime.metrics().total().parks();
    let before = parks();
    for _ in 0..COUNT {
        let (at, ran) = receiver.recv_timeout(PATIENCE).expect("all of them run");
        assert!(ran >= at, "early by {:?}", at - ran);
    }
    parks() - before
}

#[test]
fn timers_of_a_runtime_with_a_tolerance_share_wake_ups() {
    let _alarm = alarm();
    let tolerant = sleeps(50 * MS);
    // A second has 20 windows of 50 ms, and windows that overlap share a round moment. Tasks that
    // begin wake the worker, too.
    assert!(tolerant <= 2_000 / 10, "{tolerant} sleeps");
    let exact = sleeps(Duration::ZERO);
    if exact >= 500 {
        // On a slow machine, the worker seldom sleeps in any case.
        assert!(tolerant * 5 <= exact, "{tolerant} and {exact} sleeps");
    }
}

#[test]
fn on_a_paused_clock_timers_are_exact() {
    let _alarm = alarm();
    let mut paused = builder();
    paused.timer_tolerance(HOUR).start_paused(true);
    paused.build().unwrap().block_on(async {
        let start = Instant::now();
        sleep(MS).await;
        assert_eq!(start.elapsed(), MS);
        with_tolerance(HOUR, sleep(MS)).await;
        assert_eq!(start.elapsed(), 2 * MS);
        assert!(timeout(MS, pending::<()>()).await.is_err());
        assert_eq!(start.elapsed(), 3 * MS);
        // A tolerance that a timer sets for itself applies.
        let own = Timer::at(start + HOUR).tolerance(HOUR).start(|| ());
        sleep(2 * HOUR).await;
        assert!(own.deadline().is_none(), "it has run");
    });
}

#[test]
fn a_worker_that_may_not_spin_sleeps_before_its_deadlines() {
    let _alarm = alarm();
    // Without `spin(false)` the worker would poll for the whole hour.
    let runtime = builder().spin_before(2 * HOUR).spin(false).build().unwrap();
    let _hour = runtime.handle().after(HOUR, || ());
    eventually("the worker sleeps", || {
        runtime.metrics().workers()[0].activity() == Activity::Parked
    });
    let task = runtime.spawn(async {
        for n in 0..300 {
            let deadline = Instant::now() + Duration::from_micros(n % 80);
            sleep_until(deadline).await;
            assert!(Instant::now() >= deadline);
        }
    });
    runtime.block_on(task).unwrap();
    let metrics = runtime.metrics();
    assert_eq!(metrics.total().early_wakes(), 0);
    assert_eq!(metrics.workers()[0].timer_advance(), Duration::ZERO);
}
