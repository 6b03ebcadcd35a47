//! Defects that were seen in timers of other projects, tried on one shard: an overdue first timer,
//! and late calls for a timer whose place in the store belongs to another timer.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicUsize, Ordering},
};

use crate::common::{Random, Scripted, turn, units::SECOND};
use tourbillon_sched::Searchers;
use tourbillon_shards::{Cancel, Outcome, Reset, Shard, Status, Timer, store::StoreKind};

/// Arms a timer that records its number when it runs.
fn noting(
    shard: &Arc<Shard<Scripted>>,
    deadline: u64,
    id: usize,
    ran: &Arc<Mutex<Vec<usize>>>,
) -> Timer<Scripted> {
    let ran = ran.clone();
    Timer::once(shard, deadline, 0, move || ran.lock().unwrap().push(id))
}

/// In dstore, an overdue first timer hides the others: dstore subtracts the time from the first
/// deadline, and waits for the result, which is negative.
#[test]
fn an_overdue_first_timer_does_not_hide_the_others() {
    for (local, store) in [true, false]
        .into_iter()
        .flat_map(|local| StoreKind::ALL.map(|store| (local, store)))
    {
        let shard = Scripted::shard_with(local, store);
        let ran = Arc::default();
        // The clock is far ahead of the first deadline, between the others, and before the last.
        for (id, deadline) in [1, 2, SECOND, 3 * SECOND, 50 * SECOND]
            .into_iter()
            .enumerate()
        {
            noting(&shard, deadline, id, &ran);
        }
        assert_eq!(shard.next_deadline(), 1);
        assert_eq!(turn(&shard, 10 * SECOND), 4);
        assert_eq!(*ran.lock().unwrap(), [0, 1, 2, 3]);
        assert_eq!(shard.next_deadline(), 50 * SECOND);
        // A timer armed for a time that has long passed is the next one, and is due at once.
        for id in 5..8 {
            noting(&shard, id as u64, id, &ran);
            assert_eq!(shard.next_deadline(), id as u64);
            assert_eq!(turn(&shard, 10 * SECOND), 1);
        }
        // One timer is moved into the past, and one is cancelled there.
        let moved = noting(&shard, 60 * SECOND, 8, &ran);
        assert_eq!(moved.reset_at(0), Reset::Pending);
        let gone = noting(&shard, 7, 9, &ran);
        assert_eq!(gone.cancel(), Cancel::Cancelled);
        assert_eq!(shard.next_deadline(), 0);
        assert_eq!(turn(&shard, 10 * SECOND), 1);
        assert_eq!(turn(&shard, 50 * SECOND), 1);
        assert_eq!(*ran.lock().unwrap(), [0, 1, 2, 3, 5, 6, 7, 8, 4]);
        assert_eq!(turn(&shard, u64::MAX), 0);
        drop(shard.close());
    }
}

/// The owner gets the deadline itself as the time to sleep until, however long it has passed. The
/// owner computes the rest of the wait, so it cannot be negative here.
#[test]
fn an_owner_is_told_to_sleep_until_a_deadline_that_has_passed() {
    let shard = Scripted::shard(true);
    let ran = Arc::default();
    let searchers = Searchers::new(1);
    for (id, deadline) in [5, 5 * SECOND].into_iter().enumerate() {
        noting(&shard, deadline, id, &ran);
        let mut until = None;
        let parked = searchers.sleep(&*shard, false, || false, |at| until = Some(at));
        assert!(parked.slept);
        assert_eq!(until, Some(deadline));
        assert_eq!(turn(&shard, 10 * SECOND), 1);
    }
    drop(shard.close());
}

/// A timer, with its expected state.
struct Known {
    timer: Timer<Scripted>,
    runs: Arc<AtomicUsize>,
    /// `None` if the timer is over.
    deadline: Option<u64>,
}

/// In dstore, unregistering a timer that has fired removes another timer that has its index by
/// then. Here the few slots of a store are reused all the time, while all handles, old and new, are
/// cancelled and moved again and again.
#[test]
#[cfg_attr(miri, ignore = "needs thousands of timers")]
fn late_calls_for_ended_timers_affect_no_other() {
    for seed in 1..=20 {
        let shard = Scripted::shard(true);
        let mut random = Random(0x2545_F491_4F6C_DD1D ^ seed);
        let mut all: Vec<Known> = Vec::new();
        let mut now = 0;
        for _ in 0..4_000 {
            shard.owner().set_local(random.below(2) == 0);
            match random.below(8) {
                0 | 1 => {
                    let runs = Arc::new(AtomicUsize::new(0));
                    let count = runs.clone();
                    let deadline = now + random.below(20);
                    let timer = Timer::once(&shard, deadline, 1, move || {
                        count.fetch_add(1, Ordering::Relaxed);
                    });
                    all.push(Known {
                        timer,
                        runs,
                        deadline: Some(deadline),
                    });
                }
                2 => {
                    now += random.below(8);
                    let due = |known: &&mut Known| known.deadline.is_some_and(|at| at <= now);
                    let ran = turn(&shard, now);
                    let expected = all.iter_mut().filter(due).map(|known| {
                        known.deadline = None;
                        assert_eq!(known.runs.load(Ordering::Relaxed), 1);
                        assert_eq!(known.timer.status(), Status::Over(Outcome::Fired));
                    });
                    assert_eq!(ran, expected.count(), "seed {seed}");
                }
                _ if all.is_empty() => {}
                3 => {
                    let at = random.index(all.len());
                    let known = &mut all[at];
                    let expected = match known.deadline.take() {
                        Some(_) => Cancel::Cancelled,
                        None => Cancel::Over,
                    };
                    assert_eq!(known.timer.cancel(), expected, "seed {seed}");
                }
                _ => {
                    // One of the last few timers, or any: most of these are over.
                    let last = 10 + random.index(1_000);
                    let at = all.len() - 1 - random.index(all.len().min(last));
                    let known = &mut all[at];
                    let to = now + random.below(20);
                    let expected = match &mut known.deadline {
                        Some(deadline) => {
                            *deadline = to;
                            Reset::Pending
                        }
                        None => Reset::TooLate,
                    };
                    assert_eq!(known.timer.reset_at(to), expected, "seed {seed}");
                }
            }
        }
        let left = all.iter().filter(|known| known.deadline.is_some()).count();
        assert_eq!(turn(&shard, now + 20), left);
        assert!(
            all.iter()
                .all(|known| known.runs.load(Ordering::Relaxed) <= 1)
        );
        assert!(all.len() > 500 && shard.stored() == 0);
        drop(shard.close());
        drop(all);
        assert_eq!(Arc::strong_count(&shard), 1, "a node was left behind");
    }
}
