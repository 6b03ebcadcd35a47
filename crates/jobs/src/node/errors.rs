//! Tells the user of the attempts that failed.

use std::{
    collections::VecDeque,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::Ordering},
    time::Duration,
};

use futures_lite::future::yield_now;
use tourbillon::sync::Notify;

use super::{
    NodeBuilder, Shared,
    stats::{Counters, count},
};
use crate::{
    job::{Time, Token},
    store::{End, Held, Store},
};

/// How many failures may wait until `on_error` is told. Further ones are only counted.
const MOST_WAITING: usize = 1024;

/// An attempt that failed, for [`NodeBuilder::on_error`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Failed {
    /// The name of the job.
    pub key: String,
    /// The job's kind. It is empty for a job without one.
    pub kind: String,
    /// The name of the job's queue.
    pub queue: String,
    /// The number of the attempt, from 1.
    pub number: u32,
    /// The token of the attempt.
    pub token: Token,
    /// The moment for which the job was scheduled.
    pub due: Time,
    /// Whether no other attempt follows if the store takes the end: the job is dead, or a cron job
    /// waits for its next occurrence. If the store refuses it, as the node has lost its lease, say,
    /// another node ends the job, and tells of it again.
    pub is_final: bool,
    /// What made it fail.
    pub cause: Cause,
    /// The text of the error or of the panic.
    pub error: String,
    /// How long the handler took, from its first step. `None` if it has not begun.
    pub duration: Option<Duration>,
    /// The trace context of who added the job, if it carries one: see
    /// [`NewJob::traceparent`](crate::NewJob::traceparent).
    pub traceparent: Option<String>,
}

/// What makes an attempt fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Cause {
    /// The handler returned an error.
    Error,
    /// The handler, or the destructor of its future, panicked.
    Panic,
    /// The attempt took longer than [`NodeBuilder::attempt_timeout`].
    TimeLimit,
    /// The attempt was the last one, and began, and its node never reported its end: its process
    /// ended, say. Or the end of the handler's runtime cut it off, but then `on_error` has no
    /// runtime for its calls: see [`NodeStats::untold`](super::NodeStats::untold).
    CutOff,
    /// The job is a cron job whose pattern can no longer be read, so it is dead. The attempt
    /// succeeded, or it was the last one and failed: then the text ends with its error.
    Pattern,
}

pub(super) type OnError = dyn Fn(&Failed) + Send + Sync;

impl<S: Store> NodeBuilder<S> {
    /// Calls `f` for each attempt that failed: a report for Sentry, say, or a line of a log. A
    /// second call replaces the `f` of the first.
    ///
    /// `f` is called on the runtime of the handlers, for one failure after the other, and may call
    /// `spawn` there. It has one of its threads meanwhile, so hand what blocks to `spawn_blocking`,
    /// as in a handler. It is called as soon as the attempt has failed, while the store may not
    /// have taken this yet: [`on_end`](Self::on_end) tells that. An attempt that snoozes has not
    /// failed.
    ///
    /// **Nothing waits for `f`**: no attempt, no end, no other job. But if `f` blocks the only
    /// thread of its runtime, no handler has a thread meanwhile. While a call is slow, up to 1,024
    /// failures wait for theirs. [`NodeStats::untold`](super::NodeStats::untold) counts further
    /// ones, for which there is no call, and those that wait when the runtime ends. A panic of `f`
    /// is caught, and counted in [`NodeStats::panics`](super::NodeStats::panics).
    /// [`Node::stop`](super::Node::stop) waits for the calls within its limit. Its result tells of
    /// attempts only, and not whether the calls have ended.
    ///
    #[cfg_attr(feature = "sqlite", doc = "```")]
    #[cfg_attr(not(feature = "sqlite"), doc = "```ignore")]
    /// use tourbillon_jobs::{Attempt, Failure, Node, Queue, sqlite::Sqlite};
    ///
    /// # let dir = std::env::temp_dir().join(format!("on-error-doc-{}", std::process::id()));
    /// # std::fs::create_dir_all(&dir)?;
    /// # let path = dir.join("jobs.db");
    /// # async fn work(_: Attempt) -> Result<(), Failure> { Ok(()) }
    /// tourbillon::Runtime::new()?.block_on(async {
    ///     let queue = Queue::new(Sqlite::open(&path)?);
    ///     let node = Node::builder(queue)
    ///         .on_error(|failed| {
    ///             let what = if failed.is_final { "has failed for good" } else { "has failed" };
    ///             eprintln!("{} {what} ({:?}): {}", failed.key, failed.cause, failed.error);
    ///         })
    ///         .start(work);
    /// #   node.stop(std::time::Duration::from_secs(10)).await;
    ///     Ok::<(), Box<dyn std::error::Error>>(())
    /// })?;
    /// # std::fs::remove_dir_all(&dir)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn on_error(mut self, f: impl Fn(&Failed) + Send + Sync + 'static) -> Self {
        self.on_error = Some(Arc::new(f));
        self
    }
}

/// Calls a function of the user's, and counts its panic. The panic hook reports it.
pub(super) fn guarded(counters: &Counters, f: impl FnOnce()) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(f)) {
        count(&counters.panics);
        // The payload's destructor may panic, too.
        let _ = catch_unwind(AssertUnwindSafe(|| drop(panic)));
    }
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Failed>,
    /// Whether a task calls `on_error`.
    is_telling: bool,
}

