//! The claim word: state and true deadline of one timer in one `AtomicU64`.
//!
//! ```text
//!  63        61 60                                                0
//! ┌────────────┬───────────────────────────────────────────────────┐
//! │ state (3)  │ deadline in ns (61), or an outcome                │
//! └────────────┴───────────────────────────────────────────────────┘
//!
//! Idle ─▶ Pending(d) ─▶ Due(d) ─▶ Running ─▶ Over(Fired)
//!  │        │  ▲          │ │       │ ├─ reset ──▶ Rearmed(d') ─▶ Pending(d')   recurring timers
//!  │        │  └─ reset ──┘ │       │ └─ cancel ─▶ Stopping(o) ─▶ Over(o)       only
//!  │        │               │       └─ again ───▶ Pending(next)
//!  └────────┴── cancel ─────┴──▶ Over(Cancelled | Shutdown)
//! ```
//!
//! A timer whose callback is told its outcome goes there by a detour, since the telling is a run as
//! well: `Pending | Due ─▶ Stopping(o) ─▶ Over(o)`, and from `Idle` by `Barred ─start─▶ Stopping`.
//! `Stopping` has a mark beside the outcome: somebody waits for `Over`. Who waits for a run that is
//! the last makes `Running` a `Stopping(Fired)` with the mark.
//!
//! Each arrow is one compare-exchange, and who wins it owns the timer's payload. Since the deadline
//! shares the word with the state, the answers of `cancel` and `reset` are exact.

use crate::sync::{AtomicU64, Ordering};

const SHIFT: u32 = 61;
const VALUE: u64 = (1 << SHIFT) - 1;
/// In the value of `Stopping`, above the outcome: somebody waits for the end.
const WATCHED: u64 = 1 << 2;

/// The deadline that never comes, in nanoseconds: 2^61 − 1, some 73 years after time zero.
///
/// Deadlines beyond it saturate to it, and a timer that has it never fires.
pub const NEVER: u64 = VALUE;

/// How a timer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Outcome {
    /// Its deadline passed, and it ran.
    Fired,
    /// It was cancelled before it ran.
    Cancelled,
    /// Its shard was closed before it ran.
    Shutdown,
}

/// What a claim word says, unpacked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    /// Was built and not started. It will wait for this deadline; for its wait, if that is zero.
    Idle(u64),
    /// Was cancelled before it was started, and has yet to be told, when it is started.
    Barred,
    /// Waits for its deadline, in a store or an inbox.
    Pending(u64),
    /// Was taken from the store because its deadline passed, and has not started to run.
    Due(u64),
    /// Runs, for this deadline.
    Running(u64),
    /// Recurring timers alone: runs, and was given its next deadline meanwhile.
    Rearmed(u64),
    /// Ends with this outcome, when what runs, or is going to be told of it, has returned.
    Stopping {
        how: Outcome,
        /// Whether somebody waits for that.
        watched: bool,
    },
    /// Ended. Final for callbacks; a sleep may be armed again from here.
    Over(Outcome),
}

impl Claim {
    const IDLE: u64 = 0;
    const PENDING: u64 = 1;
    const DUE: u64 = 2;
    const RUNNING: u64 = 3;
    const REARMED: u64 = 4;
    const STOPPING: u64 = 5;
    const OVER: u64 = 6;
    const BARRED: u64 = 7;

    #[inline]
    fn pack(self) -> u64 {
        let (state, value) = match self {
            Claim::Idle(at) => (Self::IDLE, at),
            Claim::Barred => (Self::BARRED, 0),
            Claim::Pending(at) => (Self::PENDING, at),
            Claim::Due(at) => (Self::DUE, at),
            Claim::Running(at) => (Self::RUNNING, at),
            Claim::Rearmed(at) => (Self::REARMED, at),
            Claim::Stopping { how, watched } => (
                Self::STOPPING,
                how as u64 | if watched { WATCHED } else { 0 },
            ),
            Claim::Over(how) => (Self::OVER, how as u64),
        };
        debug_assert!(value <= VALUE);
        (state << SHIFT) | value
    }

