//! loom models of the protocols of `tourbillon-shards`: see `README.md`, and `tests/`, a file per
//! protocol. What is here is what they share: a worker without a kernel, callbacks and tasks that
//! count, and the bounds.
//!
//! Empty unless built with `--cfg loom`.

#![cfg(loom)]

use std::{
    future::Future,
    panic::resume_unwind,
    pin::pin,
    sync::{Arc as Plain, Mutex as PlainMutex, atomic::AtomicUsize as PlainUsize},
    task::{Context, Poll, Wake, Waker},
    time::Instant,
};

use loom::{
    cell::UnsafeCell,
    model::Builder,
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, ThreadId},
};
use tourbillon_shards::{
    Due, Flow, Kind, NEVER, Notice, Outcome, Owner, Parked, Ran, Searchers, Shard, Timer,
};

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

/// A timer of the kernel: which setting comes last is all that there is to it. The kernel has a lock
/// for it, hence the order that a setting gives.
pub struct TimerFd(AtomicU64);

impl Default for TimerFd {
    fn default() -> Self {
        Self(AtomicU64::new(NEVER))
    }
}

impl TimerFd {
    fn set(&self, at: u64) {
        self.0.swap(at, Ordering::AcqRel);
    }

    /// What it is set to.
    pub fn is_set_to(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    /// Its moment has come, by the kernel's clock: it is not set any more.
    pub fn go_off(&self) {
        self.set(NEVER);
    }
}

/// The owner of a shard.
///
/// Checks that it is woken at most once for each time that it parks. Its counts are plain: they
/// are not part of what is modelled. What it has to tell it keeps until [`tell`] is called.
#[derive(Default)]
pub struct Worker {
    /// What the worker sleeps on.
    pub eventfd: EventFd,
    /// What calls others if the worker does not come back.
    pub alarm: TimerFd,
    thread: PlainMutex<Option<ThreadId>>,
    parks: PlainUsize,
    wakes: PlainUsize,
    overs: PlainMutex<Vec<(Kind, Outcome)>>,
    notices: Mutex<Vec<Notice<Worker>>>,
    owed: PlainUsize,
    told: PlainUsize,
}

impl Worker {
    /// Sleeps until the clock says `until`, or until woken.
    fn sleep(&self, until: u64, now: &mut u64) {
        if until <= HORIZON {
            *now = until.max(*now);
        } else {
            self.eventfd.sleep();
        }
    }

    /// Takes an outcome that a callback has to be told.
    pub fn notice(&self) -> Option<Notice<Worker>> {
        self.notices.lock().unwrap().pop()
    }

    /// How many callbacks have to be told an outcome yet.
    pub fn owes(&self) -> usize {
        let (owed, told) = (&self.owed, &self.told);
        owed.load(Ordering::Relaxed) - told.load(Ordering::Relaxed)
    }

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

    fn alarm(&self, at: u64) {
        self.alarm.set(at);
    }

    fn over(&self, kind: Kind, how: Outcome) {
        self.overs.lock().unwrap().push((kind, how));
    }

    fn owed(&self) {
        self.owed.fetch_add(1, Ordering::Relaxed);
    }

    fn told(&self) {
        let told = self.told.fetch_add(1, Ordering::Relaxed) + 1;
        let owed = self.owed.load(Ordering::Relaxed);
        assert!(told <= owed, "told {told} times, owed {owed} times only");
    }

    fn deliver(&self, notice: Notice<Self>) {
        self.notices.lock().unwrap().push(notice);
    }
}

/// A shard of a [`Worker`].
pub type Home = Arc<Shard<Worker>>;

/// A shard that nobody owns yet.
pub fn shard() -> Home {
    Arc::new(Shard::new(Worker::default()))
}

/// How late a timer of a [watched](watched) shard may be before others take it.
pub const GRACE: u64 = 10;

/// How far off an alarm is at most, and how near it is set at most, as in `shards/src/watch.rs`: the same
/// for an owner that is well and for one that is looked after.
pub const BEAT: u64 = 40;
const SOON: u64 = 4;

/// A shard whose owner is watched, and that nobody owns yet.
pub fn watched() -> Home {
    Arc::new(Shard::watched(Worker::default(), GRACE))
}

/// The same, but nobody watches until somebody is called.
pub fn watched_when_called() -> Home {
    Arc::new(Shard::watched_when_called(Worker::default(), GRACE))
}

/// The alarm of `home` went off, and the calling thread, which is not the owner, got to know at `now`:
/// it takes what is due, if it is the one to do so, and sets the alarm again before it runs that.
pub fn answer(home: &Home, now: u64) -> bool {
    let taken = home.take_alarm(now);
    if taken && (home.parker().is_awake() || home.is_late(now)) {
        let mut due = Vec::new();
        home.expire(now, usize::MAX, &mut due);
        home.watch_on(now, 1);
        due.into_iter().for_each(|due| drop(run(due, now)));
    }
    taken
}

/// Nobody does anything any more, and the owner of `home` is awake, at `now`: somebody has to be called
/// for it, soon enough for the next deadline, and within a beat.
#[track_caller]
pub fn assert_called(home: &Home, now: u64) {
    let at = home.owner().alarm.is_set_to();
    assert_eq!(at, home.alarm(), "the alarm is what the word says");
    let late = home.next_deadline().saturating_add(GRACE);
    let latest = late.clamp(now + SOON, now + BEAT);
    // The lowest bit says who set it.
    assert!(at <= latest | 1, "set to {at}, which is after {latest}");
}

/// The event loop of a shard's owner.
pub struct EventLoop {
    home: Home,
    searchers: Searchers,
    /// What the clock says.
    pub now: u64,
    /// The alarm is let be when the worker sleeps, if it is watched.
    pub lets_be: bool,
}

impl EventLoop {
    /// Makes the calling thread the owner of `home`.
    pub fn new(home: &Home) -> Self {
        *home.owner().thread.lock().unwrap() = Some(thread::current().id());
        Self {
            home: home.clone(),
            searchers: Searchers::new(1),
            now: 0,
            lets_be: false,
        }
    }

