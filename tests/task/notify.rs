//! `sync::Notify` on one thread: the order of waiters, dropped waiters, and wakers that panic or
//! call back. `notify_threads.rs` has several threads.

use std::{
    future::Future,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    task::{Context, Wake, Waker},
    time::Duration,
};

use crate::common::{PATIENCE, Random, alarm, message, paused::paused, runtime};
use futures_lite::future::{poll_once, zip};
use tourbillon::{
    sync::{Notified, Notify, OwnedNotified},
    time::{Instant, sleep, timeout},
};

const SEC: Duration = Duration::from_secs(1);

fn told(notified: &mut Pin<Box<Notified<'_>>>) -> bool {
    let cx = &mut Context::from_waker(Waker::noop());
    notified.as_mut().poll(cx).is_ready()
}

/// Returns a `Notified` that has been polled and waits.
fn waiting(notify: &Notify) -> Pin<Box<Notified<'_>>> {
    let mut notified = Box::pin(notify.notified());
    assert!(!told(&mut notified));
    notified
}

/// A waker that calls a function when it is woken.
struct Does<F>(F);

impl<F: Fn() + Send + Sync> Wake for Does<F> {
    fn wake(self: Arc<Self>) {
        (self.0)();
    }
}

fn waker(f: impl Fn() + Send + Sync + 'static) -> Waker {
    Arc::new(Does(f)).into()
}

#[test]
fn notify_one_stores_one_permit() {
    static NOTIFY: Notify = Notify::const_new();
    for _ in 0..2 {
        NOTIFY.notify_one();
        NOTIFY.notify_last();
        assert!(told(&mut Box::pin(NOTIFY.notified())));
        drop(waiting(&NOTIFY));
    }
}

#[test]
fn notify_one_wakes_waiters_in_their_order() {
    let notify = Notify::new();
    let mut unpolled = Box::pin(notify.notified());
    let mut all: Vec<_> = (0..5).map(|_| waiting(&notify)).collect();
    let who = |all: &mut Vec<_>| -> Vec<_> { all.iter_mut().map(told).collect() };
    notify.notify_one();
    assert_eq!(who(&mut all), [true, false, false, false, false]);
    notify.notify_last();
    assert_eq!(who(&mut all), [true, false, false, false, true]);
    // Two notifications without a poll in between wake two waiters.
    notify.notify_one();
    notify.notify_one();
    assert_eq!(who(&mut all), [true, true, true, false, true]);
    // A `Notified` has no place in the queue until it is polled.
    assert!(!told(&mut unpolled));
    notify.notify_one();
    assert!(!told(&mut unpolled));
    assert_eq!(who(&mut all), [true; 5]);
    notify.notify_one();
    assert!(told(&mut unpolled));
    assert!(told(&mut unpolled), "it stays so");
}

#[test]
fn notify_waiters_wakes_all_current_waiters() {
    let notify = Notify::new();
    let mut waits = waiting(&notify);
    let mut unpolled = Box::pin(notify.notified());
    notify.notify_waiters();
    let mut later = waiting(&notify);
    assert!(told(&mut waits) && told(&mut unpolled) && !told(&mut later));
    // `notify_waiters` stores no permit.
    drop(waiting(&notify));
    notify.notify_waiters();
    assert!(told(&mut later));
}

#[test]
fn a_wait_ended_by_notify_waiters_leaves_the_permit() {
    let notify = Notify::new();
    let mut unpolled = Box::pin(notify.notified());
    notify.notify_waiters();
    notify.notify_one();
    assert!(told(&mut unpolled));
    assert!(told(&mut Box::pin(notify.notified())));
    // Only one permit was stored.
    drop(waiting(&notify));
}

