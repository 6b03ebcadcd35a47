//! For owners that take many timers at once: sleeps that fire first and are woken later, and
//! callbacks that are prefetched before they run.

use std::{
    num::NonZeroU64,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    task::{Poll, Wake, Waker},
};

use tourbillon_shards::{Due, Flow, Options, Outcome, Owner, Shard, Sleep, Timer};

struct Nobody;

impl Owner for Nobody {
    fn wake(&self) {}
    fn is_current(&self) -> bool {
        true
    }
}

#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Relaxed);
    }
}

fn due(shard: &Shard<Nobody>, now: u64) -> Vec<Due<Nobody>> {
    let mut due = Vec::new();
    shard.expire(now, usize::MAX, &mut due);
    due
}

#[test]
fn a_sleep_is_over_when_its_waker_was_taken() {
    let shard = Arc::new(Shard::new(Nobody));
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(woken.clone());
    let sleeps = [10, 11, 12, 13].map(|at| Sleep::with_waker(&shard, at, &waker));
    let [fired, mut moved, dropped, unpolled] = sleeps;
    let [first, second, third, fourth] = due(&shard, 20).try_into().unwrap();
    let had = first.fire().expect("it has a waker");
    assert_eq!(had.data(), waker.data());
    assert_eq!(fired.poll(&waker), Poll::Ready(Outcome::Fired));
    moved.reset(100);
    assert!(second.fire().is_none());
    assert_eq!(moved.deadline(), Some(100), "it waits again");
    drop(dropped);
    assert!(third.fire().is_none());
    let had_too = fourth.fire();
    assert_eq!(unpolled.outcome(), Some(Outcome::Fired));
    assert_eq!(woken.0.load(Relaxed), 0);
    had.wake();
    drop(had_too);
    assert_eq!(woken.0.load(Relaxed), 1);
    assert_eq!(due(&shard, 100).len(), 1);
    drop((fired, moved, unpolled));
    drop(shard.close());
    assert_eq!(
        Arc::strong_count(&woken),
        2,
        "nothing is left of the wakers"
    );
}

#[test]
#[should_panic(expected = "a callback is run")]
fn a_callback_has_no_waker() {
    let shard = Arc::new(Shard::new(Nobody));
    let _timer = Timer::once(&shard, 10, 10, || ());
    let fired = due(&shard, 10).pop().unwrap().fire();
    assert!(fired.is_none());
}

/// The callbacks capture values of many sizes and alignments.
#[test]
fn a_callback_runs_with_its_captures() {
    let shard = Arc::new(Shard::new(Nobody));
    let ran = Arc::new(AtomicUsize::new(0));
    let (shared, byte, four, odd) = (ran.clone(), 7_u8, [u64::MAX; 4], [1_u8; 19]);
    let _timers = [
        Timer::once(&shard, 1, 1, || ()),
        Timer::once(&shard, 2, 2, move || drop(shared)),
        Timer::once(&shard, 3, 3, move || assert_eq!(byte, 7)),
        Timer::once(&shard, 4, 4, move || assert_eq!(four, [u64::MAX; 4])),
        Timer::once(&shard, 5, 5, move || assert_eq!(odd, [1; 19])),
        Timer::recurring(&shard, 6, 1_000, move || {
            assert_eq!((odd[0], four[0]), (1, u64::MAX))
        }),
    ];
    let options = Timer::build(&shard, 7, Options::default(), Flow::Break);
    options.start(0);
    let _sleep = Sleep::new(&shard, 8);
    let shared = ran.clone();
    let gone = Timer::once(&shard, 9, 9, move || drop(shared));
    let due = due(&shard, 9);
    assert_eq!(due.len(), 9);
    gone.cancel();
    due.into_iter().for_each(|due| drop(due.run(|| 9)));
    assert_eq!(Arc::strong_count(&ran), 1);
    drop(shard.close());
}

#[test]
fn a_due_timer_tells_its_origin() {
    let shard = Arc::new(Shard::new(Nobody));
    let origin = |number| NonZeroU64::new(number);
    let [seven, nine] = [7, 9].map(|number| origin(number).unwrap());
    let options = Options {
        origin: origin(8),
        ..Options::default()
    };
    let timers = [
        Timer::once(&shard, 10, 10, || ()),
        Timer::once_from(&shard, 11, 11, seven, || ()),
        Timer::build(&shard, 12, options, Flow::Break),
        Timer::recurring_from(&shard, 13, 13, nine, || ()),
        Timer::recurring(&shard, 14, 14, || ()),
    ];
    timers[2].start(0);
    let sleep = Sleep::with_waker(&shard, 15, Waker::noop());
    let due = due(&shard, 15);
    let origins: Vec<_> = due.iter().map(Due::origin).collect();
    assert_eq!(
        origins,
        [None, Some(seven), origin(8), Some(nine), None, None]
    );
    // A recurring timer keeps its origin.
    due.into_iter().for_each(|due| _ = due.run(|| 15));
    let again: Vec<_> = self::due(&shard, 28).iter().map(Due::origin).collect();
    assert_eq!(again, [Some(nine), None]);
    drop(sleep);
    drop(shard.close());
}

/// A sleep that fired tells once when it was taken, if that moment is in the sample.
#[test]
fn a_sleep_tells_once_when_it_was_taken() {
    let shard = Arc::new(Shard::new(Nobody));
    // One in two units of time is in the sample of one in two.
    let sampled = (0..8_u64).filter(|i| {
        let now = (1 << 20) + i * 1_024;
        let sleep = Sleep::new(&shard, now);
        assert_eq!(sleep.sample(1), None, "it waits");
        for due in due(&shard, now) {
            due.run(|| now);
        }
        assert_eq!(sleep.outcome(), Some(Outcome::Fired));
        let taken = sleep.sample(1);
        assert_eq!(sleep.sample(1), None, "it has told");
        assert!(taken.is_none_or(|taken| taken.elapsed(now + 5_000) == 4 << 10));
        taken.is_some()
    });
    assert_eq!(sampled.count(), 4);
    drop(shard.close());
}

#[test]
fn an_owner_without_methods_of_its_own_delivers_at_once_and_adds_no_jitter() {
    let shard = Arc::new(Shard::new(Nobody));
    let told = Arc::new(AtomicUsize::new(0));
    let options = Options {
        outcome: true,
        jitter: 1_000,
        ..Options::default()
    };
    let timer = Timer::build(&shard, 100, options, {
        let told = told.clone();
        move |how| {
            assert_eq!(how, Outcome::Cancelled);
            told.fetch_add(1, Relaxed);
            Flow::Break(how)
        }
    });
    timer.start(0);
    assert_eq!(timer.deadline(), Some(100));
    timer.cancel();
    assert_eq!(told.load(Relaxed), 1);
    drop(shard.close());
}
