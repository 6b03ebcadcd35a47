//! The threads of a simulation, of which one runs at a time, and their shared state.

use std::{
    cell::Cell,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError},
};

use tourbillon_sync::sim::{Hook, install};

use super::{
    faults::{Faults, Plan},
    kernel::Kernel,
    neglect::Oracle,
};

/// The monotonic clock at the start, in ns.
pub(super) const BEGIN: u64 = 1_000_000_000_000;
/// The offset of the wall clock at the start, in ns. The wall clock then shows 15 January 2027.
const WALL: u64 = 1_800_000_000_000_000_000 - BEGIN;
/// A time that never comes.
pub(super) const NEVER: u64 = u64::MAX;

static WORLD: OnceLock<World> = OnceLock::new();

thread_local! {
    /// The number of this thread in the simulation, if it is part of it.
    pub(super) static ME: Cell<Option<usize>> = const { Cell::new(None) };
}

/// The simulation. One mutex guards its state; the thread with the baton always finds it free.
pub(super) struct World(Mutex<State>);

pub(super) struct State {
    pub(super) plan: Plan,
    pub(super) rng: fastrand::Rng,
    pub(super) now: u64,
    pub(super) suspended: u64,
    /// The difference of the wall clock to the monotonic clock.
    pub(super) wall: u64,
    pub(super) kernel: Kernel,
    pub(super) faults: Faults,
    pub(super) threads: Vec<Thread>,
    pub(super) points: u64,
    pub(super) hash: u64,
    /// The time before which nothing is due.
    pub(super) next_due: u64,
    /// A thread has become ready since the last choice.
    pub(super) changed: bool,
    /// A priority lower than that of all threads.
    pub(super) lowest: i64,
    pub(super) settled: bool,
    pub(super) dropping: bool,
    pub(super) traces: bool,
    /// The times in which a fault kept something from running.
    pub(super) disturbances: Vec<(u64, u64)>,
    pub(super) oracle: Oracle,
}

/// A simulated thread.
pub(super) struct Thread {
    pub(super) name: String,
    baton: Arc<Baton>,
    pub(super) run: Run,
    /// Set by `unpark` before `park`.
    pub(super) token: bool,
    /// The wait ended by its event, and not by its timeout.
    pub(super) woken: bool,
    pub(super) cpu: u64,
    pub(super) priority: i64,
    /// The number of points since the thread last waited.
    pub(super) since: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Run {
    Ready,
    /// The event, and the timeout.
    Waits(Wait, u64),
    /// The end of the freeze.
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

/// The result of a seed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// A hash of the run: equal for equal seeds, and most likely different for others.
    pub hash: u64,
    /// The number of points.
    pub points: u64,
    /// The number of threads.
    pub threads: usize,
    /// The duration in simulated ns.
    pub took: u64,
    /// How many times the oracle of lost parallelism looked.
    pub looks: u64,
    /// The faults that happened.
    pub faults: Faults,
}

/// Runs `f` as the first thread of a simulation with this seed and plan. Only once per process.
pub fn run(seed: u64, plan: Plan, traces: bool, f: impl FnOnce()) -> Report {
    // Initialize this once-per-process value outside of the simulation: it holds a real lock.
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
        oracle: Oracle::default(),
    };
    let world = WORLD.get_or_init(|| World(Mutex::new(state)));
    install(world);
    let me = world.lock().add_thread("main".into());
    ME.set(Some(me));
    f();
    let state = world.lock();
    // A thread that is left waits for something that no other thread will do.
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
        looks: state.oracle.looks,
        faults: state.faults.clone(),
    }
}

