//! Tells handlers why they should end.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::watch;

use crate::job::Token;

/// Why a handler should end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Interrupt {
    /// The node stops, and waits for the handler for some time. Its end counts if it comes within
    /// the lease.
    NodeStops,
    /// The job was cancelled or moved. The end of this attempt will be refused.
    Cancelled,
    /// The node has lost its lease. Another node may run the job, and then the end of this attempt
    /// is refused.
    LeaseLost,
}

impl Interrupt {
    /// Returns whether the token of the attempt is stale.
    fn is_stale(self) -> bool {
        self != Self::NodeStops
    }
}

/// What an attempt learns of its interrupts.
#[derive(Clone, Debug)]
pub(super) struct Interrupts(watch::Receiver<Option<Interrupt>>);

impl Interrupts {
    pub(super) fn get(&self) -> Option<Interrupt> {
        *self.0.borrow()
    }

    /// Waits for an interrupt, or for one that makes the token stale. Waits for ever if the attempt
    /// ends before.
    pub(super) async fn wait(&self, is_stale: bool) -> Interrupt {
        let mut receiver = self.0.clone();
        let is_meant = |why: &Option<Interrupt>| why.is_some_and(|why| why.is_stale() >= is_stale);
        let why = receiver.wait_for(is_meant).await.map(|why| *why);
        match why {
            Ok(Some(why)) => why,
            _ => std::future::pending().await,
        }
    }
}

#[derive(Default)]
struct State {
    /// The lease in whose name attempts may begin.
    lease: Option<i64>,
    is_stopping: bool,
    attempts: HashMap<Token, (String, watch::Sender<Option<Interrupt>>)>,
}

/// The attempts whose handlers run.
#[derive(Clone, Default)]
pub(super) struct Running(Arc<Mutex<State>>);

/// The place of an attempt, which is removed when this is dropped.
pub(super) struct Place {
    running: Running,
    token: Token,
    interrupts: Interrupts,
}

impl Place {
    /// Returns what the attempt learns of its interrupts.
    pub(super) fn interrupts(&self) -> Interrupts {
        self.interrupts.clone()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.running.lock().attempts.remove(&self.token);
    }
}

impl Running {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets attempts begin in the name of a lease.
    pub(super) fn begin_lease(&self, lease: i64) {
        self.lock().lease = Some(lease);
    }

    /// Lets no further attempts begin.
    pub(super) fn end_lease(&self) {
        self.lock().lease = None;
    }

    /// Adds an attempt, unless its lease is lost. So each attempt is told of the loss, or does not
    /// begin.
    pub(super) fn add(&self, lease: i64, key: String, token: Token) -> Option<Place> {
        let mut state = self.lock();
        if state.lease != Some(lease) {
            return None;
        }
        let first = state.is_stopping.then_some(Interrupt::NodeStops);
        let (sender, receiver) = watch::channel(first);
        state.attempts.insert(token, (key, sender));
        Some(Place {
            running: self.clone(),
            token,
            interrupts: Interrupts(receiver),
        })
    }

    /// Returns the attempts of which nobody knows that their tokens are stale.
    pub(super) fn current(&self) -> Vec<(String, Token)> {
        let state = self.lock();
        let current = state.attempts.iter().filter(|(_, (_, sender))| {
            let why = *sender.borrow();
            !why.is_some_and(Interrupt::is_stale)
        });
        current
            .map(|(token, (key, _))| (key.clone(), *token))
            .collect()
    }

    /// Tells an attempt, unless it knows already that its token is stale. Returns whether it did.
    fn interrupt(sender: &watch::Sender<Option<Interrupt>>, why: Interrupt) -> bool {
        sender.send_if_modified(|before| {
            let tells = !before.is_some_and(Interrupt::is_stale);
            if tells {
                *before = Some(why);
            }
            tells
        })
    }

    /// Tells an attempt that its job was cancelled or moved. Returns whether it did not know this.
    pub(super) fn cancel(&self, token: Token) -> bool {
        match self.lock().attempts.get(&token) {
            Some((_, sender)) => Self::interrupt(sender, Interrupt::Cancelled),
            None => false,
        }
    }

    /// Ends the lease, and tells all attempts that the node has lost it.
    pub(super) fn lose_lease(&self) {
        let mut state = self.lock();
        state.lease = None;
        for (_, sender) in state.attempts.values() {
            Self::interrupt(sender, Interrupt::LeaseLost);
        }
    }

    /// Tells all attempts, and those that follow, that the node stops.
    pub(super) fn stop(&self) {
        let mut state = self.lock();
        state.is_stopping = true;
        for (_, sender) in state.attempts.values() {
            Self::interrupt(sender, Interrupt::NodeStops);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Barrier, thread};

    use super::*;

    const TOKEN: Token = Token(7);

    #[test]
    fn an_attempt_begins_in_the_name_of_the_present_lease_only() {
        let running = Running::default();
        let add = |lease| running.add(lease, "job".into(), TOKEN);
        assert!(add(1).is_none());
        running.begin_lease(1);
        let first = add(1).unwrap();
        assert_eq!(first.interrupts().get(), None);
        running.lose_lease();
        assert_eq!(first.interrupts().get(), Some(Interrupt::LeaseLost));
        assert!(add(1).is_none());
        running.begin_lease(2);
        assert!(add(1).is_none());
        let second = add(2).unwrap();
        running.stop();
        assert_eq!(second.interrupts().get(), Some(Interrupt::NodeStops));
        // A node that stops runs what it has asked for.
        let third = add(2).unwrap();
        assert_eq!(third.interrupts().get(), Some(Interrupt::NodeStops));
        running.end_lease();
        assert!(add(2).is_none());
    }

    #[test]
    fn an_attempt_that_begins_as_the_lease_is_lost_is_told() {
        for _ in 0..500 {
            let running = Running::default();
            running.begin_lease(1);
            let barrier = Barrier::new(2);
            thread::scope(|scope| {
                let loses = scope.spawn(|| {
                    barrier.wait();
                    running.lose_lease();
                });
                barrier.wait();
                let place = running.add(1, "job".into(), TOKEN);
                loses.join().unwrap();
                // It does not begin, or it is told.
                let told = place.map(|place| place.interrupts().get());
                assert!(matches!(told, None | Some(Some(Interrupt::LeaseLost))));
            });
        }
    }
}
