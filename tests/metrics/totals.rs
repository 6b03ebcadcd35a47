//! The totals add up: once all timers are over, as many were armed as are over, in whichever way
//! they were armed and ended. No counter ever decreases.

use std::{
    future::{Future, poll_fn},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    task::{Context, Poll, Waker},
    thread,
    time::{Duration, SystemTime},
};

use futures_lite::AsyncReadExt;
use tourbillon::{
    Handle, Runtime, Timer,
    metrics::{Counts, LatenessHistogram, RuntimeMetrics},
    net::UnixStream,
    runtime::Builder,
    time::{BootInstant, DelayQueue, Instant, Sleep, interval, sleep, timeout},
};

use crate::common::{
    HOUR, PATIENCE, Random, alarm, blocked::AllBlocked, eventually, told::read_inboxes,
};

const MS: Duration = Duration::from_millis(1);

/// A closure that drops a long-lived object in the end, on any thread.
type Kept = Box<dyn FnOnce() + Send>;

fn poll_once(sleep: &mut Pin<Box<Sleep>>) {
    let mut cx = Context::from_waker(Waker::noop());
    let _ = sleep.as_mut().poll(&mut cx);
}

/// Arms callbacks: short and long, cancelled, moved, detached.
fn callbacks(handle: &Handle, random: &mut Random, kept: &mut Vec<Kept>) {
    drop(handle.after(Duration::ZERO, || ()));
    drop(handle.after(MS, || panic!("as callbacks do")));
    let timer = handle.after(HOUR, || ());
    timer.refresh();
    timer.reset_after(MS * random.below(3) as u32);
    kept.push(Box::new(move || drop(timer)));
    let timer = handle.at(Instant::now() + HOUR, || ());
    timer.cancel();
    timer.refresh();
    let every = handle.every(MS, || ());
    kept.push(Box::new(move || _ = every.cancel()));
    // These stay armed until the end.
    drop(handle.every(HOUR, || ()));
    drop(handle.after(HOUR, || ()));
}

/// Makes timers with options, on all clocks. Some are started, and some are not.
fn built(handle: &Handle, random: &mut Random, kept: &mut Vec<Kept>) {
    let workers = handle.metrics().num_workers().max(1) as u64;
    let worker = random.below(workers) as usize;
    let on_worker = Timer::after(MS).on(handle).on_worker(worker);
    drop(on_worker.tolerance(MS).start(|| ()));
    drop(Timer::every(MS).on(handle).times(20).start(|| ()));
    let named = Timer::after(HOUR).on(handle).name("sums");
    drop(named.start_with(|_| ()));
    drop(Timer::after(HOUR).on(handle).manual().start(|| ()));
    let unstarted = Timer::after(HOUR).on(handle).manual().start(|| ());
    kept.push(Box::new(move || drop(unstarted)));
    let barred = Timer::after(HOUR).on(handle).manual().start_with(|_| ());
    barred.cancel();
    kept.push(Box::new(move || _ = barred.start()));
    let late = Timer::after(MS).on(handle).manual().start_with(|_| ());
    kept.push(Box::new(move || _ = late.start()));
    let alive = Arc::new(());
    let dead = Timer::after(MS)
        .on(handle)
        .while_alive(Arc::downgrade(&alive));
    drop(dead.start(|_| ()));
    let now = SystemTime::now();
    for at in [now, now + MS, now + HOUR] {
        drop(Timer::at_wall(at).on(handle).start(|| ()));
        Timer::at_wall(at).on(handle).start_with(|_| ()).cancel();
    }
    drop(Timer::after_boot(MS).on(handle).start(|| ()));
    let boot = Timer::at_boot(BootInstant::now() + HOUR).on(handle);
    let boot = boot.start(|| ());
    boot.refresh();
    kept.push(Box::new(move || _ = boot.cancel()));
}

/// Makes sleeps and polls them on this thread, which has entered the runtime.
fn sleeps(kept: &mut Vec<Kept>) {
    let mut polled = Box::pin(sleep(HOUR));
    poll_once(&mut polled);
    drop(polled);
    drop(Box::pin(sleep(MS)));
    let mut moved = Box::pin(sleep(HOUR));
    poll_once(&mut moved);
    moved.as_mut().reset(Instant::now());
    moved.as_mut().reset(Instant::now() + HOUR);
    // If the sleep is over by then, also by a shutdown, this arms it again.
    kept.push(Box::new(move || {
        moved.as_mut().reset(Instant::now() + HOUR);
        drop(moved);
    }));
    let mut queue = DelayQueue::new();
    let key = queue.insert(1, HOUR);
    queue.insert(2, MS);
    let mut cx = Context::from_waker(Waker::noop());
    let _ = queue.poll_expired(&mut cx);
    queue.reset(&key, MS);
    let _ = queue.poll_expired(&mut cx);
    kept.push(Box::new(move || drop(queue)));
}

