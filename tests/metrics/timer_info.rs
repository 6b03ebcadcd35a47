//! `Handle::timers` shows the timers that wait.

use std::time::{Duration, Instant, SystemTime};

use tourbillon::{Timer, time::sleep, timer::Cancel};

use crate::common::{HOUR, alarm, eventually, on_worker, runtime, told::read_inboxes};

#[test]
fn an_idle_runtime_has_nothing_to_show() {
    let _alarm = alarm();
    let runtime = runtime(3);
    let timers = runtime.timers();
    assert_eq!(
        (timers.pending(), timers.garbage(), timers.next_deadline()),
        (0, 0, None)
    );
    assert_eq!((timers.workers.len(), timers.named.len()), (3, 0));
    for worker in &timers.workers {
        assert_eq!(
            (worker.pending, worker.garbage, worker.next_deadline),
            (0, 0, None)
        );
    }
    assert_eq!((timers.wall.pending, timers.wall.next_deadline), (0, None));
    assert_eq!((timers.boot.pending, timers.boot.next_deadline), (0, None));
    let handle = runtime.handle().clone();
    drop(runtime);
    let timers = handle.timers();
    assert_eq!((timers.pending(), timers.workers.len()), (0, 0));
}

#[test]
fn pending_timers_are_counted_on_their_shard() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let handle = runtime.handle();
    let mut kept = Vec::new();
    for (worker, count) in [(0, 30), (1, 12)] {
        for i in 0..count {
            let builder = Timer::after(HOUR + i * HOUR).on(handle).on_worker(worker);
            kept.push(builder.start(|| ()));
        }
    }
    let wall = SystemTime::now() + HOUR;
    let at_wall = Timer::at_wall(wall).on(handle).start(|| ());
    let boot = Timer::after_boot(HOUR).on(handle).start(|| ());
    let _built = Timer::after(HOUR)
        .on(handle)
        .name("built")
        .manual()
        .start(|| ());
    // Sleeps count as well.
    let sleeping = runtime.spawn(sleep(2 * HOUR));
    eventually("all are counted", || {
        read_inboxes(handle);
        runtime.timers().pending() == 30 + 12 + 2 + 1
    });
    let timers = handle.timers();
    let each: Vec<_> = timers.workers.iter().map(|worker| worker.pending).collect();
    assert!(each == [31, 12] || each == [30, 13], "{each:?}");
    assert_eq!((timers.wall.pending, timers.boot.pending), (1, 1));
    assert_eq!(timers.wall.next_deadline, Some(wall));
    assert_eq!(timers.boot.next_deadline, boot.deadline());
    assert_eq!(timers.workers[0].next_deadline, kept[0].deadline());
    assert_eq!(timers.workers[1].next_deadline, kept[30].deadline());
    assert_eq!(timers.next_deadline(), kept[0].deadline());

    sleeping.abort();
    for timer in &kept[1..] {
        assert_eq!(timer.cancel(), Cancel::Cancelled);
    }
    assert_eq!(
        (at_wall.cancel(), boot.cancel()),
        (Cancel::Cancelled, Cancel::Cancelled)
    );
    eventually("one is left", || {
        read_inboxes(handle);
        runtime.timers().pending() == 1
    });
    assert_eq!(runtime.timers().next_deadline(), kept[0].deadline());
}

#[test]
fn the_next_deadline_is_never_after_the_earliest_timer() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let handle = runtime.handle();
    let next = || handle.timers().next_deadline().map(|next| next.into_std());
    let now = Instant::now();
    // The timer counts at once, though no worker has read its inbox yet.
    let late = Timer::at(now + 3 * HOUR).on(handle).start(|| ());
    assert_eq!(next(), Some(now + 3 * HOUR));
    let early = Timer::at(now + HOUR).on(handle).start(|| ());
    assert_eq!(next(), Some(now + HOUR));
    early.reset_at(now + HOUR / 2);
    assert_eq!(next(), Some(now + HOUR / 2));
    late.reset_at(now + HOUR / 4);
    assert_eq!(next(), Some(now + HOUR / 4));
    // Later deadlines are noticed only when the earlier ones come up. The answer may be too
    // early, but is never too late.
    early.reset_at(now + 5 * HOUR);
    late.reset_at(now + 4 * HOUR);
    assert!(next().is_some_and(|next| next <= now + 4 * HOUR));
    // A worker's next deadline is visible to another worker.
    let (other, expected) = (handle.clone(), now + 4 * HOUR);
    let seen = on_worker(&runtime, move || other.timers().next_deadline());
    assert!(seen.is_some_and(|next| next.into_std() <= expected));
}

