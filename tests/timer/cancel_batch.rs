//! Timers that are due in one batch can be cancelled and moved until they begin to run. Other
//! systems have had these defects.

use std::{
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use crate::common::{
    HOUR, alarm, eventually, on_worker, runtime,
    timers::{assert_over, none_early},
};
use tourbillon::{
    Timer,
    timer::{Cancel, Outcome, Reset, Status},
};

/// Two timers, each of which does something to the other when it runs.
type Pair = Arc<[OnceLock<Timer>; 2]>;

/// Arms pairs, all due at one past instant and so in one batch of the one worker. Each timer calls
/// `act` with its partner. Returns the pairs.
fn pairs_due_together(
    count: usize,
    act: impl Fn(&Timer) + Copy + Send + Sync + 'static,
    at: Instant,
) -> Vec<Pair> {
    (0..count)
        .map(|_| {
            let pair = Pair::default();
            for i in 0..2 {
                let partner = pair.clone();
                let timer = tourbillon::at(at, move || {
                    act(partner[1 - i].get().expect("they run when all are armed"));
                });
                pair[i].set(timer).unwrap();
            }
            pair
        })
        .collect()
}

/// sylar takes the expired timers out under its lock and runs them afterwards. Cancelling one of
/// them in between has no effect there.
#[test]
fn a_timer_due_at_the_same_instant_can_still_be_cancelled() {
    let _alarm = alarm();
    static ANSWERS: Mutex<Vec<Cancel>> = Mutex::new(Vec::new());
    const PAIRS: usize = 400;
    let runtime = runtime(1);
    let pairs = on_worker(&runtime, || {
        // Whichever comes first cancels the other.
        let cancel = |other: &Timer| ANSWERS.lock().unwrap().push(other.cancel());
        pairs_due_together(PAIRS, cancel, Instant::now())
    });
    eventually("each pair has come to its end", || {
        let total = runtime.metrics().total();
        total.cancelled() + total.fired() == 2 * PAIRS as u64 + 1
    });
    on_worker(&runtime, || ());
    assert_eq!(*ANSWERS.lock().unwrap(), [Cancel::Cancelled; PAIRS]);
    for pair in pairs {
        let of = |i: usize| pair[i].get().unwrap();
        let (ran, gone) = match of(0).status() {
            Status::Over(Outcome::Fired) => (of(0), of(1)),
            _ => (of(1), of(0)),
        };
        assert_over(ran, Outcome::Fired);
        assert_over(gone, Outcome::Cancelled);
    }
}

#[test]
fn a_timer_due_at_the_same_instant_can_still_be_moved() {
    let _alarm = alarm();
    static RUNS: AtomicUsize = AtomicUsize::new(0);
    const PAIRS: usize = 400;
    let runtime = runtime(1);
    let pairs = on_worker(&runtime, || {
        let put_off = |other: &Timer| {
            RUNS.fetch_add(1, Ordering::SeqCst);
            // The second timer to run finds that the first is over.
            let expected = match other.status() {
                Status::Pending => Reset::Pending,
                _ => Reset::TooLate,
            };
            assert_eq!(other.reset_after(HOUR), expected);
        };
        pairs_due_together(PAIRS, put_off, Instant::now())
    });
    on_worker(&runtime, || ());
    eventually("one of each pair has run", || {
        RUNS.load(Ordering::SeqCst) >= PAIRS
    });
    on_worker(&runtime, || ());
    assert_eq!(RUNS.load(Ordering::SeqCst), PAIRS, "what was put off ran");
    let now = Instant::now();
    for pair in &pairs {
        let timers = [0, 1].map(|i| pair[i].get().unwrap());
        let waiting = timers.map(|timer| timer.status() == Status::Pending);
        let later = timers[usize::from(waiting[1])];
        assert_ne!(waiting[0], waiting[1], "one of the two waits");
        assert!(later.deadline().unwrap().into_std() > now);
        assert_eq!(later.reset_at(now), Reset::Pending);
    }
    eventually("those that were put off have run", || {
        RUNS.load(Ordering::SeqCst) >= 2 * PAIRS
    });
    assert_eq!(runtime.metrics().total().panics(), 0);
}

/// The moved timer fires at its new deadline: later than its batch, but not never.
#[test]
fn a_timer_moved_by_one_of_its_batch_fires_at_its_new_deadline() {
    let _alarm = alarm();
    let runtime = runtime(1);
    let (sender, receiver) = std::sync::mpsc::channel();
    on_worker(&runtime, move || {
        let past = Instant::now();
        for i in 0..200 {
            let asked = Arc::new(OnceLock::new());
            let (known, sender) = (asked.clone(), sender.clone());
            let moved = tourbillon::at(past + Duration::from_nanos(1), move || {
                let now = Instant::now();
                let asked = *known.get().expect("moved before it ran");
                sender.send((asked, now)).unwrap();
            });
            tourbillon::at(past, move || {
                let to = Instant::now() + Duration::from_micros(50 * i);
                asked.set(to).unwrap();
                assert_eq!(moved.reset_at(to), Reset::Pending);
            });
        }
    });
    none_early(&receiver, 200);
    assert!(receiver.recv().is_err(), "none runs twice");
    assert_eq!(runtime.metrics().total().panics(), 0);
}
