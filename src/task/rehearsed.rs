//! The task with which a worker [rehearses](crate::runtime): it sleeps, again and again, and is in nobody's books.

use std::{
    future::Future,
    panic::Location,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use async_task::WithInfo;
use tourbillon_shards::TypeName;

use super::{Home, Id, Place, TaskMeta, schedule};
use crate::{
    runtime::{TaskJob, WorkerShard},
    time::{Instant, Sleep},
};

/// Who keeps the task that a worker rehearses with. Dropped, it is scheduled a last time, to be dropped.
pub(crate) type Rehearsing = async_task::Task<(), TaskMeta>;

/// A task of `home` that is neither counted nor on a list. It is scheduled as all are; the caller has it to run it for the
/// first time.
pub(crate) fn rehearsed(home: &Arc<WorkerShard>) -> (TaskJob, Rehearsing) {
    let name = TypeName::of::<Rehearsed>();
    let belongs = Home::worker(home);
    let meta = TaskMeta::new(
        name,
        Location::caller(),
        belongs,
        Id::fresh(),
        Place::NOWHERE,
    );
    let future = Rehearsed {
        home: home.clone(),
        sleep: None,
    };
    let builder = async_task::Builder::new().metadata(meta);
    builder.spawn(|_| future, WithInfo(schedule))
}

/// Sleeps until the moment at which it is polled, and so is due when its worker looks the next time.
struct Rehearsed {
    home: Arc<WorkerShard>,
    sleep: Option<Sleep>,
}

impl Future for Rehearsed {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        // Never by the runtime that the thread has entered, which may be another.
        let now = Instant::now();
        let Some(sleep) = &mut this.sleep else {
            this.sleep = Some(Sleep::armed(&this.home, now, cx.waker()));
            return Poll::Pending;
        };
        let mut is_over = Pin::new(&mut *sleep).poll(cx).is_ready();
        if is_over {
            sleep.set_deadline(now);
            is_over = Pin::new(sleep).poll(cx).is_ready();
        }
        // By now its shard is closed.
        if is_over {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    }
}