#[test]
fn cancelled_timers_are_garbage_until_their_shard_removes_them() {
    let _alarm = alarm();
    let runtime = runtime(1);
    let handle = runtime.handle();
    let kept: Vec<_> = (0..100)
        .map(|_| runtime.handle().after(HOUR, || ()))
        .collect();
    read_inboxes(handle);
    assert_eq!(
        (runtime.timers().pending(), runtime.timers().garbage()),
        (100, 0)
    );
    // A few cancelled timers may stay in the store for now.
    for timer in &kept[..20] {
        assert_eq!(timer.cancel(), Cancel::Cancelled);
    }
    eventually("they are not pending", || runtime.timers().pending() == 80);
    assert!(runtime.timers().garbage() <= 20);
    // The worker removes them when it is awake.
    eventually("all are swept out", || {
        read_inboxes(handle);
        runtime.timers().garbage() == 0
    });
    assert_eq!(runtime.timers().pending(), 80);
    // The cancelling thread sweeps most of them out. If the worker reads its inbox meanwhile, the
    // next thread that cancels does that. (The deadlines are later than the others, so that no
    // arrival wakes the worker.)
    let more: Vec<_> = (0..5_000)
        .map(|_| runtime.handle().after(HOUR, || ()))
        .collect();
    read_inboxes(handle);
    for timer in &more {
        assert_eq!(timer.cancel(), Cancel::Cancelled);
    }
    eventually("the cancelling thread sweeps", || {
        let next = runtime.handle().after(2 * HOUR, || ());
        assert_eq!(next.cancel(), Cancel::Cancelled);
        runtime.timers().garbage() <= 64 + 80
    });
    // The test reads both counts one after the other. The worker may read its inbox in between.
    eventually("both tell the same", || {
        let metrics = runtime.metrics();
        let stored: usize = metrics.workers().iter().map(|worker| worker.stored()).sum();
        let timers = runtime.timers();
        timers.pending() == stored.saturating_sub(timers.garbage())
    });
}

#[test]
fn timer_names_are_listed_in_order_with_their_counts() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let handle = runtime.handle();
    let mut kept = Vec::new();
    for name in ["walk", "idle", "walk", "a \"quoted\" one", "walk"] {
        kept.push(Timer::after(HOUR).on(handle).name(name).start(|| ()));
    }
    let _nameless = Timer::after(HOUR).on(handle).start(|| ());
    let wall = Timer::at_wall(SystemTime::now() + HOUR)
        .on(handle)
        .name("walk");
    let _wall = wall.start(|| ());
    let timers = handle.timers();
    let named: Vec<_> = timers
        .named
        .iter()
        .map(|(name, count)| (&**name, *count))
        .collect();
    assert_eq!(named, [("a \"quoted\" one", 1), ("idle", 1), ("walk", 4)]);
    let debug = format!("{timers:?}");
    for part in [
        "pending: ",
        "garbage: ",
        "workers: [",
        "next_deadline: ",
        r#"named: {"a \"quoted\" one": 1, "idle": 1, "walk": 4}"#,
    ] {
        assert!(debug.contains(part), "{part} is not in {debug}");
    }
    // A snapshot does not change afterwards.
    assert_eq!(runtime.handle().cancel_all_named("walk"), 4);
    assert_eq!(timers.clone().named.len(), 3);
    assert_eq!(handle.timers().named.len(), 2);
    assert!(
        format!("{:?}", kept[0]).contains("Over(Cancelled)"),
        "{:?}",
        kept[0]
    );
    assert!(
        format!("{:?}", kept[1]).contains("Pending"),
        "{:?}",
        kept[1]
    );
    assert!(kept[1].deadline().unwrap() - tourbillon::time::Instant::now() > Duration::ZERO);
}
