//! Takes the timers that are due out of a shard.

use super::{Shard, batch, inner::Left};
use crate::{
    due::Due,
    node::{claim::NEVER, taken::Taken},
    owner::Owner,
};

/// How many updates the owner reads from the inbox before it takes due timers: some tens of µs.
const OWNER_BATCH: usize = 1024;

/// How many entries may come up in one call whose timers were moved to later deadlines, or are
/// over. Many connections may share an idle timeout, and each has refreshed its own since.
const OTHERS: usize = 1024;

/// The result of [`Shard::expire`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expired {
    /// The number of timers that came due.
    pub count: usize,
    /// Whether more timers may be due: the limit was reached, a part of the inbox was not read,
    /// many timers came up that had been moved to later deadlines, or another thread held the lock.
    /// It may be true although no timer is due.
    pub more: bool,
    /// Whether another thread held the lock, so that the call did nothing. That thread may be a
    /// normal one and wait for the caller's core. If the caller calls again at once, and is of a
    /// real-time class, it has to sleep now and then.
    pub denied: bool,
    /// Whether the call ended early because many timers came up that had been moved to later
    /// deadlines, or were over. Each of them comes up once, so the caller may call again at once.
    pub moved: bool,
}

impl<O: Owner> Shard<O> {
    /// Takes the timers that are due at `now`, in ns, out of the store, in the order of their
    /// deadlines, and appends at most `limit` timers to `due`. It reads the inbox first, or a part
    /// of a long inbox.
    ///
    /// The caller holds these timers from then on. It runs them, or passes them to a thread that
    /// does. Any thread may call this. If another thread has the lock, the call returns at once,
    /// and says that more timers may be due.
    pub fn expire(&self, now: u64, limit: usize, due: &mut Vec<Due<O>>) -> Expired {
        // The deadline `NEVER` never passes.
        let until = now.min(NEVER - 1);
        let before = due.len();
        // A remote thread holds the lock for a shorter time: the owner may want it.
        let read = if self.owner.is_current() {
            OWNER_BATCH
        } else {
            batch()
        };
        let taken = self.locked(|inner| {
            self.drain(inner, read);
            // What is left in the backlog may be due, too.
            let unread = !inner.backlog.is_empty();
            let limit = before.saturating_add(limit);
            let left = inner.expire(until, Taken::at(now), limit, OTHERS, due);
            (left, unread)
        });
        Expired {
            count: due.len() - before,
            more: taken.is_none_or(|(left, unread)| left != Left::Nothing || unread),
            denied: taken.is_none(),
            moved: taken.is_some_and(|(left, _)| left == Left::Moved),
        }
    }

    /// Reads all updates, and returns the earliest deadline of a timer that waits in this shard, in
    /// ns, or [`NEVER`] if none does. For a timer that [may be late](crate::Options::tolerance) the
    /// moment that it waits for counts, and not its deadline. The answer is exact, unless other
    /// threads arm, move or cancel timers meanwhile. ([`next_deadline`](Shard::next_deadline) may
    /// be too early.)
    ///
    /// Any thread may call this. The call takes longer the more updates there are. It waits for the
    /// lock while another thread holds it, which is for one batch.
    pub fn settle(&self) -> u64 {
        self.locked_in_turn(|inner| {
            self.drain(inner, usize::MAX);
            inner.settle()
        })
    }
}
