//! A timer with a tolerance fires within its window, never before its deadline, and shares
//! wake-ups.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use crate::common::{
    Random, Scripted, both_ways, expire, times, turn,
    units::{MS, SECOND},
};
use tourbillon_shards::{Flow, NEVER, Options, Owner, Reset, Shard, Sleep, Timer, Tolerance};

/// A timer that records when it ran.
struct Probe {
    timer: Timer<Scripted>,
    ran: Arc<AtomicU64>,
    tolerance: u64,
}

/// Arms a timer with a tolerance, and records when it ran. `clock` is the time at which callbacks
/// run.
fn armed(
    shard: &Arc<Shard<Scripted>>,
    clock: &Arc<AtomicU64>,
    deadline: u64,
    tolerance: u64,
) -> Probe {
    let ran = Arc::new(AtomicU64::new(0));
    let (mine, clock) = (ran.clone(), clock.clone());
    let options = Options {
        deadline: Some(deadline),
        tolerance: Tolerance::new(tolerance),
        ..Options::default()
    };
    let timer = Timer::build(shard, 0, options, move |how| {
        let before = mine.swap(clock.load(Ordering::Relaxed), Ordering::Relaxed);
        assert_eq!(before, 0, "ran twice");
        Flow::Break(how)
    });
    timer.start(0);
    assert_eq!(timer.deadline(), Some(deadline), "the true one");
    Probe {
        timer,
        ran,
        tolerance,
    }
}

/// Lets the owner sleep exactly until each next deadline, until there is none. Returns how often it
/// woke.
fn live(shard: &Arc<Shard<Scripted>>, clock: &Arc<AtomicU64>) -> usize {
    let mut wakes = 0;
    loop {
        let next = shard.next_deadline();
        if next == NEVER {
            return wakes;
        }
        assert!(next >= clock.load(Ordering::Relaxed), "time runs back");
        clock.store(next, Ordering::Relaxed);
        turn(shard, next);
        wakes += 1;
    }
}

fn in_its_window(probe: &Probe, deadline: u64) {
    let ran = probe.ran.load(Ordering::Relaxed);
    let tolerance = probe.tolerance;
    assert!(ran >= deadline, "{ran} is before {deadline}");
    let late = ran - deadline;
    assert!(late <= tolerance, "late by {late} of {tolerance} ns");
}

#[test]
fn each_timer_fires_in_its_window() {
    both_ways(|shard| {
        let clock = Arc::new(AtomicU64::new(0));
        let mut random = Random(42);
        let timers: Vec<_> = (0..times(3_000))
            .map(|_| {
                let deadline = 1 + random.below(10 * SECOND);
                // From zero to seconds, in all orders of magnitude.
                let magnitude = random.below(33);
                let tolerance = random.below(1 << magnitude);
                (deadline, armed(shard, &clock, deadline, tolerance))
            })
            .collect();
        live(shard, &clock);
        for (deadline, probe) in &timers {
            in_its_window(probe, *deadline);
        }
    });
}

#[test]
fn a_moved_timer_fires_in_its_new_window() {
    both_ways(|shard| {
        let clock = Arc::new(AtomicU64::new(0));
        let mut random = Random(43);
        let timers: Vec<_> = (0..times(3_000))
            .map(|_| {
                let magnitude = random.below(33);
                let tolerance = random.below(1 << magnitude);
                let first = 1 + random.below(10 * SECOND);
                let probe = armed(shard, &clock, first, tolerance);
                let mut deadline = first;
                for _ in 0..random.below(4) {
                    deadline = match random.below(2) {
                        0 => 1 + random.below(10 * SECOND),
                        // Close to the old deadline, within its window or not.
                        _ => (deadline + random.below(2 * tolerance + 1))
                            .saturating_sub(tolerance)
                            .max(1),
                    };
                    assert_eq!(probe.timer.reset_at(deadline), Reset::Pending);
                }
                (deadline, probe)
            })
            .collect();
        live(shard, &clock);
        for (deadline, probe) in &timers {
            in_its_window(probe, *deadline);
        }
    });
}

#[test]
#[cfg_attr(miri, ignore = "needs thousands of timers")]
fn wake_ups_fall_as_the_tolerance_grows() {
    let wakes = |tolerance| {
        let shard = Scripted::shard(true);
        let clock = Arc::new(AtomicU64::new(0));
        let mut random = Random(44);
        let timers: Vec<_> = (0..2_000)
            .map(|_| {
                let deadline = 1 + random.below(10 * SECOND);
                (deadline, armed(&shard, &clock, deadline, tolerance))
            })
            .collect();
        let wakes = live(&shard, &clock);
        for (deadline, probe) in &timers {
            in_its_window(probe, *deadline);
        }
        wakes
    };
    let exact = wakes(0);
    assert!(exact > 1_990, "few of the deadlines are equal: {exact}");
    let mut last = exact;
    for tolerance in [MS, 4 * MS, 16 * MS, 64 * MS, 256 * MS, SECOND] {
        let now = wakes(tolerance);
        assert!(now <= last, "{now} after {last}, at {tolerance} ns");
        last = now;
    }
    assert!(last * 10 <= exact, "{last} of {exact}");
}

