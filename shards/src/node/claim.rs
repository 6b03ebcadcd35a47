//! The claim word: the state and the deadline of one timer, packed into one `AtomicU64`.
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
//! A callback that takes outcomes is also called for `Cancelled` and `Shutdown`. That call is a
//! run, so such a timer ends by one more state: `Pending | Due ─▶ Stopping(o) ─▶ Over(o)`, and from
//! `Idle` by `Barred ─start─▶ Stopping(o)`. `Barred` means: cancelled before start, outcome
//! pending.
//!
//! A timer that its owner refuses begins as `Over(Refused)`, or as `Stopping(Refused)` if its
//! callback takes outcomes.
//!
//! `Stopping` also has a mark that says that a thread waits for `Over`. A thread that waits for the
//! last run of a timer turns `Running` into `Stopping(Fired)` with this mark.
//!
//! Each arrow is one compare-exchange, and the thread that wins it owns the timer's payload. (The
//! last step to `Over` by the thread that ran the timer is a swap.) State and deadline share the
//! word, so the answers of `cancel` and `reset` are exact. See "The claim word" in `PROTOCOLS.md`
//! for the rules and proofs.

pub use tourbillon_sched::NEVER;
use tourbillon_sync::{AtomicU64, Ordering};

use crate::{
    answer::Outcome,
    node::state::{Claim, SHIFT, VALUE},
};

/// Result of [`ClaimWord::arm`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Armed {
    /// The timer was started and waits for this deadline.
    Waiting(u64),
    /// The timer was cancelled before start. The caller delivers that outcome.
    Cancelled,
    /// Nothing changed: the timer had been started before, or was over.
    Not,
}

/// Result of [`ClaimWord::expire`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expiry {
    /// The timer is due, and the caller is its holder.
    Due,
    /// The timer was reset to this later deadline. The caller puts it back.
    Later(u64),
    /// The timer is over. The caller drops its reference.
    Over,
}

/// Result of [`ClaimWord::start`] and [`ClaimWord::end_due`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Start {
    /// The caller owns the payload and runs it, for this deadline.
    Run(u64),
    /// The timer was reset while it was due. The caller puts it back.
    Moved,
    /// The timer is over. The caller drops its reference.
    Over,
}

/// Result of [`ClaimWord::end`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The caller owns the payload. It drops the payload, or delivers the outcome if the callback
    /// takes one; then the timer is over.
    Won,
    /// The timer had not been started, and is over. The caller drops the payload.
    Unstarted,
    /// The timer had not been started. Its start will deliver the outcome.
    Barred,
    /// A recurring timer runs. It ends after this run.
    AfterRun,
    /// The timer runs for the last time.
    Running,
    /// The timer was over already, or is about to end by an earlier call.
    Over,
}

/// Result of [`ClaimWord::reset`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moved {
    /// The store needs no update: the new deadline is not earlier than the one it may have.
    Later,
    /// The new deadline is earlier. The caller must tell the owning shard.
    Earlier,
    /// A recurring timer runs. It waits for the new deadline after this run.
    AfterRun,
    /// The timer has not been started. Nothing changed.
    NotStarted,
    /// Too late: the timer runs for the last time, or is over.
    TooLate,
}

/// Result of [`ClaimWord::await_end`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Awaiting {
    /// The mark is set. The thread that ends the run will see it.
    Marked,
    /// The timer does not run for the last time, so there is nothing to wait for.
    Nothing,
}

/// Atomic claim word. Each method makes at most one successful compare-exchange.
#[derive(Debug)]
pub(crate) struct ClaimWord(AtomicU64);

impl ClaimWord {
    #[inline]
    pub(crate) fn new(claim: Claim) -> Self {
        Self(AtomicU64::new(claim.pack()))
    }

    /// Returns [`Claim::deadline`] without unpacking the rest of the word.
    #[inline]
    pub(crate) fn deadline(&self) -> Option<u64> {
        let word = self.0.load(Ordering::Acquire);
        // The states with a deadline are numbered in a row.
        let has_one = (Claim::PENDING..=Claim::REARMED).contains(&(word >> SHIFT));
        has_one.then_some(word & VALUE)
    }

    /// Loads and unpacks the word.
    #[inline]
    pub(crate) fn load(&self) -> Claim {
        Claim::unpack(self.0.load(Ordering::Acquire))
    }