/// Waits in each way that a task has.
async fn tasks() {
    sleep(MS).await;
    let _ = timeout(MS, std::future::pending::<()>()).await;
    let _ = timeout(HOUR, sleep(MS)).await;
    let mut ticks = interval(MS);
    for _ in 0..3 {
        ticks.tick().await;
    }
    ticks.reset();
    let (mut reader, _writer) = UnixStream::pair().unwrap();
    reader.set_read_timeout(Some(MS)).unwrap();
    for _ in 0..2 {
        assert!(reader.read(&mut [0; 8]).await.is_err(), "it times out");
    }
    let mut slept = Box::pin(sleep(MS));
    slept.as_mut().await;
    slept.as_mut().reset(Instant::now() + MS);
    slept.as_mut().await;
    slept.as_mut().reset(Instant::now() + HOUR);
    poll_fn(|cx| {
        let _ = slept.as_mut().poll(cx);
        Poll::Ready(())
    })
    .await;
}

/// Arms timers of all kinds, from this thread and from tasks. Some of them are not over.
fn arm_all(handle: &Handle, random: &mut Random, kept: &mut Vec<Kept>) {
    callbacks(handle, random, kept);
    built(handle, random, kept);
    {
        let _entered = handle.enter();
        sleeps(kept);
    }
    let mut seed = Random::new(random.below(u64::MAX));
    handle.spawn(async move {
        let mut kept = Vec::new();
        let handle = Handle::current();
        callbacks(&handle, &mut seed, &mut kept);
        built(&handle, &mut seed, &mut kept);
        sleeps(&mut kept);
        tasks().await;
        drop(tourbillon::spawn(sleep(HOUR)));
        kept.into_iter().for_each(|end| end());
        std::future::pending::<()>().await;
    });
    // This thread has not entered a runtime.
    let there = handle.clone();
    let waits = thread::spawn(move || there.block_on(timeout(MS, sleep(HOUR))));
    assert!(waits.join().unwrap().is_err());
}

/// Hides the messages of hundreds of intended panics.
fn quietly() {
    std::panic::set_hook(Box::new(|info| {
        let message = info.payload().downcast_ref::<&str>();
        if message.is_none_or(|it| !it.contains("as callbacks do")) {
            eprintln!("{info}");
        }
    }));
}

#[track_caller]
fn assert_sums(total: &Counts) {
    assert_eq!(total.armed(), total.over(), "{total:?}");
    assert_eq!(total.armed(), total.armed_local() + total.armed_remote());
}

#[test]
fn armed_equals_over_after_a_shutdown() {
    let _alarm = alarm();
    quietly();
    let mut random = Random::new(11);
    for round in 0..8 {
        let workers = 1 + round % 3;
        let runtime = crate::common::runtime(workers);
        let handle = runtime.handle().clone();
        let mut kept = Vec::new();
        for _ in 0..5 {
            arm_all(&handle, &mut random, &mut kept);
        }
        let mut late: Vec<Kept> = kept.split_off(kept.len() / 2);
        kept.into_iter().for_each(|end| end());
        thread::sleep(MS * random.below(4) as u32);
        if round % 2 == 0 {
            drop(runtime);
        } else {
            assert!(runtime.shutdown_timeout(PATIENCE));
        }
        // The runtime has ended and refuses these.
        arm_all_late(&handle, &mut late);
        late.into_iter().for_each(|end| end());
        let total = handle.metrics().total();
        assert_sums(&total);
        for (what, count) in [
            ("fired", total.fired()),
            ("cancelled", total.cancelled()),
            ("shut down", total.shut_down()),
            ("moved", total.refreshed()),
            ("armed inside", total.armed_local()),
            ("armed outside", total.armed_remote()),
        ] {
            assert!(count > 0, "none {what}: {total:?}");
        }
        assert!(handle.metrics().clock_counts().armed() >= 5 * 9);
    }
}

/// Arms timers on a runtime that has ended.
fn arm_all_late(handle: &Handle, kept: &mut Vec<Kept>) {
    let before = handle.metrics().total().armed();
    drop(handle.after(MS, || ()));
    assert!(Timer::after(MS).on(handle).try_start(|| ()).is_err());
    drop(
        Timer::at_wall(SystemTime::now())
            .on(handle)
            .start_with(|_| ()),
    );
    let _entered = handle.enter();
    let mut late = Box::pin(sleep(HOUR));
    poll_once(&mut late);
    kept.push(Box::new(move || drop(late)));
    assert_eq!(handle.metrics().total().armed(), before, "none of them is");
}

