//! One attempt of a job.

use std::{
    borrow::Cow,
    future::pending,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tourbillon::time::timeout;

use super::{
    Attempt, Backoff, Cause, Ended, Failure, Shared, count,
    errors::{self, guarded},
    failure::Then,
    handler,
    held::Seat,
    interrupt::Place,
    metrics::{InHandler, Kind, Planned},
};
use crate::{
    job::Time,
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
    let kind = kind(&shared, &held);
    let counted = InHandler::new(kind.clone());
    let planned = Planned::new(kind.clone(), shared.store.now().since(held.at));
    let attempt = Attempt {
        key: held.key.clone(),
        kind: held.kind.clone(),
        queue: held.queue.clone(),
        payload,
        number,
        token: held.token,
        due: held.due,
        at: held.at,
        traceparent: held.traceparent.clone(),
        repeats: held.repeat.is_some(),
        interrupts: place.interrupts(),
    };
    let (result, duration) = handler::call(&shared, attempt, planned).await;
    drop(place);
    drop((permits.handler, permits.seat));
    count(match &result {
        Ok(()) => &counters.done,
        Err(failure) => match failure.then {
            Then::Snooze(_) => &counters.snoozed,
            Then::Retry | Then::GiveUp => &counters.failed,
        },
    });
    counted.end(&result, duration);
    let (end, cause) = follow(&shared, &held, number, result);
    errors::tell(&shared, &held, number, &end, cause, duration);
    report(&shared, held, end, &kind).await;
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
    let (end, cause) = follow(&shared, &held, number, Err(failure.by(Cause::CutOff)));
    errors::tell(&shared, &held, number, &end, cause, None);
    let kind = kind(&shared, &held);
    report(&shared, held, end, &kind).await;
    drop(permits.attempt);
}

/// Returns the counters of a job's queue and kind.
fn kind<S>(shared: &Shared<S>, held: &Held) -> Arc<Kind> {
    let is_own = shared.handlers.has(&held.kind);
    shared.counters.kinds.get(&held.queue, &held.kind, is_own)
}

/// Decides what follows an attempt at this moment: see [`end`].
fn follow<S: Store>(
    shared: &Shared<S>,
    held: &Held,
    number: u32,
    result: Result<(), Failure>,
) -> (End, Cause) {
    let (backoff, now) = (&shared.options.backoff, shared.store.now());
    end(backoff, now, held, number, result)
}

/// Tells the store how an attempt ended, and then `on_end`.
async fn report<S: Store>(shared: &Shared<S>, held: Held, end: End, of_kind: &Kind) {
    let counters = &shared.counters;
    let Held {
        key,
        kind,
        token,
        traceparent,
        ..
    } = held;
    let finish = Finish {
        key: key.clone(),
        token,
        end: end.clone(),
    };
    let accepted = shared.ends.report(finish).await;
    if accepted == Some(false) {
        count(&counters.stale);
        of_kind.lock().stale += 1;
    } else if let End::Dead { .. } = end {
        // Only now, as another node ends the job if the store refuses this end.
        count(&counters.dead);
        of_kind.lock().dead += 1;
    }
    if let Some(on_end) = &shared.options.on_end {
        let ended = Ended {
            key,
            kind,
            token,
            end,
            accepted,
            traceparent,
        };
        let (on_end, counters) = (on_end.clone(), counters.clone());
        let told = shared.runtime.spawn(async move {
            // The attempt has ended even if `on_end` panics.
            guarded(&counters, || on_end(&ended));
        });
        // Without a result, the runtime has ended.
        let _ = told.await;
    }
}

/// Cuts a long text of an error, so that ends and spans are small.
pub(super) fn cut<'a>(text: impl Into<Cow<'a, str>>) -> Cow<'a, str> {
    let text = text.into();
    if text.len() <= MAX_ERROR {
        return text;
    }
    let end = (0..=MAX_ERROR).rfind(|&end| text.is_char_boundary(end));
    format!("{}…", &text[..end.unwrap_or(0)]).into()
}

/// Decides what follows an attempt. Also returns what made it fail, if this end is that of a
/// failure.
fn end(
    backoff: &Backoff,
    now: Time,
    job: &Held,
    number: u32,
    result: Result<(), Failure>,
) -> (End, Cause) {
    let (error, cause) = match result {
        Ok(()) => (None, Cause::Pattern),
        Err(Failure { then, error, cause }) => match then {
            Then::Snooze(delay) => return (End::Snooze { delay }, cause),
            Then::Retry if number < backoff.attempts => {
                let end = End::Retry {
                    delay: backoff.wait(number),
                    error: cut(error).into_owned(),
                };
                return (end, cause);
            }
            Then::Retry | Then::GiveUp => (Some(cut(error).into_owned()), cause),
        },
    };
    if let Some(wrong) = job.repeat.as_ref().and_then(|repeat| repeat.error()) {
        let mut text = format!("its cron pattern can no longer be read: {wrong}");
        if let Some(error) = error {
            text = format!("{text}; and its last attempt failed: {error}");
        }
        let error = cut(text).into_owned();
        return (End::Dead { error }, Cause::Pattern);
    }
    // One run stands for all occurrences that have passed.
    let next = job
        .repeat
        .as_ref()
        .and_then(|repeat| repeat.next_after(after_run(job.at, now)));
    let end = match (next, error) {
        (Some(at), error) => End::Next {
            at,
            counted: now,
            error,
        },
        (None, None) => End::Done,
        (None, Some(error)) => End::Dead { error },
    };
    (end, cause)
}

#[cfg(test)]
#[cfg(any(feature = "sqlite", feature = "postgres", feature = "redis"))]
mod tests {
    use super::*;
    use crate::job::{Repeat, Token};

    #[test]
    fn a_pattern_that_cannot_be_read_hides_no_error() {
        let job = Held {
            key: "key".into(),
            kind: String::new(),
            queue: "default".into(),
            priority: 0,
            due: Time::from_micros(0),
            at: Time::from_micros(0),
            attempts: 1,
            repeat: Some(Repeat::stored("no pattern".into(), "UTC".into())),
            size: 0,
            token: Token(1),
            traceparent: None,
        };
        let backoff = Backoff {
            attempts: 2,
            ..Backoff::default()
        };
        let of = |number, result| match end(&backoff, job.at, &job, number, result) {
            (End::Dead { error }, cause) => (error, cause),
            (End::Retry { error, .. }, cause) => (error, cause),
            (end, _) => panic!("{end:?}"),
        };
        let (pattern, cause) = of(1, Ok(()));
        assert!(pattern.starts_with("its cron pattern"), "{pattern}");
        assert_eq!(cause, Cause::Pattern);
        let fails = || Err(Failure::retry("on purpose").by(Cause::Panic));
        assert_eq!(of(1, fails()), ("on purpose".into(), Cause::Panic));
        let (both, cause) = of(2, fails());
        assert!(
            both.starts_with(&pattern) && both.ends_with("on purpose"),
            "{both}"
        );
        assert_eq!(cause, Cause::Pattern);
    }
}
