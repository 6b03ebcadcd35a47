//! An owner that defers its wake-ups.

use std::sync::{Arc, atomic::Ordering};

use tourbillon_shards::{Flow, NEVER, Options, Reset, Shard, Timer, Tolerance, store::StoreKind};

use crate::common::{Scripted, turn};

fn stated(shard: &Arc<Shard<Scripted>>, deadline: u64, tolerance: u64) -> Timer<Scripted> {
    let options = Options {
        deadline: Some(deadline),
        tolerance: Tolerance::stated(tolerance),
        ..Options::default()
    };
    let timer = Timer::build(shard, 0, options, |_| Flow::Continue(()));
    timer.start(0);
    timer
}

fn wakes(shard: &Shard<Scripted>) -> usize {
    shard.owner().wakes.load(Ordering::Relaxed)
}

#[test]
fn the_owner_sleeps_past_deadlines_and_no_timer_is_lost() {
    let shard = Scripted::deferring(true, StoreKind::default());
    let _timers = [300, 100, 200].map(|at| Timer::once(&shard, at, at, || ()));
    shard.defer(250);
    assert_eq!(
        (shard.next_deadline(), shard.sleep_until()),
        (100, Some(250))
    );
    shard.resume();
    assert_eq!(turn(&shard, 250), 2);
    assert_eq!(shard.sleep_until(), Some(300), "that moment is over");
    shard.resume();
    shard.defer(0);
    assert_eq!(turn(&shard, 300), 1);
    shard.defer(1_000);
    assert_eq!(
        shard.sleep_until(),
        Some(NEVER),
        "there is nothing to wake up for"
    );
    shard.resume();
}

#[test]
fn the_owner_wakes_up_for_timers_whose_tolerance_was_stated() {
    let shard = Scripted::deferring(true, StoreKind::default());
    let _plain = Timer::once(&shard, 100, 100, || ());
    let strict = stated(&shard, 200, 0);
    shard.defer(1_000);
    assert_eq!(shard.next_wake(), 200);
    let _tolerant = stated(&shard, 120, 60);
    assert_eq!(shard.next_wake(), 128, "the roundest moment of its window");
    strict.cancel();
    assert_eq!(turn(&shard, 128), 2);
    assert_eq!(shard.next_wake(), NEVER);
    drop(shard.close());
}

#[test]
fn a_remote_thread_wakes_the_owner_for_a_stated_timer_alone() {
    let shard = Scripted::deferring(false, StoreKind::default());
    let plain = |at| drop(Timer::once(&shard, at, at, || ()));
    plain(100);
    turn(&shard, 0);
    shard.defer(500);
    assert_eq!(shard.sleep_until(), Some(500));
    plain(90);
    let moved = Timer::once(&shard, 900, 900, || ());
    assert_eq!(moved.reset_at(95), Reset::Pending);
    drop(stated(&shard, 600, 0));
    assert_eq!(wakes(&shard), 0, "the owner wakes in time");
    drop(stated(&shard, 400, 0));
    assert_eq!(wakes(&shard), 1);
    shard.resume();
    assert_eq!(turn(&shard, 300), 3);
    assert_eq!(shard.sleep_until(), Some(400));
    assert!(shard.wake(), "other work wakes it");
    shard.resume();
    // The moment is over, so it defers nothing.
    assert_eq!(turn(&shard, 550), 1);
    assert_eq!(shard.sleep_until(), Some(600));
    plain(590);
    assert_eq!(wakes(&shard), 3);
    shard.resume();
    drop(shard.close());
}

/// The store is chosen before or after.
#[test]
fn a_shard_with_another_store_keeps_prompt_timers() {
    for shard in [
        Scripted::deferring(true, StoreKind::Heap),
        Arc::new(Scripted::new(true).deferring().with_store(StoreKind::Heap)),
    ] {
        let _timer = stated(&shard, 100, 0);
        shard.defer(500);
        assert_eq!(shard.next_wake(), 100);
        assert!(!shard.is_late(99) && shard.is_late(100));
        drop(shard.close());
    }
}

#[test]
fn a_timer_that_is_deferred_is_not_late() {
    let shard = Scripted::deferring(true, StoreKind::default());
    let _timer = Timer::once(&shard, 100, 100, || ());
    shard.defer(500);
    assert!(!shard.is_late(499) && shard.is_late(500));
    shard.defer(0);
    assert!(shard.is_late(100));
    drop(shard.close());
}

/// Compares with a list, for timers that are armed, moved, cancelled and run at random.
#[test]
fn the_next_wake_is_that_of_the_first_stated_timer() {
    const LATEST: u64 = 1 << 40;
    for store in StoreKind::ALL {
        let shard = Scripted::deferring(true, store);
        let mut state = 20_261_128_u64;
        let mut random = |below: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 33) % below
        };
        let (mut now, mut live) = (0, Vec::<(Timer<Scripted>, u64, bool)>::new());
        let mut deferred = 0;
        let rounds = if cfg!(miri) { 200 } else { 20_000 };
        for _ in 0..rounds {
            let at = now + 1 + random(5_000);
            match random(8) {
                0..3 => {
                    let is_strict = random(3) == 0;
                    let timer = match is_strict {
                        true => stated(&shard, at, 0),
                        false => Timer::once(&shard, at, at, || ()),
                    };
                    live.push((timer, at, is_strict));
                }
                3 if !live.is_empty() => {
                    let (timer, ..) = live.swap_remove(random(live.len() as u64) as usize);
                    timer.cancel();
                }
                4 | 5 if !live.is_empty() => {
                    let chosen = random(live.len() as u64) as usize;
                    assert_eq!(live[chosen].0.reset_at(at), Reset::Pending);
                    live[chosen].1 = at;
                }
                6 => {
                    now += random(200);
                    // A timer that was moved later may bring the owner back once too often.
                    while turn(&shard, now) > 0 {}
                    live.retain(|(_, at, _)| *at > now);
                }
                _ => {}
            }
            let first = |strict: bool| {
                let some = live.iter().filter(|(.., it)| !strict || *it);
                some.map(|(_, at, _)| *at).min().unwrap_or(LATEST)
            };
            shard.defer(LATEST);
            let wake = shard.next_wake().min(LATEST);
            assert!(
                wake <= first(true),
                "{wake} is past the strict timer at {}",
                first(true)
            );
            deferred += u32::from(first(false) < wake);
        }
        assert!(deferred > rounds / 20, "{deferred} wake-ups were deferred");
        drop(shard.close());
    }
}

/// The owner would wake up in a loop for keys that the store no longer has.
#[test]
fn the_next_wake_is_no_earlier_than_the_first_key_when_very_many_timers_moved() {
    let shard = Scripted::deferring(true, StoreKind::default());
    let timers = (0..600).map(|at| stated(&shard, 1_000 + at, 0));
    let timers: Vec<_> = timers.collect();
    for (timer, at) in timers.iter().zip(10_000..) {
        assert_eq!(timer.reset_at(at), Reset::Pending);
    }
    assert_eq!(turn(&shard, 2_000), 0);
    shard.defer(100_000);
    assert_eq!((shard.next_deadline(), shard.next_wake()), (10_000, 10_000));
    assert_eq!(turn(&shard, 10_000), 1);
    assert_eq!(shard.next_wake(), 10_001);
    drop(shard.close());
}
