//! The threads: how each begins, waits for the baton, is woken, and ends.

use std::{
    fmt,
    sync::{Arc, Condvar, Mutex, PoisonError},
};

use super::{
    IS_INSIDE, Inside, ME, State, WORLD, World,
    decide::{Class, Key, Met},
    lock, me,
    signals::{OfThread, Set},
};

/// A simulated thread.
pub(crate) struct Thread {
    pub(crate) name: String,
    /// The machine that it runs on.
    pub(crate) host: usize,
    /// Its handle in the C library.
    pub(crate) pthread: libc::pthread_t,
    /// Its number in the system.
    pub(crate) system_id: i32,
    pub(super) baton: Arc<Baton>,
    pub(crate) run: Run,
    /// The wait ended by its event, and not by its timeout.
    pub(crate) woken: bool,
    pub(crate) cpu: u64,
    pub(crate) priority: i64,
    /// The number of points since the thread last waited.
    pub(crate) since: u32,
    /// The name of the thread that it is about to start.
    pub(crate) next_name: Option<String>,
    /// The machine of the thread that it is about to start, if that is another one.
    pub(crate) next_host: Option<usize>,
    /// How many times another thread could have taken over, or had to.
    pub(crate) turn: u32,
    /// The decisions that it has met.
    pub(crate) met: Met,
    /// For what its program draws.
    pub(crate) rng: fastrand::Rng,
    pub(super) signals: OfThread,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Run {
    Ready,
    /// The event, and the timeout.
    Waits(Wait, u64),
    /// The end of the freeze.
    Frozen(u64),
    Over,
    /// Its process has ended: by a crash of its host, or before this thread.
    Crashed,
}

impl Run {
    /// Returns whether the thread may run again.
    pub(crate) fn is_alive(self) -> bool {
        !matches!(self, Run::Over | Run::Crashed)
    }
}

/// What has ended a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    Event,
    Time,
    /// The handler of a signal has run, and it says whether the call begins again.
    Handler {
        restarts: bool,
    },
    /// A signal that has no effect any more: the call goes on, and looks again first.
    Nothing,
}

/// What a thread waits for: an address, a descriptor or a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    Lock(usize),
    Condition(usize),
    Futex(usize),
    Time,
    /// A core.
    Core,
    /// The end of a sync.
    Disk,
    /// The end of a host's program.
    Host,
    Epoll(i32),
    /// A change of a socket.
    Socket(i32),
    /// The end of a lock of a file.
    FileLock,
    End(usize),
}

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Wait::Lock(at) => write!(f, "a lock of the runtime at {at:#x}"),
            Wait::Condition(at) => write!(f, "a condition of the runtime at {at:#x}"),
            Wait::Futex(at) => write!(f, "a lock, a condition or an unpark (futex {at:#x})"),
            Wait::Time => write!(f, "a time"),
            Wait::Core => write!(f, "a core"),
            Wait::Disk => write!(f, "a sync"),
            Wait::Host => write!(f, "the end of a host's program"),
            Wait::Epoll(fd) => write!(f, "events, tasks and timers (epoll {fd})"),
            Wait::Socket(fd) => write!(f, "a socket (descriptor {fd})"),
            Wait::FileLock => write!(f, "a lock of a file"),
            Wait::End(thread) => write!(f, "the end of thread {thread}"),
        }
    }
}

/// What the one thread has that runs.
#[derive(Default)]
pub(super) struct Baton {
    has: Mutex<bool>,
    handed: Condvar,
}

impl Baton {
    pub(super) fn hand(&self) {
        *lock(&self.has) = true;
        self.handed.notify_one();
    }

