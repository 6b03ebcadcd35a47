//! Joins requests that wait for the same thing, so that one commit serves many of them.

use std::future::Future;

use tokio::sync::{mpsc, oneshot};

use crate::store::StoreError;

/// Maximum number of waiting requests. Further callers wait until there is room.
pub(crate) const WAITING: usize = 8192;

/// Maximum number of requests in one call of the store.
pub(crate) const MOST: usize = 2048;

type Answer<A> = oneshot::Sender<Result<A, StoreError>>;

/// Sends requests to a task, which hands all that wait to the store at once.
pub(crate) struct Batcher<Q, A>(mpsc::Sender<(Q, Answer<A>)>);

impl<Q, A> Clone for Batcher<Q, A> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<Q: Send + 'static, A: Send + 'static> Batcher<Q, A> {
    /// Starts the task, which ends with the last clone of the batcher.
    pub(crate) fn start<F, R>(run: F) -> Self
    where
        F: Fn(Vec<Q>) -> R + Send + 'static,
        R: Future<Output = Result<Vec<A>, StoreError>> + Send,
    {
        let (sender, mut receiver) = mpsc::channel::<(Q, Answer<A>)>(WAITING);
        tourbillon::spawn(async move {
            let mut waiting = Vec::new();
            while receiver.recv_many(&mut waiting, MOST).await > 0 {
                let (requests, callers): (Vec<_>, Vec<_>) = waiting.drain(..).unzip();
                // A caller that is gone needs no answer, so ignore failed sends.
                match run(requests).await {
                    Ok(answers) => {
                        for (caller, answer) in callers.into_iter().zip(answers) {
                            let _ = caller.send(Ok(answer));
                        }
                    }
                    Err(error) => {
                        for caller in callers {
                            let _ = caller.send(Err(error.clone()));
                        }
                    }
                }
            }
        });
        Self(sender)
    }

    /// Waits for the answer to a request.
    pub(crate) async fn call(&self, request: Q) -> Result<A, StoreError> {
        let (sender, receiver) = oneshot::channel();
        let sent = self.0.send((request, sender)).await;
        sent.map_err(|_| StoreError::Closed)?;
        receiver.await.map_err(|_| StoreError::Closed)?
    }
}
