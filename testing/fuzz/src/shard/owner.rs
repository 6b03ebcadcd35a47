//! The owner of the shard, and its timers' callbacks.

use std::{
    panic::resume_unwind,
    sync::{
        Arc, Mutex, Weak,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    task::Wake,
};

use tourbillon_shards::{Cancel, Flow, Kind, Outcome, Owner, Reset, Timer};

/// An owner. The program decides whether the calling thread counts as the owner.
#[derive(Default)]
pub struct TestOwner {
    pub is_local: AtomicBool,
    pub armed: AtomicU64,
    pub over: AtomicU64,
    pub owed: AtomicU64,
    pub told: AtomicU64,
}

impl Owner for TestOwner {
    fn wake(&self) {
        panic!("the owner never sleeps");
    }

    fn is_current(&self) -> bool {
        self.is_local.load(Relaxed)
    }

    fn armed(&self, _: Kind, _: bool, count: u64) {
        self.armed.fetch_add(count, Relaxed);
    }

    fn over(&self, _: Kind, _: Outcome) {
        self.over.fetch_add(1, Relaxed);
    }

    fn outcome_pending(&self) {
        self.owed.fetch_add(1, Relaxed);
    }

    fn outcome_delivered(&self) {
        self.told.fetch_add(1, Relaxed);
    }
}

/// An action of a callback on its own timer, in its next run.
#[derive(Clone, Copy, Debug)]
pub enum Script {
    Cancel,
    Move(u64),
    MoveAndCancel(u64),
    Panic,
    /// Returns that this was the last run.
    End,
}

/// The action of a callback, and the answers that it got.
#[derive(Clone, Copy, Debug, Default)]
pub struct Answers {
    pub script: Option<Script>,
    pub cancel: Option<Cancel>,
    pub reset: Option<Reset>,
}

/// State that a callback shares with the model.
#[derive(Default)]
pub struct Log {
    pub timer: Mutex<Weak<Timer<TestOwner>>>,
    pub script: Mutex<Option<Script>>,
    pub answers: Mutex<Answers>,
    /// Number of calls, by outcome.
    calls: [AtomicUsize; 3],
}

impl Log {
    pub fn calls(&self) -> [usize; 3] {
        self.calls.each_ref().map(|count| count.load(Relaxed))
    }

    pub fn call(&self, how: Outcome) -> Flow {
        self.calls[index(how)].fetch_add(1, Relaxed);
        let timer = self
            .timer
            .lock()
            .expect("no thread panics while it holds the lock")
            .upgrade();
        if how != Outcome::Fired {
            return Flow::Continue(());
        }
        let script = self
            .script
            .lock()
            .expect("no thread panics while it holds the lock")
            .take();
        let mut answers = Answers {
            script,
            ..Answers::default()
        };
        if let Some(timer) = timer {
            if let Some(Script::Move(to) | Script::MoveAndCancel(to)) = script {
                answers.reset = Some(timer.reset_at(to));
            }
            if let Some(Script::Cancel | Script::MoveAndCancel(_)) = script {
                answers.cancel = Some(timer.cancel());
            }
        }
        *self
            .answers
            .lock()
            .expect("no thread panics while it holds the lock") = answers;
        match script {
            Some(Script::Panic) => resume_unwind(Box::new("as the program wants it")),
            Some(Script::End) => Flow::Break(Outcome::Fired),
            _ => Flow::Continue(()),
        }
    }
}

pub fn index(how: Outcome) -> usize {
    match how {
        Outcome::Fired => 0,
        Outcome::Cancelled => 1,
        _ => 2,
    }
}

/// A waker that counts its calls.
#[derive(Default)]
pub struct Woken(pub AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Relaxed);
    }
}
