//! The threads of a simulation, of which one runs at a time, and their shared state.

pub(crate) mod clocks;
mod crash;
pub(crate) mod decide;
pub(crate) mod disk;
mod disturb;
mod eventfd;
mod events;
pub(crate) mod faults;
mod hook;
pub(crate) mod hosts;
pub(crate) mod kernel;
mod neglect;
pub(crate) mod net;
pub(crate) mod outside;
pub(crate) mod pair;
mod perfetto;
pub(crate) mod schedule;
pub(crate) mod signals;
pub(crate) mod story;
mod threads;

use std::{
    cell::Cell,
    collections::BTreeMap,
    fs::File,
    io::Write,
    mem::ManuallyDrop,
    ops::Deref,
    os::fd::FromRawFd,
    path::PathBuf,
    sync::{
        Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicI32, AtomicU64, Ordering},
    },
};

use tourbillon_sync::sim::install;

use crate::calls::Listings;

use self::{
    clocks::Clocks,
    decide::Kept,
    disk::Files,
    faults::{Faults, Plan},
    hosts::Host,
    kernel::{Kernel, Object},
    neglect::Oracle,
    net::Net,
    story::{Millis, Part, Who},
    threads::Thread,
};
pub(crate) use self::{
    outside::{end_late, stay_inside},
    threads::{Ended, Run, Wait},
};

/// The monotonic clock at the start, in ns.
pub(crate) const BEGIN: u64 = 1_000_000_000_000;
/// A time that never comes.
pub(crate) const NEVER: u64 = u64::MAX;

static WORLD: OnceLock<World> = OnceLock::new();
/// The descriptor that gets the reason if the seed fails.
static TOLD: AtomicI32 = AtomicI32::new(2);
/// The descriptor that gets the decisions of a seed that ends, and its story.
static TAKEN: AtomicI32 = AtomicI32::new(-1);
/// The hash of the run so far. A thread that ends the run may have the lock of the state.
static HASH: AtomicU64 = AtomicU64::new(0);
/// How the simulation that begins runs.
static ORDERS: Mutex<Orders> = Mutex::new(Orders::new());

/// How a simulation runs, beside its seed and plan.
#[derive(Clone, Debug, Default)]
pub(crate) struct Orders {
    /// It writes a trace.
    pub(crate) traces: bool,
    /// The decisions that may go another way than the usual one. `None`: all of them.
    pub(crate) kept: Option<Kept>,
    /// It records its decisions.
    pub(crate) records: bool,
    /// It tells in words what happened.
    pub(crate) tells: bool,
    /// It writes a trace for Perfetto to this file.
    pub(crate) perfetto: Option<PathBuf>,
}

impl Orders {
    const fn new() -> Self {
        Self {
            traces: false,
            kept: None,
            records: false,
            tells: false,
            perfetto: None,
        }
    }
}

/// Sets the descriptor that gets the reason if the seed fails.
pub(crate) fn set_told(fd: i32) {
    TOLD.store(fd, Ordering::Relaxed);
}

/// Sets the descriptor that gets the decisions of a seed that ends, and its story.
pub(crate) fn set_taken(fd: i32) {
    TAKEN.store(fd, Ordering::Relaxed);
}

/// Sets how the simulation that begins runs.
pub(crate) fn set_orders(orders: Orders) {
    *lock(&ORDERS) = orders;
}

/// Writes the decisions of the seed, if they are recorded, its hash and its story behind them, and
/// its trace.
pub(crate) fn tell_taken(failure: Option<&str>) {
    perfetto::write(failure);
    let fd = TAKEN.load(Ordering::Relaxed);
    if fd >= 0 {
        // SAFETY: the descriptor is that of a file that stays open.
        let file = unsafe { File::from_raw_fd(fd) };
        let hash = HASH.load(Ordering::Relaxed);
        let text = format!("{}\n{hash}\n{}", decide::taken(), story::text());
        let _ = ManuallyDrop::new(file).write_all(text.as_bytes());
    }
}

