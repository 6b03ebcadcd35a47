//! [`Due`], a timer that came due, on its way from the store to the thread that runs it.

use std::{any::Any, num::NonZeroU64, panic::resume_unwind, task::Waker};

use tourbillon_sync::TypeName;

use crate::{
    answer::{Flow, Kind, Outcome},
    node::{
        NodeRef,
        claim::{NEVER, Start},
        ending::{conclude, deliver, end, ended, retire},
        location::Location,
        running, sleeper,
        state::Claim,
        taken::Taken,
        wait::start_of,
    },
    owner::{Notice, Owner},
    shard::Shard,
    tolerance::Tolerance,
};

/// A timer that came due and has not run. The thread that has this value is the timer's *holder*.
///
/// Any thread may still cancel or move the timer, until [`run`](Due::run) has claimed it. Dropping
/// a `Due` ends the timer as [`shutdown`](Due::shutdown) does.
pub struct Due<O: Owner>(Option<NodeRef<O>>);

/// The result of [`Due::run`].
#[derive(Debug)]
pub enum Ran {
    /// The callback ran, or the task was woken. A recurring timer waits again, or was cancelled
    /// meanwhile.
    Fired,
    /// The callback panicked with this payload. A recurring timer waits again.
    Panicked(Box<dyn Any + Send>),
    /// Nothing ran: the timer was moved to a later deadline, and waits for it.
    PutBack,
    /// Nothing ran: the timer was cancelled, or its condition was gone.
    Over,
}

impl<O: Owner> From<NodeRef<O>> for Due<O> {
    #[inline]
    fn from(node: NodeRef<O>) -> Self {
        Self(Some(node))
    }
}

impl<O: Owner> Due<O> {
    fn node(&self) -> &NodeRef<O> {
        self.0
            .as_ref()
            .expect("only a consuming method takes the node")
    }

    /// Returns the kind of the timer. A [`Kind::Sleep`] is cheap to run: it wakes its task.
    pub fn kind(&self) -> Kind {
        self.node().vtable.kind
    }

    /// Returns the type of the callback, or the name that stands for it: see
    /// [`Timer::build_as`](crate::Timer::build_as).
    #[inline]
    pub fn type_name(&self) -> &'static TypeName {
        &self.node().vtable.name
    }

    /// Returns the deadline that passed, in ns, unless the timer was cancelled since.
    #[inline]
    pub fn deadline(&self) -> Option<u64> {
        self.node().claim.deadline()
    }

    /// Returns how late the timer may run.
    pub fn tolerance(&self) -> Tolerance {
        self.node().tolerance()
    }

    /// Returns when the timer was taken from the store.
    #[inline]
    pub fn taken(&self) -> Taken {
        self.node().taken()
    }

    /// Returns the timer's owning shard.
    pub fn home(&self) -> &Shard<O> {
        &self.node().home
    }

    /// Runs the timer, if it is still due.
    ///
    /// `now` returns the time in ns. It is called after a run of a recurring timer, which skips the
    /// deadlines that have passed meanwhile. The deadlines stay multiples of the period apart.
    ///
    /// # Panics
    ///
    /// A panic of the callback's run is returned as [`Ran::Panicked`]. `run` panics if the callback
    /// panics when it is called with an outcome, if its destructor panics, or if a waker panics
    /// that this call wakes. The timer is over all the same.
    pub fn run(mut self, now: impl FnOnce() -> u64) -> Ran {
        let node = self
            .0
            .take()
            .expect("only a consuming method takes the node");
        match node.vtable.kind {
            Kind::Sleep => {
                let (ran, waker) = fire(node);
                // Last, because a waker is user code and may panic.
                if let Some(waker) = waker {
                    waker.wake();
                }
                ran
            }
            Kind::Once | Kind::Recurring => run(node, now),
        }
    }

    /// Fires a sleep, if it is still due, and returns its waker, which the caller wakes. So a
    /// caller that fires several sleeps can prefetch their tasks before it wakes them.
    /// [`run`](Due::run) wakes the task at once.
    ///
    /// Returns `None` if there is no task to wake: the sleep was cancelled or moved, or has no
    /// waker, or its task polls it at this moment and then finds that it is over.
    ///
    /// # Panics
    ///
    /// Panics if the timer is not a [`Kind::Sleep`].
    #[inline]
    pub fn fire(mut self) -> Option<Waker> {
        assert!(
            self.kind() == Kind::Sleep,
            "only a sleep can be fired; a callback is run"
        );
        let node = self.0.take()?;
        fire(node).1
    }

    /// Returns the timer's [tag](crate::Options::tag), or zero if it has none.
    pub fn tag(&self) -> u32 {
        self.node().extras().map_or(0, |extras| extras.tag)
    }

    /// Returns the number that says where the timer comes from, if it was given:
    /// [`Timer::once_from`](crate::Timer::once_from),
    /// [`Timer::recurring_from`](crate::Timer::recurring_from),
    /// [`Options::origin`](crate::Options::origin).
    #[inline]
    pub fn origin(&self) -> Option<NonZeroU64> {
        let node = self.node();
        match node.vtable.origin {
            // SAFETY: the node was made with this table, and the reference keeps it alive.
            Some(origin) => unsafe { origin(node.as_ptr()) },
            None => node.extras().and_then(|extras| extras.origin),
        }
    }

    /// Ends the timer with [`Outcome::Cancelled`], if it is still due: drops its callback without a
    /// run, or passes a callback that takes an outcome to [`Owner::deliver`]. A timer that was
    /// moved waits on.
    ///
    /// # Panics
    ///
    /// Panics if the callback's destructor panics and [`Owner::panicked`] goes on with that panic.
    /// The timer is over all the same.
    pub fn cancel(mut self) {
        let Some(node) = self.0.take() else { return };
        // Before the claim, as in `fire`.
        node.set_location(Location::None);
        if let Some(notice) = end_due(&node, Outcome::Cancelled) {
            node.home.owner().deliver(notice);
        }
    }

    /// Ends the timer with [`Outcome::Shutdown`]: drops its callback, calls it with the outcome, or
    /// wakes its task. A sleep that was moved waits on, unless its shard is closed.
    pub fn shutdown(self) {
        drop(self);
    }
}

