//! Joins requests that wait for the same thing, so that one commit serves many of them.

use std::{collections::HashSet, future::Future, sync::Arc, time::Duration};

use tokio::sync::{mpsc, oneshot};
use tourbillon::time::{Instant, sleep};

use crate::{
    keeper::{self, Process},
    store::StoreError,
};

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
    /// What the store answers.
    type Answer: Send + 'static;

    /// Returns the key of the job that the request is for.
    fn key(&self) -> &str;

    /// Returns which version of the tables nodes have to know to run the job that the request adds.
    fn version(&self) -> u8 {
        1
    }

    /// Returns about how many bytes the request has, beside some hundred.
    fn bytes(&self) -> usize {
        0
    }
}

/// What does the requests of a [`Batcher`].
pub(crate) trait Serve<Q: Request>: Send + Sync + 'static {
    /// Does requests, and answers each of them.
    fn serve(
        &self,
        requests: Vec<Q>,
    ) -> impl Future<Output = Result<Vec<Q::Answer>, StoreError>> + Send;

    /// Returns those of these keys whose jobs somebody has locked.
    fn locked(
        &self,
        keys: Vec<String>,
    ) -> impl Future<Output = Result<HashSet<String>, StoreError>> + Send;
}

/// How many calls in a row may fail because the store is full. Then the other requests fail
/// untried. It takes 12 until a request of a full call is alone.
const MOST_FULL: usize = 24;

/// How many calls of one round may fail because of locks. Each has waited for one. Then the other
/// requests of the round are left for the next one.
const MOST_LOCKED: usize = 24;

/// How long a request is repeated whose job somebody has locked.
pub(crate) const LOCKED: Duration = Duration::from_secs(8);

/// The waits between these repeats. They double.
pub(crate) const FIRST: Duration = Duration::from_millis(50);
const LONGEST: Duration = Duration::from_secs(1);

type Caller<Q> = oneshot::Sender<Result<<Q as Request>::Answer, StoreError>>;

/// A request, and who waits for its answer.
struct Waiting<Q: Request> {
    request: Q,
    caller: Caller<Q>,
    /// Until when the request is repeated, since somebody has its job locked.
    until: Option<Instant>,
}

impl<Q: Request> Waiting<Q> {
    /// Answers. A caller that is gone needs no answer.
    fn answer(self, answer: Result<Q::Answer, StoreError>) {
        let _ = self.caller.send(answer);
    }
}

/// Sends requests to a task, which hands all that wait to the store at once.
///
/// A call that the store refuses is divided. So what the store refuses is refused to its caller
/// alone. The requests whose jobs somebody has locked are repeated by another task, so that they
/// keep no other one waiting.
pub(crate) struct Batcher<Q: Request> {
    sender: mpsc::Sender<Waiting<Q>>,
    process: Process,
}

impl<Q: Request> Clone for Batcher<Q> {
    fn clone(&self) -> Self {
        Self {
            sender: self.sender.clone(),
            process: self.process,
        }
    }
}

impl<Q: Request> Batcher<Q> {
    /// Starts the tasks on the current runtime, if it is one of Tourbillon's, and otherwise on the
    /// library's thread. They end with the last clone of the batcher.
    pub(crate) fn start(store: impl Serve<Q>) -> Self {
        let store = Arc::new(store);
        let (sender, mut receiver) = mpsc::channel(WAITING);
        let (repeats, locked) = mpsc::unbounded_channel();
        let runtime = keeper::here();
        drop(runtime.spawn(repeat(store.clone(), locked)));
        drop(runtime.spawn(async move {
            let mut waiting = Vec::new();
            while receiver.recv_many(&mut waiting, MOST).await > 0 {
                for one in round(&*store, std::mem::take(&mut waiting)).await {
                    // The other task ends after this one.
                    let _ = repeats.send(one);
                }
            }
        }));
        Self {
            sender,
            process: Process::this(),
        }
    }

    /// Waits for the answer to a request.
    pub(crate) async fn call(&self, request: Q) -> Result<Q::Answer, StoreError> {
        self.process.check()?;
        let (caller, answer) = oneshot::channel();
        let waiting = Waiting {
            request,
            caller,
            until: None,
        };
        let sent = self.sender.send(waiting).await;
        sent.map_err(|_| StoreError::Closed)?;
        answer.await.map_err(|_| StoreError::Closed)?
    }
}

