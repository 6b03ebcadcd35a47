//! The threads of a world, of which one runs at a time, and what they share.

use std::{
    cell::Cell,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError},
};

use tourbillon_shards::sim::{Hook, install};

use super::{
    faults::{Faults, Plan},
    kernel::Kernel,
};

/// What the monotonic clock says at the beginning, in ns.
pub(super) const BEGIN: u64 = 1_000_000_000_000;
/// What the wall clock is ahead of it, in ns: with it, it is 15 January 2027.
const WALL: u64 = 1_800_000_000_000_000_000 - BEGIN;
/// No moment.
pub(super) const NEVER: u64 = u64::MAX;

static WORLD: OnceLock<World> = OnceLock::new();

thread_local! {
    /// The number of this thread in the world, if it has one.
    static ME: Cell<Option<usize>> = const { Cell::new(None) };
}

/// The world. All of it is under one mutex, which who has the baton finds free.
pub(super) struct World(Mutex<State>);

pub(super) struct State {
    pub(super) plan: Plan,
    pub(super) rng: fastrand::Rng,
    pub(super) now: u64,
    pub(super) suspended: u64,
    /// What the wall clock shows more than the monotonic one.
    pub(super) wall: u64,
    pub(super) kernel: Kernel,
    pub(super) faults: Faults,
    pub(super) threads: Vec<Thread>,
    pub(super) points: u64,
    pub(super) hash: u64,
    /// Nothing is due before.
    pub(super) next_due: u64,
    /// Somebody can run who could not before.
    pub(super) changed: bool,
    /// The next priority that is lower than all.
    pub(super) lowest: i64,
    pub(super) settled: bool,
    pub(super) dropping: bool,
    pub(super) traces: bool,
    /// When something was kept from running.
    pub(super) disturbances: Vec<(u64, u64)>,
}

/// A thread of the world.
pub(super) struct Thread {
    pub(super) name: String,
    baton: Arc<Baton>,
    pub(super) run: Run,
    /// It was unparked.
    pub(super) token: bool,
    /// Whether what it waited for came, and not just the end of its time.
    pub(super) woken: bool,
    pub(super) cpu: u64,
    pub(super) priority: i64,
    /// How many points it has passed since it last waited.
    pub(super) since: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Run {
    Ready,
    /// For what, and until when.
    Waits(Wait, u64),
    /// Until when.
    Frozen(u64),
    Over,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    Lock(usize),
    Condition(usize),
    Unpark,
    Time,
    Epoll(i32),
    End(usize),
}

#[derive(Default)]
struct Baton {
    has: Mutex<bool>,
    handed: Condvar,
}

impl Baton {
    fn hand(&self) {
        *lock(&self.has) = true;
        self.handed.notify_one();
    }

