//! Giving a timer another deadline.
//!
//! Most timers wait, have no options, and are moved later: that is one compare-exchange of a word
//! that is cold as a rule. The fewer instructions there are between two moves, the more of these
//! misses are under way at once. So the fast path is inlined into the user's code, and needs no
//! stack. Each slower case is one call in tail position.

use std::cell::Cell;

use crate::{
    claim::{Moved, NEVER},
    node::NodeRef,
    owner::Owner,
    timer::Reset,
    wait::Wait,
};

/// See [`Timer::reset_at`](crate::Timer::reset_at).
#[inline]
pub(crate) fn reset_at<O: Owner>(node: &NodeRef<O>, deadline: u64) -> Reset {
    let deadline = deadline.min(NEVER);
    // SAFETY: only timers are moved so, and they have callbacks.
    let wait = unsafe { node.wait_of_callback() };
    // The first move to a moment has to keep the start of the wait.
    if node.vtable.extras.is_some() || !wait.is_kept() {
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
    move_by(node, |at, runs| {
        // Before the new deadline, which does not imply it.
        begun.keep(at, runs);
        deadline
    })
}

/// See [`Timer::reset_from_start`](crate::Timer::reset_from_start).
pub(crate) fn reset_from_start<O: Owner>(node: &NodeRef<O>, length: u64) -> Reset {
    let begun = Begun::of(node);
    let reset = move_by(node, |at, runs| {
        let start = begun.keep(at, runs);
        // Behind the start, for which it is needed, and before the deadline: a recurring timer that
        // runs in between takes the new period.
        begun.set_length(length);
        ends(start, length)
    });
    begun.undo_unless_moved(reset)
}

/// The wait of a timer that is being moved, with its start.
struct Begun<'a> {
    wait: &'a Wait,
    /// The jitter in the present deadline.
    jitter: u64,
    /// The length that this move has changed.
    old: Cell<Option<u64>>,
}

impl<'a> Begun<'a> {
    fn of<O: Owner>(node: &'a NodeRef<O>) -> Self {
        let jitter = on_grid(node);
        Self {
            wait: node.wait(),
            // Of a timer that runs once, the first deadline's jitter is a part of its wait.
            jitter: if node.recurs() { jitter } else { 0 },
            old: Cell::new(None),
        }
    }

    /// Keeps the start of the wait whose deadline is `at`, and returns it. If the timer `runs` for
    /// that deadline, the next wait has begun with it.
    fn keep(&self, at: u64, runs: bool) -> u64 {
        let grid = at.saturating_sub(self.jitter);
        if runs {
            self.wait.keep(grid);
            return grid;
        }
        // If two threads find the start implied, one keeps it, and the other takes that: the
        // length that the other has read may be the first one's.
        let implied = grid.saturating_sub(self.wait.length());
        self.wait.keep_if_implied(implied)
    }

    /// Begins the wait anew at `start`, with this length.
    fn begin(&self, start: u64, length: u64) {
        // Beyond the end of time a deadline does not imply the start.
        if self.wait.is_kept() || start.saturating_add(length) > NEVER {
            self.wait.keep(start);
        }
    }

    fn set_length(&self, length: u64) {
        let old = self.wait.set(length);
        self.old.set(self.old.get().or(Some(old)));
    }

    /// Restores the length of the wait, if it was too late to move the timer.
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
        // The wait is read behind the claim word: the thread that starts the timer writes it
        // before.
        let length = begun.wait.length();
        let next = ends(now, length);
        if next >= at {
            begun.begin(now, length);
            return next;
        }
        // `now` was read before `at` was seen. Another thread may have started or refreshed the
        // timer after that, and must not be undone: a deadline that it may have set is kept.
        let (present, latest) = node.home.owner().reread(now).into_inner();
        begun.begin(present, length);
        at.clamp(ends(present, length), ends(latest, length))
    })
}

/// See [`Timer::reset`](crate::Timer::reset).
pub(crate) fn reset<O: Owner>(node: &NodeRef<O>, now: u64, length: u64) -> Reset {
    let begun = Begun::of(node);
    let reset = move_by(node, |at, _| {
        let start = match ends(now, length) {
            next if next >= at => now,
            // As in `refresh`; but this wait is another, and replaces whatever there is.
            _ => *node.home.owner().reread(now).start(),
        };
        begun.begin(start, length);
        begun.set_length(length);
        ends(start, length)
    });
    begun.undo_unless_moved(reset)
}

/// Returns the deadline of a wait that begins now, if it is no earlier than `at`, and implies the
/// start.
#[inline]
pub(crate) fn later(wait: &Wait, now: u64, at: u64) -> Option<u64> {
    let next = now.saturating_add(wait.quick()?);
    (next >= at && next < NEVER).then_some(next)
}

/// Returns the deadline of a wait of `length` that begins now.
#[inline]
fn ends(now: u64, length: u64) -> u64 {
    now.saturating_add(length).min(NEVER)
}

/// Notes that the next deadline has no jitter. Returns the jitter of the present one.
#[inline]
pub(crate) fn on_grid<O: Owner>(node: &NodeRef<O>) -> u64 {
    node.extras().map_or(0, |extras| extras.set_on_grid())
}

/// Moves the deadline of any node: by one compare-exchange, if it has no options and waits.
fn move_by<O: Owner>(node: &NodeRef<O>, to: impl Fn(u64, bool) -> u64) -> Reset {
    if node.vtable.extras.is_none() {
        if let Some((at, next)) = node.claim.move_pending(|at| Some(to(at, false))) {
            return moved(node, at, next);
        }
    }
    move_any(node, to)
}

/// A node without options was moved from `at` to `next`, while it waited: tells the shard.
#[inline]
pub(crate) fn moved<O: Owner>(node: &NodeRef<O>, at: u64, next: u64) -> Reset {
    let home = &*node.home;
    let here = home.owner().is_current();
    // In this order: where earlier deadlines are expected, no branch waits for the two deadlines.
    if here && home.expects_earlier() {
        home.hear_moved(node, next, next < at);
    } else if next < at {
        home.hear_moved_slow(node, true, here, false);
    } else {
        home.owner().moved(here);
    }
    Reset::Waiting
}

/// Slow path of a move, for any node in any state.
#[cold]
#[inline(never)]
pub(crate) fn move_any<O: Owner>(node: &NodeRef<O>, to: impl Fn(u64, bool) -> u64) -> Reset {
    let home = &*node.home;
    let here = home.owner().is_current();
    let reset = match node.claim.reset(node.recurs(), to) {
        Moved::Later => Reset::Waiting,
        Moved::Earlier => {
            home.hear_earlier(node, here, false);
            Reset::Waiting
        }
        Moved::AfterRun => Reset::AfterRun,
        Moved::NotStarted => return Reset::NotStarted,
        Moved::TooLate => return Reset::TooLate,
    };
    home.owner().moved(here);
    reset
}
