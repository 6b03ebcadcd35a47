//! The state of one timer: what the [claim word](super::claim) holds, unpacked.

use crate::{answer::Outcome, node::claim::NEVER};

/// Position of the state in the word.
pub(super) const SHIFT: u32 = 61;
/// Mask of the deadline or outcome.
pub(super) const VALUE: u64 = (1 << SHIFT) - 1;
/// Bit in the value of `Stopping`, above the outcome: a thread waits for the end.
const AWAITED: u64 = 1 << 2;

const _: () = assert!(
    NEVER == VALUE,
    "the largest deadline is that of a timer that never fires"
);

/// Unpacked value of a [`ClaimWord`](super::claim::ClaimWord).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    /// Built, and not started yet. Holds the deadline that the start will set, or zero if that is
    /// to be computed from the wait.
    Idle(u64),
    /// Cancelled before start. The start delivers the outcome.
    Barred,
    /// Waits for this deadline, in a store or an inbox.
    Pending(u64),
    /// Taken from the store because this deadline passed. The run has not begun.
    Due(u64),
    /// Runs, for this deadline.
    Running(u64),
    /// Recurring timers only: runs, and was given this next deadline meanwhile.
    Rearmed(u64),
    /// Ends with this outcome when the callback that runs, or is about to receive it, returns.
    Stopping {
        how: Outcome,
        /// Whether a thread waits for that.
        awaited: bool,
    },
    /// Ended. This state is final for callbacks. A sleep can be armed again from here.
    Over(Outcome),
}

impl Claim {
    const IDLE: u64 = 0;
    pub(super) const PENDING: u64 = 1;
    const DUE: u64 = 2;
    const RUNNING: u64 = 3;
    pub(super) const REARMED: u64 = 4;
    const STOPPING: u64 = 5;
    const OVER: u64 = 6;
    const BARRED: u64 = 7;

    #[inline]
    pub(crate) const fn stopping(how: Outcome, awaited: bool) -> Self {
        Claim::Stopping { how, awaited }
    }

    /// Packs the claim into a word.
    #[inline]
    pub(super) fn pack(self) -> u64 {
        let (state, value) = match self {
            Claim::Idle(at) => (Self::IDLE, at),
            Claim::Barred => (Self::BARRED, 0),
            Claim::Pending(at) => (Self::PENDING, at),
            Claim::Due(at) => (Self::DUE, at),
            Claim::Running(at) => (Self::RUNNING, at),
            Claim::Rearmed(at) => (Self::REARMED, at),
            Claim::Stopping { how, awaited } => (
                Self::STOPPING,
                how as u64 | if awaited { AWAITED } else { 0 },
            ),
            Claim::Over(how) => (Self::OVER, how as u64),
        };
        debug_assert!(value <= VALUE);
        (state << SHIFT) | value
    }

    /// Unpacks a word that [`pack`](Claim::pack) made.
    #[inline]
    pub(super) fn unpack(word: u64) -> Self {
        let value = word & VALUE;
        let outcome = || match value & !AWAITED {
            0 => Outcome::Fired,
            1 => Outcome::Cancelled,
            2 => Outcome::Shutdown,
            _ => Outcome::Refused,
        };
        match word >> SHIFT {
            Self::IDLE => Claim::Idle(value),
            Self::BARRED => Claim::Barred,
            Self::PENDING => Claim::Pending(value),
            Self::DUE => Claim::Due(value),
            Self::RUNNING => Claim::Running(value),
            Self::REARMED => Claim::Rearmed(value),
            Self::STOPPING => Claim::Stopping {
                how: outcome(),
                awaited: value & AWAITED != 0,
            },
            _ => Claim::Over(outcome()),
        }
    }

    /// Returns how the timer has ended, or is about to end: whether the callback was called with
    /// that already makes no difference.
    pub(crate) fn how(self) -> Option<Outcome> {
        match self {
            Claim::Stopping { how, .. } | Claim::Over(how) => Some(how),
            _ => None,
        }
    }

    /// Returns the deadline that the timer waits for, or runs for, if it has one.
    #[inline]
    pub(crate) fn deadline(self) -> Option<u64> {
        match self {
            Claim::Pending(at) | Claim::Due(at) | Claim::Running(at) | Claim::Rearmed(at) => {
                Some(at)
            }
            Claim::Idle(_) | Claim::Barred | Claim::Stopping { .. } | Claim::Over(_) => None,
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::node::claim::ClaimWord;

    const CLAIMS: [Claim; 11] = [
        Claim::Idle(7),
        Claim::Barred,
        Claim::Pending(7),
        Claim::Due(NEVER),
        Claim::Running(0),
        Claim::Rearmed(7),
        Claim::stopping(Outcome::Shutdown, true),
        Claim::stopping(Outcome::Fired, false),
        Claim::stopping(Outcome::Refused, true),
        Claim::Over(Outcome::Cancelled),
        Claim::Over(Outcome::Refused),
    ];

    #[test]
    fn the_fast_deadline_read_agrees_with_the_unpacked_claim() {
        for claim in CLAIMS {
            assert_eq!(ClaimWord::new(claim).deadline(), claim.deadline());
        }
    }

    #[test]
    fn a_claim_is_unpacked_as_it_was_packed() {
        for claim in CLAIMS {
            assert_eq!(Claim::unpack(claim.pack()), claim);
        }
    }
}