    fn take(&self) {
        let mut has = lock(&self.has);
        while !*has {
            has = self
                .handed
                .wait(has)
                .unwrap_or_else(PoisonError::into_inner);
        }
        *has = false;
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What came of a seed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The same for the same seed, and most likely for no other.
    pub hash: u64,
    /// How many points there were.
    pub points: u64,
    /// How many threads there were.
    pub threads: usize,
    /// How long it took, in ns of the world.
    pub took: u64,
    /// What went wrong in it.
    pub faults: Faults,
}

/// Runs `f` as the first thread of a world of this seed, in which all goes on as `plan` says. Once
/// in a process.
pub fn run(seed: u64, plan: Plan, traces: bool, f: impl FnOnce()) -> Report {
    // What is found out once for the process, under a lock of the standard library's.
    crate::sys::clock::zero();
    let state = State {
        plan,
        rng: fastrand::Rng::with_seed(seed ^ 0x9e37_79b9_7f4a_7c15),
        now: BEGIN,
        suspended: 0,
        wall: WALL,
        kernel: Kernel::default(),
        faults: Faults::default(),
        threads: Vec::new(),
        points: 0,
        hash: 0,
        next_due: NEVER,
        changed: false,
        lowest: 0,
        settled: false,
        dropping: true,
        traces,
        disturbances: Vec::new(),
    };
    let world = WORLD.get_or_init(|| World(Mutex::new(state)));
    install(world);
    let me = world.lock().enlist("main".into());
    ME.set(Some(me));
    f();
    let state = world.lock();
    let left = state.threads.iter().skip(1).any(|it| it.run != Run::Over);
    if left {
        drop(state);
        die("threads are left when all should have ended");
    }
    ME.set(None);
    Report {
        hash: state.hash,
        points: state.points,
        threads: state.threads.len(),
        took: state.now - BEGIN,
        faults: state.faults.clone(),
    }
}

/// Runs `f` with the world, if the calling thread is of it.
pub(super) fn with<R>(f: impl FnOnce(&'static World) -> R) -> Option<R> {
    me()?;
    WORLD.get().map(f)
}

/// The number of the calling thread.
pub(super) fn me() -> Option<usize> {
    ME.get()
}

/// Tells how things stand, and ends the process.
pub(super) fn die(why: &str) -> ! {
    // From a panic's hook, say, under the lock.
    let state = WORLD.get().map(|world| match world.0.try_lock() {
        Ok(state) => state.dump(),
        Err(_) => String::new(),
    });
    die_with(why, &state.unwrap_or_default())
}

pub(super) fn die_with(why: &str, state: &str) -> ! {
    eprintln!("FAILED: {why}\n{state}");
    // SAFETY: no pointers. The other threads wait for their batons, and will not get them.
    unsafe { libc::_exit(101) }
}

impl World {
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.0)
    }

    /// A point of the calling thread: time goes on, and another thread may.
    pub(super) fn point(&self) {
        let Some(me) = me() else { return };
        let mut state = self.lock();
        if state.pass(me) {
            self.next(state, me);
        }
    }

    /// The calling thread waits, until `until` at most; true if what it waits for came.
    pub(super) fn wait(&self, mut state: MutexGuard<'_, State>, wait: Wait, until: u64) -> bool {
        let me = me().expect("it is a thread of the world");
        state.note(|| format!("waits for {wait:?}"));
        state.threads[me].run = Run::Waits(wait, until);
        state.threads[me].woken = false;
        state.next_due = state.next_due.min(until);
        self.next(state, me);
        self.lock().threads[me].woken
    }

    /// Hands the baton on, and waits until it comes back.
    fn next(&self, mut state: MutexGuard<'_, State>, me: usize) {
        let next = state.choose(me);
        if next == me {
            return;
        }
        let (baton, own) = (
            state.threads[next].baton.clone(),
            state.threads[me].baton.clone(),
        );
        drop(state);
        baton.hand();
        own.take();
    }

    /// A new thread, which waits for its baton.
    pub(super) fn enlist(&self, name: String) -> usize {
        let mut state = self.lock();
        state.changed = true;
        state.enlist(name)
    }

    /// The calling system thread is this one of the world's.
    pub(super) fn begin(&self, number: usize) {
        ME.set(Some(number));
        let baton = self.lock().threads[number].baton.clone();
        baton.take();
    }

    /// The calling thread ends: it passes no point any more.
    pub(super) fn end(&self) {
        let me = me().expect("it is a thread of the world");
        let mut state = self.lock();
        state.note(|| "ends".into());
        state.threads[me].run = Run::Over;
        state.wake(|wait| wait == Wait::End(me));
        let next = state.choose(me);
        let baton = state.threads[next].baton.clone();
        ME.set(None);
        drop(state);
        baton.hand();
    }
}

impl Hook for World {
    fn step(&self) {
        self.point();
    }

    fn yield_now(&self) {
        let Some(me) = me() else {
            return std::thread::yield_now();
        };
        let mut state = self.lock();
        state.pass(me);
        state.humble(me);
        self.next(state, me);
    }

    fn wait(&self, address: usize) {
        if me().is_none() {
            return std::thread::yield_now();
        }
        self.wait(self.lock(), Wait::Lock(address), NEVER);
    }

    fn wake(&self, address: usize) {
        // From threads that end as well: who waits is of the world.
        self.lock().wake(|wait| wait == Wait::Lock(address));
    }

