//! A cache that creates one answer for requests at about the same time. Creating an answer takes
//! locks that workers may wait for.

use std::{
    sync::Mutex,
    time::{Duration, Instant},
};

use hyper::body::Bytes;
use tourbillon_sync::lock;

/// The time that an answer stays valid.
const FRESH: Duration = Duration::from_millis(50);

/// An answer and the time of its creation.
#[derive(Debug, Default)]
pub(crate) struct Recent(Mutex<Option<(Instant, Bytes)>>);

impl Recent {
    /// Returns the cached answer, or creates another one if that is too old and `make` succeeds.
    /// Concurrent requests wait for it.
    pub(crate) fn get(&self, make: impl FnOnce() -> Option<Bytes>) -> Option<Bytes> {
        let mut recent = lock(&self.0);
        if let Some((made, answer)) = &*recent {
            if made.elapsed() < FRESH {
                return Some(answer.clone());
            }
        }
        // Free the outdated answer in any case.
        *recent = None;
        let answer = make()?;
        // The time counts from the end of the creation: a slow one must not be repeated more often.
        *recent = Some((Instant::now(), answer.clone()));
        Some(answer)
    }
}