#[test]
fn enable_queues_the_waiter_or_takes_a_permit() {
    let notify = Notify::new();
    let mut first = Box::pin(notify.notified());
    assert!(!first.as_mut().enable());
    let mut second = waiting(&notify);
    assert!(!first.as_mut().enable(), "it keeps its place");
    notify.notify_one();
    assert!(!told(&mut second));
    assert!(first.as_mut().enable() && told(&mut first));
    drop(second);
    notify.notify_one();
    let mut third = Box::pin(notify.notified());
    assert!(third.as_mut().enable());
    drop(third);
    drop(waiting(&notify));
}

#[test]
fn a_dropped_waiter_passes_its_notification_on() {
    let notify = Notify::new();
    let mut all: Vec<_> = (0..4).map(|_| waiting(&notify)).collect();
    notify.notify_one();
    drop(all.remove(0));
    assert!(told(&mut all[0]), "the one that has waited longest");
    drop(all.remove(0));
    assert!(!told(&mut all[0]), "it had looked: the notice is used up");

    // If a waiter is dropped after `notify_last` has notified it, it passes the notification on to
    // the waiter that is last then.
    all.push(waiting(&notify));
    notify.notify_last();
    drop(all.pop());
    assert!(told(&mut all[1]) && !told(&mut all[0]));
    drop(all.pop());

    // No waiter is left, so the notification becomes a permit.
    notify.notify_one();
    drop(all);
    assert!(told(&mut Box::pin(notify.notified())));

    // A notification of all waiters is not passed on.
    let one = waiting(&notify);
    notify.notify_waiters();
    let mut later = waiting(&notify);
    drop(one);
    assert!(!told(&mut later));
}

#[test]
fn a_wait_with_a_timeout_elapses_exactly() {
    let _alarm = alarm();
    paused(1).block_on(async {
        let notify = Arc::new(Notify::new());
        let start = Instant::now();
        assert!(notify.notified_timeout(5 * SEC).await.is_err());
        assert_eq!(start.elapsed(), 5 * SEC);
        // A wait that has elapsed gets no notification.
        notify.notify_one();
        assert!(notify.notified_timeout(Duration::ZERO).await.is_ok());
        assert!(notify.notified_timeout(Duration::ZERO).await.is_err());

        let other = notify.clone();
        tourbillon::spawn(async move {
            sleep(3 * SEC).await;
            other.notify_one();
        });
        let start = Instant::now();
        assert!(notify.notified_timeout(Duration::MAX).await.is_ok());
        assert_eq!(start.elapsed(), 3 * SEC);

        // The notification comes at the deadline. The wait returns it, or `notify` stores it.
        for _ in 0..100 {
            let (notified, ()) = zip(notify.notified_timeout(SEC), async {
                sleep(SEC).await;
                notify.notify_one();
            })
            .await;
            if notified.is_err() {
                assert!(poll_once(notify.notified()).await.is_some());
            }
            assert!(poll_once(notify.notified()).await.is_none());
        }
    });
}

#[test]
fn only_the_last_waker_is_woken() {
    let notify = Notify::new();
    let woken = Arc::new(AtomicUsize::new(0));
    let mut notified = pin!(notify.notified());
    for n in 1..=3 {
        let woken = woken.clone();
        let waker = waker(move || _ = woken.fetch_add(n, SeqCst));
        let cx = &mut Context::from_waker(&waker);
        for _ in 0..2 {
            assert!(notified.as_mut().poll(cx).is_pending());
        }
    }
    assert_eq!(Arc::strong_count(&woken), 2, "one waker is left");
    notify.notify_one();
    assert_eq!(woken.load(SeqCst), 3);
    assert_eq!(Arc::strong_count(&woken), 1);
}

