//! Tests that need the private parts of a shard: panics under the lock, the layout, moves, and
//! shrinks.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, atomic::AtomicUsize},
};

use super::*;
use crate::{
    Reset, Sleep, Timer, Tolerance,
    store::any::{AnyStore, StoreKind},
};

#[derive(Default)]
struct Loop {
    wakes: AtomicUsize,
    /// Whether the calling thread counts as a remote thread.
    is_away: AtomicBool,
    /// Whether `moved` panics.
    panics: AtomicBool,
    /// The tolerance of timers without options, in ns.
    tolerance: AtomicU64,
}

impl Owner for Loop {
    fn wake(&self) {
        self.wakes.fetch_add(1, Ordering::Relaxed);
    }

    fn is_current(&self) -> bool {
        !self.is_away.load(Ordering::Relaxed)
    }

    fn tolerance(&self) -> Tolerance {
        Tolerance::new(self.tolerance.load(Ordering::Relaxed))
    }

    fn moved(&self, _: bool) {
        assert!(!self.panics.load(Ordering::Relaxed), "the owner panics");
    }
}

/// Panics under the lock, as a full store does, after a call of `meanwhile`.
fn panic_under_the_lock(shard: &Shard<Loop>, meanwhile: impl FnOnce()) {
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        shard.locked(|_| -> () {
            meanwhile();
            panic!("the store is full");
        })
    }));
    assert!(panicked.is_err());
}

/// Arms so many timers, for 1,000, 1,001, … With 100 of them the store takes notes.
fn arm(shard: &Arc<Shard<Loop>>, count: u64) -> Vec<Timer<Loop>> {
    (0..count)
        .map(|i| Timer::once(shard, 1_000 + i, 1, || ()))
        .collect()
}

#[test]
fn a_shard_has_the_store_of_its_choice() {
    let kind = |shard: Shard<Loop>| {
        let kind = shard.locked(|inner| match inner.store {
            AnyStore::Heap(_) => StoreKind::Heap,
            AnyStore::Wheel(_) => StoreKind::Wheel,
        });
        kind.expect("nobody has the lock")
    };
    assert_eq!(kind(Shard::new(Loop::default())), StoreKind::Wheel);
    for chosen in StoreKind::ALL {
        let shard = Shard::new(Loop::default()).with_store(chosen);
        assert_eq!(kind(shard), chosen);
    }
}

#[test]
fn a_panic_under_the_lock_unlocks() {
    let shard = Arc::new(Shard::new(Loop::default()));
    let timer = Timer::once(&shard, 10, 10, || ());
    panic_under_the_lock(&shard, || ());
    assert!(shard.locked(|_| ()).is_some(), "the lock is free again");
    let mut due = Vec::new();
    assert_eq!(shard.expire(10, usize::MAX, &mut due).count, 1);
    drop((timer, due));
    shard.close();
}

#[test]
fn an_owner_that_is_denied_its_lock_arms_through_the_inbox() {
    for tolerance in [0, 24] {
        let shard = Arc::new(Shard::new(Loop::default()));
        shard.owner().tolerance.store(tolerance, Ordering::Relaxed);
        let timer = shard.locked(|_| {
            let timer = Timer::once(&shard, 1_000, 1_000, || ());
            assert!(shard.has_updates(), "the store is another thread's");
            timer
        });
        assert!(!shard.has_updates(), "the holder has read the inbox");
        assert_eq!(
            (shard.next_deadline(), shard.soonest()),
            (1_000 + tolerance, 1_000)
        );
        drop((timer, shard.close()));
    }
}

#[test]
fn an_owner_that_panics_at_a_move_leaves_the_shard_unlocked() {
    let shard = Arc::new(Shard::new(Loop::default()));
    // After one move to an earlier deadline, the owner expects more.
    let timers = arm(&shard, 100);
    assert_eq!(timers[50].reset_at(1_049), Reset::Pending);
    assert!(shard.expects_earlier());
    for at in [1_048, 2_000] {
        shard.owner().panics.store(true, Ordering::Relaxed);
        let moved = catch_unwind(AssertUnwindSafe(|| timers[50].reset_at(at)));
        assert!(moved.is_err(), "the owner's panic is not swallowed");
        assert!(shard.locked(|_| ()).is_some(), "the lock is free again");
        shard.owner().panics.store(false, Ordering::Relaxed);
        assert_eq!(timers[50].deadline(), Some(at), "the move was made");
    }
    drop((timers, shard.close()));
}

