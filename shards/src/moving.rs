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
    // The wait is read behind the claim word: who starts the timer writes it before.
    move_any(node, |_| anew(node.wait(), now))
}

/// The deadline of a wait that begins now.
#[inline]
pub(crate) fn anew(wait: &AtomicU64, now: u64) -> u64 {
    now.saturating_add(wait.load(Ordering::Relaxed)).min(NEVER)
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
    match node.claim.move_pending(to) {
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
