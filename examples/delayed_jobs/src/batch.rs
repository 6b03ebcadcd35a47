//! Joins requests that wait for the same thing, so that one commit serves many of them.

use std::{future::Future, sync::Arc, time::Duration};

use tokio::sync::{mpsc, oneshot};
use tourbillon::time::{Instant, sleep};

use crate::store::StoreError;

/// Maximum number of waiting requests. Further callers wait until there is room.
pub(crate) const WAITING: usize = 8192;

/// Maximum number of requests in one call of the store.
pub(crate) const MOST: usize = 2048;

/// Maximum number of bytes of the requests in one call of the store, and of the payloads that one
/// call returns, unless a single one has more. A slow network needs seconds for more.
pub(crate) const MOST_BYTES: usize = 8 << 20;

/// Divides requests into calls of at most [`MOST`] requests and [`MOST_BYTES`], in their order.
pub(crate) fn calls<T>(requests: Vec<T>, bytes: impl Fn(&T) -> usize) -> Vec<Vec<T>> {
    let mut calls: Vec<Vec<T>> = Vec::new();
    let mut sum = 0;
    for request in requests {
        let more = bytes(&request);
        match calls.last_mut() {
            Some(call) if call.len() < MOST && sum + more <= MOST_BYTES => {
                sum += more;
                call.push(request);
            }
            _ => {
                sum = more;
                calls.push(vec![request]);
            }
        }
    }
    calls
}

/// A request that a [`Batcher`] joins with others.
pub(crate) trait Request: Clone + Send + 'static {
    /// Returns about how many bytes the request has, beside some hundred.
    fn bytes(&self) -> usize {
        0
    }
}

/// How many calls in a row may fail because the store is full. Then the other requests fail
/// untried. It takes 12 until a request of a full call is alone.
const MOST_FULL: usize = 24;

/// How long a request is repeated whose job somebody has locked.
const LOCKED: Duration = Duration::from_secs(8);

/// The waits between these repeats. They double.
const FIRST: Duration = Duration::from_millis(50);
const LONGEST: Duration = Duration::from_secs(1);

type Answer<A> = oneshot::Sender<Result<A, StoreError>>;

/// Sends requests to a task, which hands all that wait to the store at once.
///
/// A call that the store refuses is divided. So what the store refuses is refused to its caller
/// alone. A request whose job somebody has locked is repeated by a task of its own, so that it keeps
/// no other one waiting.
pub(crate) struct Batcher<Q, A>(mpsc::Sender<(Q, Answer<A>)>);

impl<Q, A> Clone for Batcher<Q, A> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<Q: Request, A: Send + 'static> Batcher<Q, A> {
    /// Starts the task, which ends with the last clone of the batcher.
    pub(crate) fn start<F, R>(run: F) -> Self
    where
        F: Fn(Vec<Q>) -> R + Send + Sync + 'static,
        R: Future<Output = Result<Vec<A>, StoreError>> + Send + 'static,
    {
        let run = Arc::new(run);
        let (sender, mut receiver) = mpsc::channel::<(Q, Answer<A>)>(WAITING);
        tourbillon::spawn(async move {
            let mut waiting = Vec::new();
            while receiver.recv_many(&mut waiting, MOST).await > 0 {
                serve(std::mem::take(&mut waiting), &run).await;
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

/// Answers each of these requests.
async fn serve<Q, A, F, R>(requests: Vec<(Q, Answer<A>)>, run: &Arc<F>)
where
    Q: Request,
    A: Send + 'static,
    F: Fn(Vec<Q>) -> R + Send + Sync + 'static,
    R: Future<Output = Result<Vec<A>, StoreError>> + Send + 'static,
{
    // The last call is the next.
    let mut calls = calls(requests, |(request, _)| request.bytes());
    calls.reverse();
    let mut full = 0;
    while let Some(mut call) = calls.pop() {
        let requests = call.iter().map(|(request, _)| request.clone()).collect();
        // A caller that is gone needs no answer, so ignore failed sends.
        match run(requests).await {
            Ok(answers) => {
                full = 0;
                for ((_, caller), answer) in call.into_iter().zip(answers) {
                    let _ = caller.send(Ok(answer));
                }
            }
            Err(error) => {
                full = match error {
                    StoreError::Full => full + 1,
                    _ => 0,
                };
                if full >= MOST_FULL {
                    call.extend(calls.drain(..).flatten());
                } else if call.len() > 1 && error.changed_nothing() {
                    calls.push(call.split_off(call.len() / 2));
                    calls.push(call);
                    continue;
                } else if matches!(error, StoreError::Locked) {
                    for (request, caller) in call {
                        tourbillon::spawn(repeat(request, caller, run.clone()));
                    }
                    continue;
                }
                for (_, caller) in call {
                    let _ = caller.send(Err(error.clone()));
                }
            }
        }
    }
}

/// Repeats a request until nobody has its job locked any more, or until its caller is gone.
async fn repeat<Q, A, F, R>(request: Q, caller: Answer<A>, run: Arc<F>)
where
    Q: Request,
    F: Fn(Vec<Q>) -> R,
    R: Future<Output = Result<Vec<A>, StoreError>>,
{
    let end = Instant::now() + LOCKED;
    let mut pause = FIRST;
    loop {
        sleep(pause).await;
        if caller.is_closed() {
            return;
        }
        pause = (2 * pause).min(LONGEST);
        let answer = match run(vec![request.clone()]).await {
            Err(StoreError::Locked) if Instant::now() < end => continue,
            Ok(mut answers) => answers.pop().ok_or(StoreError::Closed),
            Err(error) => Err(error),
        };
        let _ = caller.send(answer);
        return;
    }
}