/// An exchange that fails spuriously, as in Miri and on other processors, takes a path on which a
/// move does not count.
#[test]
#[cfg_attr(
    any(miri, not(target_arch = "x86_64")),
    ignore = "exchanges fail spuriously"
)]
fn an_owner_expects_earlier_deadlines_for_sixteen_moves() {
    let shard = Arc::new(Shard::new(Loop::default()));
    let timers = arm(&shard, 100);
    let moves = |at| assert_eq!(timers[50].reset_at(at), Reset::Pending);
    assert!(!shard.expects_earlier());
    // The owner expects no earlier deadline at first, and does in the second round.
    for earlier in [vec![1_049], vec![1_048, 1_047]] {
        for at in earlier {
            moves(at);
            assert!(shard.expects_earlier());
            moves(1_100);
        }
        for more in 1..15 {
            moves(1_100 + more);
            assert!(shard.expects_earlier(), "after {more} more");
        }
        moves(2_000);
        assert!(!shard.expects_earlier());
    }
    drop((timers, shard.close()));
}

/// Only the owner leaves notes, since a note wakes nobody.
#[test]
#[cfg_attr(
    any(miri, not(target_arch = "x86_64")),
    ignore = "exchanges fail spuriously"
)]
fn a_remote_thread_leaves_no_note() {
    let shard = Arc::new(Shard::new(Loop::default()));
    let timers = arm(&shard, 100);
    assert_eq!(timers[50].reset_at(1_049), Reset::Pending);
    assert!(shard.expects_earlier());
    assert_eq!(shard.sleep_until(), Some(1_000));
    shard.owner().is_away.store(true, Ordering::Relaxed);
    assert_eq!(timers[50].reset_at(500), Reset::Pending);
    assert_eq!(shard.owner().wakes.load(Ordering::Relaxed), 1);
    shard.resume();
    drop((timers, shard.close()));
}

/// A thread that releases the lock reads the updates of a thread that was denied, and frees nodes
/// that are over.
#[test]
fn a_condition_that_panics_in_a_drain_for_a_denied_thread_leaves_the_shard_unlocked() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("the condition panics as it is dropped");
        }
    }
    let shard = Arc::new(Shard::new(Loop::default()));
    shard.owner().is_away.store(true, Ordering::Relaxed);
    let bomb = Bomb;
    let options = crate::Options {
        condition: Some(Box::new(move || {
            let _ = &bomb;
            true
        })),
        ..crate::Options::default()
    };
    let timer = Timer::build(&shard, 10, options, |_| std::ops::ControlFlow::Continue(()));
    timer.start(0);
    timer.cancel();
    // The inbox has the last reference.
    drop(timer);
    assert!(shard.lock.try_acquire());
    assert!(!shard.lock.try_acquire(), "another thread is denied");
    assert!(shard.lock.release());
    let looked = catch_unwind(AssertUnwindSafe(|| shard.drain_for_denied()));
    assert!(looked.is_err(), "the panic is not swallowed");
    assert!(shard.has_updates(), "the owner has to read the inbox");
    assert!(shard.locked(|_| ()).is_some(), "the lock is free again");
    shard.close();
}

