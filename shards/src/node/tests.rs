//! Tests that need the private parts of a node.

use super::*;
use tourbillon_sync::Arc;

use crate::{
    node::{location::Location, taken::Taken, waker::WakerSlot},
    shard::Shard,
};

struct Loop;

impl Owner for Loop {
    fn wake(&self) {}
    fn is_current(&self) -> bool {
        true
    }
}

#[test]
fn a_sleep_and_a_small_callback_fit_a_cache_line() {
    assert_eq!(size_of::<Header<Loop>>(), 40);
    assert!(size_of::<Node<Loop, WakerSlot, ()>>() <= 64);
    assert!(size_of::<Node<Loop, [u64; 2]>>() <= 64);
}

#[test]
fn a_location_does_not_depend_on_the_time_of_taking() {
    let owner = Arc::new(Shard::new(Loop));
    let node = crate::timer::Timer::once(&owner, crate::NEVER, 0, || ());
    let node = node.node();
    for slot in [0, 7, Location::MAX_SLOT] {
        node.set_location(Location::Slot(slot));
        assert_eq!(node.location(), Location::Slot(slot));
    }
    for now in [0, 1 << 40, u64::MAX] {
        node.set_taken(Taken::at(now));
        assert_eq!(node.location(), Location::Deque);
        assert_eq!(node.taken(), Taken::at(now));
        node.set_let_go();
        assert_eq!(node.location(), Location::None);
        assert_eq!(node.taken(), Taken::at(now));
    }
    node.set_location(Location::None);
    assert_eq!(node.location(), Location::None);
    owner.close();
}

#[test]
fn only_taken_nodes_outside_of_slots_are_sampled() {
    let owner = Arc::new(Shard::new(Loop));
    let timer = crate::timer::Timer::once(&owner, crate::NEVER, 0, || ());
    let node = timer.node();
    let wanted = || true;
    for location in [Location::None, Location::Deque, Location::Slot(1 << 8)] {
        node.set_location(location);
        assert_eq!(node.sample(1, wanted), None);
        assert_eq!(node.location(), location);
    }
    let taken = Taken::at(1 << 20);
    for let_go in [false, true] {
        node.set_taken(taken);
        if let_go {
            node.set_let_go();
        }
        let location = node.location();
        assert_eq!(node.sample(0, || false), None);
        assert_eq!(node.sample(0, wanted), Some(taken));
        assert_eq!(node.sample(0, wanted), None, "a time is returned once");
        assert_eq!(node.location(), location);
    }
    // The location changes meanwhile: the new one must not be spoiled.
    node.set_taken(taken);
    let moves = || {
        node.set_location(Location::Slot(1 << 8));
        true
    };
    assert_eq!(node.sample(1, moves), None);
    assert_eq!(node.location(), Location::Slot(1 << 8));
    node.set_location(Location::None);
    owner.close();
}

/// A wrong answer would free a node that is in use: the caller writes the count and takes the
/// waker without synchronization.
#[test]
fn references_to_two_nodes_do_not_unite() {
    let owner = Arc::new(Shard::new(Loop));
    let timers = [1, 2].map(|at| crate::timer::Timer::once(&owner, at, 0, || ()));
    let refs = || timers.each_ref().map(|it| it.node().refs.count());
    let [mut one, other] = timers.each_ref().map(|it| it.node().clone());
    assert_eq!(refs(), [3, 3]);
    assert!(!one.unite(other));
    assert_eq!(refs(), [3, 2], "only the other reference was given up");
    drop(one);
    // Two references to each of two nodes: on one node they would suffice.
    let [mut one, other] = timers.each_ref().map(|it| {
        it.cancel();
        it.node().clone()
    });
    assert_eq!(refs(), [2, 2]);
    assert!(!one.unite(other));
    assert_eq!(refs(), [2, 1]);
    let other = one.clone();
    drop(timers);
    assert!(one.unite(other), "both refer to one node");
    drop(one);
    owner.close();
}

#[test]
fn the_offset_of_the_wait_does_not_depend_on_the_payload() {
    #[repr(align(32))]
    struct Wide(#[expect(dead_code, reason = "there for its alignment")] u8);
    assert_eq!(
        std::mem::offset_of!(Node<Loop, Wide>, wait),
        std::mem::offset_of!(Waiting<Loop>, wait)
    );
}
