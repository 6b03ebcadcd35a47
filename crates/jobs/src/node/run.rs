//! One attempt of a job.

use std::{
    future::pending,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tourbillon::time::timeout;

use super::{
    Attempt, Ended, Failure, Shared, count, failure::Then, handler, held::Seat, interrupt::Place,
};
use crate::{
    recount::after_run,
    store::{End, Finish, Held, Store},
};

/// The length of an error's text, in bytes. Longer ones are cut.
const MAX_ERROR: usize = 16 * 1024;

/// How long the user's runtime may take to run an empty task. Then its threads are all blocked.
const PATIENCE: Duration = Duration::from_millis(500);

/// What an attempt needs in order to begin.
pub(super) struct Permits {
    attempt: OwnedSemaphorePermit,
    handler: OwnedSemaphorePermit,
    /// That of its queue.
    seat: Option<Seat>,
}

impl Permits {
    /// Waits until an attempt may begin.
    pub(super) async fn acquire<S>(shared: &Shared<S>) -> Self {
        let acquire = async |permits: &Arc<Semaphore>| match permits.clone().acquire_owned().await {
            Ok(permit) => permit,
            // Nothing closes the semaphores.
            Err(_) => pending().await,
        };
        Self {
            attempt: acquire(&shared.attempts).await,
            handler: acquire(&shared.calls).await,
            seat: None,
        }
    }

    /// Adds the place of the attempt among those of its queue.
    pub(super) fn with(self, seat: Seat) -> Self {
        Self {
            seat: Some(seat),
            ..self
        }
    }

    /// Waits until an attempt may begin, and takes nothing for it.
    pub(super) async fn wait_for_free<S>(shared: &Shared<S>) {
        while Self::free(shared) == 0 {
            drop(Self::acquire(shared).await);
            let mut has_thread = shared.has_thread.subscribe();
            let _ = has_thread.wait_for(|&has| has).await;
        }
    }

    /// Returns how many attempts may begin at once. While handlers block all threads of their
    /// runtime, there are none.
    pub(super) fn free<S>(shared: &Shared<S>) -> usize {
        if !*shared.has_thread.borrow() {
            return 0;
        }
        let attempts = shared.attempts.available_permits();
        attempts.min(shared.calls.available_permits())
    }

    /// Returns the permits if an attempt may begin at once.
    pub(super) fn try_acquire<S>(shared: &Shared<S>) -> Option<Self> {
        Some(Self {
            attempt: shared.attempts.clone().try_acquire_owned().ok()?,
            handler: shared.calls.clone().try_acquire_owned().ok()?,
            seat: None,
        })
    }
}

/// Waits until a thread of the user's runtime is free, so that no attempt counts whose handler
/// cannot begin. Does not return if that runtime ends.
pub(super) async fn wait_for_thread<S>(shared: &Shared<S>) {
    /// Says that a thread is free when it is dropped.
    struct Blocked<'a>(&'a watch::Sender<bool>);

    impl Drop for Blocked<'_> {
        fn drop(&mut self) {
            self.0.send_replace(true);
        }
    }

    let mut answer = shared.runtime.spawn(async {});
    let (answer, _blocked) = match timeout(PATIENCE, &mut answer).await {
        Ok(answer) => (answer, None),
        Err(_) => {
            shared.has_thread.send_replace(false);
            let blocked = Blocked(&shared.has_thread);
            (answer.await, Some(blocked))
        }
    };
    if answer.is_none() {
        pending().await
    }
}

/// Counts an attempt until this is dropped.
pub(super) struct Counted<'a>(&'a AtomicU64);

impl<'a> Counted<'a> {
    pub(super) fn new(counter: &'a AtomicU64) -> Self {
        counter.fetch_add(1, Ordering::Relaxed);
        Self(counter)
    }
}

impl Drop for Counted<'_> {
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
    place: Place,
    permits: Permits,
) {
    let counters = &shared.counters;
    count(&counters.begun);
    let running = Counted::new(&counters.running);
    let attempt = Attempt {
        key: held.key.clone(),
        kind: held.kind.clone(),
        queue: held.queue.clone(),
        payload,
        number,
        token: held.token,
        due: held.due,
        at: held.at,
        interrupts: place.interrupts(),
    };
    let result = handler::call(&shared, attempt).await;
    drop(place);
    drop((permits.handler, permits.seat));
    count(match &result {
        Ok(()) => &counters.done,
        Err(failure) => match failure.then {
            Then::Snooze(_) => &counters.snoozed,
            Then::Retry | Then::GiveUp => &counters.failed,
        },
    });
    let end = end(&shared, &held, number, result);
    report(&shared, held, end).await;
    drop(running);
    // Only now may a node that stops regard this attempt as ended.
    drop(permits.attempt);
}

/// Ends a job whose last attempt began and did not end: nothing is left to begin.
pub(super) async fn give_up<S: Store>(shared: Arc<Shared<S>>, held: Held, permits: Permits) {
    drop((permits.handler, permits.seat));
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
    let Held {
        key, kind, token, ..
    } = held;
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
            kind,
            token,
            end,
            accepted,
        };
        let on_end = on_end.clone();
        let told = shared.runtime.spawn(async move {
            // The attempt has ended even if `on_end` panics. The panic hook reports the panic.
            let _ = catch_unwind(AssertUnwindSafe(|| on_end(&ended)));
        });
        // Without a result, the runtime has ended.
        let _ = told.await;
    }
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
        Err(Failure { then, error }) => match then {
            Then::Snooze(delay) => return End::Snooze { delay },
            Then::Retry if number < backoff.attempts => {
                return End::Retry {
                    delay: backoff.wait(number),
                    error: cut(error),
                };
            }
            Then::Retry | Then::GiveUp => Some(cut(error)),
        },
    };
    if let Some(wrong) = job.repeat.as_ref().and_then(|repeat| repeat.error()) {
        return End::Dead {
            error: format!("its cron pattern can no longer be read: {wrong}"),
        };
    }
    // One run stands for all occurrences that have passed.
    let now = shared.store.now();
    let next = job
        .repeat
        .as_ref()
        .and_then(|repeat| repeat.next_after(after_run(job.at, now)));
    match (next, error) {
        (Some(at), error) => End::Next {
            at,
            counted: now,
            error,
        },
        (None, None) => End::Done,
        (None, Some(error)) => End::Dead { error },
    }
}
