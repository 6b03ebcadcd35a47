//! Shared set-up of the tests of blocked workers.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, mpsc},
    thread::{self, ThreadId},
    time::{Duration, Instant},
};

use tourbillon::{
    Handle, Runtime, Timer,
    runtime::Builder,
    timer::{Outcome, Status},
};

use super::{Gate, PATIENCE, eventually, told::worker_number};

/// A delay after which the worker of a timer is blocked.
pub const SOON: Duration = Duration::from_millis(20);
/// A time in which idle workers go to sleep. If they are slower, a test proves less.
pub const REST: Duration = Duration::from_millis(20);

/// Builds a runtime whose helpers end soon when idle. All of them serve `block_in_place`.
pub fn short_lived(workers: usize) -> Runtime {
    Builder::new()
        .worker_threads(workers)
        .thread_keep_alive(REST)
        .build()
        .unwrap()
}

/// Runs `f` in a task, and returns its result.
#[track_caller]
pub fn in_a_task<R: Send + 'static>(
    runtime: &Runtime,
    f: impl FnOnce() -> R + Send + 'static,
) -> R {
    runtime.block_on(runtime.spawn(async move { f() })).unwrap()
}

/// Returns whether the calling thread is a worker.
pub fn is_a_worker() -> bool {
    // On a worker, `block_on` panics before it polls.
    let handle = Handle::current();
    catch_unwind(AssertUnwindSafe(|| handle.block_on(async {}))).is_err()
}

/// A worker that is blocked in a callback until this is dropped.
pub struct Blocked {
    /// Its number.
    pub worker: usize,
    pub thread: ThreadId,
    release: Gate,
}

impl Blocked {
    /// Runs `prepare` on some worker, and then blocks that worker.
    #[track_caller]
    pub fn after<R: Send + 'static>(
        handle: &Handle,
        prepare: impl FnOnce() -> R + Send + 'static,
    ) -> (Self, R) {
        let release = Gate::new();
        let gate = release.clone();
        let (sender, receiver) = mpsc::channel();
        let _detached = handle.after(Duration::ZERO, move || {
            let answer = prepare();
            let worker = worker_number().expect("callbacks run on workers");
            let _ = sender.send((worker, thread::current().id(), answer));
            gate.wait();
        });
        let (worker, thread, answer) = receiver.recv_timeout(PATIENCE).expect("it runs");
        let this = Self {
            worker,
            thread,
            release,
        };
        (this, answer)
    }

    #[track_caller]
    pub fn some(handle: &Handle) -> Self {
        Self::after(handle, || ()).0
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        self.release.open();
    }
}

/// All workers of a runtime, blocked in tasks until this is dropped. The helpers are not blocked.
pub struct AllBlocked {
    pub threads: Vec<ThreadId>,
    release: Gate,
}

impl AllBlocked {
    /// Occupies all workers, runs `prepare` on each, and then blocks them.
    #[track_caller]
    pub fn after(runtime: &Runtime, prepare: impl Fn(usize) + Send + Sync + 'static) -> Self {
        let (begin, release) = (Gate::new(), Gate::new());
        let prepare = Arc::new(prepare);
        let (prepared, done) = mpsc::channel();
        let mut threads = Vec::new();
        while threads.len() < runtime.metrics().num_workers() {
            let (begin, gate, prepare) = (begin.clone(), release.clone(), prepare.clone());
            let (sender, receiver) = mpsc::channel();
            let prepared = prepared.clone();
            runtime.spawn(async move {
                // On a slow machine, a helper may run this first.
                let worker = worker_number();
                let _ = sender.send(worker.map(|_| thread::current().id()));
                if let Some(worker) = worker {
                    begin.wait();
                    prepare(worker);
                    let _ = prepared.send(());
                    gate.wait();
                }
            });
            threads.extend(receiver.recv_timeout(PATIENCE).expect("it runs"));
        }
        begin.open();
        for _ in &threads {
            done.recv_timeout(PATIENCE).expect("it does that");
        }
        Self { threads, release }
    }

