//! Runs a handler on the user's runtime, and watches it from the library's thread.

use std::{
    future::{Future, poll_fn},
    panic::{AssertUnwindSafe, catch_unwind},
    pin::{Pin, pin},
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, atomic::AtomicU64},
    task::{Context, Poll, Waker},
    time::{Duration, Instant},
};

use futures_lite::FutureExt;
use tourbillon::time::timeout;

use super::{
    Attempt, Blocked, Cause, Failure, Handler, Shared,
    errors::guarded,
    metrics::Planned,
    run::Counted,
    span::{AttemptSpan, Maker},
};
use crate::keeper;

/// How long a handler has after its time limit to give its thread up.
const GRACE: Duration = Duration::from_secs(1);

/// How long an attempt waits at least for a thread on which its handler begins.
const LATEST: Duration = Duration::from_secs(10);

#[derive(Default)]
struct State {
    /// `None` once the handler has begun.
    planned: Option<Planned>,
    /// When the handler began, by the machine's clock: that of the user's runtime may be paused.
    began: Option<Instant>,
    /// Whether a thread runs the handler, or the destructor of its future.
    is_polled: bool,
    /// Whether the time limit is over. Then the handler is not polled again.
    is_late: bool,
    /// Wakes the task of the handler.
    waker: Option<Waker>,
}

/// What the task of a handler and the library's thread know of it.
struct Progress(Mutex<State>);

