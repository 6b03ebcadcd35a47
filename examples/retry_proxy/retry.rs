//! Retries with a growing, random delay and a deadline for all attempts.
//!
//! It does not depend on what is retried.

use std::{
    future::{Future, pending},
    time::Duration,
};

use fastrand::Rng;
use tourbillon::time::{Instant, sleep, timeout_at};

/// A retry policy.
#[derive(Clone, Copy, Debug)]
pub struct Policy {
    /// Time limit of all attempts.
    pub deadline: Duration,
    /// Number of attempts without a delay between them: one per address.
    pub round: u32,
    /// Delay after the first round. It doubles with each round.
    pub backoff: Duration,
    /// Maximum delay.
    pub max_backoff: Duration,
    /// Random share of each delay, 0 to 1. It keeps clients that failed together from retrying
    /// together.
    pub jitter: f64,
}

/// The deadline has passed.
#[derive(Debug, PartialEq, Eq)]
pub struct GaveUp<E> {
    /// Number of attempts that were started.
    pub tries: u32,
    /// Error of the last attempt that ended; `None` if none has ended.
    pub last: Option<E>,
}

impl Policy {
    /// Returns the delay after `failed` failed attempts.
    pub fn wait(&self, failed: u32, rng: &mut Rng) -> Duration {
        if !failed.is_multiple_of(self.round) {
            return Duration::ZERO;
        }
        let doublings = (failed / self.round).saturating_sub(1);
        let wait = 2_u32
            .checked_pow(doublings)
            .and_then(|factor| self.backoff.checked_mul(factor))
            .map_or(self.max_backoff, |wait| wait.min(self.max_backoff));
        let part = 1.0 - self.jitter * rng.f64();
        // The rounded product can exceed the maximum of `Duration`.
        Duration::try_from_secs_f64(wait.as_secs_f64() * part).unwrap_or(wait)
    }

    /// Retries until an attempt succeeds or the deadline passes. The deadline also interrupts an
    /// attempt or a delay. `try_once` gets the number of attempts made before.
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
                    // If a delay ends at the deadline, the deadline wins, whichever timer fires
                    // first.
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
            // The deadline is beyond the clock's range.
            None => Ok(tries.await),
        };
        done.map_err(|_| gave_up)
    }
}
