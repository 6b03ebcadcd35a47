//! What the tests of the shard share: owners that write down what they are told.
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering},
    },
    thread::{self, ThreadId},
};

use tourbillon_shards::{Due, Kind, Outcome, Owner, Shard};

/// An owner that is at home when the test says so, and counts what it hears.
pub struct Scripted {
    local: AtomicBool,
    pub wakes: AtomicUsize,
    pub over: Overs,
}

impl Scripted {
    pub fn shard(local: bool) -> Arc<Shard<Scripted>> {
        Arc::new(Shard::new(Scripted {
            local: AtomicBool::new(local),
            wakes: AtomicUsize::new(0),
            over: Overs::default(),
        }))
    }

    /// From now on the shard takes its callers for the owner (and uses the store), or for somebody
    /// else (and uses the inbox).
    pub fn set_local(&self, local: bool) {
        self.local.store(local, Ordering::Relaxed);
    }
}

impl Owner for Scripted {
    fn wake(&self) {
        self.wakes.fetch_add(1, Ordering::Relaxed);
    }

    fn is_current(&self) -> bool {
        self.local.load(Ordering::Relaxed)
    }

    fn over(&self, kind: Kind, how: Outcome) {
        self.over.note(kind, how);
    }
}

/// An owner that is the thread which made it, and which nobody needs to wake.
pub struct Threaded {
    thread: ThreadId,
    pub over: Overs,
}

impl Threaded {
    pub fn shard() -> Arc<Shard<Threaded>> {
        Arc::new(Shard::new(Threaded {
            thread: thread::current().id(),
            over: Overs::default(),
        }))
    }
}

impl Owner for Threaded {
    fn wake(&self) {}

    fn is_current(&self) -> bool {
        thread::current().id() == self.thread
    }

    fn over(&self, kind: Kind, how: Outcome) {
        self.over.note(kind, how);
    }
}

/// How often each kind of timer ended in each way.
#[derive(Default)]
pub struct Overs(Mutex<HashMap<(Kind, Outcome), usize>>);

impl Overs {
    pub fn note(&self, kind: Kind, how: Outcome) {
        *self.0.lock().unwrap().entry((kind, how)).or_default() += 1;
    }

    pub fn get(&self, kind: Kind, how: Outcome) -> usize {
        let overs = self.0.lock().unwrap();
        overs.get(&(kind, how)).copied().unwrap_or(0)
    }

    pub fn all(&self) -> HashMap<(Kind, Outcome), usize> {
        self.0.lock().unwrap().clone()
    }
}

/// Counts how often the thing that owns it was dropped.
#[derive(Clone, Default)]
pub struct Drops(Arc<AtomicU32>);

/// One thing whose drop is counted.
pub struct Probe(Arc<AtomicU32>);

impl Drops {
    pub fn probe(&self) -> Probe {
        Probe(self.0.clone())
    }

    pub fn get(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Expires and runs all that is due at `now`, and answers how many ran.
pub fn turn<O: Owner>(shard: &Arc<Shard<O>>, now: u64) -> usize {
    let due = expire(shard, now, usize::MAX);
    let count = due.len();
    for timer in due {
        timer.run(|| now);
    }
    count
}

/// What is due at `now`.
pub fn expire<O: Owner>(shard: &Arc<Shard<O>>, now: u64, limit: usize) -> Vec<Due<O>> {
    let mut due = Vec::new();
    let expired = shard.expire(now, limit, &mut due);
    assert_eq!(expired.count, due.len());
    due
}