/// Asks for each of these requests once. Answers all but those whose jobs somebody has locked, and
/// returns these.
async fn round<Q: Request>(store: &impl Serve<Q>, waiting: Vec<Waiting<Q>>) -> Vec<Waiting<Q>> {
    // The last call is the next.
    let mut calls = calls(waiting, |one| one.request.bytes());
    calls.reverse();
    let (mut full, mut locks) = (0, 0);
    let mut later = Vec::new();
    while let Some(mut call) = calls.pop() {
        let requests = call.iter().map(|one| one.request.clone()).collect();
        let error = match store.serve(requests).await {
            Ok(answers) => {
                full = 0;
                for (one, answer) in call.into_iter().zip(answers) {
                    one.answer(Ok(answer));
                }
                continue;
            }
            Err(error) => error,
        };
        full = match error {
            StoreError::Full => full + 1,
            _ => 0,
        };
        if let StoreError::Locked = error {
            locks += 1;
            if call.len() == 1 {
                later.append(&mut call);
            } else if locks < MOST_LOCKED {
                let (locked, free) = divide(store, call).await;
                let is_known = !locked.is_empty();
                later.extend(locked);
                call = free;
                if !is_known {
                    // A session adds one of these keys, or the lock is gone.
                    calls.push(call.split_off(call.len() / 2));
                }
                if !call.is_empty() {
                    calls.push(call);
                }
            } else {
                // The next round begins with what this one has not tried.
                calls.push(call);
                let rest = calls.drain(..).rev().flatten();
                later = rest.chain(later).collect();
            }
            continue;
        }
        let version = |one: &Waiting<Q>| one.request.version();
        let latest = call.iter().map(version).max();
        if matches!(error, StoreError::EarlierNodes) && latest > Some(1) {
            // The store refuses all jobs that need the latest version. It may take the others.
            let is_earlier = |one: &Waiting<Q>| Some(version(one)) < latest;
            let (others, refused): (Vec<_>, _) = call.into_iter().partition(is_earlier);
            call = refused;
            if !others.is_empty() {
                calls.push(others);
            }
        } else if full >= MOST_FULL {
            call.extend(calls.drain(..).flatten());
        } else if call.len() > 1 && error.changed_nothing() {
            calls.push(call.split_off(call.len() / 2));
            calls.push(call);
            continue;
        }
        for one in call {
            one.answer(Err(error.clone()));
        }
    }
    later
}

/// Divides requests into those whose jobs somebody has locked, and the others.
async fn divide<Q: Request>(
    store: &impl Serve<Q>,
    waiting: Vec<Waiting<Q>>,
) -> (Vec<Waiting<Q>>, Vec<Waiting<Q>>) {
    let keys = waiting.iter().map(|one| one.request.key().to_owned());
    // After an error, nothing is known. The requests themselves are answered with it, too.
    let locked = store.locked(keys.collect()).await.unwrap_or_default();
    waiting
        .into_iter()
        .partition(|one| locked.contains(one.request.key()))
}

