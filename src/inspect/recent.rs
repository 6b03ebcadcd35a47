//! An answer that is made once for all who ask at about the same time: making it takes locks for
//! which workers wait.

use std::{
    sync::Mutex,
    time::{Duration, Instant},
};

use ::hyper::body::Bytes;

use crate::runtime::lock;

/// How long an answer is given again.
const FRESH: Duration = Duration::from_millis(50);

/// An answer and when it was made.
#[derive(Debug, Default)]
pub(super) struct Recent(Mutex<Option<(Instant, Bytes)>>);

impl Recent {
    /// The last answer, or one that is made now if that is too old and one can be made. Who asks
    /// meanwhile waits for it.
    pub(super) fn get(&self, make: impl FnOnce() -> Option<Bytes>) -> Option<Bytes> {
        let mut recent = lock(&self.0);
        if let Some((made, answer)) = &*recent {
            if made.elapsed() < FRESH {
                return Some(answer.clone());
            }
        }
        // Whether there is another or not, this one is of no more use.
        *recent = None;
        let answer = make()?;
        // Counted from its end: one that takes long is made no more often than others.
        *recent = Some((Instant::now(), answer.clone()));
        Some(answer)
    }
}
