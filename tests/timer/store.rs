//! Each timer store of the builder: every timer ends once and none is early. The clock is paused
//! here. `tests/stress` has stores on a running clock, `shards/tests/store/stores.rs` the
//! stores alone.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use crate::common::{Random, alarm, paused::with_store};
use tourbillon::{
    Timer,
    runtime::{Builder, StoreKind},
    time::{Instant, advance, wall_clock},
    timer::Cancel,
};

const YEAR: Duration = Duration::from_secs(365 * 24 * 3_600);

#[test]
fn the_wheel_is_the_default() {
    assert_eq!(StoreKind::default(), StoreKind::Wheel);
    let builder = format!("{:?}", Builder::new());
    assert!(builder.contains("timer_store: Wheel"), "{builder}");
    let mut builder = Builder::new();
    builder.timer_store(StoreKind::Heap);
    let builder = format!("{builder:?}");
    assert!(builder.contains("timer_store: Heap"), "{builder}");
}

/// Returns a random delay, typical for a server or extreme.
fn delay(random: &mut Random) -> Duration {
    match random.below(10) {
        0..4 => Duration::from_secs([1, 5, 30, 60][random.below(4) as usize]),
        4..7 => Duration::from_nanos(random.below(60_000_000_000)),
        7 => Duration::from_secs(10),
        8 => Duration::ZERO,
        _ => YEAR * random.below(60) as u32,
    }
}

#[test]
fn each_timer_ends_once_and_none_is_early() {
    let _alarm = alarm();
    for store in StoreKind::ALL {
        with_store(2, store).block_on(async {
            let mut random = Random::new(5);
            // The times at which each timer ran.
            let ran: Arc<Mutex<Vec<Vec<Instant>>>> = Arc::default();
            let mut timers: Vec<(Timer, Instant, bool)> = Vec::new();
            for round in 0..40 {
                for _ in 0..50 {
                    let id = timers.len();
                    ran.lock().unwrap().push(Vec::new());
                    let (ran, due) = (ran.clone(), Instant::now() + delay(&mut random));
                    let timer = tourbillon::at(due, move || {
                        ran.lock().unwrap()[id].push(Instant::now());
                    });
                    timers.push((timer, due, false));
                }
                for _ in 0..40 {
                    let which = random.below(timers.len() as u64) as usize;
                    let (timer, due, cancelled) = &mut timers[which];
                    if random.below(2) == 0 {
                        *cancelled |= timer.cancel() == Cancel::Cancelled;
                    } else {
                        let to = Instant::now() + delay(&mut random);
                        if timer.is_pending()
                            && timer.reset_at(to) == tourbillon::timer::Reset::Pending
                        {
                            *due = to;
                        }
                    }
                }
                // The last steps take years.
                let step = Duration::from_millis(random.below(2_000));
                advance(if round > 36 { YEAR * 20 } else { step }).await;
                let now = Instant::now();
                let ran = ran.lock().unwrap();
                for ((_, due, cancelled), ran) in timers.iter().zip(&*ran) {
                    let runs = usize::from(!cancelled && *due <= now);
                    assert_eq!(ran.len(), runs, "{store:?}, due {due:?}, at {now:?}");
                    assert!(ran.iter().all(|at| at >= due), "{store:?}: early");
                }
            }
        });
    }
}

/// The builder's store also applies to the other clocks.
#[test]
fn timers_on_other_clocks_fire_in_deadline_order() {
    let _alarm = alarm();
    for store in StoreKind::ALL {
        with_store(2, store).block_on(async {
            let ran: Arc<Mutex<Vec<u64>>> = Arc::default();
            let start = wall_clock();
            for i in 0..1_000 {
                // One timer for each of the next 1,000 seconds, in no order.
                let second = 1 + i * 7_919 % 1_000;
                let (ran, at) = (ran.clone(), start + Duration::from_secs(second));
                Timer::at_wall(at).start(move || ran.lock().unwrap().push(second));
            }
            for seconds in [0, 1, 9, 490, 500] {
                advance(Duration::from_secs(seconds)).await;
            }
            let mut ran = std::mem::take(&mut *ran.lock().unwrap());
            // Two workers run the timers that came due together, in either order.
            ran.sort_unstable();
            assert!(ran.into_iter().eq(1..=1_000), "{store:?}");
        });
    }
}
