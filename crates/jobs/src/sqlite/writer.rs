//! The thread that owns the writing connection. It commits all waiting requests at once.

use std::sync::{Arc, mpsc::Receiver};

use rusqlite::{Connection, TransactionBehavior, params};
use tokio::sync::oneshot;

use super::{
    changes::{Change, Done},
    holders::{Holders, Place},
    rows::{self, failed},
};
use crate::store::{Changed, Held, Kinds, Span, StoreError};

/// How many requests one commit has at most.
const MOST: usize = 4096;

pub(super) type Reply<A> = oneshot::Sender<Result<A, StoreError>>;

pub(super) enum Request {
    Write(Box<dyn Write>),
    /// As [`Write`](Self::Write), unless no time was counted after this place: then there are no
    /// answers.
    Recount(Place, Box<dyn Write>),
    Hold {
        node: i64,
        span: Span,
        queue: String,
        kinds: Kinds,
        most: usize,
        reply: Reply<Vec<Held>>,
    },
}

/// What the caller of a [`Request`] wants to be changed.
pub(super) trait Write: Send {
    /// Returns whether this adds jobs, which needs room.
    fn adds(&self) -> bool;

    /// Makes the changes within a transaction.
    fn apply(&mut self, change: &mut Change<'_>) -> rusqlite::Result<()>;

    /// Sends the answers, once it is known whether the commit succeeded. A caller that is gone needs
    /// none.
    fn answer(self: Box<Self>, committed: Result<(), StoreError>);
}

/// The writes of one kind.
pub(super) struct Writes<Q, A> {
    adds: bool,
    requests: Vec<Q>,
    apply: fn(&mut Change<'_>, &Q) -> rusqlite::Result<A>,
    answers: Vec<A>,
    reply: Reply<Vec<A>>,
}

impl<Q, A> Writes<Q, A> {
    pub(super) fn new(
        requests: Vec<Q>,
        apply: fn(&mut Change<'_>, &Q) -> rusqlite::Result<A>,
        reply: Reply<Vec<A>>,
    ) -> Box<Self> {
        Box::new(Self {
            adds: false,
            requests,
            apply,
            answers: Vec::new(),
            reply,
        })
    }

    /// Says that these add jobs.
    pub(super) fn adding(mut self: Box<Self>) -> Box<Self> {
        self.adds = true;
        self
    }
}

impl<Q: Send, A: Send> Write for Writes<Q, A> {
    fn adds(&self) -> bool {
        self.adds
    }

    fn apply(&mut self, change: &mut Change<'_>) -> rusqlite::Result<()> {
        let answers = self.requests.iter().map(|one| (self.apply)(change, one));
        self.answers = answers.collect::<rusqlite::Result<_>>()?;
        Ok(())
    }

    fn answer(self: Box<Self>, committed: Result<(), StoreError>) {
        let Self { answers, reply, .. } = *self;
        let _ = reply.send(committed.map(|()| answers));
    }
}

pub(super) struct Writer {
    pub(super) base: Connection,
    pub(super) holders: Arc<Holders>,
    pub(super) changed: Arc<Changed>,
}

impl Writer {
    /// Serves requests until all senders are gone.
    pub(super) fn run(mut self, requests: &Receiver<Request>) {
        // Whether the last commit failed.
        let mut is_short = false;
        while let Ok(first) = requests.recv() {
            let mut holds = Vec::new();
            let mut writes = Vec::new();
            let more = std::iter::from_fn(|| requests.try_recv().ok());
            for request in std::iter::once(first).chain(more).take(MOST) {
                match request {
                    Request::Hold {
                        node,
                        span,
                        queue,
                        kinds,
                        most,
                        reply,
                    } => holds.push((node, span, queue, kinds, most, reply)),
                    Request::Recount(after, write) if self.has_none(&after) => write.answer(Ok(())),
                    Request::Write(write) | Request::Recount(_, write) => writes.push(write),
                }
            }
            if is_short {
                // Schedules need room and may fail. Commit the other requests apart, so that they
                // succeed.
                let (adds, others) = writes.into_iter().partition(|write| write.adds());
                writes = adds;
                self.write(others);
            }
            if !writes.is_empty() {
                is_short = !self.write(writes);
            }
            for (node, span, queue, kinds, most, reply) in holds {
                let held = self.hold(node, span, &queue, &kinds, most);
                let _ = reply.send(held.map_err(failed));
            }
        }
    }

    /// Returns whether no time was counted after a place, so that there is nothing to write.
    fn has_none(&self, after: &Place) -> bool {
        let found = self.base.prepare_cached(rows::COUNTED);
        let exists =
            found.and_then(|mut found| found.exists(params![after.0.as_micros(), after.1, 1]));
        // The transaction reports an error.
        exists.is_ok_and(|exists| !exists)
    }

    /// Makes changes in one transaction, and answers their callers after its commit. If it fails,
    /// each gets a transaction of its own, so that one for which there is no room does not refuse
    /// the others. Returns whether the first commit succeeded.
    fn write(&mut self, mut writes: Vec<Box<dyn Write>>) -> bool {
        let committed = self.try_write(&mut writes);
        let is_alone = writes.len() == 1;
        for mut write in writes {
            let committed = match &committed {
                Err(_) if !is_alone => self.try_write(std::slice::from_mut(&mut write)),
                all => all.clone(),
            };
            write.answer(committed);
        }
        committed.is_ok()
    }

    /// Makes changes in one transaction. If it fails, nothing has changed.
    fn try_write(&mut self, writes: &mut [Box<dyn Write>]) -> Result<(), StoreError> {
        let mut done = Done::default();
        let committed = self.commit(writes, &mut done).map_err(failed);

        let mut holders = self.holders.lock();
        let mut is_news = false;
        match &committed {
            Ok(()) => {
                for (lane, at, key) in done.offered {
                    is_news |= holders.offer(&lane, at, key);
                }
                is_news |= done.paused.iter().any(|(_, is_paused)| !is_paused);
            }
            Err(_) => {
                // Nodes may have dropped the tokens of the other jobs already, so the jobs are read
                // again.
                holders.put_back(done.ended);
                for (key, token, at) in done.begun {
                    holders.undo_begin(&key, token, at);
                }
                for (queue, is_paused) in done.paused.into_iter().rev() {
                    holders.set_paused(queue, !is_paused);
                }
                holders.read_again();
                is_news = true;
            }
        }
        drop(holders);
        if committed.is_err() {
            // If this fails, too, so do the requests that follow.
            let _ = rows::empty_log(&self.base);
        }
        if is_news {
            self.changed.tell();
        }
        committed
    }

    /// Makes and commits changes, until one fails.
    fn commit(&mut self, writes: &mut [Box<dyn Write>], done: &mut Done) -> rusqlite::Result<()> {
        let base = self
            .base
            .transaction_with_behavior(TransactionBehavior::Immediate)?;
        for write in writes {
            write.apply(&mut Change {
                base: &base,
                holders: &self.holders,
                done,
            })?;
        }
        base.commit()
    }
}