thread_local! {
    /// The number of this thread in the simulation, if it is part of it.
    static ME: Cell<Option<usize>> = const { Cell::new(None) };
    /// Whether this thread is in the code of the simulation, whose own calls are the system's.
    static IS_INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// The simulation, entered by a thread of it. Until this is dropped, the thread passes no point,
/// and its system calls are real.
pub(crate) struct Inside(&'static World);

impl Deref for Inside {
    type Target = World;

    fn deref(&self) -> &World {
        self.0
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        if signals::may_be_there() {
            self.0.take_signals();
        }
        IS_INSIDE.set(false);
    }
}

/// Enters the simulation. `None` if the calling thread is not part of it, or is inside already.
pub(crate) fn enter() -> Option<Inside> {
    ME.get()?;
    // Set it first: what follows may be a point itself.
    if IS_INSIDE.replace(true) {
        return None;
    }
    Some(Inside(WORLD.get().expect("there is a world")))
}

/// The simulation. One mutex guards its state; the thread with the baton always finds it free.
pub(crate) struct World(Mutex<State>);

pub(crate) struct State {
    pub(crate) plan: Plan,
    /// From which the random numbers of all decisions come.
    pub(crate) base: u64,
    /// How long the steps from point to point take.
    pub(crate) pace: fastrand::Rng,
    /// The decisions that may go another way than the usual one. `None`: all of them.
    pub(crate) kept: Option<Kept>,
    /// The decisions are recorded.
    pub(crate) records: bool,
    pub(crate) now: u64,
    /// The machines. The first one is that of the thread that began the simulation.
    pub(crate) hosts: Vec<Host>,
    pub(crate) kernel: Kernel,
    pub(crate) net: Net,
    pub(crate) files: Files,
    /// The directories that threads list.
    pub(crate) listings: Listings,
    pub(crate) faults: Faults,
    pub(crate) threads: Vec<Thread>,
    pub(crate) points: u64,
    pub(crate) hash: u64,
    /// The time before which nothing is due.
    pub(crate) next_due: u64,
    /// A thread has become ready since the last choice.
    pub(crate) changed: bool,
    /// A priority lower than that of all threads.
    pub(crate) lowest: i64,
    /// The points that change the priority of a thread, and to what.
    pub(crate) changes: BTreeMap<u64, i64>,
    /// The thread with the baton gives it away, though it could go on.
    pub(crate) gives_way: bool,
    pub(crate) settled: bool,
    pub(crate) dropping: bool,
    pub(crate) traces: bool,
    /// Somebody wants to know in words what happens.
    pub(crate) tells: bool,
    /// Somebody wants a trace for Perfetto.
    pub(crate) draws: bool,
    /// The times in which a fault kept something from running.
    pub(crate) disturbances: Vec<(u64, u64)>,
    /// The values that processes have in place of a `static`: by its address, the machine and its
    /// life. They are not freed, as a `static` is not.
    pub(crate) owned: BTreeMap<(usize, usize, u32), usize>,
    pub(crate) oracle: Option<Oracle>,
    /// What should happen in some seed, and how often it did in this one.
    pub(crate) sometimes: BTreeMap<&'static str, u64>,
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
    /// What should happen in some seed, and how often it did.
    pub sometimes: BTreeMap<&'static str, u64>,
}

/// Runs `f` as the first thread of a simulation with this seed and plan. Only once per process.
pub fn run(seed: u64, plan: Plan, traces: bool, f: impl FnOnce()) -> Report {
    set_orders(Orders {
        traces,
        ..Orders::default()
    });
    let world = open(seed, plan, true);
    f();
    ME.set(None);
    let state = world.lock();
    // A thread that is left waits for something that no other thread will do.
    let left = state.threads.iter().skip(1).any(|it| it.run != Run::Over);
    if left {
        drop(state);
        ME.set(Some(0));
        die("threads are left when all should have ended");
    }
    state.report()
}

/// Runs `f` as the first thread of a simulation. When it returns, the other threads stand still.
/// Only once per process.
pub(crate) fn run_open(seed: u64, plan: Plan, f: impl FnOnce()) -> Report {
    let world = open(seed, plan, false);
    f();
    // The other threads never get the baton.
    ME.set(None);
    world.lock().report()
}

/// Begins a simulation with the calling thread. `is_watched`: the oracle looks for neglected work.
fn open(seed: u64, plan: Plan, is_watched: bool) -> &'static World {
    crate::calls::link();
    let orders = std::mem::take(&mut *lock(&ORDERS));
    let mut pace = fastrand::Rng::with_seed(seed ^ 0x9e37_79b9_7f4a_7c15);
    let state = State {
        plan,
        base: pace.u64(..),
        pace,
        kept: orders.kept,
        records: orders.records,
        now: BEGIN,
        hosts: vec![Host::new("the machine".into())],
        kernel: Kernel::default(),
        net: Net::default(),
        files: Files::default(),
        listings: Listings::new(),
        faults: Faults::default(),
        threads: Vec::new(),
        points: 0,
        hash: 0,
        next_due: NEVER,
        changed: false,
        lowest: 0,
        changes: BTreeMap::new(),
        gives_way: false,
        settled: false,
        dropping: true,
        traces: orders.traces,
        tells: orders.tells,
        draws: orders.perfetto.is_some(),
        disturbances: Vec::new(),
        owned: BTreeMap::new(),
        oracle: is_watched.then(Oracle::default),
        sometimes: BTreeMap::new(),
    };
    if let Some(path) = orders.perfetto {
        perfetto::begin(path);
    }
    let world = WORLD.get_or_init(|| World(Mutex::new(state)));
    install(world);
    let me = {
        let mut state = world.lock();
        state.choose_changes();
        state.add_thread("main".into(), 0)
    };
    ME.set(Some(me));
    world
}

/// Calls `f` with the simulation if the calling thread is part of it.
pub(crate) fn with<R>(f: impl FnOnce(&World) -> R) -> Option<R> {
    enter().map(|world| f(&world))
}

/// Returns the number of the calling thread.
pub(crate) fn me() -> Option<usize> {
    ME.get()
}

/// Returns whether the calling thread is one of the simulation, and runs its program.
pub(crate) fn is_outside() -> bool {
    ME.get().is_some() && !IS_INSIDE.get()
}

/// Prints the state and ends the process.
pub(crate) fn die(why: &str) -> ! {
    // What follows is no longer part of the simulation.
    IS_INSIDE.set(true);
    // The calling thread may hold the lock, for example in a panic hook. Then print no state.
    let state = WORLD.get().map(|world| match world.0.try_lock() {
        Ok(state) => state.dump(),
        Err(_) => String::new(),
    });
    die_with(why, &state.unwrap_or_default())
}

pub(crate) fn die_with(why: &str, state: &str) -> ! {
    IS_INSIDE.set(true);
    tell_taken(Some(why));
    let left = outside::line(&outside::left());
    let end = if state.is_empty() || left.is_empty() {
        ""
    } else {
        "\n"
    };
    // SAFETY: the descriptor is that of the process's standard error, or of a file that stays open.
    let told = unsafe { File::from_raw_fd(TOLD.load(Ordering::Relaxed)) };
    let _ =
        ManuallyDrop::new(told).write_all(format!("FAILED: {why}\n{state}{end}{left}").as_bytes());
    // SAFETY: the call takes no pointers. The other threads wait for their batons and never run
    // again.
    unsafe { libc::_exit(101) }
}

impl World {
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        // A thread that begins may have the lock. To wait for it changes the error number, which
        // the program may be about to read.
        // SAFETY: the pointer is valid for the calling thread.
        let errno = unsafe { *libc::__errno_location() };
        let state = lock(&self.0);
        // SAFETY: as above.
        unsafe { *libc::__errno_location() = errno };
        state
    }

    /// Passes a point of the calling thread: time advances, and another thread may run.
    pub(crate) fn point(&self) {
        let Some(me) = me() else { return };
        let mut state = self.lock();
        if state.pass(me) {
            self.next(state, me);
        }
    }

    /// Lets the calling thread wait until `until` at most. Returns what has ended the wait.
    pub(crate) fn wait<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        wait: Wait,
        until: u64,
    ) -> Ended {
        let me = me().expect("it is a thread of the world");
        debug_assert!(!state.has_ended(), "a thread of a process that has ended");
        // A signal may have come before the wait.
        if wait.ends_by_signal(&state, me) {
            drop(state);
            if let Some(restarts) = self.take_signals() {
                return Ended::Handler { restarts };
            }
            state = self.lock();
        }
        // Workers and blocking threads wait so when they have nothing to do.
        let part = match wait {
            Wait::Epoll(_) | Wait::Condition(_) | Wait::Lock(_) => Part::Detail,
            _ => Part::Plain,
        };
        state.happens_to(Who::Caller, part, || match until {
            NEVER => format!("waits for {wait}"),
            _ => {
                let until = Millis(until.wrapping_sub(BEGIN));
                format!("waits for {wait}, until {until}")
            }
        });
        state.threads[me].run = Run::Waits(wait, until);
        state.threads[me].woken = false;
        state.threads[me].turn += 1;
        // The scheduler looks for waits that are over only from this time on.
        state.next_due = state.next_due.min(until);
        self.next(state, me);
        let mut state = self.lock();
        match (state.threads[me].woken, state.was_interrupted(me)) {
            (true, _) => Ended::Event,
            (false, false) => Ended::Time,
            (false, true) => {
                drop(state);
                match self.take_signals() {
                    Some(restarts) => Ended::Handler { restarts },
                    None => Ended::Nothing,
                }
            }
        }
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
        // SAFETY: the pointer is valid for the calling thread.
        let errno = unsafe { *libc::__errno_location() };
        baton.hand();
        own.take();
        // SAFETY: as above.
        unsafe { *libc::__errno_location() = errno };
    }
}

