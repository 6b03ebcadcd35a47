//! What another runtime sees of a runtime: its uptime, its polls, and its end.

use std::{
    future::{pending, poll_fn},
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    task::{Context, Poll, Wake, Waker},
    thread,
    time::Duration,
};

use tourbillon::{
    runtime::Builder,
    task::yield_now,
    time::{self, Instant},
};

use super::common::{Gate, alarm, eventually, runtime};

/// Counts its wake-ups.
#[derive(Default)]
struct Counting(AtomicUsize);

impl Wake for Counting {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

#[test]
fn the_uptime_goes_on_while_the_clock_is_paused() {
    let runtime = Builder::new_current_thread().build().unwrap();
    let before = Instant::now().into_std();
    let at = runtime.uptime();
    runtime.block_on(async { time::pause() });
    thread::sleep(Duration::from_millis(5));
    let later = runtime.uptime();
    assert!(later - at >= Duration::from_millis(5), "{at:?} {later:?}");
    assert!(later - at <= before.elapsed());
}

#[test]
fn a_task_of_another_runtime_waits_for_the_end() {
    let _alarm = alarm();
    let observer = runtime(1);
    let (seen, open) = (runtime(2), Gate::new());
    let handle = seen.handle().clone();
    let there = handle.clone();
    let waiting = observer.spawn(async move { there.ended().await });
    let (entered, is_stuck) = (open.clone(), Gate::new());
    let stuck = is_stuck.clone();
    // The worker returns only after this job.
    drop(seen.spawn(async move {
        stuck.open();
        entered.wait();
    }));
    is_stuck.wait();
    assert!(!handle.is_shut_down());
    seen.shutdown_background();
    assert!(handle.is_shut_down());
    assert!(!waiting.is_finished(), "a worker is still in a job");
    open.open();
    observer.block_on(waiting).unwrap();
    // And now it is ready at once.
    observer.block_on(handle.ended());
}

#[test]
fn the_end_wakes_each_future_once_and_none_that_was_dropped() {
    let _alarm = alarm();
    let seen = runtime(1);
    let handle = seen.handle().clone();
    let count = Arc::new(Counting::default());
    let waker = Waker::from(count.clone());
    let mut cx = Context::from_waker(&waker);
    let (mut first, mut second) = (pin!(handle.ended()), pin!(handle.ended()));
    let mut third = Box::pin(handle.ended());
    for _ in 0..2 {
        assert!(first.as_mut().poll(&mut cx).is_pending());
        assert!(second.as_mut().poll(&mut cx).is_pending());
        assert!(third.as_mut().poll(&mut cx).is_pending());
    }
    // Without the local ones: the waker, and one clone for each future.
    assert_eq!(Arc::strong_count(&count), 2 + 3);
    drop(third);
    assert_eq!(Arc::strong_count(&count), 2 + 2);
    drop(seen);
    // The worker wakes them after the shutdown has seen its end.
    eventually("both are woken", || count.0.load(SeqCst) == 2);
    assert_eq!(first.as_mut().poll(&mut cx), Poll::Ready(()));
    assert_eq!(second.as_mut().poll(&mut cx), Poll::Ready(()));
    assert_eq!(count.0.load(SeqCst), 2);
}

#[test]
fn polls_are_timed_while_somebody_asks() {
    let _alarm = alarm();
    let runtime = runtime(1);
    let handle = runtime.handle();
    let times = handle.time_polls();
    let (is_stuck, release) = (Gate::new(), Gate::new());
    let (stuck, released) = (is_stuck.clone(), release.clone());
    let task = runtime.spawn(async move {
        thread::sleep(Duration::from_millis(5));
        yield_now().await;
        stuck.open();
        released.wait();
        pending::<()>().await;
    });
    is_stuck.wait();
    // The first poll is over, and the second one is not.
    let [worker] = &times.take()[..] else {
        panic!("there is one worker");
    };
    let over = worker.over[&task.id()];
    assert_eq!(over.count, 1);
    assert!(over.took >= Duration::from_millis(5), "{over:?}");
    let present = worker.present.unwrap();
    assert_eq!(present.task, task.id());
    assert!(present.since >= over.took && present.since <= handle.uptime());
    release.open();
    eventually("the second poll is over", || {
        let [worker] = &times.take()[..] else {
            panic!("there is one worker");
        };
        worker.over.get(&task.id()).is_some_and(|it| it.count == 1)
    });
    // The deadline of a sleep that the task waits for is known, too.
    let sleeper = runtime.spawn(time::sleep(Duration::from_secs(600)));
    eventually("the sleep is known", || {
        let polled = times.take().into_iter();
        let sleeps = polled
            .flat_map(|polled| polled.over)
            .filter_map(|(id, it)| (id == sleeper.id()).then_some(it.sleeps_until));
        sleeps.flatten().any(|at| {
            let left = at.saturating_sub(handle.uptime());
            left > Duration::ZERO && left <= Duration::from_secs(600)
        })
    });
    drop(times);
    runtime
        .block_on(runtime.spawn(poll_fn(|_| Poll::Ready(()))))
        .unwrap();
    // What was not taken is forgotten with the last one that asks.
    assert!(handle.time_polls().take()[0].over.is_empty());
}
