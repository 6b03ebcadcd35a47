//! An executor without threads of its own: a queue from which any thread runs tasks.

use std::{
    future::{Future, poll_fn},
    sync::{
        Arc as Plain,
        atomic::{AtomicUsize as PlainUsize, Ordering},
    },
    task::{Context, Poll},
};

use loom::sync::{Arc, Mutex};
use tourbillon_tasks::{Join, Policy, Runnable, Woken, spawn};

/// The metadata of the tasks of an [`Executor`].
pub type Meta = Arc<Executor>;

/// The queue of the tasks that were woken.
#[derive(Default)]
pub struct Executor {
    queue: Mutex<Vec<Runnable<Meta>>>,
}

/// Tasks of an [`Executor`].
pub struct Queued;

impl Policy for Queued {
    type Metadata = Meta;

    fn schedule(task: Runnable<Meta>, _: Woken) {
        let executor = task.metadata().clone();
        executor.queue.lock().unwrap().push(task);
    }
}

impl Executor {
    /// Returns an executor with an empty queue.
    pub fn new() -> Meta {
        Arc::default()
    }
}

/// Spawns a task on `executor`. The caller runs it the first time.
pub fn spawned<F>(executor: &Meta, future: F) -> (Runnable<Meta>, Join<F::Output, Meta>)
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    spawn::<Queued, _>(future, executor.clone())
}

/// Runs the queued tasks; returns how many tasks it ran.
pub fn run_queued(executor: &Meta) -> usize {
    let mut ran = 0;
    loop {
        // The task runs after the lock is released.
        let task = executor.queue.lock().unwrap().pop();
        let Some(task) = task else { return ran };
        task.run();
        ran += 1;
    }
}

/// A counter that loom does not see, so that counting orders nothing.
#[derive(Clone, Default)]
pub struct Tally(Plain<PlainUsize>);

impl Tally {
    /// Adds one.
    pub fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the count.
    pub fn get(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    /// Returns a guard that adds one when it is dropped.
    pub fn at_drop(&self) -> AtDrop {
        AtDrop(self.clone())
    }
}

/// A guard that adds one to a tally when it is dropped.
pub struct AtDrop(Tally);

impl Drop for AtDrop {
    fn drop(&mut self) {
        self.0.add();
    }
}

/// Returns a future that polls a closure, and counts when it is dropped.
pub fn counted<T, F>(drops: &Tally, mut poll: F) -> impl Future<Output = T> + use<T, F>
where
    F: FnMut(&mut Context<'_>) -> Poll<T>,
{
    let dropped = drops.at_drop();
    poll_fn(move |cx| {
        let _ = &dropped;
        poll(cx)
    })
}