impl Progress {
    fn new(planned: Planned) -> Self {
        Self(Mutex::new(State {
            planned: Some(planned),
            ..State::default()
        }))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing that panics runs under the lock, but for wakers, which are replaced whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Polls a handler. Returns `None` if its time limit is over, and the caller has to drop it.
    fn poll<F: Future>(
        &self,
        handler: Pin<&mut F>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<F::Output>> {
        let mut state = self.lock();
        // Until the end of this poll, or of the destructor that follows it.
        state.is_polled = true;
        if state.is_late {
            return Poll::Ready(None);
        }
        if let Some(planned) = state.planned.take() {
            state.began = Some(Instant::now());
            planned.begins();
        }
        match &mut state.waker {
            Some(waker) => waker.clone_from(cx.waker()),
            none => *none = Some(cx.waker().clone()),
        }
        drop(state);
        if let Poll::Ready(output) = handler.poll(cx) {
            return Poll::Ready(Some(output));
        }
        let mut state = self.lock();
        if state.is_late {
            return Poll::Ready(None);
        }
        state.is_polled = false;
        Poll::Pending
    }

    /// Returns when the handler began.
    fn began(&self) -> Option<Instant> {
        self.lock().began
    }

    /// Ends the time of the handler.
    fn end(&self) {
        let mut state = self.lock();
        state.is_late = true;
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Returns whether no thread runs the handler. After [`end`](Self::end), none will.
    fn is_idle(&self) -> bool {
        !self.lock().is_polled
    }
}

/// Calls the handler. Turns a panic of the handler, or of the destructor of its future, into a
/// failure. Returns `None` if the time limit ended it.
async fn handle(
    handler: Arc<Handler>,
    attempt: Attempt,
    progress: Arc<Progress>,
    maker: Maker,
) -> Option<Result<(), Failure>> {
    let span: OnceLock<AttemptSpan> = OnceLock::new();
    // The handler may panic before it returns its future, and the future may panic when it is
    // dropped. So drop it within this block, too.
    let handled = async {
        let mut handler = pin!(async {
            // A hook of the user's may block here, and is watched as the handler is.
            let span = span.get_or_init(|| maker.make(&attempt));
            span.within(async { handler(attempt).await }).await
        });
        poll_fn(|cx| progress.poll(handler.as_mut(), cx)).await
    };
    let ended = AssertUnwindSafe(handled).catch_unwind().await;
    let ended = ended.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<&str>().copied();
        let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
        let text = format!("the handler panicked: {}", text.unwrap_or("no text"));
        // The payload's destructor may panic, too.
        let _ = catch_unwind(AssertUnwindSafe(|| drop(panic)));
        Some(Err(Failure::retry(text).by(Cause::Panic)))
    });
    // There is none if the time limit was over before the first step.
    if let Some(span) = span.get() {
        span.end(&ended);
    }
    ended
}

/// Calls the handler on the user's runtime, with its time limit. An attempt that the end of that
/// runtime cuts off has failed.
///
/// After the limit, the future is dropped. If no thread is free to do that, it is not polled again,
/// and this returns. If the handler blocks its thread, this waits for it, as it may still have
/// effects. Also returns how long the handler took, if it began.
pub(super) async fn call<S>(
    shared: &Shared<S>,
    attempt: Attempt,
    planned: Planned,
) -> (Result<(), Failure>, Option<Duration>) {
    let progress = Arc::new(Progress::new(planned));
    let result = watch(shared, attempt, &progress).await;
    (result, progress.began().map(|began| began.elapsed()))
}

/// Calls the handler, and watches its progress.
async fn watch<S>(
    shared: &Shared<S>,
    attempt: Attempt,
    progress: &Arc<Progress>,
) -> Result<(), Failure> {
    let limit = shared.options.attempt_timeout;
    let late = || {
        let failure = Failure::retry(format!("it took longer than {limit:?}"));
        Err(failure.by(Cause::TimeLimit))
    };
    let blocked = Blocked {
        key: attempt.key.clone(),
        number: attempt.number,
        token: attempt.token,
    };
    let Some(handler) = shared.handlers.get(&attempt.kind) else {
        // The store gives the node jobs of its kinds only.
        let kind = &attempt.kind;
        return Err(Failure::retry(format!(
            "the node has no handler of the kind `{kind}`"
        )));
    };
    let maker = shared.options.spans.maker(&shared.counters);
    let handled = handle(handler, attempt, progress.clone(), maker);
    let mut task = shared.runtime.spawn(handled);
    let spawned = Instant::now();
    let mut wait = limit;
    let ended = loop {
        match timeout(wait, &mut task).await {
            Ok(ended) => break ended,
            Err(_) => {
                // The time counts from the handler's begin.
                wait = match progress.began() {
                    Some(began) => limit.saturating_sub(began.elapsed()),
                    None => limit.max(LATEST).saturating_sub(spawned.elapsed()),
                };
            }
        }
        if !wait.is_zero() {
            continue;
        }
        progress.end();
        match timeout(GRACE, &mut task).await {
            Ok(ended) => break ended,
            Err(_) if progress.is_idle() => return late(),
            Err(_) => {
                let _blocked = tell(shared, blocked);
                break task.await;
            }
        }
    };
    match ended {
        Some(result) => result.unwrap_or_else(late),
        None => {
            let failure = Failure::retry("the runtime of the handler has ended");
            Err(failure.by(Cause::CutOff))
        }
    }
}

/// Counts a handler that blocks its thread until the result is dropped, and tells `on_blocked`.
fn tell<S>(shared: &Shared<S>, blocked: Blocked) -> Counted<'_> {
    let counter: &AtomicU64 = &shared.counters.blocked;
    // It is counted when `on_blocked` runs.
    let counted = Counted::new(counter);
    if let Some(on_blocked) = shared.options.on_blocked.clone() {
        // No thread of the user's runtime may be free, and this one must not be blocked.
        let counters = shared.counters.clone();
        drop(keeper::handle().spawn_blocking(move || {
            guarded(&counters, || on_blocked(&blocked));
        }));
    }
    counted
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use futures_lite::future::{block_on, poll_once};

    use super::*;
    use crate::node::metrics::ByKind;

    #[test]
    fn a_handler_that_is_given_up_before_its_first_step_has_not_begun() {
        let kinds = ByKind::default();
        let kind = kinds.get("queue", "kind", true);
        let late = || kind.lock().lateness.count();
        let progress = || Progress::new(Planned::new(kind.clone(), Duration::ZERO));
        let given_up = progress();
        given_up.end();
        let polled = block_on(poll_fn(|cx| given_up.poll(pin!(ready(())), cx)));
        assert_eq!((polled, given_up.began(), late()), (None, None, 0));
        // One that begins is counted once.
        let begins = progress();
        let mut handler = pin!(pending::<()>());
        for _ in 0..2 {
            let step = poll_once(poll_fn(|cx| begins.poll(handler.as_mut(), cx)));
            assert!(block_on(step).is_none());
        }
        assert!(begins.began().is_some());
        assert_eq!(late(), 1);
    }
}