    #[inline]
    fn unpack(word: u64) -> Self {
        let value = word & VALUE;
        let outcome = || match value & !WATCHED {
            0 => Outcome::Fired,
            1 => Outcome::Cancelled,
            _ => Outcome::Shutdown,
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
                watched: value & WATCHED != 0,
            },
            _ => Claim::Over(outcome()),
        }
    }

    /// The deadline that the timer waits for, or runs for.
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

/// What [`ClaimWord::arm`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Armed {
    /// The timer waits for this deadline.
    Waiting(u64),
    /// It was cancelled before: the caller tells its callback so.
    Cancelled,
    /// It had been started before, or was over.
    Not,
}

/// What [`ClaimWord::expire`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expiry {
    /// The timer is due, and the caller carries it from now on.
    Due,
    /// It was moved to this later deadline: put it back.
    Later(u64),
    /// It is over: let go of it.
    Over,
}

/// What [`ClaimWord::start`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Start {
    /// The caller owns the payload and runs it, for this deadline.
    Run(u64),
    /// The timer was moved while it was due: put it back.
    Moved,
    /// It is over: let go of it.
    Over,
}

/// What [`ClaimWord::end`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The timer is over, or ends when it has been told; the payload is the caller's to let go of,
    /// or to tell.
    Won,
    /// The timer was not started, and is over; the payload is the caller's to let go of.
    Unstarted,
    /// The timer was not started; it ends, and is told, when it is.
    Barred,
    /// It runs and recurs: it ends after this run.
    AfterRun,
    /// It runs, for the last time.
    Running,
    /// It was over already (or, for a recurring timer that runs, will be).
    Over,
}

/// What [`ClaimWord::reset`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moved {
    /// The new deadline is no earlier than the one that the store may have: no news.
    Later,
    /// The new deadline is earlier: the shard has to hear of it.
    Earlier,
    /// It runs and recurs: it waits for the new deadline after this run.
    AfterRun,
    /// It was not started: there is nothing to move.
    NotStarted,
    /// Too late: it runs for the last time, or is over.
    TooLate,
}

/// What [`ClaimWord::watch`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Watch {
    /// Who ends the run will see that somebody waits.
    Marked,
    /// Nothing runs that would be the last.
    Nothing,
}

/// The word itself. Every method is at most one successful compare-exchange.
#[derive(Debug)]
pub(crate) struct ClaimWord(AtomicU64);

impl ClaimWord {
    #[inline]
    pub(crate) fn new(claim: Claim) -> Self {
        Self(AtomicU64::new(claim.pack()))
    }

    /// See [`Claim::deadline`]: the same without unpacking the rest.
    #[inline]
    pub(crate) fn deadline(&self) -> Option<u64> {
        let word = self.0.load(Ordering::Acquire);
        let has_one = (Claim::PENDING..=Claim::REARMED).contains(&(word >> SHIFT));
        has_one.then_some(word & VALUE)
    }

    #[inline]
    pub(crate) fn load(&self) -> Claim {
        Claim::unpack(self.0.load(Ordering::Acquire))
    }

    /// Repeats `step` until its transition is made, or it makes none.
    #[inline]
    fn change<R>(&self, mut step: impl FnMut(Claim) -> (Option<Claim>, R)) -> R {
        let mut word = self.0.load(Ordering::Acquire);
        loop {
            let (next, answer) = step(Claim::unpack(word));
            let Some(next) = next else { return answer };
            match self.exchange(word, next.pack()) {
                Ok(_) => return answer,
                Err(now) => word = now,
            }
        }
    }

    /// The step from the one word to the other, which may be in vain even where the word is as said.
    #[inline]
    fn exchange(&self, word: u64, next: u64) -> Result<u64, u64> {
        self.0
            .compare_exchange_weak(word, next, Ordering::AcqRel, Ordering::Acquire)
    }

