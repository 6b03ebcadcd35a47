//! One attempt of a job.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use futures_lite::FutureExt;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tourbillon::time::timeout;

use super::{Attempt, Ended, Failure, Shared, count};
use crate::store::{End, Finish, Held, Store};

/// The length of an error's text, in bytes. Longer ones are cut.
const MAX_ERROR: usize = 16 * 1024;

/// What an attempt needs in order to begin.
pub(super) struct Permits {
    attempt: OwnedSemaphorePermit,
    handler: OwnedSemaphorePermit,
}

impl Permits {
    /// Waits until an attempt may begin.
    pub(super) async fn acquire<S>(shared: &Shared<S>) -> Self {
        let acquire = async |permits: &Arc<Semaphore>| match permits.clone().acquire_owned().await {
            Ok(permit) => permit,
            // Nothing closes the semaphores.
            Err(_) => std::future::pending().await,
        };
        Self {
            attempt: acquire(&shared.attempts).await,
            handler: acquire(&shared.handlers).await,
        }
    }

    /// Returns how many attempts may begin at once.
    pub(super) fn free<S>(shared: &Shared<S>) -> usize {
        let attempts = shared.attempts.available_permits();
        attempts.min(shared.handlers.available_permits())
    }

    /// Returns the permits if an attempt may begin at once.
    pub(super) fn try_acquire<S>(shared: &Shared<S>) -> Option<Self> {
        Some(Self {
            attempt: shared.attempts.clone().try_acquire_owned().ok()?,
            handler: shared.handlers.clone().try_acquire_owned().ok()?,
        })
    }
}

/// Counts an attempt as running until this is dropped.
struct Running<'a>(&'a AtomicU64);

impl<'a> Running<'a> {
    fn new(running: &'a AtomicU64) -> Self {
        running.fetch_add(1, Ordering::Relaxed);
        Self(running)
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Runs the handler, and tells the store how it ended.
pub(super) async fn run<S: Store>(
    shared: Arc<Shared<S>>,
    held: Held,
    number: u32,
    payload: Vec<u8>,
    permits: Permits,
) {
    let counters = &shared.counters;
    count(&counters.begun);
    let running = Running::new(&counters.running);
    let (entry, interrupts) = shared.running.add(held.key.clone(), held.token);
    let attempt = Attempt {
        key: held.key.clone(),
        payload,
        number,
        token: held.token,
        due: held.due,
        at: held.at,
        interrupts,
    };
    let result = call(&shared, attempt).await;
    drop(entry);
    drop(permits.handler);
    count(match &result {
        Ok(()) => &counters.done,
        Err(_) => &counters.failed,
    });
    let end = end(&shared, &held, number, result);
    report(&shared, held, end).await;
    drop(running);
    // Only now may a node that stops regard this attempt as ended.
    drop(permits.attempt);
}

/// Ends a job whose last attempt began and did not end: nothing is left to begin.
pub(super) async fn give_up<S: Store>(shared: Arc<Shared<S>>, held: Held, permits: Permits) {
    drop(permits.handler);
    let number = held.attempts;
    let failure = Failure::give_up(format!(
        "attempt {number} is the last one, and it did not end: its process ended, or its node \
         lost the store"
    ));
    let end = end(&shared, &held, number, Err(failure));
    report(&shared, held, end).await;
    drop(permits.attempt);
}

/// Tells the store how an attempt ended, and then `on_end`.
async fn report<S: Store>(shared: &Shared<S>, held: Held, end: End) {
    let counters = &shared.counters;
    if let End::Dead { .. } = end {
        count(&counters.dead);
    }
    let (key, token) = (held.key, held.token);
    let finish = Finish {
        key: key.clone(),
        token,
        end: end.clone(),
    };
    let accepted = shared.ends.report(finish).await;
    if accepted == Some(false) {
        count(&counters.stale);
    }
    if let Some(on_end) = &shared.options.on_end {
        let ended = Ended {
            key,
            token,
            end,
            accepted,
        };
        // The attempt has ended even if `on_end` panics. The panic hook reports the panic.
        let _ = catch_unwind(AssertUnwindSafe(|| on_end(&ended)));
    }
}

/// Calls the handler, with its time limit. Turns a panic of the handler, or of the destructor of
/// its future, into a failure.
async fn call<S: Store>(shared: &Shared<S>, attempt: Attempt) -> Result<(), Failure> {
    // The handler may panic before it returns its future, and the future may panic when it is
    // dropped. So drop it within this block, too.
    let handled = async {
        let handled = async { (shared.handler)(attempt).await };
        let limit = shared.options.attempt_timeout;
        timeout(limit, handled)
            .await
            .unwrap_or_else(|_| Err(Failure::retry(format!("it took longer than {limit:?}"))))
    };
    let ended = AssertUnwindSafe(handled).catch_unwind().await;
    ended.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<&str>().copied();
        let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
        let text = format!("the handler panicked: {}", text.unwrap_or("no text"));
        // The payload's destructor may panic, too.
        let _ = catch_unwind(AssertUnwindSafe(|| drop(panic)));
        Err(Failure::retry(text))
    })
}

/// Cuts a long text of an error, so that ends are small.
fn cut(mut text: String) -> String {
    if text.len() > MAX_ERROR {
        let end = (0..=MAX_ERROR).rfind(|&end| text.is_char_boundary(end));
        text.truncate(end.unwrap_or(0));
        text.push('…');
    }
    text
}

/// Decides what follows an attempt.
fn end<S: Store>(shared: &Shared<S>, job: &Held, number: u32, result: Result<(), Failure>) -> End {
    let backoff = &shared.options.backoff;
    let error = match result {
        Ok(()) => None,
        Err(failure) if !failure.gives_up && number < backoff.attempts => {
            return End::Retry {
                delay: backoff.wait(number),
                error: cut(failure.error),
            };
        }
        Err(failure) => Some(cut(failure.error)),
    };
    if let Some(wrong) = job.repeat.as_ref().and_then(|repeat| repeat.error()) {
        return End::Dead {
            error: format!("its cron pattern can no longer be read: {wrong}"),
        };
    }
    // One run stands for all occurrences that have passed.
    let next = job
        .repeat
        .as_ref()
        .and_then(|repeat| repeat.next_after(job.at.max(shared.store.now())));
    match (next, error) {
        (Some(at), error) => End::Next { at, error },
        (None, None) => End::Done,
        (None, Some(error)) => End::Dead { error },
    }
}
