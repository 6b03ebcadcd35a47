//! A caller that cancels a timer and waits for its end can rely on it: the callback is not running.

use std::{
    future::Future,
    panic::resume_unwind,
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
        mpsc,
    },
    task::{Context, Poll, Wake, Waker},
    thread::{self, Thread},
};

use crate::common::{Calls, Random, Scripted, all_kinds, both_ways, expire, times, turn};
use tourbillon_shards::{
    Cancel, Ended, Flow, InsideCallback, Options, Outcome, Shard, Started, Status, Timer,
};

#[derive(Default)]
struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

fn poll(ended: &mut Ended<Scripted>, wakes: &Arc<Wakes>) -> Poll<Result<(), InsideCallback>> {
    let waker = Waker::from(wakes.clone());
    Pin::new(ended).poll(&mut Context::from_waker(&waker))
}

fn built(
    shard: &Arc<Shard<Scripted>>,
    recurring: bool,
    outcome: bool,
    f: impl FnMut(Outcome) -> Flow + Send + 'static,
) -> Timer<Scripted> {
    let options = Options {
        recurring,
        outcome,
        ..Options::default()
    };
    Timer::build(shard, 10, options, f)
}

fn started(
    shard: &Arc<Shard<Scripted>>,
    recurring: bool,
    outcome: bool,
    f: impl FnMut(Outcome) -> Flow + Send + 'static,
) -> Timer<Scripted> {
    let timer = built(shard, recurring, outcome, f);
    assert_eq!(timer.start(0), Started::Pending);
    timer
}

fn at_once(timer: &Timer<Scripted>) {
    let wakes = Arc::new(Wakes::default());
    let mut ended = timer.ended();
    assert_eq!(poll(&mut ended, &wakes), Poll::Ready(Ok(())));
    assert_eq!(wakes.0.load(Ordering::Relaxed), 0);
    assert_eq!(Arc::strong_count(&wakes), 1, "a waker is left behind");
}

#[test]
fn the_wait_ends_at_once_if_the_callback_cannot_run() {
    for recurring in [false, true] {
        for outcome in [false, true] {
            both_ways(|shard| {
                let idle = built(shard, recurring, outcome, Flow::Break);
                at_once(&idle);
                assert_eq!(idle.cancel(), Cancel::Cancelled);
                at_once(&idle);
                let timer = started(shard, recurring, outcome, Flow::Break);
                at_once(&timer);
                let due = expire(shard, 10, 1).pop().unwrap();
                at_once(&timer);
                due.run(|| 10);
                assert_eq!(timer.status(), Status::Over(Outcome::Fired));
                at_once(&timer);
                let timer = started(shard, recurring, outcome, Flow::Break);
                assert_eq!(timer.cancel(), Cancel::Cancelled);
                at_once(&timer);
                let plain = Timer::once(shard, 5, 5, || ());
                at_once(&plain);
            });
        }
    }
}

#[test]
fn the_wait_ends_after_the_outcome_was_delivered() {
    both_ways(|shard| {
        shard.owner().keep_notices();
        let timer = started(shard, false, true, Flow::Break);
        assert_eq!(timer.cancel(), Cancel::Cancelled);
        let (wakes, others) = (Arc::new(Wakes::default()), Arc::new(Wakes::default()));
        let (mut ended, mut other) = (timer.ended(), timer.ended());
        let mut given_up = timer.ended();
        assert!(poll(&mut ended, &others).is_pending());
        assert!(poll(&mut other, &others).is_pending());
        assert!(poll(&mut given_up, &others).is_pending());
        assert!(poll(&mut ended, &wakes).is_pending(), "by another waker");
        drop(given_up);
        assert_eq!(Arc::strong_count(&others), 2, "a waker is left behind");
        assert_eq!(timer.status(), Status::Running { last: true });
        for notice in shard.owner().notices() {
            assert_eq!(notice.outcome(), Outcome::Cancelled);
            notice.run();
        }
        assert_eq!(wakes.0.load(Ordering::Relaxed), 1);
        assert_eq!(others.0.load(Ordering::Relaxed), 1);
        assert_eq!(poll(&mut ended, &wakes), Poll::Ready(Ok(())));
        assert_eq!(poll(&mut other, &wakes), Poll::Ready(Ok(())));
        assert_eq!(Arc::strong_count(&wakes), 1, "a waker is left behind");
    });
}

