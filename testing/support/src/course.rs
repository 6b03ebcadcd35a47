//! Shared set-up of the tests of fairness: a flood of jobs that count themselves, and the events
//! that the worker must serve during the flood.

use std::{
    io::Write,
    os::fd::AsRawFd,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    thread,
    time::{Duration, Instant},
};

use futures_lite::AsyncReadExt;
use tourbillon::Runtime;

use super::{PATIENCE, eventually, net::pair_with_std, on_worker};

/// The default number of jobs between two polls of timers and sockets.
pub const EVENT_INTERVAL: usize = 61;
/// The default number of jobs between two polls of the global queue.
pub const GLOBAL_QUEUE_INTERVAL: usize = 31;
/// The jobs of the test itself, and a few of the runtime.
pub const A_FEW: usize = 8;

/// Counts the jobs of a flood between the start of an event and its service.
#[derive(Clone, Default)]
pub struct Course(Arc<Counts>);

#[derive(Default)]
struct Counts {
    jobs: AtomicUsize,
    began: AtomicUsize,
    served: AtomicUsize,
    over: AtomicBool,
    act: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl Course {
    /// Sets the action that starts the event. A job of the flood runs it.
    pub fn begins_by(&self, act: impl FnOnce() + Send + 'static) {
        *self.0.act.lock().unwrap() = Some(Box::new(act));
    }

    /// Runs a job of the flood. Returns whether the flood is over.
    pub fn job(&self) -> bool {
        let n = self.0.jobs.fetch_add(1, SeqCst);
        if n == 5_000 {
            let act = self.0.act.lock().unwrap().take();
            act.expect("something is to begin")();
            self.0.began.store(self.0.jobs.load(SeqCst), SeqCst);
        }
        // If the event is never served, the flood ends by itself, and the test fails.
        self.0.over.load(SeqCst) || n > 500_000
    }

    /// Records that the event is served.
    pub fn served(&self) {
        self.0.served.store(self.0.jobs.load(SeqCst), SeqCst);
        self.0.over.store(true, SeqCst);
    }

    /// Waits for the service, and returns how many jobs ran since the start.
    pub fn between(&self) -> usize {
        eventually("it is served", || self.0.over.load(SeqCst));
        let (began, served) = (self.0.began.load(SeqCst), self.0.served.load(SeqCst));
        assert!(began > 0, "served before it began");
        served - began
    }
}

/// The event is a socket that a job makes ready. A task waits for it.
pub fn serve_a_socket(runtime: &Runtime, course: &Course) {
    let (mut ours, mut theirs) = runtime.block_on(runtime.spawn(pair_with_std())).unwrap();
    let fd = ours.as_raw_fd();
    let reads = Arc::new(AtomicBool::new(false));
    let (this, reading) = (course.clone(), reads.clone());
    runtime.spawn(async move {
        reading.store(true, SeqCst);
        ours.read_exact(&mut [0]).await.unwrap();
        this.served();
    });
    eventually("it reads", || reads.load(SeqCst));
    // After this, the poll that began the read has ended.
    on_worker(runtime, || ());
    course.begins_by(move || {
        theirs.write_all(&[1]).unwrap();
        let mut poll = libc::pollfd {
            fd,
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: one valid entry.
        let ready = unsafe { libc::poll(&mut poll, 1, PATIENCE.as_millis() as i32) };
        assert_eq!(ready, 1, "what was written has come");
        // Leave the socket open until the byte is read.
        std::mem::forget(theirs);
    });
}

/// The event is a timer. A job arms it, and ends when its deadline has passed.
pub fn serve_a_timer(course: &Course) {
    let this = course.clone();
    course.begins_by(move || {
        let at = Instant::now() + Duration::from_micros(50);
        drop(tourbillon::at(at, move || this.served()));
        while Instant::now() < at {}
    });
}

/// The event is a task that a job spawns.
pub fn serve_a_task(course: &Course) {
    let this = course.clone();
    course.begins_by(move || {
        tourbillon::spawn(async move { this.served() });
    });
}

/// The event is a task that another thread spawns while a job runs.
pub fn serve_an_outsider(runtime: &Runtime, course: &Course) {
    let (this, handle) = (course.clone(), runtime.handle().clone());
    course.begins_by(move || {
        let spawner = thread::spawn(move || drop(handle.spawn(async move { this.served() })));
        spawner.join().unwrap();
    });
}

#[track_caller]
pub fn assert_within(course: &Course, bound: usize) {
    let between = course.between();
    assert!(
        between <= bound,
        "{between} jobs, where {bound} are the bound"
    );
}