    #[track_caller]
    pub fn all(runtime: &Runtime) -> Self {
        Self::after(runtime, |_| ())
    }

    /// Returns the gate that unblocks the workers.
    pub fn gate(&self) -> Gate {
        self.release.clone()
    }

    /// Receives `count` events: each index once, none early, and none on a blocked worker.
    #[track_caller]
    pub fn all_come_elsewhere(&self, receiver: &mpsc::Receiver<Came>, count: usize) -> Vec<Came> {
        all_come_but_on(&self.threads, receiver, count)
    }
}

impl Drop for AllBlocked {
    fn drop(&mut self) {
        self.release.open();
    }
}

/// An event: its index, when it was due, when it came, and on which thread.
#[derive(Debug)]
pub struct Came {
    pub index: usize,
    pub due: Instant,
    pub at: Instant,
    pub thread: ThreadId,
}

/// The sender of [events](Came).
#[derive(Clone)]
pub struct Says(mpsc::Sender<Came>);

impl Says {
    pub fn new() -> (Self, mpsc::Receiver<Came>) {
        let (sender, receiver) = mpsc::channel();
        (Self(sender), receiver)
    }

    pub fn came(&self, index: usize, due: Instant) {
        // The receiver may have given up.
        let _ = self.0.send(Came {
            index,
            due,
            at: Instant::now(),
            thread: thread::current().id(),
        });
    }

    /// Returns a callback that sends such an event.
    pub fn comes(&self, index: usize, due: Instant) -> impl FnOnce() + Send + 'static {
        let this = self.clone();
        move || this.came(index, due)
    }
}

/// Receives `count` events: each index once, none early, and none on the blocked worker.
#[track_caller]
pub fn all_come_elsewhere(
    blocked: &Blocked,
    receiver: &mpsc::Receiver<Came>,
    count: usize,
) -> Vec<Came> {
    all_come_but_on(&[blocked.thread], receiver, count)
}

/// Receives `count` events: each index once, none early, and none on a blocked worker.
#[track_caller]
pub fn all_come_but_on(
    blocked: &[ThreadId],
    receiver: &mpsc::Receiver<Came>,
    count: usize,
) -> Vec<Came> {
    let mut all: Vec<Came> = Vec::with_capacity(count);
    let mut seen = vec![false; count];
    while all.len() < count {
        let Ok(came) = receiver.recv_timeout(PATIENCE / 3) else {
            panic!("{} of {count} came while a worker is blocked", all.len());
        };
        assert!(!blocked.contains(&came.thread), "it was blocked");
        assert!(came.at >= came.due, "early by {:?}", came.due - came.at);
        assert!(!std::mem::replace(&mut seen[came.index], true), "twice");
        all.push(came);
    }
    all
}

/// Checks that no more events come.
#[track_caller]
pub fn nothing_comes(runtime: &Runtime, receiver: &mpsc::Receiver<Came>) {
    settle(runtime);
    if let Ok(came) = receiver.recv_timeout(REST) {
        panic!("{came:?}, once more");
    }
}

/// Waits until each worker has polled its shard. No worker may be blocked.
#[track_caller]
pub fn settle(runtime: &Runtime) {
    let workers = runtime.metrics().num_workers();
    let (sender, receiver) = mpsc::channel();
    for worker in 0..workers {
        let sender = sender.clone();
        let now = Timer::after(Duration::ZERO).on(runtime.handle());
        now.on_worker(worker).start(move || _ = sender.send(()));
    }
    for _ in 0..workers {
        receiver.recv_timeout(PATIENCE).expect("it runs");
    }
}

/// Waits until the timer is over, and checks its outcome. The callback has got the outcome, but may
/// not have returned yet.
#[track_caller]
pub fn assert_ends(timer: &Timer, how: Outcome) {
    eventually("it is over", || matches!(timer.status(), Status::Over(_)));
    assert_eq!(timer.status(), Status::Over(how));
}
