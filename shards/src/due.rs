//! A timer that came due, on its way from the store to where it runs.

use std::{any::Any, panic::resume_unwind, task::Waker};

use crate::{
    callback::Flow,
    claim::{Claim, NEVER, Outcome, Start},
    ending::{conclude, end, ended, retire, tell},
    node::{Kind, Location, NodeRef},
    owner::Owner,
    running,
    shard::Shard,
    sleep,
    taken::Taken,
    type_name::TypeName,
};

/// A timer that came due and has not run: who holds this carries it.
///
/// It may still be cancelled or moved, from any thread, until [`run`](Due::run) has begun. Dropping
/// it ends it as [`shutdown`](Due::shutdown) does.
pub struct Due<O: Owner>(Option<NodeRef<O>>);

/// What [`Due::run`] did.
#[derive(Debug)]
pub enum Ran {
    /// The callback ran, or the task was woken. For a recurring timer: it waits again, or was
    /// cancelled meanwhile.
    Fired,
    /// The callback panicked, with this. A recurring timer waits again.
    Panicked(Box<dyn Any + Send>),
    /// Nothing ran: the timer had been moved to a later deadline, for which it waits now.
    PutBack,
    /// Nothing ran: the timer had been cancelled, or its condition was gone.
    Over,
}

impl<O: Owner> Due<O> {
    pub(crate) fn new(node: NodeRef<O>) -> Self {
        Self(Some(node))
    }

    fn node(&self) -> &NodeRef<O> {
        self.0
            .as_ref()
            .expect("only a consuming method takes the node")
    }

    /// What sort of timer it is. A [`Kind::Sleep`] is cheap to run: it wakes its task.
    pub fn kind(&self) -> Kind {
        self.node().vtable.kind
    }

    /// The type of its callback, or the name by which that goes: see [`Timer::build_as`](crate::Timer::build_as).
    #[inline]
    pub fn type_name(&self) -> &'static TypeName {
        &self.node().vtable.name
    }

    /// The deadline that passed, in ns, unless the timer was cancelled since.
    #[inline]
    pub fn deadline(&self) -> Option<u64> {
        self.node().claim.deadline()
    }

    /// When it was taken from the store.
    #[inline]
    pub fn taken(&self) -> Taken {
        self.node().taken()
    }

    /// The shard where it waited.
    pub fn home(&self) -> &Shard<O> {
        &self.node().home
    }

    /// Runs the timer, if it is still due.
    ///
    /// `now` is asked for the time, in ns, when a recurring timer has run, to skip those of its
    /// deadlines that passed meanwhile. Its deadlines stay multiples of its period apart.
    ///
    /// # Panics
    ///
    /// What the callback panics with in its run is in [`Ran::Panicked`]. As it does when it is told,
    /// after its run or in place of it, how its timer ended; as its destructor does; and as wakers do
    /// that are woken by this. The timer is over all the same.
    pub fn run(mut self, now: impl FnOnce() -> u64) -> Ran {
        let node = self
            .0
            .take()
            .expect("only a consuming method takes the node");
        match node.vtable.kind {
            Kind::Sleep => {
                let (ran, waker) = fire(node);
                // Last, because it may panic.
                if let Some(waker) = waker {
                    waker.wake();
                }
                ran
            }
            Kind::Once | Kind::Recurring => run(node, now),
        }
    }

    /// Fires a sleep, if it is still due, and gives its waker to the caller, who wakes it. As [`run`](Due::run) does, but
    /// that what is woken may be brought into the cache before, with those of other sleeps.
    ///
    /// `None` if there is nobody to be woken: the sleep was cancelled or moved, or has no waker, or is being polled this moment,
    /// and then finds out by itself.
    ///
    /// # Panics
    ///
    /// If the timer is no [`Kind::Sleep`].
    #[inline]
    pub fn fire(mut self) -> Option<Waker> {
        assert!(self.kind() == Kind::Sleep, "a callback is run");
        let node = self.0.take()?;
        fire(node).1
    }

    /// The number that the timer was given in its [options](crate::Options::tag), or zero.
    pub fn tag(&self) -> u32 {
        self.node().extras().map_or(0, |extras| extras.tag)
    }

    /// Ends the timer with [`Outcome::Cancelled`], if it is still due, as if its callback were not to
    /// run at all: drops it, or passes it to [`Owner::deliver`] to be told. A timer that was moved goes on
    /// waiting.
    ///
    /// # Panics
    ///
    /// As [`Owner::panicked`] does where the callback's destructor panics. The timer is over all
    /// the same.
    pub fn cancel(mut self) {
        let Some(node) = self.0.take() else { return };
        // Before the claim, as in `fire`.
        node.set_location(Location::None);
        match node.claim.end_due(Outcome::Cancelled, node.tells()) {
            Start::Run(_) => {
                if let Some(notice) = ended(&node, Outcome::Cancelled) {
                    node.home.owner().deliver(notice);
                }
            }
            Start::Moved => node.home.arrive(&node),
            Start::Over => {}
        }
    }

    /// Ends the timer with [`Outcome::Shutdown`]: drops its callback, or tells it, or wakes its task.
    pub fn shutdown(self) {
        drop(self);
    }
}

