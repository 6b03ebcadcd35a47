//! Moves timers to other deadlines: reset and refresh.
//!
//! Most timers wait, have no options, and are moved to a later deadline. That is one
//! compare-exchange of a word that is usually cold. The fewer instructions there are between two
//! moves, the more of these cache misses overlap. So the fast path is inlined into the user's code,
//! and needs no stack. Each slower case is one call in tail position.

use std::cell::Cell;

use crate::{
    answer::Reset,
    node::{
        NodeRef,
        claim::{Moved, NEVER},
        wait::{Wait, start_of},
    },
    owner::Owner,
};

/// See [`Timer::reset_at`](crate::Timer::reset_at).
#[inline]
pub(crate) fn reset_at<O: Owner>(node: &NodeRef<O>, deadline: u64) -> Reset {
    let deadline = deadline.min(NEVER);
    // SAFETY: only `Timer` calls this, and the nodes of timers have callbacks.
    let wait = unsafe { node.wait_of_callback() };
    if node.vtable.extras.is_some() || wait.is_kept() {
        return reset_any(node, deadline);
    }
    match node.claim.move_pending(|_| Some(deadline)) {
        Some((at, next)) => moved(node, at, next),
        None => reset_any(node, deadline),
    }
}

/// Slow path of [`reset_at`], for any timer.
#[cold]
#[inline(never)]
fn reset_any<O: Owner>(node: &NodeRef<O>, deadline: u64) -> Reset {
    let begun = Begun::of(node);
    move_by(node, |_, _| {
        if begun.wait.is_kept() {
            begun.wait.keep(start_of(deadline, begun.wait.length()));
        }
        deadline
    })
}

/// See [`Timer::reset_from_start`](crate::Timer::reset_from_start).
pub(crate) fn reset_from_start<O: Owner>(node: &NodeRef<O>, length: u64) -> Reset {
    let begun = Begun::of(node);
    let reset = move_by(node, |at, runs| {
        let start = begun.keep(at, runs);
        // After `keep`, which reads the old length, and before the deadline changes: a recurring
        // timer that runs in between takes the new period.
        begun.set_length(length);
        start.saturating_add_unsigned(length).clamp(0, NEVER as i64) as u64
    });
    begun.undo_unless_moved(reset)
}

/// The wait of a timer that is being moved. A move changes it before it changes the deadline.
struct Begun<'a> {
    wait: &'a Wait,
    /// The jitter in the present deadline, in ns.
    jitter: u64,
    /// The length before this move, if this move has changed it.
    old: Cell<Option<u64>>,
}

impl<'a> Begun<'a> {
    /// Reads the wait of `node`, and marks its next deadline as one without jitter.
    fn of<O: Owner>(node: &'a NodeRef<O>) -> Self {
        let jitter = on_grid(node);
        Self {
            wait: node.wait(),
            // The jitter of a timer that runs once is a part of its wait.
            jitter: if node.recurs() { jitter } else { 0 },
            old: Cell::new(None),
        }
    }

    /// Stores the start of the wait whose deadline is `at`, and returns it. If the timer `runs` for
    /// that deadline, the next wait has started there.
    fn keep(&self, at: u64, runs: bool) -> i64 {
        let grid = at.saturating_sub(self.jitter);
        if runs {
            return self.wait.keep(start_of(grid, 0));
        }
        // If two threads find the start implied, one stores it, and the other takes over what the
        // first has stored. The length that the other has read may be one that the first has
        // changed.
        let implied = start_of(grid, self.wait.length());
        self.wait.keep_if_implied(implied)
    }

    /// Starts the wait anew at `now`, with this length.
    fn begin(&self, now: u64, length: u64) {
        // If the length changes, another thread could take the new one with the old deadline. If
        // the wait would end beyond `NEVER`, the deadline is cut. In both cases the deadline does
        // not imply the start.
        if self.wait.is_kept() || self.wait.length() != length || now.saturating_add(length) > NEVER
        {
            self.wait.keep(start_of(now.min(NEVER), 0));
        }
    }

    /// Changes the length, and remembers the first one.
    fn set_length(&self, length: u64) {
        let old = self.wait.set(length);
        self.old.set(self.old.get().or(Some(old)));
    }

