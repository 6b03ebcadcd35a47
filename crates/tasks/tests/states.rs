//! What a task does when it is woken, cancelled, detached or joined. No part of it is left in the
//! end.

mod common;

use std::{
    future,
    mem::size_of,
    sync::{Arc, Mutex, atomic::Ordering::SeqCst},
    task::{Context, Poll, Waker},
    thread,
};

use common::{Drops, Executor, Meta, Steps, Wakes};
use tourbillon_tasks::{Join, Runnable, Status, TaskRef, Woken, spawn};

fn poll<T>(join: &mut Join<T, Meta>, waker: &Waker) -> Poll<()> {
    join.poll_ended(&mut Context::from_waker(waker))
}

fn take_waker(slot: &Mutex<Option<Waker>>) -> Waker {
    slot.lock().unwrap().take().expect("it was polled")
}

#[test]
fn each_handle_is_one_pointer() {
    let pointer = size_of::<usize>();
    assert_eq!(size_of::<Option<Runnable<Meta>>>(), pointer);
    assert_eq!(size_of::<Option<TaskRef<Meta>>>(), pointer);
    assert_eq!(size_of::<Option<Join<String, Meta>>>(), pointer);
}

#[test]
fn a_future_runs_to_its_output() {
    let executor = Executor::new();
    let join = executor.spawn(async { 6 * 7 });
    assert!(!join.has_ended());
    assert_eq!(executor.run(), 1);
    assert!(join.has_ended());
    assert_eq!(join.into_output().unwrap().unwrap(), 42);
    assert_eq!(*executor.woken.lock().unwrap(), [Woken::Waiting]);
    assert_eq!(Arc::strong_count(&executor), 1, "the metadata is dropped");
}

#[test]
fn a_task_tells_its_status_and_the_data_of_its_wakers() {
    let executor = Executor::new();
    let seen: Arc<Mutex<Option<TaskRef<Meta>>>> = Arc::default();
    let running = seen.clone();
    let mut waits = true;
    let join = executor.spawn(future::poll_fn(move |cx| {
        let running = running.lock().unwrap();
        let task = running.as_ref().unwrap();
        assert_eq!(task.status(), Status::Running);
        assert_eq!(task.waker_data(), cx.waker().data());
        match std::mem::take(&mut waits) {
            true => Poll::Pending,
            false => Poll::Ready(()),
        }
    }));
    let task = join.reference();
    *seen.lock().unwrap() = Some(task.clone());
    assert_eq!(task.status(), Status::Scheduled);
    executor.run();
    assert_eq!(task.status(), Status::Waiting);
    task.wake();
    assert_eq!(task.status(), Status::Scheduled);
    executor.run();
    assert_eq!(task.status(), Status::Ended);
    *seen.lock().unwrap() = None;
}

#[test]
fn a_traced_poll_tells_of_the_waker_that_it_keeps() {
    let executor = Executor::new();
    let kept: Arc<Mutex<Option<Waker>>> = Arc::default();
    let (keeps, mut polls) = (kept.clone(), 0);
    let join = executor.spawn(future::poll_fn(move |cx| {
        polls += 1;
        let mut kept = keeps.lock().unwrap();
        match &mut *kept {
            // As leaves do: a waker that is the same is not cloned.
            Some(there) => there.clone_from(cx.waker()),
            none => *none = Some(cx.waker().clone()),
        }
        // The waker that is lent may also be used.
        if polls == 4 {
            cx.waker().wake_by_ref();
        }
        match polls {
            5 => Poll::Ready(()),
            _ => Poll::Pending,
        }
    }));
    let traced = || executor.traced.load(SeqCst);
    executor.run();
    assert_eq!(traced(), 0);
    let before = take_waker(&kept);
    *kept.lock().unwrap() = Some(before.clone());
    for times in 1..=2 {
        join.wake();
        executor.take().unwrap().run_traced();
        assert_eq!(traced(), times);
        // What is kept is an ordinary waker.
        let now = kept.lock().unwrap().clone().unwrap();
        assert!(now.will_wake(&before) && now.will_wake(&join.waker()));
        assert_eq!(join.status(), Status::Waiting);
    }
    before.wake();
    executor.take().unwrap().run_traced();
    assert_eq!((traced(), executor.queued()), (3, 1));
    // The last poll is an ordinary one, which keeps the waker that is there.
    executor.run();
    assert!(join.has_ended());
    assert_eq!(traced(), 3);
    *kept.lock().unwrap() = None;
    drop(join);
    assert_eq!(
        Arc::strong_count(&executor),
        1,
        "each reference was given up"
    );
}

