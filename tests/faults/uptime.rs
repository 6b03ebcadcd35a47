//! A runtime that has been up for years and decades, by a clock that is advanced: nothing hangs,
//! panics or fires at the wrong time, up to the end of the clock. (`time_namespaces.rs` advances
//! the kernel's own clocks that far, `shards/tests/store/uptime.rs` those of the stores.)

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use tourbillon::{
    Runtime, Timer,
    runtime::StoreKind,
    time::{
        BootInstant, DelayQueue, Instant, MissedTickBehavior, advance, interval, interval_at,
        sleep, sleep_until, timeout,
    },
    timer::{Cancel, Outcome, Reset, Status},
};

use crate::common::{HOUR, alarm, paused::with_store};

const MS: Duration = Duration::from_millis(1);
const DAY: Duration = Duration::from_secs(86_400);
const YEAR: Duration = Duration::from_secs(365 * 86_400);

/// The last moment of a runtime's clock, from when it was built. A deadline of 2^61 − 1 ns means
/// never.
const END: Duration = Duration::from_nanos((1 << 61) - 2);

/// Times at which other timer wheels hang, panic or begin anew.
const HORIZONS: [Duration; 10] = [
    Duration::from_secs(12 * 86_400),
    Duration::from_secs(1 << 20),
    Duration::from_millis(1 << 31),
    Duration::from_millis(1 << 32),
    Duration::from_millis(1 << 36),
    Duration::from_nanos(1 << 60),
    Duration::from_secs(50 * 365 * 86_400),
    Duration::from_secs(1 << 31),
    Duration::from_secs(72 * 365 * 86_400),
    // Just before the end.
    Duration::from_nanos((1 << 61) - 60_000_000_000),
];

/// Runs a test with each store, on a runtime that has just been built.
fn each(test: impl Fn(&Runtime)) {
    let _alarm = alarm();
    for store in StoreKind::ALL {
        test(&with_store(2, store));
    }
}

/// Returns the time to the end of the clock. No timer can wait for longer.
fn left() -> Duration {
    let is_never = |wait| {
        let timer = tourbillon::after(wait, || unreachable!("it is cancelled"));
        let is_never = timer.deadline().is_none();
        assert_eq!(timer.cancel(), Cancel::Cancelled);
        is_never
    };
    let ns = Duration::from_nanos(1);
    let (mut yes, mut no) = (Duration::ZERO, END + ns);
    while no - yes > ns {
        let middle = yes + (no - yes) / 2;
        match is_never(middle) {
            true => no = middle,
            false => yes = middle,
        }
    }
    yes
}

/// Brings the clock to the time `to` after the start.
async fn bring(start: Instant, to: Duration) {
    let passed = start.elapsed();
    advance(to.checked_sub(passed).expect("it is not so late")).await;
    assert_eq!(start.elapsed(), to);
}

/// Returns a callback that stores when it ran, in ns after the start.
fn notes(ran: &Arc<AtomicU64>, start: Instant) -> impl FnOnce() + Send + 'static {
    let ran = ran.clone();
    move || ran.store(start.elapsed().as_nanos() as u64, SeqCst)
}

#[test]
fn timers_sleeps_and_timeouts_are_exact_at_each_horizon() {
    each(|runtime| {
        runtime.block_on(async {
            let start = Instant::now();
            // At the start, arm timers for each horizon, and for a nanosecond before and after
            // it.
            let ns = Duration::from_nanos(1);
            let mut armed = Vec::new();
            for at in HORIZONS.into_iter().flat_map(|at| [at - ns, at, at + ns]) {
                let ran = Arc::new(AtomicU64::new(0));
                let timer = tourbillon::after(at, notes(&ran, start));
                assert_eq!(timer.deadline(), Some(start + at));
                armed.push((at, ran, timer));
            }
            for horizon in HORIZONS {
                bring(start, horizon - 10 * MS).await;
                // Arm timers near the horizon.
                let ran = Arc::new(AtomicU64::new(0));
                let _timer = tourbillon::after(10 * MS - ns, notes(&ran, start));
                let cancelled = tourbillon::after(5 * MS, || unreachable!("cancelled"));
                let moved = tourbillon::after(HOUR, || ());
                assert_eq!(moved.reset_after(11 * MS), Reset::Pending);
                assert_eq!(cancelled.cancel(), Cancel::Cancelled);
                sleep(10 * MS - ns).await;
                assert_eq!(start.elapsed(), horizon - ns);
                let limited = timeout(ns, sleep(2 * ns)).await;
                assert!(limited.is_err());
                assert_eq!(start.elapsed(), horizon);
                sleep_until(start + horizon + ns).await;
                assert_eq!(start.elapsed(), horizon + ns);
                assert!(moved.is_pending());
                advance(MS).await;
                assert_eq!(ran.load(SeqCst) as u128, (horizon - ns).as_nanos());
                assert_eq!(moved.status(), Status::Over(Outcome::Fired));
            }
            for (at, ran, _) in &armed {
                assert_eq!(ran.load(SeqCst) as u128, at.as_nanos());
            }
        });
        assert_eq!(runtime.metrics().total().panics(), 0);
    });
}

