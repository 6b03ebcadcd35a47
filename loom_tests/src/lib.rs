//! loom models of the protocols of `tourbillon-shards`: see `README.md`, and `tests/`, a file per
//! protocol. What is here is what they share: a worker without a kernel, callbacks and tasks that
//! count, and the bounds.
//!
//! Empty unless built with `--cfg loom`.

#![cfg(loom)]

use std::{
    panic::resume_unwind,
    sync::{Arc as Plain, Mutex as PlainMutex, atomic::AtomicUsize as PlainUsize},
    task::{Wake, Waker},
    time::Instant,
};

use loom::{
    model::Builder,
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, ThreadId},
};
use tourbillon_shards::{Due, Kind, Outcome, Owner, Parked, Ran, Searchers, Shard};

/// Later than this the modelled clock does not go by itself: who sleeps until a later moment sleeps
/// until it is woken.
pub const HORIZON: u64 = 100;

/// Explores `body`, with at most `preemptions` switches away from a thread that could go on (`None`:
/// as many as there are).
///
/// `LOOM_MAX_PREEMPTIONS` replaces the bound and `LOOM_MORE_PREEMPTIONS` is added to it. loom's
/// caps on time and on the number of executions are not used: a model that hits them passes.
pub fn model(name: &str, preemptions: Option<usize>, body: impl Fn() + Send + Sync + 'static) {
    let number = |key: &str| -> Option<usize> {
        let value = std::env::var(key).ok()?;
        Some(value.parse().expect("a bound is a number"))
    };
    let more = number("LOOM_MORE_PREEMPTIONS").unwrap_or(0);
    let mut builder = Builder::new();
    builder.preemption_bound =
        number("LOOM_MAX_PREEMPTIONS").or(preemptions.map(|bound| bound + more));
    builder.max_duration = None;
    builder.max_permutations = None;
    builder.max_branches = 20_000;

    let executions = Plain::new(PlainUsize::new(0));
    let begin = Instant::now();
    let bound = builder.preemption_bound;
    builder.check({
        let executions = executions.clone();
        move || {
            executions.fetch_add(1, Ordering::Relaxed);
            body();
        }
    });
    let executions = executions.load(Ordering::Relaxed);
    let seconds = begin.elapsed().as_secs_f64();
    let bound = bound.map_or("none".to_owned(), |bound| bound.to_string());
    println!("{name}: bound {bound}, {executions} executions, {seconds:.1} s");
    assert!(executions > 1, "a model with one execution shows nothing");
}

/// [`model()`] under the name of the calling function.
#[macro_export]
macro_rules! model {
    ($preemptions:expr, $body:expr) => {{
        fn here() {}
        let name = std::any::type_name_of_val(&here).trim_end_matches("::here");
        $crate::model(name, $preemptions, $body)
    }};
}

/// An eventfd: remembers that it was written to until somebody slept on it.
#[derive(Default)]
pub struct EventFd {
    written: Mutex<bool>,
    signal: Condvar,
}

impl EventFd {
    /// Wakes who sleeps on it, or will.
    pub fn write(&self) {
        *self.written.lock().unwrap() = true;
        self.signal.notify_one();
    }

    /// Sleeps until it is written to. If that never happens, loom reports a deadlock.
    pub fn sleep(&self) {
        let mut written = self.written.lock().unwrap();
        while !*written {
            written = self.signal.wait(written).unwrap();
        }
        *written = false;
    }
}

/// The owner of a shard.
///
/// Checks that it is woken at most once for each time that it parks. Its counts are plain: they
/// are not part of what is modelled.
#[derive(Default)]
pub struct Worker {
    /// What the worker sleeps on.
    pub eventfd: EventFd,
    thread: PlainMutex<Option<ThreadId>>,
    parks: PlainUsize,
    wakes: PlainUsize,
    overs: PlainMutex<Vec<(Kind, Outcome)>>,
}

impl Worker {
    /// How many timers ended as `how`.
    pub fn over(&self, how: Outcome) -> usize {
        let overs = self.overs.lock().unwrap();
        overs.iter().filter(|over| over.1 == how).count()
    }

    /// How many timers ended.
    pub fn overs(&self) -> usize {
        self.overs.lock().unwrap().len()
    }

    /// How often the worker was woken.
    pub fn wakes(&self) -> usize {
        self.wakes.load(Ordering::Relaxed)
    }
}

impl Owner for Worker {
    fn wake(&self) {
        let wakes = self.wakes.fetch_add(1, Ordering::Relaxed) + 1;
        let parks = self.parks.load(Ordering::Relaxed);
        assert!(
            wakes <= parks,
            "woken {wakes} times, parked {parks} times only"
        );
        self.eventfd.write();
    }

    fn is_current(&self) -> bool {
        *self.thread.lock().unwrap() == Some(thread::current().id())
    }

    fn over(&self, kind: Kind, how: Outcome) {
        self.overs.lock().unwrap().push((kind, how));
    }
}

