//! How a runtime wakes a worker to search for work, and where a searcher looks.
//!
//! The counts are `Searchers` of `crates/sched`, and the rules are in its `PROTOCOLS.md`. What a
//! worker does while it searches is in `worker/search.rs`.

use tourbillon_sched::SearchClaim;

use crate::{
    engine::{context::spread, core::Core, shared::Shared},
    sys::sync::point,
};

impl Shared {
    /// Wakes one parked worker to search for work, unless another worker searches already. The
    /// caller has queued the work before.
    #[inline]
    pub(crate) fn wake_one(&self) {
        self.queues
            .searchers
            .wake_one(|| self.wake_any(), || self.has_work());
    }

    /// Takes the calling worker off the count of searchers. If it was the last one and `more` says
    /// that there is work that it does not run itself, this wakes the next one.
    #[inline]
    pub(crate) fn found(&self, more: impl FnMut() -> bool) {
        self.queues.searchers.found(|| self.wake_any(), more);
    }

    /// Claims a parked worker as the searcher, and wakes it. Returns `false` if none could be
    /// claimed.
    #[cold]
    fn wake_any(&self) -> bool {
        let workers = self.workers.load();
        // Begin at another worker each time, so that wake-ups are spread.
        let first = spread::spread();
        (0..workers.len())
            .map(|i| &workers[(first + i) % workers.len()])
            .filter(|worker| !worker.owner().duty.is_retired())
            .any(|worker| {
                let claim = worker.parker().claim_for_search();
                // A worker that is about to sleep sees the claim by itself. Only one that sleeps
                // needs a write to its eventfd.
                if claim == SearchClaim::Asleep {
                    worker.owner().wake_to_search();
                }
                claim != SearchClaim::Refused
            })
    }

    /// Returns whether there is work in a queue that searchers look at.
    pub(crate) fn has_work(&self) -> bool {
        self.has_work_in(|_| true)
    }

    /// Returns whether there is work in a queue that searchers look at. Of the deques, those count
    /// that `counts` selects.
    pub(crate) fn has_work_in(&self, counts: impl Fn(&Core) -> bool) -> bool {
        let is_full = |owner: &Core| (counts(owner) && !owner.stealer.is_empty()).then_some(());
        !self.queues.is_empty()
            || self.task_groups.have_work()
            || self.find_deque(0, is_full).is_some()
    }

    /// Calls `ask` for each thread that has a deque, until it returns a value: first for the
    /// workers, beginning with index `first`, then for the helpers.
    pub(crate) fn find_deque<R>(
        &self,
        first: usize,
        mut ask: impl FnMut(&Core) -> Option<R>,
    ) -> Option<R> {
        let mut ask = |owner: &Core| {
            point();
            ask(owner)
        };
        let workers = self.workers.load();
        let (last, next) = workers.split_at(first % workers.len().max(1));
        let found = next
            .iter()
            .chain(last)
            .find_map(|worker| ask(worker.owner()));
        // The common case has no helpers, and then their list is not loaded.
        if found.is_some() || self.queues.searchers.helpers() == 0 {
            return found;
        }
        let helpers = self.helpers.known.load();
        helpers.list.iter().find_map(|helper| ask(helper.owner()))
    }
}