/// A task that polls its wait again by another waker replaces its own waker, and no other's.
#[test]
fn each_wait_keeps_its_own_waker() {
    both_ways(|shard| {
        shard.owner().keep_notices();
        let timer = started(shard, false, true, Flow::Break);
        assert_eq!(timer.cancel(), Cancel::Cancelled);
        let wakes: [Arc<Wakes>; 3] = Default::default();
        let (mut one, mut other) = (timer.ended(), timer.ended());
        assert!(poll(&mut one, &wakes[0]).is_pending());
        assert!(poll(&mut other, &wakes[1]).is_pending());
        assert!(poll(&mut other, &wakes[2]).is_pending());
        shard.owner().notices().pop().unwrap().run();
        let woken = wakes
            .each_ref()
            .map(|wakes| wakes.0.load(Ordering::Relaxed));
        assert_eq!(woken, [1, 0, 1]);
    });
}

#[test]
fn the_wait_ends_after_a_callback_panics_at_its_outcome() {
    both_ways(|shard| {
        shard.owner().keep_notices();
        let timer = started(shard, false, true, |_| resume_unwind(Box::new(())));
        assert_eq!(timer.cancel(), Cancel::Cancelled);
        let wakes = Arc::new(Wakes::default());
        let mut ended = timer.ended();
        assert!(poll(&mut ended, &wakes).is_pending());
        assert!(shard.owner().notices().pop().unwrap().run().is_some());
        assert_eq!(wakes.0.load(Ordering::Relaxed), 1);
        assert_eq!(poll(&mut ended, &wakes), Poll::Ready(Ok(())));
    });
}

/// A callback that waits for its own end gets an error. A wait for a timer whose callback does not
/// run ends at once.
#[test]
fn a_wait_inside_of_the_callback_is_an_error() {
    for (recurring, outcome) in [(false, false), (false, true), (true, false), (true, true)] {
        both_ways(|shard| {
            let cell = Arc::new(Mutex::new(None::<(Timer<Scripted>, Timer<Scripted>)>));
            let mine = cell.clone();
            let calls = Calls::default();
            let timer = started(
                shard,
                recurring,
                outcome,
                calls.answering(move |_| {
                    let timers = mine.lock().unwrap();
                    let (own, other) = timers.as_ref().expect("they were put there");
                    assert!(own.is_inside() && !other.is_inside());
                    let wakes = Arc::new(Wakes::default());
                    if recurring {
                        // It is not known yet that this run is the last, so the wait ends at once.
                        if own.status() == (Status::Running { last: false }) {
                            assert_eq!(poll(&mut own.ended(), &wakes), Poll::Ready(Ok(())));
                        }
                        own.cancel();
                    }
                    let inside = poll(&mut own.ended(), &wakes);
                    assert_eq!(inside, Poll::Ready(Err(InsideCallback)));
                    assert!(!InsideCallback.to_string().is_empty());
                    at_once(other);
                    Flow::Continue(())
                }),
            );
            let other = Timer::once(shard, 100, 100, || ());
            *cell.lock().unwrap() = Some((timer, other));
            assert_eq!(turn(shard, 10), 1);
            assert_eq!(calls.get().len(), 1 + usize::from(recurring && outcome));
            let (own, _) = cell.lock().unwrap().take().unwrap();
            assert!(!own.is_inside());
            at_once(&own);
        });
    }
}

/// A wait for a callback that another thread runs is no error, although a callback polls it.
#[test]
fn a_callback_waits_for_one_that_another_thread_runs() {
    let shard = Scripted::shard(true);
    let (begin, begun) = mpsc::channel();
    let (end, ends) = mpsc::channel::<()>();
    let busy = Timer::once(&shard, 10, 10, move || {
        begin.send(()).unwrap();
        ends.recv().unwrap();
    });
    let due = expire(&shard, 10, 1);
    let runner = thread::spawn(move || due.into_iter().for_each(|it| _ = it.run(|| 10)));
    begun.recv().unwrap();
    let wakes = Arc::new(Wakes::default());
    let waits = Arc::new(Mutex::new(busy.ended()));
    let polled = Arc::new(Mutex::new(None));
    let _other = Timer::once(&shard, 20, 20, {
        let (waits, wakes, polled) = (waits.clone(), wakes.clone(), polled.clone());
        move || *polled.lock().unwrap() = Some(poll(&mut waits.lock().unwrap(), &wakes))
    });
    assert_eq!(turn(&shard, 20), 1);
    assert_eq!(*polled.lock().unwrap(), Some(Poll::Pending));
    end.send(()).unwrap();
    runner.join().unwrap();
    assert_eq!(wakes.0.load(Ordering::Relaxed), 1);
    assert_eq!(
        poll(&mut waits.lock().unwrap(), &wakes),
        Poll::Ready(Ok(()))
    );
    drop(shard.close());
}