#[test]
fn a_waiting_task_is_scheduled_once_by_many_wakers() {
    let (executor, drops) = (Executor::new(), Drops::default());
    let (steps, waker) = Steps::new(1, &drops);
    let join = executor.spawn(steps);
    executor.run();
    let waker = take_waker(&waker);
    assert_eq!(executor.queued(), 0);
    waker.wake_by_ref();
    let by_value = waker.clone();
    by_value.wake();
    join.wake();
    assert_eq!(executor.queued(), 1);
    assert_eq!(executor.run(), 1);
    assert_eq!(join.into_output().unwrap().unwrap(), "through");
    // The task has ended, so a wake-up does nothing.
    waker.wake();
    assert_eq!(executor.queued(), 0);
    assert_eq!((drops.count(), Arc::strong_count(&executor)), (1, 1));
}

#[test]
fn a_task_that_wakes_itself_is_scheduled_after_the_poll() {
    let executor = Executor::new();
    let mut woken = false;
    let join = executor.spawn(future::poll_fn(move |cx| {
        if std::mem::replace(&mut woken, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        let by_value = cx.waker().clone();
        by_value.wake();
        Poll::Pending
    }));
    executor.take().unwrap().run();
    assert_eq!(executor.queued(), 1);
    executor.run();
    assert!(join.has_ended());
    assert_eq!(
        *executor.woken.lock().unwrap(),
        [Woken::Waiting, Woken::WhileRunning]
    );
}

#[test]
fn a_task_that_wakes_itself_and_is_ready_has_ended() {
    let executor = Executor::new();
    let join = executor.spawn(future::poll_fn(|cx| {
        cx.waker().wake_by_ref();
        Poll::Ready(1)
    }));
    assert_eq!(executor.run(), 1);
    assert_eq!(executor.queued(), 0);
    assert_eq!(join.into_output().unwrap().unwrap(), 1);
}

#[test]
fn a_cancelled_task_is_dropped_where_it_would_run() {
    for polls in 0..3 {
        let (executor, drops) = (Executor::new(), Drops::default());
        let (steps, waker) = Steps::new(2, &drops);
        let mut join = executor.spawn(steps);
        // Cancel the task before it runs, while it waits, or while it waits and was woken.
        for _ in 0..polls {
            executor.run();
            if polls == 2 {
                take_waker(&waker).wake();
            }
        }
        let (wakes, awaiter) = Wakes::new();
        if polls > 0 {
            assert!(poll(&mut join, &awaiter).is_pending());
        }
        join.cancel();
        join.cancel();
        assert_eq!((drops.count(), executor.queued()), (0, 1));
        executor.run();
        assert_eq!((drops.count(), executor.queued()), (1, 0));
        assert!(join.has_ended());
        assert_eq!(wakes.count(), usize::from(polls > 0));
        join.cancel();
        assert!(join.into_output().is_none());
        drop(waker.lock().unwrap().take());
        assert_eq!(Arc::strong_count(&executor), 1);
    }
}

#[test]
fn a_task_cancelled_during_its_poll_is_dropped_after_it() {
    let (executor, drops) = (Executor::new(), Drops::default());
    let token = drops.token();
    let join = Arc::new(Mutex::new(None::<Join<(), Meta>>));
    let cancels = join.clone();
    *join.lock().unwrap() = Some(executor.spawn(async move {
        let _token = token;
        cancels.lock().unwrap().as_ref().unwrap().cancel();
        future::pending::<()>().await;
    }));
    assert_eq!(executor.run(), 1, "it is not scheduled again for that");
    assert_eq!(drops.count(), 1);
    let join = join.lock().unwrap().take().unwrap();
    assert!(join.into_output().is_none());
}

#[test]
fn a_task_cancelled_as_it_becomes_ready_keeps_its_output() {
    let executor = Executor::new();
    let join = Arc::new(Mutex::new(None::<Join<i32, Meta>>));
    let cancels = join.clone();
    *join.lock().unwrap() = Some(executor.spawn(async move {
        cancels.lock().unwrap().as_ref().unwrap().cancel();
        5
    }));
    executor.run();
    let join = join.lock().unwrap().take().unwrap();
    assert_eq!(join.into_output().unwrap().unwrap(), 5);
}

#[test]
fn a_runnable_that_is_dropped_drops_the_future() {
    let (executor, drops) = (Executor::new(), Drops::default());
    let (steps, _waker) = Steps::new(1, &drops);
    let mut join = executor.spawn(steps);
    let (wakes, awaiter) = Wakes::new();
    assert!(poll(&mut join, &awaiter).is_pending());
    drop(executor.take());
    assert_eq!((drops.count(), wakes.count()), (1, 1));
    assert!(poll(&mut join, &awaiter).is_ready());
    assert!(join.into_output().is_none());
    assert_eq!(Arc::strong_count(&executor), 1);
}

#[test]
fn the_waker_of_the_last_poll_is_woken_and_no_other_is_kept() {
    let (executor, drops) = (Executor::new(), Drops::default());
    let (steps, waker) = Steps::new(1, &drops);
    let mut join = executor.spawn(steps);
    executor.run();
    let ((first, a), (second, b)) = (Wakes::new(), Wakes::new());
    assert!(poll(&mut join, &a).is_pending());
    assert!(poll(&mut join, &a).is_pending());
    assert!(poll(&mut join, &b).is_pending());
    drop((a, b));
    assert_eq!(
        (Arc::strong_count(&first), Arc::strong_count(&second)),
        (1, 2)
    );
    take_waker(&waker).wake();
    executor.run();
    assert_eq!((first.count(), second.count()), (0, 1));
    assert_eq!(Arc::strong_count(&second), 1);
    assert!(poll(&mut join, &Wakes::new().1).is_ready());
    assert_eq!(join.into_output().unwrap().unwrap(), "through");
}

#[test]
fn a_join_that_is_dropped_detaches_the_task_and_drops_its_waker() {
    let (executor, drops) = (Executor::new(), Drops::default());
    let (steps, waker) = Steps::new(1, &drops);
    let mut join = executor.spawn(steps);
    executor.run();
    let (wakes, awaiter) = Wakes::new();
    assert!(poll(&mut join, &awaiter).is_pending());
    drop(awaiter);
    drop(join);
    assert_eq!(Arc::strong_count(&wakes), 1);
    take_waker(&waker).wake();
    assert_eq!(executor.run(), 1);
    assert_eq!(
        (wakes.count(), drops.count(), Arc::strong_count(&executor)),
        (0, 1, 1)
    );
}

#[test]
fn an_unclaimed_output_is_dropped_by_runner_or_join() {
    let (executor, drops) = (Executor::new(), Drops::default());
    // Detached before the end: the runner drops the output.
    let token = drops.token();
    drop(executor.spawn(async move { token }));
    executor.run();
    assert_eq!(drops.count(), 1);
    // Detached after the end: the join handle drops it, although another reference exists.
    let token = drops.token();
    let join = executor.spawn(async move { token });
    let reference = join.reference();
    executor.run();
    assert_eq!(drops.count(), 1);
    drop(join);
    assert_eq!(drops.count(), 2);
    drop(reference);
    // The task has not ended: the future is dropped.
    let token = drops.token();
    assert!(executor.spawn(async move { token }).into_output().is_none());
    executor.run();
    assert_eq!((drops.count(), Arc::strong_count(&executor)), (3, 1));
}

#[test]
fn a_task_without_wakers_and_join_is_dropped() {
    for dropped_last in ["waker", "join", "neither"] {
        let (executor, drops) = (Executor::new(), Drops::default());
        let (steps, waker) = Steps::new(1, &drops);
        let join = executor.spawn(steps);
        let waker = match dropped_last {
            "neither" => {
                // No reference is left by the time that the future is pending.
                let never = drops.token();
                drop(executor.spawn(async move {
                    let _never = never;
                    future::pending::<()>().await;
                }));
                executor.run();
                assert_eq!((drops.count(), executor.queued()), (1, 0));
                take_waker(&waker)
            }
            _ => {
                executor.run();
                take_waker(&waker)
            }
        };
        let before = drops.count();
        if dropped_last == "join" {
            drop(waker);
            assert_eq!(executor.queued(), 0);
            drop(join);
        } else {
            drop(join);
            assert_eq!(executor.queued(), 0);
            drop(waker);
        }
        // The future is dropped where tasks run, and not by the thread that dropped the last
        // reference.
        assert_eq!((drops.count(), executor.queued()), (before, 1));
        executor.run();
        assert_eq!(drops.count(), before + 1);
        assert_eq!(Arc::strong_count(&executor), 1);
    }
}

#[test]
fn the_executors_reference_is_dropped_at_the_end() {
    let (executor, drops) = (Executor::keeping(), Drops::default());
    let (steps, waker) = Steps::new(2, &drops);
    drop(executor.spawn(steps));
    for _ in 0..2 {
        executor.run();
        // This reference alone keeps the task.
        drop(take_waker(&waker));
        assert_eq!((drops.count(), executor.queued()), (0, 0));
        executor.wake_kept();
        assert_eq!(executor.queued(), 1);
    }
    executor.run();
    assert_eq!((drops.count(), Arc::strong_count(&executor)), (1, 1));
}

#[test]
fn references_convert_to_and_from_addresses() {
    let (executor, drops) = (Executor::new(), Drops::default());
    let (steps, waker) = Steps::new(1, &drops);
    let join = executor.spawn(steps);
    let runnable = executor.take().unwrap().into_raw();
    // SAFETY: the pointer is from `into_raw`.
    unsafe { Runnable::<Meta>::from_raw(runnable) }.run();
    drop(take_waker(&waker));
    let reference = join.reference().into_raw();
    assert_eq!(reference.addr().get() % 2, 0);
    // SAFETY: as above, the pointer is from `into_raw`.
    let reference = unsafe { TaskRef::<Meta>::from_raw(reference) };
    let waker = reference.clone().into_waker();
    assert!(waker.will_wake(&reference.waker()));
    reference.wake();
    executor.run();
    assert!(reference.has_ended());
    assert_eq!(join.into_output().unwrap().unwrap(), "through");
    drop((reference, waker));
    assert_eq!(Arc::strong_count(&executor), 1);
}

#[test]
fn large_and_aligned_futures_and_outputs_fit() {
    #[repr(align(128))]
    struct Aligned([u8; 5_000]);
    let executor = Executor::new();
    let large = Aligned([7; 5_000]);
    let join = executor.spawn(async move {
        future::ready(()).await;
        let address = std::ptr::from_ref(&large).addr();
        (address % 128, large)
    });
    executor.run();
    let (offset, output) = join.into_output().unwrap().unwrap();
    assert_eq!(offset, 0);
    assert!(output.0.iter().all(|&byte| byte == 7));
}

#[test]
fn a_zero_sized_task_is_a_header() {
    let executor = Executor::new();
    let (runnable, join) = spawn::<common::Queued, _>(future::ready(()), executor);
    runnable.run();
    assert!(join.into_output().unwrap().is_ok());
}

#[test]
fn threads_wake_run_join_and_cancel_concurrently() {
    let rounds = if cfg!(miri) { 5 } else { 2_000 };
    for round in 0..rounds {
        let (executor, drops) = (Executor::new(), Drops::default());
        let (steps, waker) = Steps::new(3, &drops);
        let mut join = executor.spawn(steps);
        executor.run();
        let slot = waker;
        let waker = take_waker(&slot);
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let waker = waker.clone();
                    executor.run();
                    waker.wake();
                    executor.run();
                });
            }
            scope.spawn(|| {
                let (_, awaiter) = Wakes::new();
                _ = poll(&mut join, &awaiter);
                if round % 3 == 0 {
                    join.cancel();
                }
                _ = poll(&mut join, &Wakes::new().1);
                drop(join);
            });
        });
        // The task waits or has ended, and no waker and no handle is left.
        drop((waker, slot.lock().unwrap().take()));
        while executor.run() > 0 {
            drop(slot.lock().unwrap().take());
        }
        assert_eq!((drops.count(), Arc::strong_count(&executor)), (1, 1));
    }
}