/// The failures of which the user is not told yet.
pub(super) struct Errors {
    on_error: Arc<OnError>,
    counters: Arc<Counters>,
    state: Mutex<State>,
    /// Notified when the task has ended.
    told: Notify,
}

impl Errors {
    pub(super) fn new(on_error: Arc<OnError>, counters: Arc<Counters>) -> Arc<Self> {
        Arc::new(Self {
            on_error,
            counters,
            state: Mutex::default(),
            told: Notify::new(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing that panics runs under the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a failure, if there is room. Returns the task's place if the caller has to start one.
    fn add(self: &Arc<Self>, failed: Failed) -> Option<Telling> {
        let mut state = self.lock();
        if state.waiting.len() >= MOST_WAITING {
            count(&self.counters.untold);
            return None;
        }
        state.waiting.push_back(failed);
        let starts = !std::mem::replace(&mut state.is_telling, true);
        starts.then(|| Telling(Some(self.clone())))
    }

    /// Takes the next failure. If there is none, the place of the task is free.
    fn next(&self) -> Option<Failed> {
        let mut state = self.lock();
        let failed = state.waiting.pop_front();
        // In the same step, so that the next failure starts a task.
        state.is_telling = failed.is_some();
        failed
    }

    /// Waits until the user is told of all failures, or nobody is there to do it.
    pub(super) async fn told(&self) {
        loop {
            let told = self.told.notified();
            if !self.lock().is_telling {
                return;
            }
            told.await;
        }
    }
}

/// The place of the task that calls `on_error`. It is free when this is dropped, also if the user's
/// runtime drops the task. Then nobody is told of the failures that wait, and they are counted.
struct Telling(Option<Arc<Errors>>);

impl Telling {
    async fn run(mut self) {
        while let Some(errors) = &self.0 {
            let Some(failed) = errors.next() else {
                break;
            };
            guarded(&errors.counters, || (errors.on_error)(&failed));
            yield_now().await;
        }
        // Another task may have the place by now.
        if let Some(errors) = self.0.take() {
            errors.told.notify_waiters();
        }
    }
}

impl Drop for Telling {
    fn drop(&mut self) {
        if let Some(errors) = &self.0 {
            let mut state = errors.lock();
            state.is_telling = false;
            let untold = std::mem::take(&mut state.waiting);
            drop(state);
            let counter = &errors.counters.untold;
            counter.fetch_add(untold.len() as u64, Ordering::Relaxed);
            errors.told.notify_waiters();
        }
    }
}

/// Tells the user of an attempt that failed, if this end is that of a failure.
pub(super) fn tell<S>(
    shared: &Shared<S>,
    held: &Held,
    number: u32,
    end: &End,
    cause: Cause,
    duration: Option<Duration>,
) {
    let Some(errors) = &shared.errors else {
        return;
    };
    let (error, is_final) = match end {
        End::Retry { error, .. } => (error, false),
        End::Dead { error }
        | End::Next {
            error: Some(error), ..
        } => (error, true),
        End::Done | End::Snooze { .. } | End::Next { error: None, .. } => return,
    };
    let telling = errors.add(Failed {
        key: held.key.clone(),
        kind: held.kind.clone(),
        queue: held.queue.clone(),
        number,
        token: held.token,
        due: held.due,
        is_final,
        cause,
        error: error.clone(),
        duration,
        traceparent: held.traceparent.clone(),
    });
    if let Some(telling) = telling {
        drop(shared.runtime.spawn(telling.run()));
    }
}

#[cfg(test)]
mod tests {
    use futures_lite::future::{block_on, poll_once};

    use super::*;

    fn failed(number: u32) -> Failed {
        Failed {
            key: "key".into(),
            kind: String::new(),
            queue: "default".into(),
            number,
            token: Token(1),
            due: Time::from_micros(0),
            is_final: false,
            cause: Cause::Error,
            error: "on purpose".into(),
            duration: None,
            traceparent: None,
        }
    }

    #[test]
    fn failures_that_wait_when_the_runtime_ends_are_counted() {
        let told = Arc::new(Mutex::new(Vec::new()));
        let (tells, counters) = (told.clone(), Arc::new(Counters::default()));
        let on_error = move |failed: &Failed| tells.lock().unwrap().push(failed.number);
        let errors = Errors::new(Arc::new(on_error), counters.clone());
        let untold = || counters.untold.load(Ordering::Relaxed);
        let telling = errors.add(failed(1)).unwrap();
        assert!(errors.add(failed(2)).is_none() && errors.add(failed(3)).is_none());
        // 1. The runtime drops the task after its first step.
        {
            let mut task = Box::pin(telling.run());
            assert!(block_on(poll_once(task.as_mut())).is_none());
            assert_eq!((told.lock().unwrap().clone(), untold()), (vec![1], 0));
        }
        assert_eq!(untold(), 2);
        block_on(errors.told());
        // 2. It takes no task any more.
        drop(errors.add(failed(4)).unwrap().run());
        assert_eq!(untold(), 3);
        // 3. A task that ends has told of all.
        block_on(errors.add(failed(5)).unwrap().run());
        assert_eq!((told.lock().unwrap().clone(), untold()), (vec![1, 5], 3));
    }
}