/// Another thread waits for the last run. It does not wait for a run after which the timer goes on.
#[test]
fn another_thread_waits_for_the_last_run_only() {
    all_kinds(|shard, recurring, outcome| {
        let wakes = Arc::new(Wakes::default());
        // The wait, and whether the other thread has to wait.
        let cell = Arc::new(Mutex::new((None, None)));
        let (mine, woken) = (cell.clone(), wakes.clone());
        let timer = started(shard, recurring, outcome, move |_| {
            let mut cell = mine.lock().unwrap();
            if let (Some(ended), waits) = &mut *cell {
                let other = || poll(ended, &woken).is_pending();
                *waits = thread::scope(|scope| scope.spawn(other).join().ok());
            }
            Flow::Continue(())
        });
        cell.lock().unwrap().0 = Some(timer.ended());
        assert_eq!(turn(shard, 10), 1);
        let (_ended, waits) = std::mem::take(&mut *cell.lock().unwrap());
        assert_eq!(waits, Some(!recurring));
        assert_eq!(wakes.0.load(Ordering::Relaxed), usize::from(!recurring));
        let _ = timer.cancel();
    });
}

/// A waker that unparks a thread.
struct Parked(Thread);

impl Wake for Parked {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn wait(timer: &Timer<Scripted>) -> Result<(), InsideCallback> {
    let waker = Waker::from(Arc::new(Parked(thread::current())));
    let mut ended = timer.ended();
    loop {
        match Pin::new(&mut ended).poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(ended) => return ended,
            Poll::Pending => thread::park(),
        }
    }
}

/// One thread runs timers and delivers outcomes. Two others cancel each timer and wait, and then no
/// callback may be inside. If a wake-up is lost, this test does not end.
#[test]
fn nothing_runs_after_the_wait_of_another_thread() {
    const ROUNDS: u64 = times(4_000) as u64;
    let shard = Scripted::shard(false);
    shard.owner().keep_notices();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut random = Random(7);
            loop {
                let last = done.load(Ordering::Acquire);
                let mut due = Vec::new();
                shard.expire(1_000, usize::MAX, &mut due);
                for due in due {
                    due.run(|| 1_000 + random.below(3));
                }
                for notice in shard.owner().notices() {
                    notice.run();
                }
                if last {
                    break;
                }
            }
        });
        let mut random = Random(11);
        for round in 0..ROUNDS {
            let (recurring, outcome) = (round % 2 == 0, round % 4 < 2);
            // Relaxed accesses: the wait itself must give the order.
            let inside = Arc::new(AtomicUsize::new(0));
            let (mine, spin) = (inside.clone(), random.below(200));
            let timer = started(&shard, recurring, outcome, move |_| {
                mine.store(1, Ordering::Relaxed);
                (0..spin).for_each(|_| std::hint::spin_loop());
                mine.store(0, Ordering::Relaxed);
                Flow::Continue(())
            });
            if random.below(2) == 0 {
                thread::yield_now();
            }
            (0..random.below(2_000)).for_each(|_| std::hint::spin_loop());
            let watch = || {
                let cancelled = timer.cancel();
                assert_eq!(wait(&timer), Ok(()));
                assert_eq!(inside.load(Ordering::Relaxed), 0, "it runs");
                assert!(matches!(timer.status(), Status::Over(_)));
                cancelled
            };
            let (one, other) = thread::scope(|two| {
                let other = (round % 8 == 0).then(|| two.spawn(watch));
                (watch(), other.map(|other| other.join().unwrap()))
            });
            let won = |cancel| matches!(cancel, Cancel::Cancelled | Cancel::AfterRun);
            assert!(!(won(one) && other.is_some_and(won)), "cancelled twice");
            assert_eq!(Arc::strong_count(&inside), 1, "the callback is dropped");
        }
        done.store(true, Ordering::Release);
    });
    drop(shard.close());
    assert_eq!(shard.owner().owes(), 0);
    assert_eq!(Arc::strong_count(&shard), 1, "a node was left behind");
}