#[test]
fn tolerant_timers_fire_with_an_exact_neighbour() {
    both_ways(|shard| {
        let clock = Arc::new(AtomicU64::new(0));
        // Alone, these timers would fire at 128, 128 and 256.
        let tolerant: Vec<_> = [(90, 100), (100, 50), (70, 200)]
            .map(|(deadline, tolerance)| armed(shard, &clock, deadline, tolerance))
            .into();
        // A timer after all of them, at 384, that is not due ends the search.
        let later = armed(shard, &clock, 300, 100);
        let exact = armed(shard, &clock, 100, 0);
        assert_eq!(shard.next_deadline(), 100);
        clock.store(100, Ordering::Relaxed);
        assert_eq!(turn(shard, 100), 4);
        for probe in tolerant.iter().chain([&exact]) {
            assert_eq!(probe.ran.load(Ordering::Relaxed), 100);
        }
        assert_eq!(later.ran.load(Ordering::Relaxed), 0, "its deadline is 300");
        assert_eq!(live(shard, &clock), 1);
        assert_eq!(later.ran.load(Ordering::Relaxed), 384);
    });
}

/// The owner inserts a timer without options into its store. A remote thread puts it into the
/// inbox, and wakes the owner.
#[test]
fn timers_without_options_have_the_tolerance_of_the_owner() {
    both_ways(|shard| {
        let owner = shard.owner();
        owner.set_tolerance(4 * MS);
        let is_remote = shard.sleep_until().is_some() && !owner.is_current();
        let deadline = SECOND + 1;
        let timer = Timer::once(shard, deadline, deadline, || ());
        assert_eq!(shard.stored(), usize::from(!is_remote));
        assert_eq!(owner.wakes.load(Ordering::Relaxed), usize::from(is_remote));
        shard.resume();
        turn(shard, 0);
        let key = shard.next_deadline();
        assert!(key > deadline && key <= deadline + 4 * MS, "{key}");
        assert_eq!(shard.soonest(), deadline);
        let sleep = Sleep::new(shard, 2 * deadline);
        assert_eq!(sleep.tolerance(), Tolerance::new(4 * MS));
        // Other timers keep theirs.
        owner.set_tolerance(0);
        let exact = Timer::once(shard, deadline, deadline, || ());
        turn(shard, 0);
        assert_eq!(shard.next_deadline(), deadline);
        drop((exact, timer, sleep));
    });
}

/// A shard knows both moments, also while exact timers come and go. A worker that is awake takes a
/// timer from its deadline on, so it has to know the deadline.
#[test]
#[cfg_attr(miri, ignore = "needs thousands of timers")]
fn a_shard_knows_the_key_and_the_deadline_of_its_first_timer() {
    both_ways(|shard| {
        let clock = Arc::new(AtomicU64::new(0));
        let read = || {
            while shard.has_updates() {
                turn(shard, 0);
            }
        };
        let exact = |at| Timer::once(shard, at, at, || ());
        // The fast paths are for stores with thousands of timers.
        let mut neighbours: Vec<_> = (0..3_000).map(|i| exact(SECOND + i * 3 * MS)).collect();
        read();
        let deadline = 6 * SECOND + 1;
        let first = armed(shard, &clock, deadline, 4 * MS);
        read();
        let later = neighbours.split_off(1_680);
        neighbours.iter().for_each(|it| _ = it.cancel());
        read();
        let words = || (shard.next_deadline(), shard.soonest());
        let key = words().0;
        assert!(key > deadline && key <= deadline + 4 * MS, "{key}");
        assert_eq!(words(), (key, deadline));
        let other = exact(7 * SECOND);
        read();
        assert_eq!(words(), (key, deadline));
        other.cancel();
        read();
        assert_eq!(words(), (key, deadline));
        first.timer.cancel();
        read();
        let next = later[0].deadline().unwrap();
        assert_eq!(words(), (next, next));
    });
}

#[test]
fn an_endless_tolerance_ends_before_never() {
    both_ways(|shard| {
        let clock = Arc::new(AtomicU64::new(0));
        let probe = armed(shard, &clock, 1_000, u64::MAX);
        let never = armed(shard, &clock, NEVER, u64::MAX);
        assert!(shard.next_deadline() < NEVER);
        assert_eq!(live(shard, &clock), 1);
        assert!(probe.ran.load(Ordering::Relaxed) >= 1_000);
        assert_eq!(never.ran.load(Ordering::Relaxed), 0);
    });
}

#[test]
fn a_due_timer_tells_its_tolerance() {
    both_ways(|shard| {
        let clock = Arc::new(AtomicU64::new(0));
        let _probe = armed(shard, &clock, SECOND, 4 * MS);
        let due = expire(shard, 2 * SECOND, 1);
        assert_eq!(due[0].tolerance(), Tolerance::new(4 * MS));
        assert!(!due[0].tolerance().is_exact());
    });
}