    /// Restores the length of the wait if it was too late to move the timer. Returns `reset`.
    fn undo_unless_moved(&self, reset: Reset) -> Reset {
        if let (Reset::TooLate, Some(old)) = (reset, self.old.get()) {
            self.wait.set(old);
        }
        reset
    }
}

/// See [`Timer::refresh`](crate::Timer::refresh).
#[cold]
#[inline(never)]
pub(crate) fn refresh<O: Owner>(node: &NodeRef<O>, now: u64) -> Reset {
    let begun = Begun::of(node);
    move_any(node, |at, _| {
        // The wait is read behind the claim word: the thread that starts the timer writes the wait
        // before that word.
        let length = begun.wait.length();
        let next = end_of_wait(now, length);
        if next >= at {
            begun.begin(now, length);
            return next;
        }
        // `now` was read before `at`. Another thread may have started or refreshed the timer in
        // between. A refresh must not undo that, so a deadline that the other thread may have set
        // stays. See "The claim word" in `PROTOCOLS.md`.
        let (present, latest) = node.home.owner().reread(now).into_inner();
        begun.begin(present, length);
        at.clamp(end_of_wait(present, length), end_of_wait(latest, length))
    })
}

/// See [`Timer::reset_after`](crate::Timer::reset_after).
pub(crate) fn reset_after<O: Owner>(node: &NodeRef<O>, now: u64, length: u64) -> Reset {
    let begun = Begun::of(node);
    let reset = move_by(node, |at, _| {
        let start = match end_of_wait(now, length) {
            next if next >= at => now,
            // The clock is read again, as in `refresh`. But this is a new wait, so it replaces any
            // deadline.
            _ => *node.home.owner().reread(now).start(),
        };
        begun.begin(start, length);
        begun.set_length(length);
        end_of_wait(start, length)
    });
    begun.undo_unless_moved(reset)
}

/// Returns the deadline of a wait that starts at `now`, if it is no earlier than `at` and implies
/// the start.
#[inline]
pub(crate) fn later(wait: &Wait, now: u64, at: u64) -> Option<u64> {
    let next = now.saturating_add(wait.inline_length()?);
    (next >= at && next < NEVER).then_some(next)
}

/// Returns the deadline of a wait of `length` that starts at `now`.
#[inline]
fn end_of_wait(now: u64, length: u64) -> u64 {
    now.saturating_add(length).min(NEVER)
}

/// Marks the next deadline as one without jitter. Returns the jitter of the present one.
#[inline]
pub(crate) fn on_grid<O: Owner>(node: &NodeRef<O>) -> u64 {
    node.extras().map_or(0, |extras| extras.set_on_grid())
}

/// Moves the deadline of any node. It tries the one compare-exchange first, if the node has no
/// options.
fn move_by<O: Owner>(node: &NodeRef<O>, to: impl Fn(u64, bool) -> u64) -> Reset {
    if node.vtable.extras.is_none() {
        if let Some((at, next)) = node.claim.move_pending(|at| Some(to(at, false))) {
            return moved(node, at, next);
        }
    }
    move_any(node, to)
}

/// Tells the shard that a node without options was moved from `at` to `next` while it waited.
#[inline]
pub(crate) fn moved<O: Owner>(node: &NodeRef<O>, at: u64, next: u64) -> Reset {
    let home = &*node.home;
    let here = home.owner().is_current();
    // In this order: if the owner expects earlier deadlines, no branch depends on the two
    // deadlines. See `shard/moved.rs`.
    if here && home.expects_earlier() {
        home.note_move(node, next, next < at);
    } else if next < at {
        home.note_move_slow(node, true, here, false);
    } else {
        home.owner().moved(here);
    }
    Reset::Pending
}

/// Slow path of a move, for any node in any state.
#[cold]
#[inline(never)]
pub(crate) fn move_any<O: Owner>(node: &NodeRef<O>, to: impl Fn(u64, bool) -> u64) -> Reset {
    let home = &*node.home;
    let here = home.owner().is_current();
    let reset = match node.claim.reset(node.recurs(), to) {
        Moved::Later => Reset::Pending,
        Moved::Earlier => {
            home.note_earlier_deadline(node, here, false);
            Reset::Pending
        }
        Moved::AfterRun => Reset::AfterRun,
        Moved::NotStarted => return Reset::NotStarted,
        Moved::TooLate => return Reset::TooLate,
    };
    home.owner().moved(here);
    reset
}
