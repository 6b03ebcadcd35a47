//! The options of a profile.

use std::time::Duration;

/// The most samples that a thread is asked for in a second.
const MOST: u32 = 1_000;

/// How long to sample, how often, and by which clock.
///
/// ```
/// use std::time::Duration;
/// use tourbillon_profile::{Clock, Options};
///
/// let options = Options::new(Duration::from_secs(10)).rate(199).clock(Clock::Wall);
/// ```
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct Options {
    pub(crate) duration: Duration,
    pub(crate) rate: u32,
    pub(crate) clock: Clock,
}

/// By which time a thread is sampled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Clock {
    /// By the processor time of each thread. A thread that waits is not sampled, so an idle runtime
    /// is left alone, and calls of the system in which a thread waits are not interrupted. The
    /// samples say what the processors are used for.
    #[default]
    Cpu,
    /// By elapsed time. Samples also show where a job blocks: in a lock, a call of the system, or
    /// for lack of a processor. Each sample interrupts a call in which the thread waits. It fails
    /// with `EINTR` if the kernel cannot restart it: see
    /// [`tourbillon_stacks::capture`]. Workers that sleep wake for each sample.
    Wall,
}

impl Options {
    /// Returns options for a profile of this length, with 99 samples a second by
    /// [processor time](Clock::Cpu).
    pub fn new(duration: Duration) -> Self {
        Self {
            duration,
            // Not 100, so that it does not run in step with what a program does each 10 ms.
            rate: 99,
            clock: Clock::Cpu,
        }
    }

    /// Sets how often each thread is sampled, in samples a second: 1,000 at most, and 1 at least.
    /// By processor time, the kernel has no finer steps than its ticks, which are mostly 250 a
    /// second.
    pub fn rate(mut self, hz: u32) -> Self {
        self.rate = hz.clamp(1, MOST);
        self
    }

    /// Sets the clock.
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Returns the time from one sample to the next.
    pub(crate) fn period(&self) -> Duration {
        Duration::from_secs(1) / self.rate
    }
}

impl From<Duration> for Options {
    fn from(duration: Duration) -> Self {
        Self::new(duration)
    }
}