impl<O: Owner> Drop for Due<O> {
    fn drop(&mut self) {
        if let Some(node) = self.0.take() {
            // Before the claim, as in `fire`.
            node.set_location(Location::None);
            // A callback that has to be told is told here.
            drop(end(&node, Outcome::Shutdown));
        }
    }
}

fn put_back<O: Owner>(node: NodeRef<O>) -> Ran {
    // From here on nobody carries it, until the home's store does.
    node.set_location(Location::None);
    node.home.arrive(&node);
    Ran::PutBack
}

/// Fires a sleep; its waker, if there is one, is the caller's to wake.
#[inline]
fn fire<O: Owner>(node: NodeRef<O>) -> (Ran, Option<Waker>) {
    // Before the claim: once it has fired, its owner may arm it again, and somebody else carries it.
    node.set_let_go();
    match node.claim.end_due(Outcome::Fired, false) {
        Start::Run(_) => {
            node.home.owner().over(Kind::Sleep, Outcome::Fired);
            // SAFETY: `run` and `Due::fire` have seen that this is a sleep.
            (Ran::Fired, unsafe { sleep::take_waker(&node) })
        }
        Start::Moved => {
            node.home.arrive(&node);
            (Ran::PutBack, None)
        }
        Start::Over => (Ran::Over, None),
    }
}

fn run<O: Owner>(node: NodeRef<O>, now: impl FnOnce() -> u64) -> Ran {
    let deadline = match node.claim.start() {
        Start::Run(deadline) => deadline,
        Start::Moved => return put_back(node),
        Start::Over => return Ran::Over,
    };
    if node.extras().is_some_and(|extras| extras.is_dead()) {
        give_up(&node, Outcome::Cancelled);
        return Ran::Over;
    }
    // SAFETY: we won the claim to run it, and the table is the node's own.
    let run = || unsafe { (node.vtable.run)(node.as_ptr()) };
    let (ran, flow) = match running::catch(&node, run) {
        Ok(flow) => (Ran::Fired, flow),
        Err(panic) => {
            // It cannot say whether it was its last run.
            let spent = node.extras().and_then(|extras| extras.spent());
            let flow = spent.map_or(Flow::Continue(()), Flow::Break);
            (Ran::Panicked(panic), flow)
        }
    };
    match flow {
        // It was used up by its run.
        _ if !node.recurs() => conclude(&node, flow.break_value().unwrap_or(Outcome::Fired)),
        Flow::Break(how) => retire(&node, how),
        Flow::Continue(()) => match node.claim.again(next(&node, deadline, now())) {
            None => drop(put_back(node)),
            Some(how) => give_up(&node, how),
        },
    }
    ran
}

/// Ends a timer that will not run again, or not at all, and whose callback does not know that.
///
/// # Panics
///
/// As the callback, or its destructor, does.
fn give_up<O: Owner>(node: &NodeRef<O>, how: Outcome) {
    if !node.tells() {
        return retire(node, how);
    }
    if let Err(panic) = tell(node, how) {
        resume_unwind(panic);
    }
}

/// The next deadline of a recurring timer that ran for `deadline`.
fn next<O: Owner>(node: &NodeRef<O>, deadline: u64, now: u64) -> u64 {
    let (wait, extras) = (node.wait(), node.extras());
    let period = wait.length();
    let grid = extras.map_or(deadline, |extras| extras.on_grid(deadline));
    let next = following(grid, period, now);
    // One that was moved meanwhile waits for that very moment, and begins a grid there.
    if let Claim::Rearmed(_) = node.claim.load() {
        return next;
    }
    if wait.is_kept() {
        // The wait begins with the last of its deadlines, be it that it ran or that it skips it.
        wait.keep(next.saturating_sub(period));
    }
    extras.map_or(next, |extras| extras.jittered(next, node.home.owner()))
}

/// The first of `deadline + period`, `deadline + 2 × period`, … that is after `now`.
fn following(deadline: u64, period: u64, now: u64) -> u64 {
    let period = period.max(1);
    let missed = now.saturating_sub(deadline) / period;
    period
        .saturating_mul(missed.saturating_add(1))
        .saturating_add(deadline)
        .min(NEVER)
}

impl<O: Owner> std::fmt::Debug for Due<O> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let claim: Option<Claim> = self.0.as_ref().map(|node| node.claim.load());
        f.debug_tuple("Due").field(&claim).finish()
    }
}

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
            "a deadline that is now has passed"
        );
        assert_eq!(following(100, 10, 1_234), 1_240);
        assert_eq!(following(100, 10, 5), 110, "run early by a clock that lags");
        assert_eq!(following(100, 0, 100), 101, "a zero period is one ns");
        assert_eq!(following(NEVER - 1, 10, NEVER - 1), NEVER);
        assert_eq!(following(0, u64::MAX, 7), NEVER);
    }
}
