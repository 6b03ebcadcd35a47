//! What a node asks its store for, and whether the store answers.

use std::{
    future::Future,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use super::histogram::Histogram;
use crate::store::StoreError;

/// A request of a node to its store.
#[derive(Clone, Copy)]
pub(super) enum Ask {
    Register,
    Renew,
    FreeOthers,
    Hold,
    Skipped,
    Begin,
    Finish,
    GiveBack,
    AreCurrent,
    Recount,
}

/// The names of the requests, in the order of [`Ask`].
const NAMES: [&str; 10] = [
    "register",
    "renew",
    "free_others",
    "hold",
    "skipped",
    "begin",
    "finish",
    "give_back",
    "are_current",
    "recount",
];

/// What a node asked its store for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoreMetrics {
    /// Whether the store can be reached: it answered to the last request, and if by an error, then
    /// by one that is about the request. It is `false` until the first answer.
    pub is_up: bool,
    /// Whether the node has a lease, so that it begins attempts.
    pub has_lease: bool,
    /// The text of the last error, which may be long ago.
    pub last_error: Option<String>,
    /// The requests by their names.
    pub requests: Vec<RequestMetrics>,
}

/// The requests of one name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RequestMetrics {
    /// The name of a method of [`Store`](crate::store::Store).
    pub name: &'static str,
    /// Requests that failed. A node repeats them.
    pub failed: u64,
    /// How long the answers took, also errors.
    pub duration: Histogram,
}

#[derive(Default)]
struct State {
    is_up: bool,
    has_lease: bool,
    last_error: Option<String>,
    requests: [(u64, Histogram); NAMES.len()],
}

/// Counts requests.
#[derive(Default)]
pub(super) struct Health(Mutex<State>);

impl Health {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing that panics runs under the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the answer to a request, and counts it.
    pub(super) async fn ask<T>(
        &self,
        what: Ask,
        request: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let asked = Instant::now();
        let answer = request.await;
        let text = answer.as_ref().err().map(StoreError::to_string);
        let mut state = self.lock();
        // An error that is about the request shows that the store answers.
        state.is_up = match &answer {
            Ok(_) => true,
            Err(error) => error.changed_nothing(),
        };
        let request = &mut state.requests[what as usize];
        request.0 += u64::from(text.is_some());
        request.1.record(asked.elapsed());
        if text.is_some() {
            state.last_error = text;
        }
        answer
    }

    /// Counts a request that the node gave up after some time, as the lease ran out meanwhile.
    pub(super) fn unanswered(&self, what: Ask, time: Duration) {
        let mut state = self.lock();
        state.is_up = false;
        state.last_error = Some("no answer came within the lease".to_owned());
        let request = &mut state.requests[what as usize];
        request.0 += 1;
        request.1.record(time);
    }

    pub(super) fn set_lease(&self, has_lease: bool) {
        self.lock().has_lease = has_lease;
    }

    pub(super) fn read(&self) -> StoreMetrics {
        let state = self.lock();
        let requests = NAMES.iter().zip(&state.requests);
        let requests = requests.map(|(&name, (failed, duration))| RequestMetrics {
            name,
            failed: *failed,
            duration: duration.clone(),
        });
        StoreMetrics {
            is_up: state.is_up,
            has_lease: state.has_lease,
            last_error: state.last_error.clone(),
            requests: requests.collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use futures_lite::future::block_on;

    use super::*;

    #[test]
    fn requests_are_counted_by_their_names() {
        let health = Health::default();
        assert!(!health.read().is_up);
        let ask = |what, answer| drop(block_on(health.ask(what, async { answer })));
        let failed = || StoreError::Failed(Arc::new(std::io::Error::other("it is away")));
        ask(Ask::Recount, Ok(()));
        assert!(health.read().is_up);
        ask(Ask::Hold, Err(failed()));
        assert!(!health.read().is_up);
        // The store says this.
        ask(Ask::Finish, Err(StoreError::Full));
        let read = health.read();
        assert!(read.is_up && !read.has_lease);
        assert_eq!(read.last_error, Some(StoreError::Full.to_string()));
        health.unanswered(Ask::Renew, Duration::ZERO);
        let read = health.read();
        assert!(!read.is_up);
        let counts = read.requests.iter();
        let counts: Vec<_> = counts
            .filter(|it| it.duration.count() > 0)
            .map(|it| (it.name, it.failed, it.duration.count()))
            .collect();
        let expected = [
            ("renew", 1, 1),
            ("hold", 1, 1),
            ("finish", 1, 1),
            ("recount", 0, 1),
        ];
        assert_eq!(counts, expected);
    }
}
