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
    is_stopping: bool,
    attempts: HashMap<Token, (String, watch::Sender<Option<Interrupt>>)>,
}

/// The attempts whose handlers run.
#[derive(Clone, Default)]
pub(super) struct Running(Arc<Mutex<State>>);

/// Removes an attempt when it is dropped.
pub(super) struct Entry(Running, Token);

impl Drop for Entry {
    fn drop(&mut self) {
        self.0.lock().attempts.remove(&self.1);
    }
}

impl Running {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an attempt.
    pub(super) fn add(&self, key: String, token: Token) -> (Entry, Interrupts) {
        let mut state = self.lock();
        let first = state.is_stopping.then_some(Interrupt::NodeStops);
        let (sender, receiver) = watch::channel(first);
        state.attempts.insert(token, (key, sender));
        (Entry(self.clone(), token), Interrupts(receiver))
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

    /// Tells an attempt, unless it knows already that its token is stale.
    fn interrupt(sender: &watch::Sender<Option<Interrupt>>, why: Interrupt) {
        sender.send_if_modified(|before| {
            let tells = !before.is_some_and(Interrupt::is_stale);
            if tells {
                *before = Some(why);
            }
            tells
        });
    }

    /// Tells an attempt that its job was cancelled or moved.
    pub(super) fn cancel(&self, token: Token) {
        if let Some((_, sender)) = self.lock().attempts.get(&token) {
            Self::interrupt(sender, Interrupt::Cancelled);
        }
    }

    /// Tells all attempts that the node has lost its lease.
    pub(super) fn lose_lease(&self) {
        for (_, sender) in self.lock().attempts.values() {
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
