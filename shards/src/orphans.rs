//! The timers of a shard that was closed.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use crate::{
    claim::Outcome, ending::end, foreign::forget, node::NodeRef, notice::Notice, owner::Owner,
};

/// How far ahead of their turn timers are fetched.
const AHEAD: usize = 8;

/// What [`Orphans::end_next`] did.
#[derive(Debug)]
pub enum Orphan<O: Owner> {
    /// The timer is over.
    Ended,
    /// Its callback is to be told so.
    Told(Notice<O>),
}

/// The timers of a shard that was closed; each ends as this is dropped. If ending one panics, the
/// others are ended all the same.
pub struct Orphans<O: Owner>(Vec<NodeRef<O>>);

impl<O: Owner> Orphans<O> {
    pub(crate) fn new(nodes: Vec<NodeRef<O>>) -> Self {
        Self(nodes)
    }

    /// How many there are, those that were over already included.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Ends one of them, if there is one: drops its callback, or tells it, or wakes its task.
    ///
    /// # Panics
    ///
    /// As a callback that is told does, and as [`Owner::panicked`] does where a destructor or a
    /// waker panics. The timer is over all the same.
    pub fn end_one(&mut self) -> bool {
        match self.end_next() {
            None => false,
            Some(Orphan::Ended) => true,
            Some(Orphan::Told(notice)) => {
                if let Some(panic) = notice.run() {
                    resume_unwind(panic);
                }
                true
            }
        }
    }

    /// Ends one of them, if there is one, but for the telling of a callback, which is left to the
    /// caller.
    ///
    /// # Panics
    ///
    /// As [`Owner::panicked`] does where a callback's destructor, or a task's waker, panics. The
    /// timer is over all the same.
    pub fn end_next(&mut self) -> Option<Orphan<O>> {
        let node = self.0.pop()?;
        // All have waited, and are cold; those behind this one come next.
        let ahead = self.0.len().checked_sub(AHEAD);
        if let Some(node) = ahead.and_then(|at| self.0.get(at)) {
            node.prefetch();
        }
        Some(match end(&node, Outcome::Shutdown) {
            None => Orphan::Ended,
            Some(notice) => Orphan::Told(notice),
        })
    }

    /// Takes `count` of them, or all if there are no more, to be ended by another thread.
    #[must_use]
    pub fn split(&mut self, count: usize) -> Self {
        Self(self.0.split_off(self.0.len().saturating_sub(count)))
    }
}

impl<O: Owner> Drop for Orphans<O> {
    fn drop(&mut self) {
        /// Ends the rest even if one of them panics.
        struct Rest<'a, O: Owner>(&'a mut Orphans<O>);
        impl<O: Owner> Drop for Rest<'_, O> {
            fn drop(&mut self) {
                let mut more = true;
                while more {
                    let end_one = AssertUnwindSafe(|| self.0.end_one());
                    more = catch_unwind(end_one).unwrap_or_else(|panic| {
                        forget(panic);
                        true
                    });
                }
            }
        }
        let rest = Rest(self);
        while rest.0.end_one() {}
    }
}

impl<O: Owner> std::fmt::Debug for Orphans<O> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Orphans").field("len", &self.len()).finish()
    }
}
