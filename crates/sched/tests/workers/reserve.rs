//! The counts of helpers and of the reserve, on one thread.

use tourbillon_sched::Searchers;

/// Returns how many helpers there are, how many are in reserve, and how many workers are parked.
fn counts(searchers: &Searchers) -> (usize, usize, usize) {
    let in_reserve = searchers.in_reserve();
    let all = in_reserve == searchers.helpers();
    assert_eq!(searchers.all_in_reserve(), all);
    (searchers.helpers(), in_reserve, searchers.parked())
}

#[test]
fn a_helper_is_started_if_no_thread_is_parked_or_in_reserve() {
    let searchers = Searchers::new(4);
    assert_eq!(counts(&searchers), (0, 0, 0));
    assert!(!searchers.ensure_reserve(0), "there may be none");
    searchers.park(false);
    assert!(!searchers.ensure_reserve(2), "a worker is parked");
    searchers.unpark();
    assert!(searchers.ensure_reserve(2));
    assert_eq!(counts(&searchers), (1, 1, 0));
    assert!(!searchers.ensure_reserve(2), "a helper is in reserve");
    searchers.leave_reserve();
    assert_eq!(counts(&searchers), (1, 0, 0));
    assert!(!searchers.ensure_reserve(1), "there are as many as may be");
    assert!(searchers.ensure_reserve(2));
    searchers.leave_reserve();
    assert_eq!(counts(&searchers), (2, 0, 0));
    assert!(!searchers.ensure_reserve(2), "there are as many as may be");
    searchers.enter_reserve();
    searchers.enter_reserve();
    assert_eq!(counts(&searchers), (2, 2, 0));
}

#[test]
fn a_helper_that_could_not_be_started_is_not_counted() {
    let searchers = Searchers::new(4);
    searchers.enlist();
    searchers.enlist();
    assert_eq!(counts(&searchers), (2, 2, 0));
    searchers.strike();
    assert_eq!(counts(&searchers), (1, 1, 0));
    searchers.strike();
    assert_eq!(counts(&searchers), (0, 0, 0));
}

#[test]
fn a_helper_ends_only_if_it_leaves_a_thread_behind() {
    let searchers = Searchers::new(4);
    searchers.enlist();
    assert!(!searchers.retire(0), "no other thread is parked");
    searchers.park(false);
    assert!(!searchers.retire(1), "one helper remains");
    assert_eq!(counts(&searchers), (1, 1, 1));
    assert!(searchers.retire(0));
    assert_eq!(counts(&searchers), (0, 0, 1));
    searchers.unpark();
    for _ in 0..3 {
        searchers.enlist();
    }
    assert!(searchers.retire(1));
    assert!(!searchers.retire(2), "two remain");
    assert!(searchers.retire(1));
    assert!(!searchers.retire(0), "it is the last one in reserve");
    assert_eq!(counts(&searchers), (1, 1, 0));
}

/// The counts share a word, and none runs over into another.
#[test]
fn the_counts_are_independent() {
    let searchers = Searchers::new(8);
    for _ in 0..3 {
        assert!(searchers.begin());
    }
    for _ in 0..5 {
        searchers.enlist();
    }
    for _ in 0..2 {
        searchers.leave_reserve();
    }
    for _ in 0..4 {
        searchers.park(false);
    }
    assert_eq!(counts(&searchers), (5, 3, 4));
    assert_eq!(searchers.searching(), 3);
}
