//! The tasks of a node on the library's thread, which end with the runtime of the node's user.

use std::{
    future::{Future, poll_fn},
    sync::Arc,
    task::Poll,
};

use futures_lite::future::{block_on, or, yield_now};
use tokio::sync::watch;
use tourbillon::task::JoinHandle;

use super::executor::Executor;
use crate::keeper;

/// The tasks of a node. Each has a receiver, which tells it that the user's runtime has ended.
#[derive(Clone)]
pub(super) struct Tasks(Arc<watch::Sender<bool>>);

impl Tasks {
    /// Makes a set without tasks.
    pub(super) fn new() -> Self {
        Self(Arc::new(watch::Sender::new(false)))
    }

    /// Spawns a task. Its result is `None` if the user's runtime ends before. The future is polled
    /// once more after that end: see [`over`](Self::over).
    pub(super) fn spawn<F>(&self, future: F) -> JoinHandle<Option<F::Output>>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let mut over = self.0.subscribe();
        keeper::handle().spawn(async move {
            let ended = async {
                let _ = over.wait_for(|&is_over| is_over).await;
                // The future may have been polled before the end, in this same poll of the task.
                yield_now().await;
                None
            };
            // The future has been dropped when the receiver is.
            or(async { Some(future.await) }, ended).await
        })
    }

    /// Ends the tasks.
    pub(super) fn end(&self) {
        self.0.send_replace(true);
    }

    /// Waits, in one of the tasks, for the end of the user's runtime.
    ///
    /// This has no receiver of its own: the end wakes one receiver after another, and the one of
    /// the task could then end the task first. So it is ready in the last poll of the future.
    pub(super) async fn over(&self) {
        poll_fn(|_| match *self.0.borrow() {
            true => Poll::Ready(()),
            false => Poll::Pending,
        })
        .await;
    }

    /// Keeps a reference to each thing that the user has given to the node.
    pub(super) fn keep(&self, given: impl Send + Sync + 'static) -> Kept {
        Kept(Arc::new(Given {
            given: Some(Box::new(given)),
            tasks: self.clone(),
        }))
    }

    /// Ends the tasks with a runtime. To be called after the first task was spawned.
    pub(super) fn end_with(&self, runtime: &Executor) {
        let end = End(self.0.clone());
        drop(runtime.spawn(async move { end.0.closed().await }));
    }
}

/// What the user has given to a node. A task that has references to it drops them before this.
#[derive(Clone)]
pub(super) struct Kept(#[allow(dead_code, reason = "it is dropped")] Arc<Given>);

/// The last references to what the user has given, unless the user has others. The destructors are
/// the user's code, and that of a store waits, so the library's thread does not run them.
struct Given {
    /// `None` only while this is dropped.
    given: Option<Box<dyn Send + Sync>>,
    tasks: Tasks,
}

impl Drop for Given {
    fn drop(&mut self) {
        let given = self.given.take();
        if keeper::is_here() {
            // The end of the user's runtime waits for this, as for a task.
            let over = self.tasks.0.subscribe();
            drop(keeper::handle().spawn_blocking(move || {
                drop(given);
                drop(over);
            }));
        }
    }
}

/// Ends the tasks when it is dropped, and waits until they have left the store: whoever has ended
/// the runtime may open the store again.
struct End(Arc<watch::Sender<bool>>);

impl Drop for End {
    fn drop(&mut self) {
        self.0.send_replace(true);
        // A destructor on a thread of the library may end a runtime, and must not keep the tasks
        // waiting that this would wait for.
        if !keeper::is_here() {
            block_on(self.0.closed());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{pin::pin, sync::mpsc};

    use super::*;

    #[test]
    fn a_task_learns_of_an_end_that_comes_while_it_is_polled() {
        let tasks = Tasks::new();
        let (tells, told) = mpsc::channel();
        let ends = tasks.clone();
        drop(tasks.spawn(async move {
            let mut over = pin!(ends.over());
            poll_fn(|context| {
                let is_over = over.as_mut().poll(context).is_ready();
                let _ = tells.send(is_over);
                // Another thread may do so at this moment, too.
                ends.end();
                Poll::<()>::Pending
            })
            .await;
        }));
        assert_eq!(told.iter().collect::<Vec<_>>(), [false, true]);
    }
}
