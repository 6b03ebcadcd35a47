//! The counts of searchers and parked workers, and the parked word, on one thread.

use std::cell::Cell;

use tourbillon_sched::{NEVER, Parker, SearchClaim, Searchers};

#[test]
fn at_most_half_of_the_workers_search() {
    for (workers, limit) in [(0, 1), (1, 1), (2, 1), (3, 1), (4, 2), (9, 4)] {
        let searchers = Searchers::new(workers);
        for _ in 0..limit {
            assert!(searchers.begin());
        }
        assert!(!searchers.begin());
        for left in (0..limit).rev() {
            leave(&searchers);
            assert_eq!(searchers.searching(), left);
        }
        assert!(searchers.begin());
    }
}

/// Ends a search that found work, where there is no more.
fn leave(searchers: &Searchers) {
    searchers.found(|| panic!("nobody is to be woken"), || false);
}

/// The last searcher that finds work wakes the next one if there is more work.
#[test]
fn the_last_searcher_wakes_the_next_for_more_work() {
    let searchers = Searchers::new(4);
    let [woken, looked] = [Cell::new(0), Cell::new(0)];
    let wake = || {
        woken.set(woken.get() + 1);
        true
    };
    let more = |more| {
        looked.set(looked.get() + 1);
        more
    };
    // Nobody could be woken, so the searcher does not look.
    assert!(searchers.begin());
    searchers.found(wake, || more(true));
    assert_eq!((woken.get(), looked.get()), (0, 0));
    searchers.park(false);
    assert!(searchers.begin());
    assert!(searchers.begin());
    searchers.found(wake, || more(true));
    assert_eq!((woken.get(), looked.get()), (0, 0), "another one searches");
    searchers.found(wake, || more(false));
    assert_eq!((woken.get(), looked.get()), (0, 1), "there is no more work");
    assert!(searchers.begin());
    searchers.found(wake, || more(true));
    assert_eq!((woken.get(), looked.get()), (1, 2));
    assert_eq!((searchers.parked(), searchers.searching()), (1, 1));
}

#[test]
fn no_worker_is_woken_without_need() {
    let searchers = Searchers::new(4);
    let wake = || panic!("nobody is to be woken");
    assert!(!searchers.wake_one(wake, || true), "no worker is parked");
    searchers.park(false);
    assert!(searchers.begin());
    assert!(!searchers.wake_one(wake, || true), "a worker searches");
    leave(&searchers);
    assert!(searchers.wake_one(|| true, || true));
    assert_eq!((searchers.parked(), searchers.searching()), (1, 1));
    assert!(
        !searchers.wake_one(wake, || true),
        "somebody wakes to search"
    );
    searchers.unpark();
    searchers.park(true);
    assert_eq!((searchers.parked(), searchers.searching()), (1, 0));
}

/// A thread that could wake no worker no longer counts as a searcher. It has nothing more to do if
/// the work is gone.
#[test]
fn a_thread_that_finds_no_sleeper_looks_again() {
    let searchers = Searchers::new(2);
    searchers.park(false);
    let looked = Cell::new(0);
    let work = || {
        looked.set(looked.get() + 1);
        false
    };
    assert!(!searchers.wake_one(|| false, work));
    assert_eq!(looked.get(), 1);
    assert_eq!((searchers.parked(), searchers.searching()), (1, 0));
}

/// A thread that could wake no worker tries again only while a worker is parked, no worker
/// searches, and there is work.
#[test]
fn a_thread_that_finds_no_sleeper_tries_again_if_need_be() {
    // The last worker unparks before the thread has taken itself off the count.
    let searchers = Searchers::new(4);
    searchers.park(false);
    let attempts = Cell::new(0);
    let attempt = || attempts.set(attempts.get() + 1);
    let wake = || {
        attempt();
        searchers.unpark();
        false
    };
    let look = || panic!("nobody is parked");
    assert!(!searchers.wake_one(wake, look));
    assert_eq!((attempts.get(), searchers.searching()), (1, 0));
    // A worker begins to search meanwhile.
    searchers.park(false);
    let wake = || {
        attempt();
        assert!(searchers.begin());
        false
    };
    let look = || panic!("a worker searches");
    assert!(!searchers.wake_one(wake, look));
    leave(&searchers);
    // The counts change while the thread looks for work.
    let wake = || {
        attempt();
        attempts.get() > 4
    };
    let unparks = || {
        searchers.unpark();
        true
    };
    assert!(!searchers.wake_one(wake, unparks));
    searchers.park(false);
    assert!(!searchers.wake_one(wake, || searchers.begin()));
    leave(&searchers);
    let parks = || {
        searchers.park(false);
        true
    };
    attempts.set(3);
    assert!(searchers.wake_one(wake, parks));
    assert_eq!(attempts.get(), 5);
    assert_eq!((searchers.parked(), searchers.searching()), (2, 1));
}

/// A parked worker was notified for a timer, and does not run yet. A thread that pushes work before
/// it runs must not spin until then.
#[test]
fn a_pusher_does_not_spin_for_a_worker_that_is_waking_up() {
    let searchers = Searchers::new(2);
    let parker = Parker::new();
    searchers.park(false);
    parker.announce(NEVER);
    assert!(parker.claim_if_later(5), "it is tickled");
    let attempts = Cell::new(0);
    let wake = || {
        attempts.set(attempts.get() + 1);
        parker.claim_for_search() != SearchClaim::Refused
    };
    // The queue keeps its work during this call, because the thread that pushed it is in the call.
    let _ = searchers.wake_one(wake, || attempts.get() < 1_000);
    assert!(attempts.get() < 1_000, "it spins");
}

#[test]
fn one_of_many_threads_wakes_a_sleeper() {
    let parker = Parker::new();
    assert_eq!(parker.parked_until(), None);
    assert!(parker.is_awake());
    assert!(!parker.claim_if_later(0), "it is awake");
    assert_eq!(
        parker.claim_for_search(),
        SearchClaim::Refused,
        "it is awake"
    );
    parker.announce(100);
    assert_eq!(parker.parked_until(), Some(100));
    assert!(!parker.is_awake());
    assert!(!parker.claim_if_later(100), "it wakes in time");
    assert!(parker.claim_if_later(99));
    assert!(!parker.claim_if_later(0), "it was woken");
    assert!(!parker.is_awake(), "it does not run yet");
    // The worker does not run yet. The thread that wakes it also makes it a searcher.
    assert_eq!(parker.claim_for_search(), SearchClaim::Waking);
    assert_eq!(parker.claim_for_search(), SearchClaim::Refused);
    assert!(parker.resume());
    // A worker that was woken to search need not be woken for anything else.
    parker.announce(NEVER);
    assert_eq!(parker.claim_for_search(), SearchClaim::Asleep);
    assert!(!parker.claim_if_later(0));
    assert_eq!(parker.parked_until(), None);
    assert!(!parker.is_awake());
    assert!(parker.resume());
    assert!(parker.is_awake());
    assert!(!parker.resume());
}

/// A parked worker whose deadline has passed already is not mistaken for an awake one.
#[test]
fn a_sleeper_with_a_deadline_of_zero_can_be_woken() {
    for until in [0, 1] {
        let parker = Parker::new();
        parker.announce(until);
        assert!(parker.parked_until().is_some());
        assert!(parker.claim_if_later(0));
    }
}