    /// Repeats `step` until its transition succeeds, or `step` returns no transition.
    #[inline]
    fn change<R>(&self, mut step: impl FnMut(Claim) -> (Option<Claim>, R)) -> R {
        let mut word = self.0.load(Ordering::Acquire);
        loop {
            // The answer follows from the value that the exchange replaces, so it is exact.
            let (next, answer) = step(Claim::unpack(word));
            let Some(next) = next else { return answer };
            match self.exchange(word, next.pack()) {
                Ok(_) => return answer,
                Err(now) => word = now,
            }
        }
    }

    /// Replaces `word` by `next`. May fail spuriously.
    #[inline]
    fn exchange(&self, word: u64, next: u64) -> Result<u64, u64> {
        self.0
            .compare_exchange_weak(word, next, Ordering::AcqRel, Ordering::Acquire)
    }

    /// Fast path of [`end`](ClaimWord::end), for a waiting timer whose callback takes no outcome:
    /// Pending → Over(`how`).
    ///
    /// Returns false if the timer was not ended. The caller then takes the slow path: the timer may
    /// still be waiting, since the exchange can fail spuriously.
    #[inline]
    pub(crate) fn end_pending(&self, how: Outcome) -> bool {
        let word = self.0.load(Ordering::Acquire);
        word >> SHIFT == Claim::PENDING && self.exchange(word, Claim::Over(how).pack()).is_ok()
    }

    /// Ends a waiting sleep as [`end_pending`](ClaimWord::end_pending) does, by a plain store. Only
    /// for the thread that has the sleep's handle, and the lock of the shard whose store has the
    /// sleep: no other thread changes the word of such a sleep. Others end one that is due, or that
    /// a closed shard has no longer in its store.
    #[inline]
    pub(crate) fn end_alone(&self, how: Outcome) -> bool {
        let waits = self.waits();
        if waits {
            self.0.store(Claim::Over(how).pack(), Ordering::Release);
        }
        waits
    }

    /// Returns whether the timer waits.
    #[inline]
    pub(crate) fn waits(&self) -> bool {
        self.0.load(Ordering::Acquire) >> SHIFT == Claim::PENDING
    }

    /// Fast path of [`reset`](ClaimWord::reset), for a waiting timer. Returns the previous and the
    /// new deadline.
    ///
    /// `to` computes the new deadline from the previous one. Returns `None` if `to` does, if the
    /// timer does not wait, or if the exchange failed, possibly spuriously. The caller then takes
    /// the slow path.
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

    /// Starts the timer: Idle → Pending(`at`), or Barred → Stopping(Cancelled). `at` computes the
    /// deadline from the value that `Idle` holds.
    pub(crate) fn arm(&self, at: impl Fn(u64) -> u64) -> Armed {
        self.change(|claim| match claim {
            Claim::Idle(set) => {
                let at = at(set);
                (Some(Claim::Pending(at)), Armed::Waiting(at))
            }
            Claim::Barred => {
                let stopping = Claim::stopping(Outcome::Cancelled, false);
                (Some(stopping), Armed::Cancelled)
            }
            _ => (None, Armed::Not),
        })
    }

    /// Ends a timer that was never started: Idle | Barred → Over(Cancelled). Returns true if the
    /// caller owns the payload and may drop it.
    #[inline]
    pub(crate) fn abandon(&self) -> bool {
        self.change(|claim| match claim {
            Claim::Idle(_) | Claim::Barred => (Some(Claim::Over(Outcome::Cancelled)), true),
            _ => (None, false),
        })
    }

    /// Marks the timer due if its deadline is not after `now`: Pending → Due. Only for the thread
    /// that holds the owning shard's lock.
    #[inline]
    pub(crate) fn expire(&self, now: u64) -> Expiry {
        self.change(|claim| match claim {
            Claim::Pending(at) if at <= now && at != NEVER => (Some(Claim::Due(at)), Expiry::Due),
            Claim::Pending(at) => (None, Expiry::Later(at)),
            _ => (None, Expiry::Over),
        })
    }

    /// Starts the run: Due → Running. Only for the holder.
    #[inline]
    pub(crate) fn start(&self) -> Start {
        self.change(|claim| match claim {
            Claim::Due(at) => (Some(Claim::Running(at)), Start::Run(at)),
            // Reset while it was due: running now would be too early.
            Claim::Pending(_) => (None, Start::Moved),
            _ => (None, Start::Over),
        })
    }

