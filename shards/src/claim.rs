//! The claim word: state and true deadline of one timer in one `AtomicU64`.
//!
//! ```text
//!  63        61 60                                                0
//! ┌────────────┬───────────────────────────────────────────────────┐
//! │ state (3)  │ deadline in ns (61), or an outcome                │
//! └────────────┴───────────────────────────────────────────────────┘
//!
//! Idle ─▶ Pending(d) ─▶ Due(d) ─▶ Running ─▶ Over(Fired)
//!           │  ▲          │ │       │ ├─ reset ──▶ Rearmed(d') ─▶ Pending(d')   recurring timers
//!           │  └─ reset ──┘ │       │ └─ cancel ─▶ Stopping(o) ─▶ Over(o)       only
//!           │               │       └─ again ───▶ Pending(next)
//!           └── cancel ─────┴──▶ Over(Cancelled | Shutdown)
//! ```
//!
//! Each arrow is one compare-exchange, and who wins it owns the timer's payload. Since the deadline
//! shares the word with the state, the answers of `cancel` and `reset` are exact.

use crate::sync::{AtomicU64, Ordering};

const SHIFT: u32 = 61;
const VALUE: u64 = (1 << SHIFT) - 1;

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
    /// Waits for its deadline, in a store or an inbox.
    Pending(u64),
    /// Was taken from the store because its deadline passed, and has not started to run.
    Due(u64),
    /// Runs, for this deadline.
    Running(u64),
    /// Recurring timers alone: runs, and was given its next deadline meanwhile.
    Rearmed(u64),
    /// Recurring timers alone: runs, and ends after this run.
    Stopping(Outcome),
    /// Ended. Final for callbacks; a sleep may be armed again from here.
    Over(Outcome),
}

impl Claim {
    const PENDING: u64 = 1;
    const DUE: u64 = 2;
    const RUNNING: u64 = 3;
    const REARMED: u64 = 4;
    const STOPPING: u64 = 5;
    const OVER: u64 = 6;

    fn pack(self) -> u64 {
        let (state, value) = match self {
            Claim::Pending(at) => (Self::PENDING, at),
            Claim::Due(at) => (Self::DUE, at),
            Claim::Running(at) => (Self::RUNNING, at),
            Claim::Rearmed(at) => (Self::REARMED, at),
            Claim::Stopping(how) => (Self::STOPPING, how as u64),
            Claim::Over(how) => (Self::OVER, how as u64),
        };
        debug_assert!(value <= VALUE);
        (state << SHIFT) | value
    }

    fn unpack(word: u64) -> Self {
        let value = word & VALUE;
        let outcome = || match value {
            0 => Outcome::Fired,
            1 => Outcome::Cancelled,
            _ => Outcome::Shutdown,
        };
        match word >> SHIFT {
            Self::PENDING => Claim::Pending(value),
            Self::DUE => Claim::Due(value),
            Self::RUNNING => Claim::Running(value),
            Self::REARMED => Claim::Rearmed(value),
            Self::STOPPING => Claim::Stopping(outcome()),
            Self::OVER => Claim::Over(outcome()),
            state => unreachable!("no claim word has state {state}"),
        }
    }

    /// The deadline that the timer waits for, or runs for.
    pub(crate) fn deadline(self) -> Option<u64> {
        match self {
            Claim::Pending(at) | Claim::Due(at) | Claim::Running(at) | Claim::Rearmed(at) => {
                Some(at)
            }
            Claim::Stopping(_) | Claim::Over(_) => None,
        }
    }
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
    /// The timer is over; the payload is the caller's to let go of.
    Won,
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
    /// Too late: it runs for the last time, or is over.
    TooLate,
}

/// The word itself. Every method is at most one successful compare-exchange.
#[derive(Debug)]
pub(crate) struct ClaimWord(AtomicU64);

impl ClaimWord {
    pub(crate) fn new(claim: Claim) -> Self {
        Self(AtomicU64::new(claim.pack()))
    }

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
            match self.0.compare_exchange_weak(
                word,
                next.pack(),
                Ordering::AcqRel,
                Ordering::Acquire,
            ) {
                Ok(_) => return answer,
                Err(now) => word = now,
            }
        }
    }

    /// Pending → Due, if the deadline is not after `now`. For whoever holds the home's lock.
    pub(crate) fn expire(&self, now: u64) -> Expiry {
        self.change(|claim| match claim {
            Claim::Pending(at) if at <= now && at != NEVER => (Some(Claim::Due(at)), Expiry::Due),
            Claim::Pending(at) => (None, Expiry::Later(at)),
            _ => (None, Expiry::Over),
        })
    }

    /// Due → Running. For the carrier.
    pub(crate) fn start(&self) -> Start {
        self.change(|claim| match claim {
            Claim::Due(at) => (Some(Claim::Running(at)), Start::Run(at)),
            Claim::Pending(_) => (None, Start::Moved),
            _ => (None, Start::Over),
        })
    }

    /// Due → Over(Fired), for what fires in one step. For the carrier.
    pub(crate) fn fire(&self) -> Start {
        self.change(|claim| match claim {
            Claim::Due(at) => (Some(Claim::Over(Outcome::Fired)), Start::Run(at)),
            Claim::Pending(_) => (None, Start::Moved),
            _ => (None, Start::Over),
        })
    }

    /// Running → Over(Fired). For who runs it.
    pub(crate) fn finish(&self) {
        self.change(|claim| {
            debug_assert!(matches!(claim, Claim::Running(_)));
            (Some(Claim::Over(Outcome::Fired)), ())
        })
    }

    /// Running → Pending(`next`), or what was asked for meanwhile. For who runs it; answers the
    /// outcome if the timer is over.
    pub(crate) fn again(&self, next: u64) -> Option<Outcome> {
        self.change(|claim| match claim {
            Claim::Running(_) => (Some(Claim::Pending(next)), None),
            Claim::Rearmed(at) => (Some(Claim::Pending(at)), None),
            Claim::Stopping(how) => (Some(Claim::Over(how)), Some(how)),
            Claim::Pending(_) | Claim::Due(_) | Claim::Over(_) => {
                unreachable!("a running timer was {claim:?}")
            }
        })
    }

    /// Ends a timer that does not run yet, as cancelled or shut down. From any thread.
    pub(crate) fn end(&self, how: Outcome, recurs: bool) -> End {
        self.change(|claim| match claim {
            Claim::Pending(_) | Claim::Due(_) => (Some(Claim::Over(how)), End::Won),
            Claim::Running(_) | Claim::Rearmed(_) if recurs => {
                (Some(Claim::Stopping(how)), End::AfterRun)
            }
            Claim::Running(_) | Claim::Rearmed(_) => (None, End::Running),
            Claim::Stopping(_) | Claim::Over(_) => (None, End::Over),
        })
    }

    /// Moves the deadline to what `to` says of the present one. From any thread.
    pub(crate) fn reset(&self, recurs: bool, to: impl Fn(u64) -> u64) -> Moved {
        self.change(|claim| match claim {
            Claim::Pending(at) => {
                let next = to(at);
                let moved = if next < at {
                    Moved::Earlier
                } else {
                    Moved::Later
                };
                (Some(Claim::Pending(next)), moved)
            }
            // A deque carries it, and whoever takes it from there looks at this word.
            Claim::Due(at) => (Some(Claim::Pending(to(at))), Moved::Later),
            Claim::Running(at) | Claim::Rearmed(at) if recurs => {
                (Some(Claim::Rearmed(to(at))), Moved::AfterRun)
            }
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
