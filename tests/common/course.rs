//! What tests of fairness share: a flood of jobs that count themselves, and what is to be served
//! meanwhile.

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

/// What runs between the looks at timers and sockets, by default.
pub const EVENT_INTERVAL: usize = 61;
/// What runs between the looks at what comes from outside, by default.
pub const GLOBAL_QUEUE_INTERVAL: usize = 31;
/// The jobs that a test itself brings, and a few that the runtime does.
pub const A_FEW: usize = 8;

/// A count of jobs, at one of which something begins that is served at another.
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
    /// What is done, in a job of the flood, for something to be served.
    pub fn begins_by(&self, act: impl FnOnce() + Send + 'static) {
        *self.0.act.lock().unwrap() = Some(Box::new(act));
    }

    /// A job of the flood. True if there is to be no more.
    pub fn job(&self) -> bool {
        let n = self.0.jobs.fetch_add(1, SeqCst);
        if n == 5_000 {
            let act = self.0.act.lock().unwrap().take();
            act.expect("something is to begin")();
            self.0.began.store(self.0.jobs.load(SeqCst), SeqCst);
        }
        // Should it never be served, the flood ends by itself, and the test fails.
        self.0.over.load(SeqCst) || n > 500_000
    }

    /// It is served.
    pub fn served(&self) {
        self.0.served.store(self.0.jobs.load(SeqCst), SeqCst);
        self.0.over.store(true, SeqCst);
    }

    /// How many jobs ran in between, when it is over.
    pub fn between(&self) -> usize {
        eventually("it is served", || self.0.over.load(SeqCst));
        let (began, served) = (self.0.began.load(SeqCst), self.0.served.load(SeqCst));
        assert!(began > 0, "served before it began");
        served - began
    }
}

/// A task waits for a socket, which one job makes ready.
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
    // The poll in which it began has ended then.
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
        // Not closed before it is read.
        std::mem::forget(theirs);
    });
}

/// One job arms a timer, and ends when its deadline has passed.
pub fn serve_a_timer(course: &Course) {
    let this = course.clone();
    course.begins_by(move || {
        let at = Instant::now() + Duration::from_micros(50);
        drop(tourbillon::at(at, move || this.served()));
        while Instant::now() < at {}
    });
}

/// One job spawns a task.
pub fn serve_a_task(course: &Course) {
    let this = course.clone();
    course.begins_by(move || {
        tourbillon::spawn(async move { this.served() });
    });
}

/// While one job runs, another thread spawns a task.
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