#[test]
fn recurring_timers_continue_past_each_horizon() {
    each(|runtime| {
        runtime.block_on(async {
            let start = Instant::now();
            for horizon in HORIZONS {
                bring(start, horizon - 25 * MS).await;
                let ran = Arc::new(AtomicUsize::new(0));
                let counter = ran.clone();
                let timer = tourbillon::every(10 * MS, move || {
                    counter.fetch_add(1, SeqCst);
                });
                for behavior in [
                    MissedTickBehavior::Burst,
                    MissedTickBehavior::Delay,
                    MissedTickBehavior::Skip,
                ] {
                    let from = Instant::now();
                    let mut ticks = interval(10 * MS);
                    ticks.set_missed_tick_behavior(behavior);
                    for i in 0..3 {
                        assert_eq!(ticks.tick().await - from, i * 10 * MS);
                    }
                    // Several ticks are missed.
                    advance(45 * MS).await;
                    let due = ticks.tick().await - from;
                    let next = ticks.tick().await - from;
                    let expected = match behavior {
                        MissedTickBehavior::Burst => 40,
                        MissedTickBehavior::Delay => 75,
                        MissedTickBehavior::Skip => 70,
                    };
                    assert_eq!((due, next), (30 * MS, expected * MS), "{behavior:?}");
                }
                let runs = ran.load(SeqCst);
                assert!(runs >= 3, "{runs}");
                assert_ne!(timer.cancel(), Cancel::Over);
            }
        });
    });
}

#[test]
fn a_delay_queue_works_past_each_horizon() {
    each(|runtime| {
        runtime.block_on(async {
            let start = Instant::now();
            // One queue exists from the start, with all horizons in it. Another is made at each
            // horizon.
            let mut all = DelayQueue::new();
            let moved = all.insert(usize::MAX, DAY);
            let never = all.insert(usize::MAX, Duration::MAX);
            for (i, horizon) in HORIZONS.into_iter().enumerate().rev() {
                all.insert(i, horizon);
            }
            all.reset(&moved, 1_000 * YEAR);
            for (i, horizon) in HORIZONS.into_iter().enumerate() {
                let first = all.expired().await.unwrap();
                assert_eq!(*first.get_ref(), i);
                assert_eq!(start.elapsed(), horizon);
                let mut new = DelayQueue::new();
                new.insert(1, MS);
                let gone = new.insert(2, 2 * MS);
                new.insert(3, 3 * MS);
                new.insert(4, Duration::MAX);
                assert_eq!(*new.remove(&gone).get_ref(), 2);
                assert_eq!(new.expired().await.unwrap().into_inner(), 1);
                assert_eq!(new.expired().await.unwrap().into_inner(), 3);
                assert_eq!(start.elapsed(), horizon + 3 * MS);
                assert_eq!(new.len(), 1);
            }
            assert_eq!(all.len(), 2);
            assert_eq!(*all.remove(&never).get_ref(), usize::MAX);
        });
    });
}