    /// Ends a due timer without a run: Due → Over(`how`), or → Stopping(`how`) if the callback
    /// takes outcomes. A sleep fires by this one step. Only for the holder.
    #[inline]
    pub(crate) fn end_due(&self, how: Outcome, takes_outcome: bool) -> Start {
        let next = if takes_outcome {
            Claim::stopping(how, false)
        } else {
            Claim::Over(how)
        };
        self.change(|claim| match claim {
            Claim::Due(at) => (Some(next), Start::Run(at)),
            Claim::Pending(_) => (None, Start::Moved),
            _ => (None, Start::Over),
        })
    }

    /// Ends the run: Running | Rearmed | Stopping → Over(`how`). Only for the thread that runs the
    /// timer. Returns true if a thread waits for the end.
    #[inline]
    pub(crate) fn finish(&self, how: Outcome) -> bool {
        // A swap is enough: no other thread leads out of these states. See "The claim word" in
        // `PROTOCOLS.md`.
        let word = self.0.swap(Claim::Over(how).pack(), Ordering::AcqRel);
        let claim = Claim::unpack(word);
        debug_assert!(
            matches!(
                claim,
                Claim::Running(_) | Claim::Rearmed(_) | Claim::Stopping { .. }
            ),
            "a running timer was {claim:?}"
        );
        matches!(claim, Claim::Stopping { awaited: true, .. })
    }

    /// Arms a recurring timer for its next run: Running → Pending(`next`), or Rearmed(d) →
    /// Pending(d). Only for the thread that runs the timer.
    ///
    /// Returns an outcome if the timer was ended meanwhile. The caller then finishes the timer with
    /// that outcome.
    pub(crate) fn again(&self, next: u64) -> Option<Outcome> {
        self.change(|claim| match claim {
            Claim::Running(_) => (Some(Claim::Pending(next)), None),
            Claim::Rearmed(at) => (Some(Claim::Pending(at)), None),
            Claim::Stopping { how, .. } => (None, Some(how)),
            _ => unreachable!("a running timer was {claim:?}"),
        })
    }

    /// Marks that a thread waits until the last run, or the call that delivers the outcome, has
    /// returned.
    pub(crate) fn await_end(&self, recurs: bool) -> Awaiting {
        self.change(|claim| match claim {
            Claim::Running(_) if !recurs => {
                let stopping = Claim::stopping(Outcome::Fired, true);
                (Some(stopping), Awaiting::Marked)
            }
            Claim::Stopping { how, .. } => (Some(Claim::stopping(how, true)), Awaiting::Marked),
            // A recurring run may go on, and waiting for it could take for ever.
            _ => (None, Awaiting::Nothing),
        })
    }

    /// Ends a timer that does not run yet, as cancelled or shut down. Any thread may call it.
    ///
    /// `takes_outcome` says whether the callback takes outcomes: then the timer is over only after
    /// the call that delivers this one.
    #[inline]
    pub(crate) fn end(&self, how: Outcome, recurs: bool, takes_outcome: bool) -> End {
        let stopping = Claim::stopping(how, false);
        self.change(|claim| match claim {
            // The payload stays, because the start has to deliver the outcome.
            Claim::Idle(_) if takes_outcome => (Some(Claim::Barred), End::Barred),
            Claim::Idle(_) => (Some(Claim::Over(how)), End::Unstarted),
            // No other thread uses the payload yet, so the winner gets it.
            Claim::Pending(_) | Claim::Due(_) if takes_outcome => (Some(stopping), End::Won),
            Claim::Pending(_) | Claim::Due(_) => (Some(Claim::Over(how)), End::Won),
            // The payload is in use. The thread that runs it finds the outcome afterwards.
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

    /// Sets the deadline to what `to` returns for the present deadline and for whether the timer
    /// runs for that deadline. Any thread may call it.
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
            // The timer is in a deque, so the store needs no update. The holder reads this word
            // before it runs the timer, finds Pending, and puts the timer back.
            Claim::Due(at) => (Some(Claim::Pending(to(at, false))), Moved::Later),
            // The thread that runs it finds the deadline after this run, in `again`.
            Claim::Running(at) if recurs => (Some(Claim::Rearmed(to(at, true))), Moved::AfterRun),
            Claim::Rearmed(at) if recurs => (Some(Claim::Rearmed(to(at, false))), Moved::AfterRun),
            Claim::Idle(_) => (None, Moved::NotStarted),
            _ => (None, Moved::TooLate),
        })
    }

    /// Arms a sleep again: Over → Pending(`at`). Only for the owner of the sleep. Returns false if
    /// the sleep is not over.
    pub(crate) fn rearm(&self, at: u64) -> bool {
        self.change(|claim| match claim {
            Claim::Over(_) => (Some(Claim::Pending(at)), true),
            _ => (None, false),
        })
    }
}
