//! Cancels a timer.

use crate::{
    answer::{Cancel, Outcome},
    node::{NodeRef, claim::End, ending},
    owner::Owner,
};

/// See [`Timer::cancel`](crate::Timer::cancel).
#[inline]
pub(crate) fn cancel<O: Owner>(node: &NodeRef<O>) -> Cancel {
    // Fast path: most timers wait, and have no options.
    if node.vtable.extras.is_none() && node.claim.end_pending(Outcome::Cancelled) {
        drop(node.home.remove_ended(node));
        ending::let_go(node, Outcome::Cancelled);
        return Cancel::Cancelled;
    }
    cancel_slow(node)
}

/// Slow path of [`cancel`]: the timer has options, does not wait, or another thread changes it at
/// this moment.
#[cold]
#[inline(never)]
fn cancel_slow<O: Owner>(node: &NodeRef<O>) -> Cancel {
    let end = node
        .claim
        .end(Outcome::Cancelled, node.recurs(), node.takes_outcome());
    match end {
        End::Won => {
            drop(node.home.remove_ended(node));
            if let Some(notice) = ending::ended(node, Outcome::Cancelled) {
                node.home.owner().deliver(notice);
            }
            Cancel::Cancelled
        }
        End::Unstarted => {
            ending::unstarted(node);
            Cancel::Cancelled
        }
        End::Barred => {
            // The payload is the starter's. Only the name has to be left here.
            ending::leave_name(node);
            Cancel::Cancelled
        }
        End::AfterRun => Cancel::AfterRun,
        End::Running => Cancel::Running,
        End::Over => Cancel::Over,
    }
}
