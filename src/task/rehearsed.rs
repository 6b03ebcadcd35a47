//! The task with which a worker [rehearses](crate::runtime): it sleeps, again and again, and is in nobody's books.

use std::{
    future::Future,
    panic::Location,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use async_task::WithInfo;
use tourbillon_shards::TypeName;

use super::{Home, Id, Origin, Place, TaskMeta, schedule};
use crate::{
    runtime::{TaskJob, WorkerShard},
    time::{Instant, Sleep, sleep},
};

/// For how long it sleeps the first time.
const FIRST: Duration = Duration::from_micros(100);

/// Who keeps the task that a worker rehearses with. Dropped, it has the task scheduled a last time, to be dropped.
pub(crate) type Rehearsing = async_task::Task<(), TaskMeta>;

/// A task of `home` that is neither counted nor on a list. It is scheduled as all are. The caller has it to be run for the
/// first time, as the worker of `home`, where it arms its sleep then.
pub(crate) fn rehearsed(home: &Arc<WorkerShard>) -> (TaskJob, Rehearsing) {
    let name = TypeName::of::<Rehearsed>();
    let (home, id) = (Home::worker(home), Id::fresh());
    let origin = Origin::of(name, Location::caller());
    let meta = TaskMeta::new(origin, home, id, Place::NOWHERE);
    let builder = async_task::Builder::new().metadata(meta);
    builder.spawn(|_| Rehearsed(None), WithInfo(schedule))
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
