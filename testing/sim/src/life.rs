//! The record of one task: when it is polled, on which thread, and how it ends.

use std::{
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
    thread::{self, ThreadId},
};

use tourbillon::{JoinError, JoinHandle};
use tourbillon_sim::raw as sim;

use crate::ledger::tally;

/// A task, as its future and the threads that abort and join it see it.
#[derive(Debug)]
pub struct Life {
    number: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Whether an abort has begun.
    is_aborted: bool,
    /// The moment at which the first abort had returned.
    aborted: Option<u64>,
    /// How many polls began after that moment.
    polls_after: u32,
    is_polled: bool,
    /// What the future returned.
    output: Option<u64>,
    /// Whether the task is local: it stays on the thread of its first poll.
    is_local: bool,
    /// The thread of the first poll.
    thread: Option<ThreadId>,
    /// How often the future was dropped.
    dropped: u32,
}

static LIVES: Mutex<Vec<Arc<Life>>> = Mutex::new(Vec::new());

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Life {
    /// Creates the record of a task. A local one stays on the thread of its first poll.
    pub fn new(is_local: bool) -> Arc<Self> {
        let mut lives = lock(&LIVES);
        let life = Arc::new(Self {
            number: lives.len(),
            state: Mutex::new(State {
                is_local,
                ..State::default()
            }),
        });
        lives.push(life.clone());
        life
    }

    /// Wraps `future`, so that its polls and its drop are recorded.
    pub fn of<F: Future<Output = u64>>(self: &Arc<Self>, future: F) -> Tracked<F> {
        Tracked {
            future: Some(Box::pin(future)),
            life: self.clone(),
        }
    }

    /// Returns a stand-in for a future that is made later. If the future is never made, the drop
    /// of the stand-in is recorded as the future's.
    pub fn unmade(self: &Arc<Self>) -> Unmade {
        Unmade(Some(self.clone()))
    }

    fn fail(&self, why: &str) -> ! {
        let state = format!("{:?}", lock(&self.state));
        sim::fail(&format!("task {}: {why}\n{state}", self.number))
    }

    fn check(&self, is_right: bool, why: &str) {
        if !is_right {
            self.fail(why);
        }
    }

    fn poll_begins(&self) {
        let moment = sim::moment();
        let here = thread::current().id();
        let (is_alone, is_alive, is_here, polls_after) = {
            let mut state = lock(&self.state);
            if state.aborted.is_some_and(|aborted| aborted < moment) {
                state.polls_after += 1;
            }
            let first = *state.thread.get_or_insert(here);
            (
                !std::mem::replace(&mut state.is_polled, true),
                state.dropped == 0 && state.output.is_none(),
                !state.is_local || first == here,
                state.polls_after,
            )
        };
        self.check(is_alone, "two threads poll it");
        self.check(is_alive, "it is polled after its end");
        self.check(is_here, "it is local, and polled on another thread");
        // A thread that had begun a poll may reach the future after the abort, once.
        self.check(polls_after <= 1, "it is polled again after it was aborted");
    }

    fn poll_ends(&self, output: Option<u64>) {
        let mut state = lock(&self.state);
        (state.is_polled, state.output) = (false, output);
    }

    fn drops(&self) {
        let here = thread::current().id();
        let (is_first, is_here) = {
            let mut state = lock(&self.state);
            state.dropped += 1;
            let is_here = !state.is_local || state.thread.is_none_or(|thread| thread == here);
            (state.dropped == 1, is_here)
        };
        self.check(is_first, "it is dropped twice");
        self.check(is_here, "it is local, and dropped on another thread");
    }

    /// Aborts the task.
    pub fn abort(&self, task: &JoinHandle<u64>) {
        lock(&self.state).is_aborted = true;
        task.abort();
        let moment = sim::moment();
        lock(&self.state).aborted.get_or_insert(moment);
    }

    /// Checks the result of the task's handle against the record. Returns the recorded output.
    pub fn joined(&self, result: Result<u64, JoinError>) -> Option<u64> {
        let (output, is_aborted, dropped) = {
            let state = lock(&self.state);
            (state.output, state.is_aborted, state.dropped)
        };
        let is_ending = tally(|tally| tally.ending.is_some());
        match result {
            Ok(value) => self.check(output == Some(value), "its handle has another output"),
            Err(error) if error.is_cancelled() => {
                self.check(
                    output.is_none(),
                    "it has an output, and its handle denies it",
                );
                self.check(is_aborted || is_ending, "it was cancelled, and nobody had");
            }
            Err(error) => self.fail(&format!("its handle says {error:?}")),
        }
        self.check(
            dropped == 1,
            "its handle knows the end, and its future is there",
        );
        output
    }
}

/// A future whose polls and drop are recorded.
pub struct Tracked<F> {
    future: Option<Pin<Box<F>>>,
    life: Arc<Life>,
}

impl<F: Future<Output = u64>> Future for Tracked<F> {
    type Output = u64;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<u64> {
        self.life.poll_begins();
        let future = self.future.as_mut().expect("it is there until the drop");
        let poll = future.as_mut().poll(cx);
        let output = match poll {
            Poll::Ready(output) => Some(output),
            Poll::Pending => None,
        };
        self.life.poll_ends(output);
        poll
    }
}

impl<F> Drop for Tracked<F> {
    fn drop(&mut self) {
        // Drop what the future holds first, as the drop of any task does.
        self.future = None;
        self.life.drops();
    }
}

/// A stand-in for the future of a task, which the task's thread makes later.
pub struct Unmade(Option<Arc<Life>>);

impl Unmade {
    /// Replaces the stand-in by `future`, whose polls and drop are recorded from now on.
    pub fn make<F: Future<Output = u64>>(mut self, future: F) -> Tracked<F> {
        let life = self.0.take().expect("it is made once");
        life.of(future)
    }
}

impl Drop for Unmade {
    fn drop(&mut self) {
        if let Some(life) = self.0.take() {
            life.drops();
        }
    }
}

/// Checks that each task has ended.
pub fn check() {
    for life in lock(&LIVES).iter() {
        if lock(&life.state).dropped != 1 {
            life.fail("it is left");
        }
    }
}

/// Returns how many tasks there were, and how many of them were aborted in time.
pub fn counts() -> (u64, u64) {
    let lives = lock(&LIVES);
    let aborted = |life: &&Arc<Life>| {
        let state = lock(&life.state);
        state.is_aborted && state.output.is_none()
    };
    (
        lives.len() as u64,
        lives.iter().filter(aborted).count() as u64,
    )
}
