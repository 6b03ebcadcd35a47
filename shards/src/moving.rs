//! Giving a timer another deadline.
//!
//! Most wait, have no options, and are moved to later: that is one exchange, of a word in a line that is cold as a rule. How many of
//! such misses are under way at once depends on how little there is between them. So what is usual is inlined, from the
//! user's call on, and needs no stack: whatever else there may be to do is one call, the last that is done, of a
//! function that has all it needs in registers.

use crate::{
    claim::{Moved, NEVER},
    node::NodeRef,
    owner::Owner,
    sync::{AtomicU64, Ordering},
    timer::Reset,
};

/// See [`Timer::reset_at`](crate::Timer::reset_at).
#[inline]
pub(crate) fn reset_at<O: Owner>(node: &NodeRef<O>, deadline: u64) -> Reset {
    let deadline = deadline.min(NEVER);
    // Most have no options.
    if node.vtable.extras.is_some() {
        return reset_any(node, deadline);
    }
    move_to(node, move |_| deadline)
}

/// The same of any.
#[cold]
#[inline(never)]
fn reset_any<O: Owner>(node: &NodeRef<O>, deadline: u64) -> Reset {
    on_grid(node);
    move_any(node, move |_| deadline)
}

/// See [`Timer::refresh`](crate::Timer::refresh).
#[cold]
#[inline(never)]
pub(crate) fn refresh<O: Owner>(node: &NodeRef<O>, now: u64) -> Reset {
    on_grid(node);
    move_any(node, |at| {
        // The wait is read behind the claim word: the thread that starts the timer writes it before.
        let wait = node.wait().load(Ordering::Relaxed);
        let next = ends(now, wait);
        if next >= at {
            return next;
        }
        // `now` was read before `at` was seen. Another thread may have started or refreshed the timer after that, and
        // must not be undone: a deadline that it may have set is kept.
        let (present, latest) = node.home.owner().reread(now).into_inner();
        at.clamp(ends(present, wait), ends(latest, wait))
    })
}

/// See [`Timer::reset`](crate::Timer::reset).
pub(crate) fn reset<O: Owner>(node: &NodeRef<O>, now: u64, wait: u64) -> Reset {
    let to = |at: u64| match ends(now, wait) {
        next if next >= at => next,
        // As in `refresh`; but this wait is another, and replaces whatever there is.
        _ => ends(*node.home.owner().reread(now).start(), wait),
    };
    if node.vtable.extras.is_some() {
        on_grid(node);
        return move_any(node, to);
    }
    move_to(node, to)
}

/// The deadline of a wait that begins now, if that is no earlier than `at`.
#[inline]
pub(crate) fn later(wait: &AtomicU64, now: u64, at: u64) -> Option<u64> {
    Some(ends(now, wait.load(Ordering::Relaxed))).filter(|&next| next >= at)
}

/// The deadline of a wait of so long that begins now.
#[inline]
fn ends(now: u64, wait: u64) -> u64 {
    now.saturating_add(wait).min(NEVER)
}

/// The deadline that is to be set has no jitter in it; answers how much the present one has.
#[inline]
pub(crate) fn on_grid<O: Owner>(node: &NodeRef<O>) -> u64 {
    node.extras().map_or(0, |extras| extras.set_on_grid())
}

/// Moves the deadline of a node without options, and tells its home if that has to know.
///
/// All calls are the last that is done, and have what they need in registers: where `to` has it there, too, this needs
/// no stack. What is pushed to one would be waited for by the exchange.
#[inline]
fn move_to<O: Owner>(node: &NodeRef<O>, to: impl Fn(u64) -> u64 + Copy) -> Reset {
    // Most wait.
    match node.claim.move_pending(|at| Some(to(at))) {
        Some((at, next)) => moved(node, at, next),
        None => move_any(node, to),
    }
}

/// What follows where a node without options waited for the one deadline, and was moved to the other.
#[inline]
pub(crate) fn moved<O: Owner>(node: &NodeRef<O>, at: u64, next: u64) -> Reset {
    let home = &*node.home;
    if !home.owner().is_current() {
        if next < at {
            home.hear_moved_from_outside(node);
        } else {
            home.owner().moved();
        }
    } else if home.expects_earlier() {
        // Before the next branch, and by another call: which of two deadlines is earlier is not known before they are there.
        home.hear_moved(node, next, next < at);
    } else if next < at {
        home.hear_made_earlier(node);
    } else {
        home.owner().moved_here();
    }
    Reset::Waiting
}

/// The same of any, whatever it does.
#[cold]
#[inline(never)]
pub(crate) fn move_any<O: Owner>(node: &NodeRef<O>, to: impl Fn(u64) -> u64) -> Reset {
    let reset = match node.claim.reset(node.recurs(), to) {
        Moved::Later => Reset::Waiting,
        Moved::Earlier => {
            node.home.hear_earlier(node);
            Reset::Waiting
        }
        Moved::AfterRun => Reset::AfterRun,
        Moved::NotStarted => return Reset::NotStarted,
        Moved::TooLate => return Reset::TooLate,
    };
    node.home.owner().moved();
    reset
}