    fn fails(&self) -> bool {
        me().is_some() && {
            let mut state = self.lock();
            let chance = state.plan.weak;
            state.happens(chance)
        }
    }
}

impl State {
    fn enlist(&mut self, name: String) -> usize {
        let priority = self.rng.i64(1..1_000_000);
        self.threads.push(Thread {
            name,
            baton: Arc::default(),
            run: Run::Ready,
            token: false,
            woken: false,
            cpu: 0,
            priority,
            since: 0,
        });
        self.threads.len() - 1
    }

    /// One point, by its number.
    pub(super) fn tick(&mut self) -> u64 {
        self.points += 1;
        self.points
    }

    pub(super) fn boot(&self) -> u64 {
        self.now + self.suspended
    }

    pub(super) fn wall(&self) -> u64 {
        self.now.wrapping_add(self.wall)
    }

    /// Who waits for that.
    pub(super) fn waiting(&self, which: Wait) -> Vec<usize> {
        let waits = |it: &Thread| matches!(it.run, Run::Waits(wait, _) if wait == which);
        (0..self.threads.len())
            .filter(|&number| waits(&self.threads[number]))
            .collect()
    }

    pub(super) fn write_later(&mut self, fd: i32, at: u64) {
        self.kernel.write_later(fd, at);
        self.next_due = self.next_due.min(at);
    }

    /// Wakes who waits for that.
    pub(super) fn wake(&mut self, which: impl Fn(Wait) -> bool) {
        for number in 0..self.threads.len() {
            if matches!(self.threads[number].run, Run::Waits(wait, _) if which(wait)) {
                self.wake_one(number);
            }
        }
    }

    pub(super) fn wake_one(&mut self, number: usize) {
        let thread = &mut self.threads[number];
        thread.woken = true;
        thread.run = Run::Ready;
        thread.since = 0;
        self.changed = true;
    }

    /// An eventfd is written to: it is an edge for all that watch it.
    pub(super) fn written(&mut self, fd: i32) {
        self.kernel.add(fd);
        self.signal(fd);
    }

    /// Tells the instances that watch a descriptor. Of those that share it only one that is waited
    /// at is woken.
    pub(super) fn signal(&mut self, fd: i32) {
        for (instance, exclusive) in self.kernel.watchers(fd) {
            self.kernel.push_ready(instance, fd);
            let waiter = self.waiting(Wait::Epoll(instance)).first().copied();
            if let Some(waiter) = waiter {
                self.wake_one(waiter);
                if exclusive {
                    break;
                }
            }
        }
    }

    /// Wakes all workers for nothing.
    pub(super) fn wake_all(&mut self) {
        for fd in self.kernel.eventfds() {
            self.written(fd);
        }
    }

    pub(super) fn alive(&self) -> usize {
        self.threads.iter().filter(|it| it.run != Run::Over).count()
    }

    pub(super) fn mix(&mut self, word: u64) {
        let mixed = (self.hash ^ word).wrapping_mul(0xff51_afd7_ed55_8ccd);
        self.hash = mixed ^ (mixed >> 29);
    }

    pub(super) fn note(&self, line: impl FnOnce() -> String) {
        if self.traces {
            let now = self.now.wrapping_sub(BEGIN);
            let name = me().map_or("", |me| &self.threads[me].name);
            eprintln!("{now:>14} {name}: {}", line());
        }
    }

    pub(super) fn dump(&self) -> String {
        let mut lines = format!("at {} ns, after {} points", self.now - BEGIN, self.points);
        for thread in &self.threads {
            let run = match thread.run {
                Run::Waits(wait, NEVER) => format!("waits for {wait:?}"),
                Run::Waits(wait, until) => {
                    format!("waits for {wait:?} until {}", until.wrapping_sub(BEGIN))
                }
                run => format!("{run:?}"),
            };
            lines += &format!("\n  {:<26} {run}", thread.name);
        }
        lines + &format!("\n  {:?}", self.faults)
    }
}

/// Runs the main function of a thread of the world.
pub(super) fn run_thread<T>(number: usize, f: impl FnOnce() -> T) -> std::thread::Result<T> {
    let world = WORLD.get().expect("there is a world");
    world.begin(number);
    let result = catch_unwind(AssertUnwindSafe(f));
    world.end();
    result
}