impl State {
    /// Counts a point and returns its number.
    pub(crate) fn tick(&mut self) -> u64 {
        self.points += 1;
        self.points
    }

    fn report(&self) -> Report {
        Report {
            hash: self.hash,
            points: self.points,
            threads: self.threads.len(),
            took: self.now - BEGIN,
            looks: self.oracle.as_ref().map_or(0, |it| it.looks),
            faults: self.faults.clone(),
            sometimes: self.sometimes.clone(),
        }
    }

    /// Closes a descriptor.
    pub(crate) fn close(&mut self, fd: i32) {
        match self.kernel.forget(fd) {
            Some(Object::Stream(stream)) => {
                if let Some(peer) = stream.peer {
                    self.kernel.stream_mut(peer).peer = None;
                    self.signal(peer);
                }
            }
            Some(Object::Socket(socket)) => {
                self.net.forget_listener(fd);
                self.close_socket(socket);
            }
            Some(Object::File(number)) => self.close_file(number),
            _ => {}
        }
    }

    /// Returns the machine of the calling thread.
    pub(crate) fn host(&self) -> usize {
        me().map_or(0, |me| self.threads[me].host)
    }

    /// Returns the clocks of the calling thread's machine.
    pub(crate) fn clocks(&self) -> &Clocks {
        &self.hosts[self.host()].clocks
    }