impl<O: Owner> Drop for Due<O> {
    fn drop(&mut self) {
        if let Some(node) = self.0.take() {
            // Before the claim, as in `fire`.
            node.set_location(Location::None);
            let notice = match node.vtable.kind {
                // Only a sleep's handle ends the sleep while it waits in a store: see
                // `Shard::end_stored`.
                Kind::Sleep => end_due(&node, Outcome::Shutdown),
                Kind::Once | Kind::Recurring => end(&node, Outcome::Shutdown),
            };
            // The drop of the notice calls a callback that takes an outcome.
            drop(notice);
        }
    }
}

/// Ends a timer that is still due, or puts it back if it was moved. Its location is `None` by now.
/// Returns the notice of a callback that takes outcomes, which the caller must deliver.
#[must_use]
fn end_due<O: Owner>(node: &NodeRef<O>, how: Outcome) -> Option<Notice<O>> {
    match node.claim.end_due(how, node.takes_outcome()) {
        Start::Run(_) => ended(node, how),
        Start::Moved => {
            node.home.arrive(node);
            None
        }
        Start::Over => None,
    }
}

/// Puts a timer that was moved, or that recurs, back into its owning shard.
fn put_back<O: Owner>(node: NodeRef<O>) -> Ran {
    // From here on no thread holds it, until the store does ("One holder" in `PROTOCOLS.md`).
    node.set_location(Location::None);
    node.home.arrive(&node);
    Ran::PutBack
}

/// Fires a sleep. The caller wakes the returned waker.
// Always inlined. Otherwise the compiler's decision depends on the rest of the calling crate.
#[inline(always)]
fn fire<O: Owner>(node: NodeRef<O>) -> (Ran, Option<Waker>) {
    // Before the claim: after it the task may arm the sleep again, and then another thread holds
    // the node ("One holder" in `PROTOCOLS.md`).
    node.set_let_go();
    match node.claim.end_due(Outcome::Fired, false) {
        Start::Run(_) => {
            node.home.owner().over(Kind::Sleep, Outcome::Fired);
            // SAFETY: `Due::run` and `Due::fire` have checked that this is a sleep.
            (Ran::Fired, unsafe { sleeper::slot(&node).take() })
        }
        Start::Moved => {
            node.home.arrive(&node);
            (Ran::PutBack, None)
        }
        Start::Over => (Ran::Over, None),
    }
}