#[test]
fn armed_equals_over_when_all_timers_have_ended() {
    let _alarm = alarm();
    quietly();
    let runtime = crate::common::runtime(2);
    let handle = runtime.handle().clone();
    for i in 0..200 {
        let timer = handle.after(MS, || ());
        match i % 3 {
            0 => drop(timer),
            1 => _ = timer.refresh(),
            _ => _ = timer.cancel(),
        }
        drop(Timer::after_boot(MS).on(&handle).start(|| ()));
    }
    runtime.block_on(runtime.spawn(tasks())).unwrap();
    eventually("all are over", || {
        let total = runtime.metrics().total();
        total.over() == total.armed()
    });
    eventually("the shards have heard of it", || {
        read_inboxes(&handle);
        let timers = handle.timers();
        timers.pending() + timers.garbage() == 0
    });
    assert_eq!(runtime.metrics().total().shut_down(), 0);
}

/// Returns all counts, with their names.
fn all(metrics: &RuntimeMetrics) -> Vec<(String, u64)> {
    let mut all = Vec::new();
    let mut counts = |of: &str, counts: &Counts| {
        all.extend(counts.iter().map(|(name, n)| (format!("{of} {name}"), n)));
    };
    counts("total", &metrics.total());
    counts("helpers", metrics.helper_counts());
    counts("clocks", &metrics.clock_counts());
    for (i, worker) in metrics.workers().iter().enumerate() {
        counts(&format!("worker {i}"), worker.counts());
    }
    let mut late = |of: &str, late: &LatenessHistogram| {
        all.push((format!("{of} sum"), late.sum().as_nanos() as u64));
        let buckets = late.buckets().enumerate();
        all.extend(buckets.map(|(i, bucket)| (format!("{of} {i}"), bucket.count())));
    };
    late("wake", &metrics.wake_lateness());
    late("queue", &metrics.queue_lateness());
    late("rescued", &metrics.rescued_lateness());
    late("helpers' wake", metrics.helper_wake_lateness());
    for (i, worker) in metrics.workers().iter().enumerate() {
        let from = worker.steals_from().iter().chain(worker.rescued_from());
        all.extend(from.enumerate().map(|(j, n)| (format!("{i} from {j}"), *n)));
        all.push((format!("{i} sweeps"), worker.sweeps()));
    }
    // These counts appear with the first helper, all at once.
    for (what, from) in [
        ("stole", metrics.helpers_steals_from()),
        ("rescued", metrics.helpers_rescued_from()),
    ] {
        all.push((format!("helpers {what}"), from.iter().sum()));
    }
    all.push(("spawned".into(), metrics.spawned_tasks_count()));
    all.push(("helpers started".into(), metrics.helpers_started()));
    all
}

fn assert_goes_on(before: &[(String, u64)], after: &[(String, u64)]) {
    assert_eq!(before.len(), after.len());
    for ((name, before), (_, after)) in before.iter().zip(after) {
        assert!(before <= after, "{name} went back from {before} to {after}");
    }
}

#[test]
fn counters_never_decrease_while_helpers_come_and_go() {
    const ROUNDS: usize = 12;
    let _alarm = alarm();
    quietly();
    let runtime: Runtime = Builder::new()
        .worker_threads(2)
        .helpers(0..=2)
        .thread_keep_alive(MS)
        .build()
        .unwrap();
    let handle = runtime.handle().clone();
    let stop = Arc::new(AtomicBool::new(false));
    let watches = {
        let (handle, stop) = (handle.clone(), stop.clone());
        thread::spawn(move || {
            let mut last = all(&handle.metrics());
            let mut looks = 0_u64;
            while !stop.load(SeqCst) {
                let now = all(&handle.metrics());
                assert_goes_on(&last, &now);
                last = now;
                looks += 1;
            }
            (looks, last)
        })
    };
    let mut random = Random::new(5);
    for _ in 0..ROUNDS {
        let mut kept = Vec::new();
        arm_all(&handle, &mut random, &mut kept);
        let blocked = AllBlocked::all(&runtime);
        arm_all(&handle, &mut random, &mut kept);
        drop(blocked);
        // A recurring timer would keep the helpers, so end all timers.
        kept.into_iter().for_each(|end| end());
        eventually("the helpers have gone", || {
            runtime.metrics().num_helpers() == 0
        });
    }
    stop.store(true, SeqCst);
    let (looks, last) = watches.join().expect("no counter went back");
    assert!(looks > 0);
    assert!(runtime.metrics().helpers_started() >= ROUNDS as u64);
    // The last counts are those of a runtime whose workers have ended.
    drop(runtime);
    let totals = |all: Vec<(String, u64)>| -> Vec<_> {
        let of_all = |(name, _): &(String, u64)| !name.contains("worker") && !name.contains("from");
        let of_all = |it: &(String, u64)| of_all(it) && !it.0.contains("sweeps");
        all.into_iter().filter(of_all).collect()
    };
    assert_goes_on(&totals(last), &totals(all(&handle.metrics())));
    assert_sums(&handle.metrics().total());
}