    /// Returns the moment that is so many ns ahead by the clock of the calling thread's machine.
    pub(crate) fn ahead(&self, nanos: u64) -> u64 {
        self.clocks().ahead(self.now, nanos)
    }

    pub(crate) fn write_later(&mut self, fd: i32, at: u64) {
        self.kernel.write_later(fd, at);
        self.next_due = self.next_due.min(at);
    }

    /// Performs a write to an eventfd, which is an event for all instances that watch it.
    pub(crate) fn written(&mut self, fd: i32) {
        self.kernel.add(fd);
        self.signal(fd);
    }

    /// Wakes all workers without a reason.
    pub(crate) fn wake_all(&mut self) {
        for fd in self.kernel.eventfds() {
            self.written(fd);
        }
    }

    pub(crate) fn mix(&mut self, word: u64) {
        let mixed = (self.hash ^ word).wrapping_mul(0xff51_afd7_ed55_8ccd);
        self.hash = mixed ^ (mixed >> 29);
        HASH.store(self.hash, Ordering::Relaxed);
    }

    /// Returns the name of a thread, with that of its host.
    pub(crate) fn place_of(&self, thread: usize) -> String {
        let thread = &self.threads[thread];
        match thread.host {
            0 => thread.name.clone(),
            host => format!("{}: {}", self.hosts[host].name, thread.name),
        }
    }

    pub(crate) fn dump(&self) -> String {
        let mut lines = format!("at {} ns, after {} points", self.now - BEGIN, self.points);
        for (number, thread) in self.threads.iter().enumerate() {
            let run = match thread.run {
                // Threads come and go, and nobody asks what those did that are gone.
                Run::Over | Run::Crashed => continue,
                Run::Waits(wait, NEVER) => format!("waits for {wait}"),
                Run::Waits(wait, until) => {
                    format!("waits for {wait} until {}", until.wrapping_sub(BEGIN))
                }
                Run::Ready if !self.has_core(number) => "stands still with its host".into(),
                Run::Ready => "could run".into(),
                Run::Frozen(until) => {
                    format!("has no core until {}", until.wrapping_sub(BEGIN))
                }
            };
            lines += &format!("\n  {:>3} {:<26} {run}", number, self.place_of(number));
        }
        lines + &format!("\n  {:?}", self.faults)
    }
}
