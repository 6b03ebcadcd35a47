//! How long a job waits between its attempts.

use std::time::Duration;

/// The waits between the attempts of a job.
///
/// The wait after attempt `n` is between one half and all of `first` × 2ⁿ⁻¹, at random, so that
/// jobs that failed together do not come back together. It is at most `longest`. If an attempt does
/// not end, as its process was killed, the wait is counted from its begin.
#[derive(Clone, Copy, Debug)]
pub struct Backoff {
    /// How many attempts a job has. Each attempt counts that has begun, also if its process ended
    /// before it did.
    pub attempts: u32,
    /// The wait after the first attempt.
    pub first: Duration,
    /// The longest wait.
    pub longest: Duration,
}

impl Default for Backoff {
    /// Eight attempts, which begin with a wait of a second.
    fn default() -> Self {
        Self {
            attempts: 8,
            first: Duration::from_secs(1),
            longest: Duration::from_secs(3600),
        }
    }
}

impl Backoff {
    /// Returns the wait after attempt `number`.
    pub fn wait(&self, number: u32) -> Duration {
        let doubled = 2_u32.saturating_pow(number.saturating_sub(1));
        let full = self.first.saturating_mul(doubled).min(self.longest);
        full.mul_f64(0.5 + 0.5 * fastrand::f64())
    }
}