#[test]
fn wakers_can_call_back() {
    let _alarm = alarm();
    let notify: &'static Notify = Box::leak(Box::default());
    let back = || {
        waker(move || {
            let _ = format!("{notify:?}");
            notify.notify_one();
            let _ = told(&mut Box::pin(notify.notified()));
            notify.notify_waiters();
        })
    };
    let polled = || {
        let mut notified = Box::pin(notify.notified());
        let pending = notified.as_mut().poll(&mut Context::from_waker(&back()));
        assert!(pending.is_pending());
        notified
    };
    // Wake the waiters by `notify_one`, by `notify_waiters`, and through a dropped waiter.
    let first = polled();
    notify.notify_one();
    drop(first);
    assert!(told(&mut Box::pin(notify.notified())), "passed on");
    let _all = [polled(), polled()];
    notify.notify_waiters();
    let (first, _second) = (polled(), polled());
    notify.notify_one();
    drop(first);
}

/// A waker that notifies when it is dropped.
struct OnDrop(&'static Notify);

impl Wake for OnDrop {
    fn wake(self: Arc<Self>) {}
}

impl Drop for OnDrop {
    fn drop(&mut self) {
        self.0.notify_waiters();
    }
}

#[test]
fn dropped_wakers_can_call_back() {
    let _alarm = alarm();
    let notify: &'static Notify = Box::leak(Box::default());
    let mut notified = Box::pin(notify.notified());
    let waker = Waker::from(Arc::new(OnDrop(notify)));
    assert!(
        notified
            .as_mut()
            .poll(&mut Context::from_waker(&waker))
            .is_pending()
    );
    drop(waker);
    // The next poll replaces the waker. The old waker is dropped and notifies.
    assert!(!told(&mut notified));
    assert!(told(&mut notified), "so all are told");
    let mut notified = Box::pin(notify.notified());
    let waker = Waker::from(Arc::new(OnDrop(notify)));
    assert!(
        notified
            .as_mut()
            .poll(&mut Context::from_waker(&waker))
            .is_pending()
    );
    drop(waker);
    drop(notified);
}

#[test]
fn a_panicking_waker_does_not_affect_other_waiters() {
    let notify = Notify::new();
    let woken = Arc::new(AtomicUsize::new(0));
    let counted = woken.clone();
    let counts = waker(move || _ = counted.fetch_add(1, SeqCst));
    let panics = waker(|| panic!("by the waker"));
    let poll = |waker: &Waker| {
        let mut notified = Box::pin(notify.notified());
        let poll = notified.as_mut().poll(&mut Context::from_waker(waker));
        assert!(poll.is_pending());
        notified
    };
    let mut all = [poll(&counts), poll(&panics), poll(&panics), poll(&counts)];
    let caught = catch_unwind(AssertUnwindSafe(|| notify.notify_waiters())).unwrap_err();
    assert_eq!(message(&*caught), "by the waker");
    assert_eq!(woken.load(SeqCst), 2);
    assert!(all.iter_mut().all(told));

    let mut alone = poll(&panics);
    let mut next = poll(&counts);
    catch_unwind(AssertUnwindSafe(|| notify.notify_one())).unwrap_err();
    assert!(told(&mut alone) && !told(&mut next));
    notify.notify_one();
    assert!(told(&mut next));
}

#[test]
fn a_loop_of_ready_waits_yields() {
    let _alarm = alarm();
    let runtime = runtime(1);
    let done = Arc::new(AtomicUsize::new(0));
    let seen = done.clone();
    let looping = runtime.spawn(async move {
        let notify = Notify::new();
        while seen.load(SeqCst) == 0 {
            notify.notify_one();
            notify.notified().await;
        }
    });
    runtime.spawn(async move { done.store(1, SeqCst) });
    runtime
        .block_on(timeout(PATIENCE, looping))
        .unwrap()
        .unwrap();
}

/// A wait, in tokio or in this crate, that borrows or owns its `Notify`.
trait Wait: Future<Output = ()> {
    fn begin(self: Pin<&mut Self>) -> bool;
}

macro_rules! wait {
    ($($ty:ty),*) => {
        $(impl Wait for $ty {
            fn begin(self: Pin<&mut Self>) -> bool {
                self.enable()
            }
        })*
    };
}

wait!(Notified<'_>, OwnedNotified);
wait!(
    tokio::sync::futures::Notified<'_>,
    tokio::sync::futures::OwnedNotified
);

type Waits<'a> = Pin<Box<dyn Wait + 'a>>;

/// The same wait in tokio and in this crate, each with a waker that counts how often it is woken.
struct Pair<'a> {
    ours: Waits<'a>,
    theirs: Waits<'a>,
    wakes: [Arc<AtomicUsize>; 2],
}

impl<'a> Pair<'a> {
    fn new(ours: &'a Arc<Notify>, theirs: &'a Arc<tokio::sync::Notify>, owned: bool) -> Self {
        let (ours, theirs): (Waits<'_>, Waits<'_>) = if owned {
            let (ours, theirs) = (ours.clone(), theirs.clone());
            (
                Box::pin(ours.notified_owned()),
                Box::pin(theirs.notified_owned()),
            )
        } else {
            (Box::pin(ours.notified()), Box::pin(theirs.notified()))
        };
        let wakes = Default::default();
        Self {
            ours,
            theirs,
            wakes,
        }
    }

    /// Polls both waits. Returns whether each of them is ready.
    fn poll(&mut self) -> [bool; 2] {
        let [ours, theirs] = self.wakes.clone().map(|wakes| {
            waker(move || {
                wakes.fetch_add(1, SeqCst);
            })
        });
        let ours = self.ours.as_mut().poll(&mut Context::from_waker(&ours));
        let theirs = self.theirs.as_mut().poll(&mut Context::from_waker(&theirs));
        [ours.is_ready(), theirs.is_ready()]
    }

    fn enable(&mut self) -> [bool; 2] {
        [self.ours.as_mut().begin(), self.theirs.as_mut().begin()]
    }
}

#[test]
fn random_programs_behave_as_in_tokio() {
    let mut finished = 0;
    for seed in 1..=1000 {
        let mut random = Random::new(seed);
        let (ours, theirs) = <(Arc<Notify>, Arc<tokio::sync::Notify>)>::default();
        let mut pairs: Vec<Pair<'_>> = Vec::new();
        let mut steps = Vec::new();
        for _ in 0..200 {
            let at = random.below(pairs.len().max(1) as u64) as usize;
            let mut ready = None;
            match random.below(12) {
                0..=2 => {
                    let owned = random.below(2) == 0;
                    steps.push(format!("notified, owned: {owned}"));
                    pairs.push(Pair::new(&ours, &theirs, owned));
                }
                3 => {
                    steps.push("notify_one".to_owned());
                    ours.notify_one();
                    theirs.notify_one();
                }
                4 => {
                    steps.push("notify_last".to_owned());
                    ours.notify_last();
                    theirs.notify_last();
                }
                5 if random.below(2) == 0 => {
                    steps.push("notify_waiters".to_owned());
                    ours.notify_waiters();
                    theirs.notify_waiters();
                }
                // A completed wait may stay in the list and be polled again.
                6 | 7 if !pairs.is_empty() => {
                    steps.push(format!("drop {at}"));
                    drop(pairs.remove(at));
                }
                8 if !pairs.is_empty() => {
                    steps.push(format!("enable {at}"));
                    ready = Some(pairs[at].enable());
                }
                9.. if !pairs.is_empty() => {
                    steps.push(format!("poll {at}"));
                    ready = Some(pairs[at].poll());
                }
                _ => {}
            }
            if let Some([ours, theirs]) = ready {
                finished += usize::from(ours);
                assert_eq!(ours, theirs, "seed {seed}, after {steps:?}");
            }
            for (at, pair) in pairs.iter().enumerate() {
                let [ours, theirs] = pair.wakes.each_ref().map(|wakes| wakes.load(SeqCst));
                assert_eq!(ours, theirs, "wakes of {at}, seed {seed}, after {steps:?}");
            }
        }
    }
    assert!(finished > 10_000, "{finished}");
}