    /// Sleeps until the shard's next deadline, or until woken.
    pub fn park(&mut self) -> Parked {
        let (home, now) = (&self.home, &mut self.now);
        let owner = home.owner();
        owner.parks.fetch_add(1, Ordering::Relaxed);
        let parked = home.park(
            &self.searchers,
            false,
            || false,
            |until| {
                if !self.lets_be {
                    home.rest(until);
                }
                owner.sleep(until, now);
            },
        );
        self.home.beat(self.now);
        parked
    }

    /// Sleeps as [`park`](EventLoop::park) does, in the way of a loop that steals from nobody.
    pub fn sleep(&mut self) {
        let owner = self.home.owner();
        owner.parks.fetch_add(1, Ordering::Relaxed);
        if let Some(until) = self.home.sleep_until() {
            owner.sleep(until, &mut self.now);
            self.home.resume();
        }
    }

    /// Takes what is due, and runs it.
    pub fn expire(&mut self) {
        expire(&self.home, self.now);
    }

    /// Runs what comes due, and sleeps in between, until `done`.
    pub fn run_until(&mut self, done: impl FnMut() -> bool) {
        self.run(done, |this| _ = this.park());
    }

    /// The same with [`sleep`](EventLoop::sleep).
    pub fn run_and_sleep_until(&mut self, done: impl FnMut() -> bool) {
        self.run(done, Self::sleep);
    }

    fn run(&mut self, mut done: impl FnMut() -> bool, mut sleep: impl FnMut(&mut Self)) {
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
                sleep(self);
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
    home.park(searchers, searching, work, |until| owner.sleep(until, now))
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

/// Calls the callbacks that have to be told an outcome.
pub fn tell(home: &Home) {
    while let Some(notice) = home.owner().notice() {
        tell_one(notice);
    }
}

/// Calls a callback that has to be told an outcome.
pub fn tell_one(notice: Notice<Worker>) {
    if let Some(panic) = notice.run() {
        resume_unwind(panic);
    }
}

/// Waits for the end of a timer as a task would, which it may be too late for.
pub fn wait_for_the_end(timer: &Timer<Worker>) {
    let (task, waker) = Task::new();
    let mut ended = pin!(timer.ended());
    loop {
        match ended.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(result) => return result.unwrap(),
            Poll::Pending => task.sleep(),
        }
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
    told: PlainMutex<Vec<(Outcome, ThreadId)>>,
    used: Used,
}

/// What a callback uses from its beginning until it is dropped: a second user at the same time is a
/// causality violation.
#[derive(Default)]
struct Used(UnsafeCell<usize>);

// SAFETY: not all that is done with it is sound; loom tells.
unsafe impl Send for Used {}
// SAFETY: as above.
unsafe impl Sync for Used {}

impl Used {
    fn touch(&self) {
        // SAFETY: loom checks that nobody else is at it.
        self.0.with_mut(|times| unsafe { *times += 1 });
    }
}

struct Payload(Plain<Seen>);

impl Drop for Payload {
    fn drop(&mut self) {
        self.0.drops.fetch_add(1, Ordering::Relaxed);
        self.0.used.touch();
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

    /// A callback for a timer with options, in the midst of which other threads get their turn.
    pub fn told(&self, answer: Flow) -> impl FnMut(Outcome) -> Flow + Send + use<> {
        let payload = Payload(self.0.clone());
        let inside = AtomicBool::new(false);
        move |how| {
            let seen = &payload.0;
            seen.used.touch();
            seen.told
                .lock()
                .unwrap()
                .push((how, thread::current().id()));
            inside.swap(true, Ordering::Relaxed);
            seen.used.touch();
            seen.runs.fetch_add(1, Ordering::Relaxed);
            answer
        }
    }

    /// Uses what the callback uses.
    pub fn touch(&self) {
        self.0.used.touch();
    }

    /// What a callback of [`told`](Probe::told) was told, in this order.
    pub fn outcomes(&self) -> Vec<Outcome> {
        let told = self.0.told.lock().unwrap();
        told.iter().map(|told| told.0).collect()
    }

    /// Whether a callback of [`told`](Probe::told) was called by the calling thread.
    pub fn was_told_here(&self) -> bool {
        let here = thread::current().id();
        self.0.told.lock().unwrap().iter().any(|it| it.1 == here)
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