/// A timer later than the end of the clock never fires, and delays no other timer. A task can drop
/// a wait for it.
#[test]
fn at_the_end_of_the_clock_due_timers_fire_and_later_ones_wait() {
    each(|runtime| {
        runtime.block_on(async {
            let (start, end) = (Instant::now(), left());
            // The runtime was built just now.
            assert!(END - end < HOUR);
            let ran = Arc::new(AtomicUsize::new(0));
            let count = || {
                let ran = ran.clone();
                move || _ = ran.fetch_add(1, SeqCst)
            };
            let last = tourbillon::after(end, count());
            let beyond = tourbillon::after(end + Duration::from_nanos(1), || unreachable!("never"));
            let never = tourbillon::after(Duration::MAX, || unreachable!("never"));
            let recurring = tourbillon::every(YEAR, count());
            assert_eq!(last.deadline(), Some(start + end));
            assert_eq!((beyond.deadline(), never.deadline()), (None, None));
            bring(start, end - 10 * MS).await;
            assert_eq!(
                ran.load(SeqCst),
                1,
                "73 of them are one, once they were missed"
            );
            let close = tourbillon::every(4 * MS, count());
            let mut ticks = interval_at(Instant::now() + 4 * MS, 4 * MS);
            ticks.tick().await;
            ticks.tick().await;
            advance(Duration::MAX).await;
            assert_eq!(start.elapsed(), end);
            // Twice on its way, and the last moment.
            assert_eq!(ran.load(SeqCst), 4);
            assert_eq!(last.status(), Status::Over(Outcome::Fired));
            assert_eq!((close.deadline(), recurring.deadline()), (None, None));
            // Here the clock stands: what is due is, and no more.
            advance(HOUR).await;
            assert_eq!(start.elapsed(), end);
            sleep(Duration::ZERO).await;
            let now = tourbillon::after(Duration::ZERO, count());
            let later = tourbillon::after(Duration::from_nanos(1), || unreachable!("never"));
            let late = tourbillon::every(MS, || unreachable!("never"));
            let task = tourbillon::spawn(async { sleep(MS).await });
            let mut queue = DelayQueue::new();
            queue.insert(1, Duration::ZERO);
            assert_eq!(queue.expired().await.unwrap().into_inner(), 1);
            advance(HOUR).await;
            assert_eq!(now.status(), Status::Over(Outcome::Fired));
            assert!(!task.is_finished());
            task.abort();
            assert!(task.await.unwrap_err().is_cancelled());
            for timer in [&beyond, &never, &recurring, &close, &later, &late] {
                assert!(timer.is_pending());
                assert_eq!(timer.refresh(), Reset::Pending);
                assert_eq!(timer.deadline(), None);
            }
            // A timer that is reset from beyond the clock's end to a valid time fires.
            assert_eq!(later.cancel(), Cancel::Cancelled);
            let moved = tourbillon::after(HOUR, count());
            assert_eq!(moved.reset_after(Duration::ZERO), Reset::Pending);
            advance(Duration::ZERO).await;
            assert_eq!(moved.status(), Status::Over(Outcome::Fired));
            for timer in [beyond, never, recurring, close, late] {
                assert_eq!(timer.cancel(), Cancel::Cancelled);
            }
        });
        // The clock runs on, and stays where it is: nothing spins, and all ends.
        runtime.resume_clock();
        runtime.handle().after(Duration::ZERO, || ());
        assert_eq!(runtime.metrics().total().panics(), 0);
    });
}

#[test]
fn endless_durations_never_fire_and_never_panic() {
    each(|runtime| {
        runtime.block_on(async {
            let start = Instant::now();
            for back in [HORIZONS[0], 73 * YEAR] {
                bring(start, back).await;
                let forever = [
                    Duration::MAX,
                    Duration::MAX - MS,
                    600 * YEAR,
                    300 * YEAR,
                    146 * YEAR,
                ];
                for long in forever {
                    assert!(timeout(MS, sleep(long)).await.is_err());
                    assert!(
                        timeout(MS, sleep_until(Instant::now() + long))
                            .await
                            .is_err()
                    );
                    let mut ticks = interval(long);
                    ticks.tick().await;
                    assert!(timeout(MS, ticks.tick()).await.is_err());
                    ticks.reset_after(MS);
                    ticks.tick().await;
                    assert!(timeout(MS, ticks.tick()).await.is_err());
                    assert!(timeout(long, async { 7 }).await.is_ok());
                    let timer = tourbillon::after(long, || unreachable!("never"));
                    let tolerant = Timer::after(long).tolerance(long).jitter(long).start(|| ());
                    let recurring = tourbillon::every(long, || unreachable!("never"));
                    for timer in [&timer, &tolerant, &recurring] {
                        assert_eq!(timer.reset_after(long), Reset::Pending);
                        assert_eq!(timer.reset_at(Instant::now() + long), Reset::Pending);
                        assert_eq!(timer.refresh(), Reset::Pending);
                        assert!(timer.deadline().is_none());
                        assert_eq!(timer.cancel(), Cancel::Cancelled);
                    }
                    let mut queue = DelayQueue::new();
                    let key = queue.insert((), long);
                    queue.reset(&key, long);
                    queue.reset_at(&key, Instant::now() + long);
                    assert!(timeout(MS, queue.expired()).await.is_err());
                }
            }
        });
    });
}

