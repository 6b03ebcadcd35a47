//! The task with which a worker [rehearses](crate::api::runtime): it sleeps, again and again, and is in nobody's books.

use std::{
    future::Future,
    panic::Location,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use tourbillon_shards::TypeName;
use tourbillon_tasks::{Policy, TaskRef, Woken, spawn};

use crate::{
    clock::instant::Instant,
    engine::{
        core::WorkerShard,
        job::TaskJob,
        task_core::{home::Home, meta::TaskMeta, origin::Origin, registry::Place},
    },
    task::{
        id::Id,
        policy::{AnyWorker, Schedule},
    },
    time::{sleep, sleep::Sleep},
};

/// For how long it sleeps the first time.
const FIRST: Duration = Duration::from_micros(100);

/// A reference to the task that a worker rehearses with. Dropping it has the task scheduled a last
/// time, to be dropped.
pub(crate) struct Rehearsing(TaskRef<TaskMeta>);

impl Drop for Rehearsing {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// Schedules the task as all are. It is in no books.
struct Unregistered;

impl Policy for Unregistered {
    type Metadata = TaskMeta;

    fn schedule(task: TaskJob, woken: Woken) {
        AnyWorker::schedule(task, woken);
    }
}

/// A task of `home` that is neither counted nor on a list. It is scheduled as all are. The caller has it to be run for the
/// first time, as the worker of `home`, where it arms its sleep then.
pub(crate) fn rehearsed(home: &Arc<WorkerShard>) -> (TaskJob, Rehearsing) {
    let name = TypeName::of::<Rehearsed>();
    let (home, id) = (Home::worker(home), Id::fresh());
    let origin = Origin::of(name, Location::caller());
    let meta = TaskMeta::new(origin, home, id, Place::NOWHERE);
    let (runnable, join) = spawn::<Unregistered, _>(Rehearsed(None), meta);
    let task = Rehearsing(join.reference());
    (runnable, task)
}

/// Sleeps until the moment at which it is polled: it is due when its worker looks the next time.
struct Rehearsed(Option<Sleep>);

impl Future for Rehearsed {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let sleep = self.0.get_or_insert_with(|| sleep(FIRST));
        if Pin::new(&mut *sleep).poll(cx).is_pending() {
            return Poll::Pending;
        }
        sleep.set_deadline(Instant::now());
        // Over there and then only where its shard was closed.
        Pin::new(sleep).poll(cx)
    }
}
