//! What only who can panic under the lock can see.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, atomic::AtomicUsize},
};

use super::*;
use crate::Timer;

#[derive(Default)]
struct Loop {
    wakes: AtomicUsize,
}

impl Owner for Loop {
    fn wake(&self) {
        self.wakes.fetch_add(1, Ordering::Relaxed);
    }

    fn is_current(&self) -> bool {
        true
    }
}

/// As a store that is full does.
fn panic_under_the_lock(shard: &Shard<Loop>, meanwhile: impl FnOnce()) {
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        shard.locked(|_| -> () {
            meanwhile();
            panic!("the store is full");
        })
    }));
    assert!(panicked.is_err());
}

#[test]
fn a_panic_under_the_lock_unlocks() {
    let shard = Arc::new(Shard::new(Loop::default()));
    let timer = Timer::once(&shard, 10, 10, || ());
    panic_under_the_lock(&shard, || ());
    assert!(shard.locked(|_| ()).is_some(), "it is locked for ever");
    let mut due = Vec::new();
    assert_eq!(shard.expire(10, usize::MAX, &mut due).count, 1);
    drop((timer, due));
    shard.close();
}

#[test]
fn to_fetch_the_first_timer_changes_nothing() {
    let shard = Arc::new(Shard::new(Loop::default()));
    shard.prefetch_first();
    let timers: Vec<_> = (1..4)
        .map(|at| Timer::once(&shard, at, at, || ()))
        .collect();
    shard.prefetch_first();
    // Not if another has the shard, who would be told that there was somebody.
    shard.locked(|_| shard.prefetch_first());
    assert_eq!((shard.stored(), shard.next_deadline()), (3, 1));
    assert!(!shard.has_news());
    drop((timers, shard.close()));
}

/// Who was denied the lock relies on who had it.
#[test]
fn a_panic_under_the_lock_wakes_the_owner() {
    let shard = Shard::new(Loop::default());
    assert_eq!(shard.sleep_until(), Some(NEVER));
    panic_under_the_lock(&shard, || assert!(shard.locked(|_| ()).is_none()));
    assert_eq!(shard.owner().wakes.load(Ordering::Relaxed), 1);
    shard.resume();
    assert!(shard.has_news(), "the owner has to look");
    assert!(!shard.expire(0, usize::MAX, &mut Vec::new()).more);
    assert!(!shard.has_news());
}

#[test]
fn who_pushes_and_who_has_the_lock_write_lines_of_their_own() {
    use std::mem::offset_of;
    let line = |offset| offset / align_of::<CachePadded<()>>();
    let pushing = line(offset_of!(Shard<Loop>, inbox));
    assert_eq!(line(offset_of!(Shard<Loop>, inbox_next)), pushing);
    assert_eq!(line(offset_of!(Shard<Loop>, unread)), pushing);
    let locked = line(offset_of!(Shard<Loop>, lock));
    assert_eq!(line(offset_of!(Shard<Loop>, store_next)), locked);
    assert_eq!(line(offset_of!(Shard<Loop>, backlogged)), locked);
    let rest = line(offset_of!(Shard<Loop>, watchers));
    let homes = line(offset_of!(Shard<Loop>, homes));
    let all = [homes, pushing, locked, rest];
    assert!(all.is_sorted_by(|one, next| one < next), "{all:?}");
}