/// Timers at extreme system times. `SystemTime` reaches some 292 billion years to both sides of
/// 1970; the runtime's clock goes from 2020 to 2093.
#[test]
fn extreme_system_times_fire_at_once_or_never() {
    each(|runtime| {
        let long_ago = UNIX_EPOCH.checked_sub(Duration::from_secs(i64::MAX as u64));
        let last = UNIX_EPOCH.checked_add(Duration::from_secs(i64::MAX as u64));
        let (long_ago, last) = (long_ago.unwrap(), last.unwrap());
        runtime.block_on(async {
            let wall = |at: SystemTime| Timer::at_wall(at).start(|| ());
            let boot = |at: BootInstant| Timer::at_boot(at).start(|| ());
            let past = [long_ago, UNIX_EPOCH, UNIX_EPOCH + 40 * YEAR].map(wall);
            // A day after 2020, but for 2^64 ns.
            let wraps =
                Duration::from_secs(1_577_836_800 + 86_400) + Duration::from_nanos(u64::MAX);
            let never = [last, UNIX_EPOCH + 200 * YEAR, UNIX_EPOCH + wraps].map(wall);
            let never_boot = boot(BootInstant::now() + Duration::MAX);
            advance(MS).await;
            for timer in &past {
                assert_eq!(timer.status(), Status::Over(Outcome::Fired));
            }
            // The last that there is of ours, and the first that is not.
            let (in_time, too_late) = (
                wall(UNIX_EPOCH + Duration::from_secs(1_577_836_800) + END),
                wall(UNIX_EPOCH + Duration::from_secs(1_577_836_801) + END),
            );
            assert!(in_time.deadline().is_some() && too_late.deadline().is_none());
            // Their clock goes with the runtime's to the end, where nothing of it hangs.
            for _ in 0..8 {
                advance(10 * YEAR).await;
            }
            assert_eq!(in_time.status(), Status::Over(Outcome::Fired));
            for timer in never.iter().chain([&too_late]) {
                assert_eq!((timer.deadline(), timer.is_pending()), (None, true));
                assert_eq!(timer.reset_at(last), Reset::Pending);
                assert_eq!(timer.cancel(), Cancel::Cancelled);
            }
            assert_eq!(never_boot.cancel(), Cancel::Cancelled);
        });
    });
}

/// A worker that serves requests by the hour for decades, one after the other.
#[test]
fn a_timer_refreshed_for_decades_fires_when_refreshing_stops() {
    each(|runtime| {
        runtime.block_on(async {
            let start = Instant::now();
            let ran = Arc::new(AtomicU64::new(0));
            let keep_alive = tourbillon::after(2 * DAY, notes(&ran, start));
            let mut days = 0_u64;
            // Denser where something may change.
            while start.elapsed() + 60 * DAY < END {
                let near = HORIZONS.iter().any(|at| {
                    let now = start.elapsed();
                    now + 3 * DAY > *at && now < *at + 3 * DAY
                });
                if near {
                    advance(DAY).await;
                    days += 1;
                } else {
                    assert_eq!(keep_alive.reset_after(40 * DAY), Reset::Pending);
                    advance(30 * DAY).await;
                    days += 30;
                }
                let answer = keep_alive.reset_after(2 * DAY);
                assert_eq!(answer, Reset::Pending, "on day {days}");
            }
            assert!(days > 70 * 365);
            assert_eq!(ran.load(SeqCst), 0);
            let asked = start.elapsed() + 2 * DAY;
            advance(3 * DAY).await;
            assert!(ran.load(SeqCst) as u128 >= asked.as_nanos());
        });
    });
}