std::thread_local! {
    /// How often this thread has yielded to the holder of a lock.
    pub(super) static YIELDS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

#[test]
#[cfg_attr(miri, ignore = "needs thousands of timers")]
fn cancellers_yield_to_a_stopped_holder_above_the_flood_limit() {
    let shard = Arc::new(Shard::new(Loop::default()));
    shard.owner().is_away.store(true, Ordering::Relaxed);
    let timers: Vec<_> = (0..FLOOD as u64 + 100)
        .map(|i| Timer::once(&shard, i, 1, || ()))
        .collect();
    assert_eq!(shard.settle(), 0);
    // As if another thread had the lock, and were stopped.
    assert!(shard.lock.try_acquire());
    for (i, timer) in timers.iter().enumerate() {
        assert_eq!(timer.cancel(), crate::Cancel::Cancelled);
        assert_eq!(YIELDS.get(), (i + 1).saturating_sub(FLOOD));
    }
    assert!(shard.lock.release(), "the cancellers were denied");
    shard.drain_for_denied();
    assert_eq!(shard.settle(), NEVER);
    assert_eq!((shard.garbage(), YIELDS.get()), (0, 100));
    shard.close();
}

#[test]
fn a_node_that_was_counted_after_a_drain_is_no_garbage_for_the_next_drainer() {
    let shard = Arc::new(Shard::new(Loop::default()));
    let _timers = arm(&shard, 3);
    // A drainer took the node of a canceller, which counts it only now.
    shard.unread.fetch_add(1, Ordering::Relaxed);
    assert_eq!(shard.garbage(), 1);
    assert_eq!(shard.settle(), 1_000);
    assert_eq!((shard.stored(), shard.garbage()), (3, 0));
    shard.close();
}

/// As long as there is one, the owner takes slower paths.
#[test]
fn a_shard_counts_its_tolerant_timers() {
    let shard = Arc::new(Shard::new(Loop::default()));
    let count = || shard.locked(|inner| inner.tolerant).unwrap();
    let arm = |tolerance| {
        shard.owner().tolerance.store(tolerance, Ordering::Relaxed);
        Timer::once(&shard, 1_000, 1_000, || ())
    };
    let exact = arm(0);
    assert_eq!(count(), 0);
    let tolerant = [arm(24), arm(100)];
    assert_eq!(count(), 2);
    tolerant[0].cancel();
    assert_eq!(count(), 1);
    exact.cancel();
    assert_eq!(count(), 1);
    tolerant[1].cancel();
    assert_eq!(count(), 0);
    drop(shard.close());
}

/// A thread that was denied the lock relies on its holder, also if the holder panics.
#[test]
fn a_panic_under_the_lock_wakes_the_owner() {
    let shard = Shard::new(Loop::default());
    assert_eq!(shard.sleep_until(), Some(NEVER));
    panic_under_the_lock(&shard, || assert!(shard.locked(|_| ()).is_none()));
    assert_eq!(shard.owner().wakes.load(Ordering::Relaxed), 1);
    shard.resume();
    assert!(shard.has_updates(), "the owner has to read the inbox");
    assert!(!shard.expire(0, usize::MAX, &mut Vec::new()).more);
    assert!(!shard.has_updates());
}

#[test]
fn pushers_and_the_lock_holder_write_separate_cache_lines() {
    use std::mem::offset_of;
    let line = |offset| offset / align_of::<CachePadded<()>>();
    let pushing = line(offset_of!(Shard<Loop>, inbox));
    assert_eq!(line(offset_of!(Shard<Loop>, inbox_next)), pushing);
    assert_eq!(line(offset_of!(Shard<Loop>, unread)), pushing);
    let locked = line(offset_of!(Shard<Loop>, lock));
    assert_eq!(line(offset_of!(Shard<Loop>, store_next)), locked);
    assert_eq!(line(offset_of!(Shard<Loop>, has_backlog)), locked);
    let rest = line(offset_of!(Shard<Loop>, waiters));
    let homes = line(offset_of!(Shard<Loop>, homes));
    let all = [homes, pushing, locked, rest];
    assert!(all.is_sorted_by(|one, next| one < next), "{all:?}");
}

/// If some moves are to earlier deadlines and some to later ones, the owner leaves notes of them.
#[test]
#[cfg_attr(miri, ignore = "needs thousands of moves")]
fn timers_moved_at_random_run_in_time() {
    const TIMERS: u64 = 100;
    let shard = Arc::new(Shard::new(Loop::default()));
    let mut random = 0x9E37_79B9_7F4A_7C15_u64;
    let mut draw = move |below: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        (random >> 11) % below
    };
    let ran = Arc::new(AtomicUsize::new(0));
    let arm = |deadline| {
        let ran = ran.clone();
        Timer::once(&shard, deadline, 1, move || {
            ran.fetch_add(1, Ordering::Relaxed);
        })
    };
    let mut now = 0;
    let mut deadlines: Vec<_> = (0..TIMERS).map(|_| 1 + draw(1_000_000)).collect();
    let mut timers: Vec<_> = deadlines.iter().map(|&at| arm(at)).collect();
    let mut sleep = Sleep::new(&shard, NEVER);
    let (mut due, mut expecting, mut all) = (Vec::new(), 0, 0);
    for step in 0..20_000 {
        let which = draw(TIMERS) as usize;
        // Now and then all moves are to later deadlines for a while.
        let width = [2_000, 1_000_000][draw(2) as usize];
        let floor = if step % 2_000 < 500 {
            deadlines[which]
        } else {
            now
        };
        let at = floor + 1 + draw(width);
        match draw(8) {
            0 => {
                assert_eq!(timers[which].cancel(), crate::Cancel::Cancelled);
                timers[which] = arm(at);
                deadlines[which] = at;
            }
            1 => sleep.reset(NEVER - draw(1_000)),
            _ => {
                assert_eq!(timers[which].reset_at(at), Reset::Pending);
                deadlines[which] = at;
            }
        }
        expecting += usize::from(shard.expects_earlier());
        let first = deadlines.iter().copied().min();
        assert!(
            Some(shard.next_deadline()) <= first,
            "it would sleep too long"
        );
        if step % 64 == 0 {
            now += draw(20_000);
            shard.expire(now, usize::MAX, &mut due);
            all += due.len();
            due.drain(..).for_each(|due| _ = due.run(|| now));
            assert_eq!(ran.load(Ordering::Relaxed), all);
            for (timer, at) in timers.iter_mut().zip(&mut deadlines) {
                let over = timer.reset_at(*at) == Reset::TooLate;
                assert_eq!(over, *at <= now);
                if over {
                    *at = now + 1 + draw(1_000_000);
                    *timer = arm(*at);
                }
            }
        }
    }
    assert!(all > 1_000, "{all} ran");
    assert!(expecting > 5_000 && expecting < 19_000, "{expecting}");
    drop(sleep);
    shard.close();
}