/// A shard of a [`Worker`].
pub type Home = Arc<Shard<Worker>>;

/// A shard that nobody owns yet.
pub fn shard() -> Home {
    Arc::new(Shard::new(Worker::default()))
}

/// The event loop of a shard's owner.
pub struct EventLoop {
    home: Home,
    searchers: Searchers,
    /// What the clock says.
    pub now: u64,
}

impl EventLoop {
    /// Makes the calling thread the owner of `home`.
    pub fn new(home: &Home) -> Self {
        *home.owner().thread.lock().unwrap() = Some(thread::current().id());
        Self {
            home: home.clone(),
            searchers: Searchers::new(1),
            now: 0,
        }
    }

    /// Sleeps until the shard's next deadline, or until woken.
    pub fn park(&mut self) -> Parked {
        park(&self.home, &self.searchers, false, || false, &mut self.now)
    }

    /// Takes what is due, and runs it.
    pub fn expire(&mut self) {
        expire(&self.home, self.now);
    }

    /// Runs what comes due, and sleeps in between, until `done`.
    pub fn run_until(&mut self, mut done: impl FnMut() -> bool) {
        loop {
            let mut due = Vec::new();
            let expired = self.home.expire(self.now, usize::MAX, &mut due);
            let now = self.now;
            due.into_iter().for_each(|due| drop(run(due, now)));
            if done() {
                break;
            }
            if expired.more {
                // Another thread has the shard. An owner does not sleep on that.
                thread::yield_now();
            } else {
                self.park();
            }
        }
    }
}

/// Parks the owner of `home`, which is the calling thread.
pub fn park(
    home: &Home,
    searchers: &Searchers,
    searching: bool,
    work: impl FnOnce() -> bool,
    now: &mut u64,
) -> Parked {
    let owner = home.owner();
    owner.parks.fetch_add(1, Ordering::Relaxed);
    home.park(searchers, searching, work, |until| {
        if until <= HORIZON {
            *now = until.max(*now);
        } else {
            owner.eventfd.sleep();
        }
    })
}

/// Takes what is due at `now`, and runs it; what another thread has is left to it.
pub fn expire(home: &Home, now: u64) {
    let mut due = Vec::new();
    home.expire(now, usize::MAX, &mut due);
    due.into_iter().for_each(|due| drop(run(due, now)));
}

/// Runs a timer. What panics inside it panics here: that is loom speaking.
pub fn run(due: Due<Worker>, now: u64) -> Ran {
    match due.run(|| now) {
        Ran::Panicked(panic) => resume_unwind(panic),
        ran => ran,
    }
}

/// Closes a shard, and ends its timers.
pub fn close(home: &Home) {
    drop(home.close());
}

/// What became of a callback.
#[derive(Clone, Default)]
pub struct Probe(Plain<Seen>);

#[derive(Default)]
struct Seen {
    runs: PlainUsize,
    drops: PlainUsize,
}

struct Payload(Plain<Seen>);

impl Drop for Payload {
    fn drop(&mut self) {
        self.0.drops.fetch_add(1, Ordering::Relaxed);
    }
}

impl Probe {
    /// One that has seen nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// A callback for a timer that runs once.
    pub fn once(&self) -> impl FnOnce() + Send + use<> {
        let payload = Payload(self.0.clone());
        move || {
            payload.0.runs.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A callback for a recurring timer, in the midst of which other threads get their turn.
    pub fn recurring(&self) -> impl FnMut() + Send + use<> {
        let payload = Payload(self.0.clone());
        let inside = AtomicBool::new(false);
        move || {
            assert!(!inside.swap(true, Ordering::Relaxed), "runs twice at once");
            payload.0.runs.fetch_add(1, Ordering::Relaxed);
            inside.swap(false, Ordering::Relaxed);
        }
    }

    /// How often it ran.
    pub fn runs(&self) -> usize {
        self.0.runs.load(Ordering::Relaxed)
    }

    /// How often it was dropped; after a run of a `FnOnce`, that is part of the run.
    pub fn drops(&self) -> usize {
        self.0.drops.load(Ordering::Relaxed)
    }
}

/// A task: counts how often it was woken, and sleeps until it is.
#[derive(Default)]
pub struct Task {
    eventfd: EventFd,
    wakes: PlainUsize,
}

impl Task {
    /// A new task, and its waker.
    pub fn new() -> (Plain<Self>, Waker) {
        let task = Plain::new(Self::default());
        (task.clone(), Waker::from(task))
    }

    /// Sleeps until woken.
    pub fn sleep(&self) {
        self.eventfd.sleep();
    }

    /// How often it was woken.
    pub fn wakes(&self) -> usize {
        self.wakes.load(Ordering::Relaxed)
    }
}

impl Wake for Task {
    fn wake(self: Plain<Self>) {
        self.wakes.fetch_add(1, Ordering::Relaxed);
        self.eventfd.write();
    }
}