/// Repeats requests until nobody has their jobs locked any more, each until its time is over or its
/// caller is gone. All of them are asked for at once, so their number does not matter to the store.
async fn repeat<Q: Request>(
    store: Arc<impl Serve<Q>>,
    mut receiver: mpsc::UnboundedReceiver<Waiting<Q>>,
) {
    let mut all: Vec<Waiting<Q>> = Vec::new();
    let mut pause = FIRST;
    loop {
        if all.is_empty() {
            match receiver.recv().await {
                Some(first) => all.push(first),
                None => return,
            }
            pause = FIRST;
        }
        sleep(pause).await;
        pause = (2 * pause).min(LONGEST);
        while let Ok(more) = receiver.try_recv() {
            all.push(more);
            // Most locks are short.
            pause = FIRST;
        }
        all.retain(|one| !one.caller.is_closed());
        if all.is_empty() {
            continue;
        }
        for one in &mut all {
            one.until.get_or_insert_with(|| Instant::now() + LOCKED);
        }
        // Do not wait for those that are locked: look first.
        let (locked, free) = divide(&*store, all).await;
        all = locked;
        all.extend(round(&*store, free).await);
        let now = Instant::now();
        let is_over = |one: &mut Waiting<Q>| one.until.is_some_and(|until| until <= now);
        for one in all.extract_if(.., is_over) {
            one.answer(Err(StoreError::Locked));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    };

    use tourbillon::{runtime::Builder, task::JoinHandle};

    use super::*;
    use crate::store::Cancelled;

    /// The requests from this number on are for jobs with a kind, which [`Fake`] refuses.
    const WITH_KIND: u32 = 10_000;

    /// Likewise for jobs that keep their keys.
    const UNIQUE: u32 = 20_000;

    impl Request for u32 {
        type Answer = Cancelled;

        fn key(&self) -> &str {
            ["free", "locked"][(self % 2) as usize]
        }

        fn version(&self) -> u8 {
            match *self {
                number if number < WITH_KIND => 1,
                number if number < UNIQUE => 3,
                _ => 4,
            }
        }
    }

    /// Waits for locks as a server does, and counts its calls.
    #[derive(Default)]
    struct Fake {
        is_free: Mutex<bool>,
        /// Whether it knows which jobs are locked.
        knows: bool,
        calls: AtomicUsize,
    }

    impl Serve<u32> for Arc<Fake> {
        async fn serve(&self, requests: Vec<u32>) -> Result<Vec<Cancelled>, StoreError> {
            self.calls.fetch_add(1, Ordering::Relaxed);
            if requests.iter().any(|request| request.version() > 1) {
                sleep(Duration::from_millis(50)).await;
                return Err(StoreError::EarlierNodes);
            }
            let is_locked = |request: &u32| request.key() == "locked";
            if !*self.is_free.lock().unwrap() && requests.iter().any(is_locked) {
                sleep(Duration::from_millis(50)).await;
                return Err(StoreError::Locked);
            }
            Ok(vec![Cancelled::Cancelled; requests.len()])
        }

        async fn locked(&self, keys: Vec<String>) -> Result<HashSet<String>, StoreError> {
            self.calls.fetch_add(1, Ordering::Relaxed);
            let is_locked = self.knows && !*self.is_free.lock().unwrap();
            Ok(keys
                .into_iter()
                .filter(|key| is_locked && key == "locked")
                .collect())
        }
    }

    impl Fake {
        fn calls(&self) -> usize {
            self.calls.swap(0, Ordering::Relaxed)
        }
    }

    type Asked = JoinHandle<Result<Cancelled, StoreError>>;

    fn ask(batcher: &Batcher<u32>, number: u32) -> Asked {
        let batcher = batcher.clone();
        tourbillon::spawn(async move { batcher.call(number).await })
    }

    /// Asks for 1,000 locked jobs and as many others, in turns.
    fn ask_for_2000(batcher: &Batcher<u32>) -> (Vec<Asked>, Vec<Asked>) {
        let pair = |n: u32| (ask(batcher, 2 * n), ask(batcher, 2 * n + 1));
        (0..1000).map(pair).unzip()
    }

    async fn succeed(asked: Vec<Asked>) {
        for one in asked {
            assert_eq!(one.await.unwrap().unwrap(), Cancelled::Cancelled);
        }
    }

    async fn are_locked(asked: Vec<Asked>) {
        for one in asked {
            assert!(matches!(one.await.unwrap(), Err(StoreError::Locked)));
        }
    }

    /// Runs a test on a paused clock, which skips the waits.
    fn run(test: impl Future<Output = ()>) {
        let runtime = Builder::new().start_paused(true).build().unwrap();
        runtime.block_on(test);
    }

    #[test]
    fn locked_requests_are_repeated_together() {
        run(async {
            let fake = Arc::new(Fake {
                knows: true,
                ..Fake::default()
            });
            let batcher = Batcher::start(fake.clone());
            let start = Instant::now();
            let (free, locked) = ask_for_2000(&batcher);
            succeed(free).await;
            // Three calls for each batch, and one for each repeat.
            let (calls, batches) = (fake.calls(), 50);
            assert!(calls <= 3 * batches, "{calls}");
            assert!(start.elapsed() < LOCKED);
            are_locked(locked).await;
            assert!(start.elapsed() >= LOCKED);
            let calls = fake.calls();
            assert!(calls <= 3 * batches + 50, "{calls}");
            // When the lock is gone, all are answered by one call.
            let (free, locked) = ask_for_2000(&batcher);
            succeed(free).await;
            *fake.is_free.lock().unwrap() = true;
            fake.calls();
            succeed(locked).await;
            let calls = fake.calls();
            assert!(calls <= 3 * batches, "{calls}");
        });
    }

    #[test]
    fn jobs_with_kinds_are_refused_together() {
        run(async {
            let fake = Arc::new(Fake::default());
            let batcher = Batcher::start(fake.clone());
            let refused = [WITH_KIND, UNIQUE];
            let ask = |n: u32| ask(&batcher, n);
            let pair = |n: u32| (ask(2 * n), ask(2 * n + refused[n as usize % 2]));
            let both = (0..1000).map(pair);
            let (others, refused): (Vec<_>, Vec<_>) = both.unzip();
            succeed(others).await;
            for one in refused {
                assert!(matches!(one.await.unwrap(), Err(StoreError::EarlierNodes)));
            }
            // Three calls for each batch.
            let calls = fake.calls();
            assert!(calls <= 150, "{calls}");
        });
    }

    #[test]
    fn calls_that_fail_because_of_locks_are_bounded() {
        run(async {
            // It cannot tell which requests have to wait, so calls are divided.
            let fake = Arc::new(Fake::default());
            let batcher = Batcher::start(fake.clone());
            let locked = (0..1000).map(|n| ask(&batcher, 2 * n + 1)).collect();
            while fake.calls.load(Ordering::Relaxed) < 100 {
                sleep(Duration::from_millis(10)).await;
            }
            // The rest is left for later, so another request is answered.
            let asked = ask(&batcher, 0).await.unwrap();
            assert_eq!(asked.unwrap(), Cancelled::Cancelled);
            are_locked(locked).await;
            // A round has two calls for each of those that may fail.
            let calls = fake.calls();
            assert!(calls <= 1000, "{calls}");
        });
    }
}
