//! Cancels and refreshes all timers of a name.

use super::Names;
use tourbillon_sync::foreign::each;

use crate::{
    answer::{Cancel, Reset},
    owner::Owner,
    timer::{cancel::cancel, reset::refresh},
};

/// How many timers are taken out of a list at a time to be cancelled.
const BATCH: usize = if cfg!(loom) { 1 } else { 256 };

impl<O: Owner> Names<O> {
    /// Cancels at most `max` timers of this name, and returns how many this call cancelled.
    ///
    /// The timers that were named first come first. Timers that are named during this call may be
    /// left, so a call ends although its cancellations name more.
    ///
    /// A timer that runs for the last time is neither cancelled nor counted. The table is locked
    /// for 256 timers at a time.
    ///
    /// # Panics
    ///
    /// Panics if [`Owner::panicked`] does, which it does by default when the destructor of a
    /// callback panics. Some timers may not have been cancelled then; they are still found by their
    /// name.
    pub fn cancel(&self, name: &str, max: usize) -> usize {
        let mut cancelled = 0;
        // How many timers this call may still look at: those that the list had at the first look.
        // Otherwise timers that are named meanwhile could keep the call here for ever.
        let mut left = None;
        while cancelled < max && left != Some(0) {
            // Take them out of the list first: no timer is cancelled under the lock. Timers that
            // end before the claim below are not counted, and the loop takes more.
            let most = (max - cancelled).min(left.unwrap_or(BATCH)).min(BATCH);
            let (found, others) = self.take(name, most);
            if found.is_empty() {
                break;
            }
            left = Some(left.unwrap_or(found.len() + others) - found.len());
            // The whole batch, even if a destructor panics: these timers are not in the list any
            // more, so no other call would find them.
            each(found, |node| {
                let answer = cancel(&node);
                cancelled += usize::from(matches!(answer, Cancel::Cancelled | Cancel::AfterRun));
            });
        }
        cancelled
    }

    /// Restarts the waits of all timers of this name, and returns how many of them wait, or recur
    /// and run: see [`Timer::refresh`](crate::Timer::refresh).
    ///
    /// `now` reads the clock, in ns. It is called for each timer, because the walk may take long
    /// and other threads may start and refresh timers meanwhile.
    pub fn refresh(&self, name: &str, now: impl Fn() -> u64) -> usize {
        // Copy the references: no timer is moved under the lock.
        let nodes = self.copy(name);
        let mut refreshed = 0;
        // This may drop the last references, and with them conditions, which are user code.
        each(nodes, |node| {
            let answer = refresh(&node, now());
            refreshed += usize::from(matches!(answer, Reset::Pending | Reset::AfterRun));
        });
        refreshed
    }
}
