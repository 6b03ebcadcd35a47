//! Tests of the task in the slot of a worker, and of workers that never started.

use std::{
    future::poll_fn,
    sync::{Mutex, mpsc},
    task::{Poll, Waker},
    thread,
    time::Duration,
};

use super::*;
use crate::{
    api::{builder::Builder, runtime::Runtime},
    engine::task_core::end::end_pinned,
    metrics::spawned::Spawned,
    task::{join::JoinHandle, local::pinned::spawn_pinned_at},
};

/// How long a test waits for progress. Only a hang exceeds it.
const PATIENCE: Duration = Duration::from_secs(300);

fn runtime() -> (Runtime, Arc<WorkerShard>) {
    let runtime = Builder::new().worker_threads(1).build().unwrap();
    let worker = runtime.handle().shared().workers()[0].clone();
    (runtime, worker)
}

/// Spawns a task that waits to be woken once, and returns it with its waker. Its output is the
/// thread on which it ended.
fn waiting(runtime: &Runtime) -> (JoinHandle<thread::ThreadId>, Waker) {
    let (sender, receiver) = mpsc::channel();
    let mut waits = true;
    let task = runtime.spawn(poll_fn(move |cx| {
        if !std::mem::take(&mut waits) {
            return Poll::Ready(thread::current().id());
        }
        sender.send(cx.waker().clone()).unwrap();
        Poll::Pending
    }));
    let waker = receiver.recv_timeout(PATIENCE).unwrap();
    // The task has returned from its poll. So a wake-up from another job is not taken for a
    // yield.
    runtime.block_on(runtime.spawn(async {})).unwrap();
    (task, waker)
}

/// Checks that the task was dropped without an end.
#[track_caller]
fn assert_cancelled(task: JoinHandle<thread::ThreadId>) {
    let error = futures_lite::future::block_on(task).unwrap_err();
    assert!(error.is_cancelled());
}

/// Starts a job on the worker that wakes `wakers` and then blocks until the sender is dropped.
fn stuck(runtime: &Runtime, wakers: Vec<Waker>) -> mpsc::Sender<()> {
    let (go_on, wait) = mpsc::channel::<()>();
    let (is_stuck, receiver) = mpsc::channel();
    let wait = Mutex::new(wait);
    runtime.handle().after(Duration::ZERO, move || {
        wakers.into_iter().for_each(Waker::wake);
        is_stuck.send(()).unwrap();
        let wait = wait.lock().unwrap();
        assert!(wait.recv_timeout(PATIENCE).is_err(), "nothing is sent");
    });
    receiver.recv_timeout(PATIENCE).unwrap();
    go_on
}

#[test]
fn the_next_task_of_a_stuck_worker_is_stolen() {
    let (runtime, worker) = runtime();
    let (task, waker) = waiting(&runtime);
    assert!(worker.owner().steal_next().is_none());
    let go_on = stuck(&runtime, vec![waker]);
    let stolen = worker.owner().steal_next().expect("it is in the slot");
    assert!(worker.owner().steal_next().is_none());
    stolen.run();
    assert_eq!(runtime.block_on(task).unwrap(), thread::current().id());
    drop(go_on);
}

#[test]
fn only_the_task_that_was_woken_last_is_in_the_slot() {
    let (runtime, worker) = runtime();
    let (first, first_waker) = waiting(&runtime);
    let (second, second_waker) = waiting(&runtime);
    let go_on = stuck(&runtime, vec![first_waker, second_waker]);
    let stolen = worker.owner().steal_next().expect("it is in the slot");
    assert!(worker.owner().steal_next().is_none());
    assert!(!worker.owner().stealer.is_empty(), "it is in the deque");
    stolen.run();
    drop(go_on);
    let here = thread::current().id();
    assert_eq!(runtime.block_on(second).unwrap(), here);
    assert_ne!(runtime.block_on(first).unwrap(), here);
}

/// The worker's thread could not be started.
#[test]
fn pinned_tasks_of_a_worker_that_never_started_are_dropped_unrun() {
    let (runtime, _worker) = runtime();
    let shared = runtime.handle().shared().clone();
    let deque = deque::Worker::new_fifo();
    let core = Core::new(0, shared, deque.stealer(), Role::Worker).unwrap();
    let never = Arc::new(Shard::new(core));
    let held = Arc::new(());
    let given = held.clone();
    let create = move || async move { drop(given) };
    let task = spawn_pinned_at(never.clone(), create, Spawned::here());
    assert!(!task.is_finished());
    end_pinned(never.owner());
    assert_eq!(Arc::strong_count(&held), 1);
    let error = runtime.block_on(task).unwrap_err();
    assert!(error.is_cancelled());
}

#[test]
fn a_task_in_the_slot_at_shutdown_is_dropped() {
    let (runtime, worker) = runtime();
    let (task, waker) = waiting(&runtime);
    let go_on = stuck(&runtime, vec![waker]);
    runtime.handle().shared().stop();
    drop(go_on);
    drop(runtime);
    assert!(worker.owner().steal_next().is_none());
    assert_cancelled(task);
}

/// A hook wakes a task after the worker has given up its slot.
#[test]
fn a_task_that_a_hook_puts_into_the_slot_is_dropped() {
    let waker: Arc<Mutex<Option<Waker>>> = Arc::default();
    let runtime = Builder::new()
        .worker_threads(1)
        .on_thread_stop({
            let waker = waker.clone();
            move || waker.lock().unwrap().take().unwrap().wake()
        })
        .build()
        .unwrap();
    let worker = runtime.handle().shared().workers()[0].clone();
    let task;
    (task, *waker.lock().unwrap()) = {
        let (task, waker) = waiting(&runtime);
        (task, Some(waker))
    };
    drop(runtime);
    assert!(worker.owner().steal_next().is_none());
    assert_cancelled(task);
}
