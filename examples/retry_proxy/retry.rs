//! Trying again: with waits that grow and differ, and a deadline over all of it.
//!
//! Nothing here knows what is tried.

use std::{
    future::{Future, pending},
    time::Duration,
};

use fastrand::Rng;
use tourbillon::time::{Instant, sleep, timeout_at};

/// How to try again.
#[derive(Clone, Copy, Debug)]
pub struct Policy {
    /// For how long all of it may take.
    pub deadline: Duration,
    /// How many tries are made without a wait between them: one for each place to try at.
    pub round: u32,
    /// The wait after the first round; it doubles with each round.
    pub backoff: Duration,
    /// The longest wait.
    pub max_backoff: Duration,
    /// Which part of each wait is left to chance, 0 to 1, so that those who failed at the same time do
    /// not all come back at the same time.
    pub jitter: f64,
}

/// Why it was given up: the deadline has passed.
#[derive(Debug, PartialEq, Eq)]
pub struct GaveUp<E> {
    /// How many tries were made, or begun.
    pub tries: u32,
    /// What the last of them that ended failed with; `None` if none has.
    pub last: Option<E>,
}

impl Policy {
    /// How long to wait after so many tries have failed.
    pub fn wait(&self, failed: u32, rng: &mut Rng) -> Duration {
        if failed % self.round != 0 {
            return Duration::ZERO;
        }
        let doublings = (failed / self.round).saturating_sub(1);
        let wait = 2_u32
            .checked_pow(doublings)
            .and_then(|factor| self.backoff.checked_mul(factor))
            .map_or(self.max_backoff, |wait| wait.min(self.max_backoff));
        let part = 1.0 - self.jitter * rng.f64();
        // More than a `Duration` holds, by what is lost in the sum, is not less than the whole.
        Duration::try_from_secs_f64(wait.as_secs_f64() * part).unwrap_or(wait)
    }

    /// Tries until it succeeds, or the deadline is over: then it is given up at once, in the midst of a
    /// try or of a wait. The function is told how many tries were made before.
    pub async fn run<T, E, F>(
        &self,
        rng: &mut Rng,
        mut try_once: impl FnMut(u32) -> F,
    ) -> Result<T, GaveUp<E>>
    where
        F: Future<Output = Result<T, E>>,
    {
        let mut gave_up = GaveUp {
            tries: 0,
            last: None,
        };
        let deadline = Instant::now().checked_add(self.deadline);
        let tries = async {
            loop {
                if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                    // Where a wait ends with the deadline it is the deadline that counts, whichever of
                    // the two is heard of first.
                    pending::<()>().await;
                }
                let before = gave_up.tries;
                gave_up.tries += 1;
                match try_once(before).await {
                    Ok(value) => return value,
                    Err(error) => gave_up.last = Some(error),
                }
                sleep(self.wait(gave_up.tries, rng)).await;
            }
        };
        let done = match deadline {
            Some(deadline) => timeout_at(deadline, tries).await,
            // Beyond what the clock knows.
            None => Ok(tries.await),
        };
        done.map_err(|_| gave_up)
    }
}
