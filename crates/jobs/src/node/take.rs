//! Takes jobs from the store, when there is room for them.

use std::{future::pending, time::Duration};

use futures_lite::future::or;
use tourbillon::time::sleep;

use super::{
    Shared,
    health::Ask,
    run::Permits,
    session::{BATCH, LONGEST, SKIPPED, add},
};
use crate::store::{Held, Lease, Span, Store, StoreError};

/// The longest wait until a full node looks for jobs.
const FULL: Duration = Duration::from_millis(500);

/// What a look for the jobs of a queue has left in the store, because there was no room.
#[derive(Clone, Copy, Default)]
struct Left {
    /// Jobs of the window.
    window: bool,
    /// Jobs that are due.
    due: bool,
    /// Due jobs of higher priorities than others that the node holds.
    above: bool,
}

/// Looks for jobs.
struct Looks<'a, S> {
    shared: &'a Shared<S>,
    lease: Lease,
    /// For each queue what [`Table::begun`](super::held::Table::begun) was when the node last took
    /// jobs above others.
    begun: Vec<Option<(bool, u64)>>,
}

impl<S: Store> Looks<'_, S> {
    /// Takes at most `most` jobs. Returns them, and whether there may be more.
    async fn hold(
        &self,
        span: Span,
        queue: usize,
        most: usize,
    ) -> Result<(Vec<Held>, bool), StoreError> {
        let (shared, most) = (self.shared, most.min(BATCH));
        if most == 0 {
            return Ok((Vec::new(), true));
        }
        let queue = &shared.options.queues[queue].0;
        let held = shared
            .store
            .hold(self.lease.node, span, queue, &shared.kinds, most);
        let held = shared.counters.health.ask(Ask::Hold, held).await?;
        let has_more = held.len() == most;
        Ok((held, has_more))
    }

    /// Takes jobs of a queue that are due within a window, until the node holds `limit` jobs, and
    /// due jobs as far as handlers can run them.
    async fn look(
        &mut self,
        queue: usize,
        window: Duration,
        limit: usize,
    ) -> Result<Left, StoreError> {
        let shared = self.shared;
        let mut left = Left::default();
        // Look for due jobs after those of the window. Otherwise a job that comes to be due in
        // between is in neither.
        let most = limit.saturating_sub(shared.held.len());
        let (held, has_more) = self.hold(Span::Within(window), queue, most).await?;
        left.window = has_more;
        add(shared, held);
        let most = room_for_due(shared, queue);
        let (held, has_more) = self.hold(Span::Due, queue, most).await?;
        left.due = has_more;
        let taken = held.iter().map(|held| held.priority).max();
        add(shared, held);
        // If it took one of the lowest priority, no due job above it is left.
        if left.due
            && let Some((lowest, most)) = shared.held.room_above(queue, shared.options.concurrency)
            && taken < Some(lowest)
        {
            left.above = true;
            // If the queue lets none begin, or no handler is free, the node leaves them to others
            // until an attempt has begun since it took some.
            let begun = shared.held.begun(queue);
            let can_begin = begun.0 && Permits::free(shared) > 0;
            if can_begin || self.begun[queue] != Some(begun) {
                let (held, has_more) = self.hold(Span::Above(lowest), queue, most).await?;
                left.above = has_more;
                if !held.is_empty() {
                    self.begun[queue] = Some(begun);
                    add(shared, held);
                }
            }
        }
        Ok(left)
    }
}

/// Takes jobs of the window into the timers, and due jobs as far as handlers can run them. Returns
/// if the store fails.
pub(super) async fn take<S: Store>(shared: &Shared<S>, lease: Lease) {
    let options = &shared.options;
    let mut changes = shared.store.changes();
    let mut looks = Looks {
        shared,
        lease,
        begun: vec![None; options.queues.len()],
    };
    let mut left = vec![Left::default(); options.queues.len()];
    let mut first = 0;
    loop {
        // A full node takes only jobs that are due within a second, and looks twice as often. With
        // these jobs, it may exceed its limit by a quarter.
        let is_full = shared.held.len() >= options.most_held;
        let (window, limit) = match is_full {
            false => (options.window, options.most_held),
            true => (
                options.window.min(Duration::from_secs(1)),
                options.most_held.saturating_add(options.most_held / 4),
            ),
        };
        // Each queue is the first one in its turn, so none has all the timers.
        first = (first + 1) % left.len();
        for queue in (first..left.len()).chain(0..first) {
            // After an error, the answer may have been lost, and the node may hold jobs that it
            // does not know. The end of the lease frees them.
            let Ok(found) = looks.look(queue, window, limit).await else {
                return;
            };
            left[queue] = found;
        }
        if !is_full && left.iter().any(|left| left.window) {
            continue;
        }
        // Look again when the second half of the window begins, if nothing happens before.
        let mut pause = (options.window / 2).min(LONGEST);
        for (left, (queue, _)) in left.iter().zip(&options.queues) {
            for (span, has_all) in [(Span::Within(window), !is_full), (Span::Due, !left.due)] {
                // A job that is locked now may be free in a moment, of which nobody tells.
                let skipped = shared.store.skipped(span, queue, &shared.kinds);
                let skipped = shared.counters.health.ask(Ask::Skipped, skipped);
                if has_all && !matches!(skipped.await, Ok(false)) {
                    pause = pause.min(SKIPPED);
                }
            }
        }
        if is_full {
            // No timer of this node stands for the jobs that it did not take.
            pause = pause.min(FULL);
        }
        let next = or(changes.wait(), sleep(pause));
        let has_room = async {
            if !is_full && !left.iter().any(|left| left.above) {
                pending::<()>().await;
            }
            shared.held.wait_for_room().await;
        };
        let has_room_for_due = async {
            let has_room = |queue: usize| left[queue].due && room_for_due(shared, queue) > 0;
            if !left.iter().any(|left| left.due) {
                pending::<()>().await;
            }
            while !(0..left.len()).any(has_room) {
                match Permits::free(shared) {
                    0 => Permits::wait_for_free(shared).await,
                    _ => shared.held.wait_for_room().await,
                }
            }
        };
        or(next, or(has_room, has_room_for_due)).await;
    }
}

/// Returns how many due jobs of a queue the node may take: those that handlers can run at once, and
/// as many again, which are ready when these end.
fn room_for_due<S: Store>(shared: &Shared<S>, queue: usize) -> usize {
    let most = Permits::free(shared).saturating_mul(2);
    let room = most.saturating_sub(shared.held.due());
    room.min(shared.held.room_of(queue))
}