/// Runs a timer with a callback, if it is still due.
fn run<O: Owner>(node: NodeRef<O>, now: impl FnOnce() -> u64) -> Ran {
    let deadline = match node.claim.start() {
        Start::Run(deadline) => deadline,
        Start::Moved => return put_back(node),
        Start::Over => return Ran::Over,
    };
    // After the claim: a condition that has gone ends the timer in place of the run.
    if node.extras().is_some_and(|extras| extras.is_dead()) {
        give_up(&node, Outcome::Cancelled);
        return Ran::Over;
    }
    // SAFETY: this thread has won the claim to run the node, and the table is the node's own.
    let run = || unsafe { (node.vtable.run)(node.as_ptr()) };
    let (ran, flow) = match running::catch(node.address(), run) {
        Ok(flow) => (Ran::Fired, flow),
        Err(panic) => {
            // A callback that panicked did not return whether this was its last run.
            let spent = node.extras().and_then(|extras| extras.spent());
            let flow = spent.map_or(Flow::Continue(()), Flow::Break);
            (Ran::Panicked(panic), flow)
        }
    };
    match flow {
        // A callback that runs once is used up.
        _ if !node.recurs() => conclude(&node, flow.break_value().unwrap_or(Outcome::Fired)),
        Flow::Break(how) => retire(&node, how),
        Flow::Continue(()) => match node.claim.again(next(&node, deadline, now())) {
            None => drop(put_back(node)),
            Some(how) => give_up(&node, how),
        },
    }
    ran
}

/// Ends a timer that will not run again, and whose callback does not know that yet.
///
/// # Panics
///
/// Panics if the callback or its destructor does.
fn give_up<O: Owner>(node: &NodeRef<O>, how: Outcome) {
    if !node.takes_outcome() {
        return retire(node, how);
    }
    if let Err(panic) = deliver(node, how) {
        resume_unwind(panic);
    }
}

/// Returns the next deadline of a recurring timer that ran for `deadline`.
fn next<O: Owner>(node: &NodeRef<O>, deadline: u64, now: u64) -> u64 {
    let (wait, extras) = (node.wait(), node.extras());
    let period = wait.length();
    let grid = extras.map_or(deadline, |extras| extras.on_grid(deadline));
    let next = following(grid, period, now);
    // A timer that was moved meanwhile waits for that deadline without jitter, and starts a new
    // grid there.
    if let Claim::Rearmed(_) = node.claim.load() {
        return next;
    }
    if wait.is_kept() {
        // The wait starts at its last deadline, whether the timer ran then or skips it.
        wait.keep(start_of(next, period));
    }
    extras.map_or(next, |extras| extras.jittered(next, node.home.owner()))
}

/// Returns the first of `deadline + period`, `deadline + 2 × period`, … that is after `now`.
fn following(deadline: u64, period: u64, now: u64) -> u64 {
    let period = period.max(1);
    let missed = now.saturating_sub(deadline) / period;
    period
        .saturating_mul(missed.saturating_add(1))
        .saturating_add(deadline)
        .min(NEVER)
}

debug!(Due, |due| due.0.as_ref().map(|node| node.claim.load()));

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn recurring_deadlines_stay_on_their_grid() {
        assert_eq!(following(100, 10, 100), 110);
        assert_eq!(following(100, 10, 109), 110);
        assert_eq!(
            following(100, 10, 110),
            120,
            "a deadline equal to now has passed"
        );
        assert_eq!(following(100, 10, 1_234), 1_240);
        assert_eq!(
            following(100, 10, 5),
            110,
            "now is before the deadline: the clock lags"
        );
        assert_eq!(following(100, 0, 100), 101, "a zero period is one ns");
        assert_eq!(following(NEVER - 1, 10, NEVER - 1), NEVER);
        assert_eq!(following(0, u64::MAX, 7), NEVER);
    }
}