/// Calls `f` with the simulation if the calling thread is part of it.
pub(super) fn with<R>(f: impl FnOnce(&'static World) -> R) -> Option<R> {
    me()?;
    WORLD.get().map(f)
}

/// Returns the number of the calling thread.
pub(super) fn me() -> Option<usize> {
    ME.get()
}

/// Prints the state and ends the process.
pub(super) fn die(why: &str) -> ! {
    // The calling thread may hold the lock, for example in a panic hook. Then print no state.
    let state = WORLD.get().map(|world| match world.0.try_lock() {
        Ok(state) => state.dump(),
        Err(_) => String::new(),
    });
    die_with(why, &state.unwrap_or_default())
}

pub(super) fn die_with(why: &str, state: &str) -> ! {
    eprintln!("FAILED: {why}\n{state}");
    // SAFETY: the call takes no pointers. The other threads wait for their batons and never run
    // again.
    unsafe { libc::_exit(101) }
}

impl World {
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.0)
    }

    /// Passes a point of the calling thread: time advances, and another thread may run.
    pub(super) fn point(&self) {
        let Some(me) = me() else { return };
        let mut state = self.lock();
        if state.pass(me) {
            self.next(state, me);
        }
    }

    /// Lets the calling thread wait until `until` at most. Returns whether its event came.
    pub(super) fn wait(&self, mut state: MutexGuard<'_, State>, wait: Wait, until: u64) -> bool {
        let me = me().expect("it is a thread of the world");
        state.note(|| format!("waits for {wait:?}"));
        state.threads[me].run = Run::Waits(wait, until);
        state.threads[me].woken = false;
        // The scheduler looks for waits that are over only from this time on.
        state.next_due = state.next_due.min(until);
        self.next(state, me);
        self.lock().threads[me].woken
    }

    /// Hands the baton to the next thread, and waits for its return.
    fn next(&self, mut state: MutexGuard<'_, State>, me: usize) {
        let next = state.choose(me);
        if next == me {
            return;
        }
        let (baton, own) = (
            state.threads[next].baton.clone(),
            state.threads[me].baton.clone(),
        );
        // Unlock before handing over, since the next thread takes this lock at once.
        drop(state);
        baton.hand();
        own.take();
    }

    /// Adds a thread, which waits for the baton. Returns its number.
    pub(super) fn add_thread(&self, name: String) -> usize {
        let mut state = self.lock();
        state.changed = true;
        state.add_thread(name)
    }

    /// Makes the calling system thread a simulated one, and waits for the baton.
    pub(super) fn begin(&self, number: usize) {
        ME.set(Some(number));
        let baton = self.lock().threads[number].baton.clone();
        baton.take();
    }

    /// Ends the calling thread. It passes no further point.
    pub(super) fn end(&self) {
        let me = me().expect("it is a thread of the world");
        let mut state = self.lock();
        state.note(|| "ends".into());
        state.threads[me].run = Run::Over;
        state.wake(|wait| wait == Wait::End(me));
        // The choice comes before the thread leaves: it may advance the time, or find a deadlock.
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
        // Under priorities, the thread that yields would otherwise be chosen again at once.
        state.demote(me);
        self.next(state, me);
    }

    fn wait(&self, address: usize) {
        if me().is_none() {
            return std::thread::yield_now();
        }
        self.wait(self.lock(), Wait::Lock(address), NEVER);
    }

    fn wake(&self, address: usize) {
        // A thread that has left the simulation may call this, too, for a waiter that is part of
        // it.
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
    fn add_thread(&mut self, name: String) -> usize {
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

    /// Counts a point and returns its number.
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

    /// Returns the threads that wait for an event.
    pub(super) fn waiting(&self, which: Wait) -> Vec<usize> {
        // In the order of their numbers, so that a seed always gives the same run.
        let waits = |it: &Thread| matches!(it.run, Run::Waits(wait, _) if wait == which);
        (0..self.threads.len())
            .filter(|&number| waits(&self.threads[number]))
            .collect()
    }

    pub(super) fn write_later(&mut self, fd: i32, at: u64) {
        self.kernel.write_later(fd, at);
        self.next_due = self.next_due.min(at);
    }

    /// Wakes the threads that wait for an event.
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

    /// Performs a write to an eventfd, which is an event for all instances that watch it.
    pub(super) fn written(&mut self, fd: i32) {
        self.kernel.add(fd);
        self.signal(fd);
    }

    /// Notifies the instances that watch a descriptor. Of instances with a shared watch, only one
    /// with a waiting thread is notified.
    pub(super) fn signal(&mut self, fd: i32) {
        for (instance, exclusive) in self.kernel.watchers(fd) {
            self.kernel.push_ready(instance, fd);
            // Another instance may watch this one.
            self.signal(instance);
            let waiter = self.waiting(Wait::Epoll(instance)).first().copied();
            if let Some(waiter) = waiter {
                self.wake_one(waiter);
                // As with `EPOLLEXCLUSIVE`: of the threads that wait, one is woken.
                if exclusive {
                    break;
                }
            }
        }
    }

    /// Wakes all workers without a reason.
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

/// Runs the main function of a simulated thread.
pub(super) fn run_thread<T>(number: usize, f: impl FnOnce() -> T) -> std::thread::Result<T> {
    let world = WORLD.get().expect("there is a world");
    world.begin(number);
    let result = catch_unwind(AssertUnwindSafe(f));
    world.end();
    result
}