    /// [`end`](ClaimWord::end) of a timer that waits, as most do, and need not be told: Pending → Over(`how`). False if it was
    /// not ended, which may be so although it waits.
    #[inline]
    pub(crate) fn end_pending(&self, how: Outcome) -> bool {
        let word = self.0.load(Ordering::Acquire);
        word >> SHIFT == Claim::PENDING && self.exchange(word, Claim::Over(how).pack()).is_ok()
    }

    /// [`reset`](ClaimWord::reset) of a timer that waits: the deadline that it had, and the new one. Nothing if it was
    /// not moved, which may be so although it waits, and is so where `to` answers nothing.
    #[inline]
    pub(crate) fn move_pending(&self, to: impl FnOnce(u64) -> Option<u64>) -> Option<(u64, u64)> {
        let word = self.0.load(Ordering::Acquire);
        if word >> SHIFT != Claim::PENDING {
            return None;
        }
        let at = word & VALUE;
        let next = to(at)?;
        let moved = self.exchange(word, Claim::Pending(next).pack());
        moved.is_ok().then_some((at, next))
    }

    /// Idle → Pending(`at`), or Barred → Stopping(Cancelled). `at` is asked for the deadline, given
    /// the one that was set before.
    pub(crate) fn arm(&self, at: impl Fn(u64) -> u64) -> Armed {
        self.change(|claim| match claim {
            Claim::Idle(set) => {
                let at = at(set);
                (Some(Claim::Pending(at)), Armed::Waiting(at))
            }
            Claim::Barred => {
                let how = Outcome::Cancelled;
                let watched = false;
                (Some(Claim::Stopping { how, watched }), Armed::Cancelled)
            }
            _ => (None, Armed::Not),
        })
    }

    /// Idle | Barred → Over(Cancelled): true if the caller may let go of the payload.
    #[inline]
    pub(crate) fn abandon(&self) -> bool {
        self.change(|claim| match claim {
            Claim::Idle(_) | Claim::Barred => (Some(Claim::Over(Outcome::Cancelled)), true),
            _ => (None, false),
        })
    }

    /// Pending → Due, if the deadline is not after `now`. For whoever holds the home's lock.
    #[inline]
    pub(crate) fn expire(&self, now: u64) -> Expiry {
        self.change(|claim| match claim {
            Claim::Pending(at) if at <= now && at != NEVER => (Some(Claim::Due(at)), Expiry::Due),
            Claim::Pending(at) => (None, Expiry::Later(at)),
            _ => (None, Expiry::Over),
        })
    }

    /// Due → Running. For the carrier.
    #[inline]
    pub(crate) fn start(&self) -> Start {
        self.change(|claim| match claim {
            Claim::Due(at) => (Some(Claim::Running(at)), Start::Run(at)),
            Claim::Pending(_) => (None, Start::Moved),
            _ => (None, Start::Over),
        })
    }

    /// Due → Over(`how`), or Stopping(`how`) for what has to be told: for what ends without a run, or
    /// fires in one step. For the carrier.
    #[inline]
    pub(crate) fn end_due(&self, how: Outcome, tells: bool) -> Start {
        let next = if tells {
            let watched = false;
            Claim::Stopping { how, watched }
        } else {
            Claim::Over(how)
        };
        self.change(|claim| match claim {
            Claim::Due(at) => (Some(next), Start::Run(at)),
            Claim::Pending(_) => (None, Start::Moved),
            _ => (None, Start::Over),
        })
    }

    /// Running | Rearmed | Stopping → Over(`how`). For who runs it; true if somebody waits for it.
    #[inline]
    pub(crate) fn finish(&self, how: Outcome) -> bool {
        let word = self.0.swap(Claim::Over(how).pack(), Ordering::AcqRel);
        let claim = Claim::unpack(word);
        debug_assert!(
            matches!(
                claim,
                Claim::Running(_) | Claim::Rearmed(_) | Claim::Stopping { .. }
            ),
            "a running timer was {claim:?}"
        );
        matches!(claim, Claim::Stopping { watched: true, .. })
    }

