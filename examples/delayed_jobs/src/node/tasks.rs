//! The tasks of a node on the library's thread, which end with the runtime of the node's user.

use std::{future::Future, sync::Arc};

use futures_lite::future::{block_on, or};
use tokio::sync::watch;
use tourbillon::task::JoinHandle;

use crate::keeper;

/// The tasks of a node. Each has a receiver, which tells it that the user's runtime has ended.
#[derive(Clone)]
pub(super) struct Tasks(Arc<watch::Sender<bool>>);

impl Tasks {
    /// Makes a set without tasks.
    pub(super) fn new() -> Self {
        Self(Arc::new(watch::Sender::new(false)))
    }

    /// Spawns a task. Its result is `None` if the user's runtime ends before.
    pub(super) fn spawn<F>(&self, future: F) -> JoinHandle<Option<F::Output>>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let mut over = self.0.subscribe();
        keeper::handle().spawn(async move {
            let ended = async {
                let _ = over.wait_for(|&is_over| is_over).await;
                None
            };
            // The future has been dropped when the receiver is.
            or(async { Some(future.await) }, ended).await
        })
    }

    /// Ends the tasks with the current runtime. To be called after the first task was spawned.
    pub(super) fn end_with_runtime(&self) {
        let end = End(self.0.clone());
        tourbillon::spawn(async move { end.0.closed().await });
    }
}

/// Ends the tasks when it is dropped, and waits until they have left the store: whoever has ended
/// the runtime may open the store again.
struct End(Arc<watch::Sender<bool>>);

impl Drop for End {
    fn drop(&mut self) {
        self.0.send_replace(true);
        block_on(self.0.closed());
    }
}
