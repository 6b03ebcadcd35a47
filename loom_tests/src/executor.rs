//! An executor of tasks without threads of its own: a queue from which any thread runs.

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

/// The metadata of its tasks.
pub type Meta = Arc<Executor>;

/// Where tasks go that were woken.
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
    /// One with nothing to run.
    pub fn new() -> Meta {
        Arc::default()
    }
}

/// A task of an executor, which the caller is to run.
pub fn spawned<F>(executor: &Meta, future: F) -> (Runnable<Meta>, Join<F::Output, Meta>)
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    spawn::<Queued, _>(future, executor.clone())
}

/// Runs what is queued; returns how many tasks were.
pub fn run_queued(executor: &Meta) -> usize {
    let mut ran = 0;
    loop {
        // Under no lock.
        let task = executor.queue.lock().unwrap().pop();
        let Some(task) = task else { return ran };
        task.run();
        ran += 1;
    }
}

/// Counts without being seen by loom: what is counted must not order anything.
#[derive(Clone, Default)]
pub struct Tally(Plain<PlainUsize>);

impl Tally {
    /// Adds one.
    pub fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// How much it is.
    pub fn get(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    /// Adds one when it is dropped.
    pub fn at_drop(&self) -> AtDrop {
        AtDrop(self.clone())
    }
}

/// Adds one to a tally when it is dropped.
pub struct AtDrop(Tally);

impl Drop for AtDrop {
    fn drop(&mut self) {
        self.0.add();
    }
}

/// A future that is made of a closure, and counts that it is dropped.
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