    /// Running → Pending(`next`), or what was asked for meanwhile. For who runs it; answers the
    /// outcome with which the timer has to be finished instead, if somebody asked for that.
    pub(crate) fn again(&self, next: u64) -> Option<Outcome> {
        self.change(|claim| match claim {
            Claim::Running(_) => (Some(Claim::Pending(next)), None),
            Claim::Rearmed(at) => (Some(Claim::Pending(at)), None),
            Claim::Stopping { how, .. } => (None, Some(how)),
            _ => unreachable!("a running timer was {claim:?}"),
        })
    }

    /// Marks that somebody waits until the last run is over, or what was told has returned.
    pub(crate) fn watch(&self, recurs: bool) -> Watch {
        self.change(|claim| match claim {
            Claim::Running(_) if !recurs => {
                let how = Outcome::Fired;
                let watched = true;
                (Some(Claim::Stopping { how, watched }), Watch::Marked)
            }
            Claim::Stopping { how, .. } => {
                let watched = true;
                (Some(Claim::Stopping { how, watched }), Watch::Marked)
            }
            _ => (None, Watch::Nothing),
        })
    }

    /// Ends a timer that does not run yet, as cancelled or shut down. From any thread.
    ///
    /// `tells` says whether its callback has to be told, and is over only then.
    #[inline]
    pub(crate) fn end(&self, how: Outcome, recurs: bool, tells: bool) -> End {
        let stopping = Claim::Stopping {
            how,
            watched: false,
        };
        self.change(|claim| match claim {
            Claim::Idle(_) if tells => (Some(Claim::Barred), End::Barred),
            Claim::Idle(_) => (Some(Claim::Over(how)), End::Unstarted),
            Claim::Pending(_) | Claim::Due(_) if tells => (Some(stopping), End::Won),
            Claim::Pending(_) | Claim::Due(_) => (Some(Claim::Over(how)), End::Won),
            Claim::Running(_) | Claim::Rearmed(_) if recurs => (Some(stopping), End::AfterRun),
            Claim::Running(_)
            | Claim::Rearmed(_)
            | Claim::Stopping {
                how: Outcome::Fired,
                ..
            } => (None, End::Running),
            Claim::Barred | Claim::Stopping { .. } | Claim::Over(_) => (None, End::Over),
        })
    }

    /// Moves the deadline to what `to` says of the present one, and of whether the timer runs for
    /// that. From any thread.
    #[inline]
    pub(crate) fn reset(&self, recurs: bool, to: impl Fn(u64, bool) -> u64) -> Moved {
        self.change(|claim| match claim {
            Claim::Pending(at) => {
                let next = to(at, false);
                let moved = if next < at {
                    Moved::Earlier
                } else {
                    Moved::Later
                };
                (Some(Claim::Pending(next)), moved)
            }
            // A deque carries it, and whoever takes it from there looks at this word.
            Claim::Due(at) => (Some(Claim::Pending(to(at, false))), Moved::Later),
            Claim::Running(at) if recurs => (Some(Claim::Rearmed(to(at, true))), Moved::AfterRun),
            Claim::Rearmed(at) if recurs => (Some(Claim::Rearmed(to(at, false))), Moved::AfterRun),
            Claim::Idle(_) => (None, Moved::NotStarted),
            _ => (None, Moved::TooLate),
        })
    }

    /// Over → Pending(`at`): arms a sleep again. For its one owner.
    pub(crate) fn rearm(&self, at: u64) -> bool {
        self.change(|claim| match claim {
            Claim::Over(_) => (Some(Claim::Pending(at)), true),
            _ => (None, false),
        })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_is_the_same_read_by_itself() {
        let watched = false;
        for claim in [
            Claim::Idle(7),
            Claim::Barred,
            Claim::Pending(7),
            Claim::Due(NEVER),
            Claim::Running(0),
            Claim::Rearmed(7),
            Claim::Stopping {
                how: Outcome::Shutdown,
                watched,
            },
            Claim::Over(Outcome::Cancelled),
        ] {
            assert_eq!(ClaimWord::new(claim).deadline(), claim.deadline());
        }
    }
}