    pub(super) fn take(&self) {
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

impl World {
    /// Adds a thread to the machine of the caller, which waits for the baton. Returns its number.
    pub(crate) fn start_thread(&self) -> usize {
        let mut state = self.lock();
        state.changed = true;
        let me = &mut state.threads[me().expect("it is a thread of the world")];
        let (new_host, own_host) = (me.next_host.take(), me.host);
        let name = me.next_name.take().unwrap_or_else(|| "a thread".into());
        let number = state.add_thread(name, new_host.unwrap_or(own_host));
        if let Some(host) = new_host {
            let host = &mut state.hosts[host];
            // Between the restart of a host and the start of its program, it may have crashed, and
            // also have started again.
            match host.runs && host.main.is_none() {
                true => host.main = Some(number),
                false => state.threads[number].run = Run::Crashed,
            }
        }
        number
    }

    /// Makes the calling system thread a simulated one, and waits for the baton.
    pub(crate) fn begin(number: usize) {
        ME.set(Some(number));
        IS_INSIDE.set(true);
        let world = WORLD.get().expect("there is a world");
        let baton = world.lock().threads[number].baton.clone();
        baton.take();
        let mut state = world.lock();
        state.threads[number].system_id = crate::calls::thread_id();
        // A signal may have come when the process had no thread for it.
        let host = state.host();
        state.distribute(host);
        if state.has_ended() {
            world.leave(state);
        }
        drop(state);
        // Or there is a handler to run.
        drop(Inside(world));
    }

    /// Ends the calling thread. It passes no further point.
    pub(crate) fn end() {
        // From here on the thread is not part of the simulation.
        IS_INSIDE.set(true);
        let world = WORLD.get().expect("there is a world");
        let me = me().expect("it is a thread of the world");
        let mut state = world.lock();
        state.note(|| "ends".into());
        state.threads[me].run = Run::Over;
        state.threads[me].turn += 1;
        state.wake(|wait| wait == Wait::End(me));
        let host = state.host();
        if state.hosts[host].main == Some(me) {
            state.end_process(host);
        }
        // The choice comes before the thread leaves: it may advance the time, or find a deadlock.
        let next = state.choose(me);
        let baton = state.threads[next].baton.clone();
        ME.set(None);
        IS_INSIDE.set(false);
        drop(state);
        baton.hand();
    }
}

impl State {
    pub(crate) fn add_thread(&mut self, name: String, host: usize) -> usize {
        let number = self.threads.len();
        let mut rng = self.numbers(Key {
            class: Class::Switch,
            who: number as u32,
            count: 0,
        });
        let priority = rng.i64(1..);
        // A thread inherits what the one blocks that starts it in the same process.
        let starts = me().filter(|me| self.threads[*me].host == host);
        let mask = starts.map_or(Set::default(), |_| self.mask());
        self.threads.push(Thread {
            name,
            host,
            pthread: 0,
            system_id: 0,
            baton: Arc::default(),
            run: Run::Ready,
            woken: false,
            cpu: 0,
            priority,
            since: 0,
            next_name: None,
            next_host: None,
            turn: 0,
            met: Met::default(),
            rng,
            signals: OfThread::new(mask),
        });
        number
    }

    /// Names the calling thread, unless it has the longer name that it was started with.
    pub(crate) fn set_name(&mut self, name: &str) {
        if let Some(me) = me() {
            let old = &mut self.threads[me].name;
            if !old.starts_with(name) {
                *old = name.into();
            }
        }
    }

    /// Returns the number of the thread that has a handle of the C library. That may use one again,
    /// so the last one counts.
    pub(crate) fn thread_of(&self, pthread: libc::pthread_t) -> Option<usize> {
        self.threads.iter().rposition(|it| it.pthread == pthread)
    }

    /// Returns the threads that wait for an event.
    pub(crate) fn waiting(&self, which: Wait) -> Vec<usize> {
        // In the order of their numbers, so that a seed always gives the same run.
        let waits = |it: &Thread| matches!(it.run, Run::Waits(wait, _) if wait == which);
        (0..self.threads.len())
            .filter(|&number| waits(&self.threads[number]))
            .collect()
    }

    /// Wakes the threads that wait for an event.
    pub(crate) fn wake(&mut self, which: impl Fn(Wait) -> bool) {
        for number in 0..self.threads.len() {
            if matches!(self.threads[number].run, Run::Waits(wait, _) if which(wait)) {
                self.wake_one(number);
            }
        }
    }

    pub(crate) fn wake_one(&mut self, number: usize) {
        let thread = &mut self.threads[number];
        thread.woken = true;
        thread.run = Run::Ready;
        thread.since = 0;
        self.changed = true;
    }

    pub(crate) fn alive(&self) -> usize {
        self.threads.iter().filter(|it| it.run.is_alive()).count()
    }
}
