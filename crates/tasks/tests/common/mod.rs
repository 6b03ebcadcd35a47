//! An executor that runs queued tasks on request, and records what its tasks do.
#![allow(dead_code, reason = "not every test uses all of it")]

use std::{
    collections::VecDeque,
    future::Future,
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    task::{Context, Poll, Wake, Waker},
};

use tourbillon_tasks::{Join, Policy, Runnable, Task, TaskRef, Woken, spawn};

/// The metadata of all test tasks: their executor.
pub type Meta = Arc<Executor>;

#[derive(Default)]
pub struct Executor {
    queue: Mutex<VecDeque<Runnable<Meta>>>,
    /// How the tasks were scheduled, in order.
    pub woken: Mutex<Vec<Woken>>,
    pub ended: AtomicUsize,
    pub panics: AtomicUsize,
    /// How often a traced poll cloned its waker.
    pub traced: AtomicUsize,
    /// Whether the executor keeps a reference to a task that waits.
    pub keeps: bool,
    /// The reference that it keeps.
    kept: Mutex<Option<TaskRef<Meta>>>,
}

pub struct Queued;

impl Policy for Queued {
    type Metadata = Meta;

    fn schedule(task: Runnable<Meta>, woken: Woken) {
        let executor = task.metadata().clone();
        executor.woken.lock().unwrap().push(woken);
        executor.queue.lock().unwrap().push_back(task);
    }

    fn pending(task: &Task<Meta>) {
        let executor = task.metadata();
        if executor.keeps {
            executor
                .kept
                .lock()
                .unwrap()
                .get_or_insert_with(|| task.reference());
        }
    }

    fn ended(executor: &Meta) -> Option<TaskRef<Meta>> {
        executor.ended.fetch_add(1, SeqCst);
        executor.kept.lock().unwrap().take()
    }

    fn traced(executor: &Meta) {
        executor.traced.fetch_add(1, SeqCst);
    }

    fn panicked(executor: &Meta) {
        executor.panics.fetch_add(1, SeqCst);
    }
}

impl Executor {
    pub fn new() -> Meta {
        Arc::default()
    }

    pub fn keeping() -> Meta {
        Arc::new(Self {
            keeps: true,
            ..Self::default()
        })
    }

    /// Spawns a task, which is queued.
    pub fn spawn<F>(self: &Meta, future: F) -> Join<F::Output, Meta>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let (runnable, join) = spawn::<Queued, _>(future, self.clone());
        runnable.schedule();
        join
    }

    pub fn take(&self) -> Option<Runnable<Meta>> {
        self.queue.lock().unwrap().pop_front()
    }

    /// Runs the queued tasks, and returns how many there were.
    pub fn run(&self) -> usize {
        let next = || self.take();
        std::iter::from_fn(next).map(Runnable::run).count()
    }

    pub fn wake_kept(&self) {
        self.kept
            .lock()
            .unwrap()
            .as_ref()
            .expect("it is kept")
            .wake();
    }

    pub fn queued(&self) -> usize {
        self.queue.lock().unwrap().len()
    }

    pub fn panics(&self) -> usize {
        self.panics.load(SeqCst)
    }
}

/// Counts how many of its tokens were dropped.
#[derive(Clone, Default)]
pub struct Drops(Arc<AtomicUsize>);

impl Drops {
    pub fn count(&self) -> usize {
        self.0.load(SeqCst)
    }

    pub fn token(&self) -> Token {
        Token(self.0.clone())
    }
}

pub struct Token(Arc<AtomicUsize>);

impl Drop for Token {
    fn drop(&mut self) {
        self.0.fetch_add(1, SeqCst);
    }
}

/// A waker that counts its calls.
#[derive(Default)]
pub struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

impl Wakes {
    pub fn new() -> (Arc<Self>, Waker) {
        let wakes = Arc::<Self>::default();
        (wakes.clone(), wakes.into())
    }

    pub fn count(&self) -> usize {
        self.0.load(SeqCst)
    }
}

/// A future that is pending `left` times, and leaves its waker each time.
pub struct Steps {
    pub left: usize,
    pub waker: Arc<Mutex<Option<Waker>>>,
    pub token: Token,
}

impl Steps {
    pub fn new(left: usize, drops: &Drops) -> (Self, Arc<Mutex<Option<Waker>>>) {
        let waker = Arc::<Mutex<Option<Waker>>>::default();
        let token = drops.token();
        (
            Self {
                left,
                waker: waker.clone(),
                token,
            },
            waker,
        )
    }
}

impl Future for Steps {
    type Output = &'static str;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if self.left == 0 {
            return Poll::Ready("through");
        }
        self.left -= 1;
        *self.waker.lock().unwrap() = Some(cx.waker().clone());
        Poll::Pending
    }
}