/// A shrink holds the lock while it moves timers, and timers that come due meanwhile are late. So a
/// store with many timers stays as it is.
#[test]
#[cfg_attr(miri, ignore = "needs thousands of timers")]
fn a_store_with_many_timers_does_not_shrink() {
    let shard = Arc::new(Shard::new(Loop::default()));
    let room = || shard.locked(|inner| inner.room()).unwrap();
    let timers = arm(&shard, 2_000);
    let full = room();
    // An eighth of the room is held, or less.
    let stay = super::inner::MAX_MOVED + 1;
    assert!(stay <= full / 8);
    timers[stay..].iter().for_each(|it| _ = it.cancel());
    assert!(!shard.shrink(), "no later call is needed");
    assert!(!shard.shrink());
    assert_eq!(room(), full);
    timers[0].cancel();
    assert!(shard.shrink() && !shard.shrink());
    assert!(room() < full, "{} of {full}", room());
    drop((timers, shard.close()));
}

/// A store is kept if more than an eighth of it is held, or if it is small.
#[test]
fn a_store_that_is_not_much_too_large_does_not_shrink() {
    for (armed, room, stay, shrinks) in [
        (255, 256, 33, false),
        (255, 256, 32, true),
        (63, 64, 1, false),
        (65, 128, 1, true),
    ] {
        let shard = Arc::new(Shard::new(Loop::default()));
        let timers = arm(&shard, armed);
        assert_eq!(shard.locked(|inner| inner.room()), Some(room));
        timers[stay..].iter().for_each(|it| _ = it.cancel());
        assert_eq!(shard.shrink(), shrinks, "{stay} of {room}");
        drop((timers, shard.close()));
    }
}
