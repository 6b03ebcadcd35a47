//! The signals of the hosts' processes: which thread gets one, and what it does there.
//!
//! A handler runs on its thread outside of the simulation's own code, so that what it calls is
//! simulated. There are two places for it: where a call returns to the program (the drop of
//! [`Inside`](super::Inside)), and a wait.

use std::{mem, ptr, sync::atomic::AtomicBool};

use super::{IS_INSIDE, Run, State, Wait, World, me, story::Part, threads::Thread};

/// The signals from 1 to here. Those above are real-time signals.
pub(crate) const LAST: i32 = 31;
/// The names of the signals.
const NAMES: [&str; LAST as usize] = [
    "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2",
    "PIPE", "ALRM", "TERM", "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG",
    "XCPU", "XFSZ", "VTALRM", "PROF", "WINCH", "IO", "PWR", "SYS",
];
/// What no thread can block.
const UNBLOCKED: Set = Set(bit(libc::SIGKILL) | bit(libc::SIGSTOP));
const STOPS: [i32; 4] = [libc::SIGSTOP, libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU];

/// A thread may have a handler to run.
static HAS_SIGNALS: AtomicBool = AtomicBool::new(false);

const fn bit(number: i32) -> u64 {
    1 << (number - 1)
}

/// A set of signals, as the kernel has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Set(pub(crate) u64);

impl Set {
    fn has(self, number: i32) -> bool {
        self.0 & bit(number) != 0
    }

    fn insert(&mut self, number: i32) {
        self.0 |= bit(number);
    }

    fn remove(&mut self, number: i32) {
        self.0 &= !bit(number);
    }

    pub(crate) fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub(crate) fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    fn common(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    fn is_empty(self) -> bool {
        self.0 == 0
    }

    fn first(self) -> Option<i32> {
        (1..=LAST).find(|number| self.has(*number))
    }
}

/// What a process does with a signal.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Action {
    /// The address of the handler, `SIG_DFL` or `SIG_IGN`.
    pub(crate) handler: usize,
    pub(crate) flags: i32,
    /// What is blocked while the handler runs.
    pub(crate) mask: Set,
}

/// The signals of a process.
pub(crate) struct Signals {
    actions: [Action; LAST as usize],
    /// Those that no thread could take so far.
    pending: Set,
    /// A signal has stopped it.
    pub(crate) is_stopped: bool,
}

impl Signals {
    /// Those of a process that begins.
    pub(crate) fn new() -> Self {
        let default = Action {
            handler: libc::SIG_DFL,
            flags: 0,
            mask: Set::default(),
        };
        let mut signals = Self {
            actions: [default; LAST as usize],
            pending: Set::default(),
            is_stopped: false,
        };
        // The standard library does that before `main`.
        signals.action(libc::SIGPIPE).handler = libc::SIG_IGN;
        signals
    }

    fn action(&mut self, number: i32) -> &mut Action {
        &mut self.actions[number as usize - 1]
    }
}

/// The signals of a thread.
#[derive(Default)]
pub(crate) struct OfThread {
    /// Those that it blocks.
    mask: Set,
    /// Those of its process that it is to take, unless it blocks them before. It does so at its
    /// next point, so none is left when it ends.
    chosen: Set,
    /// Those that were sent to it alone.
    own: Set,
    /// A signal has ended its wait.
    was_interrupted: bool,
}

impl OfThread {
    pub(crate) fn new(mask: Set) -> Self {
        Self {
            mask,
            ..Self::default()
        }
    }

    fn deliverable(&self) -> Set {
        self.chosen.with(self.own).without(self.mask)
    }
}

/// What a signal does.
enum Effect {
    Nothing,
    Stops,
    Ends,
    Handler,
}

/// A handler that a thread is about to run.
struct Call {
    number: i32,
    action: Action,
    /// What the thread blocked before.
    mask: Set,
}

/// What a thread that has signals does next.
enum Next {
    Calls(Call),
    /// Its process has ended.
    Ends,
    GoesOn,
}

fn name(number: i32) -> String {
    format!("SIG{}", NAMES[number as usize - 1])
}

/// Returns whether some thread may have a handler to run. Only for the thread that runs.
pub(super) fn may_be_there() -> bool {
    // An atomic read would be a call of the simulation.
    // SAFETY: nobody else accesses it while the caller runs.
    unsafe { HAS_SIGNALS.as_ptr().read_volatile() }
}

impl State {
    /// Sends a signal to the process of a host.
    pub(crate) fn send_signal(&mut self, host: usize, number: i32) {
        let (signal, of) = (name(number), &self.hosts[host]);
        if !of.runs {
            let to = &of.name;
            return self.tell(Part::Asked, || {
                format!("{signal} for {to} has no effect: its program does not run")
            });
        }
        self.tell(Part::Asked, || format!("{} gets {signal}", of.name));
        self.continue_or_stop(host, number);
        // One that a thread is about to take is pending as well.
        let takes = |it: &Thread| it.host == host && it.signals.chosen.has(number);
        if !self.threads.iter().any(|it| it.run.is_alive() && takes(it)) {
            self.hosts[host].signals.pending.insert(number);
        }
        self.distribute(host);
    }

    /// Sends a signal to a thread.
    pub(crate) fn signal_thread(&mut self, thread: usize, number: i32) {
        let host = self.threads[thread].host;
        self.continue_or_stop(host, number);
        let signals = &mut self.threads[thread].signals;
        if signals.mask.has(number) {
            return signals.own.insert(number);
        }
        match self.effect(host, number) {
            Effect::Nothing => {}
            Effect::Stops => self.stop(host),
            Effect::Ends => self.end_by(host, number),
            Effect::Handler => {
                self.threads[thread].signals.own.insert(number);
                self.interrupt(thread);
            }
        }
    }

    /// A signal that lets a process go on takes back those that stop it, and the other way round.
    fn continue_or_stop(&mut self, host: usize, number: i32) {
        let others: &[i32] = match number {
            libc::SIGCONT => &STOPS,
            _ if STOPS.contains(&number) => &[libc::SIGCONT],
            _ => return,
        };
        for other in others {
            self.hosts[host].signals.pending.remove(*other);
            for thread in self.threads.iter_mut().filter(|it| it.host == host) {
                thread.signals.chosen.remove(*other);
                thread.signals.own.remove(*other);
            }
        }
        if number == libc::SIGCONT {
            self.hosts[host].signals.is_stopped = false;
            // Its threads can run again.
            self.changed = true;
            for thread in 0..self.threads.len() {
                if self.threads[thread].host == host && self.has_signal(thread) {
                    self.interrupt(thread);
                }
            }
            self.distribute(host);
        }
    }

    /// Returns what a signal does to a process.
    fn effect(&mut self, host: usize, number: i32) -> Effect {
        match (self.hosts[host].signals.action(number).handler, number) {
            (libc::SIG_IGN, _)
            | (libc::SIG_DFL, libc::SIGCHLD | libc::SIGURG | libc::SIGWINCH | libc::SIGCONT) => {
                Effect::Nothing
            }
            (libc::SIG_DFL, number) if STOPS.contains(&number) => Effect::Stops,
            (libc::SIG_DFL, _) => Effect::Ends,
            _ => Effect::Handler,
        }
    }

    fn stop(&mut self, host: usize) {
        self.hosts[host].signals.is_stopped = true;
        let name = &self.hosts[host].name;
        self.tell(Part::Plain, || format!("a signal stops {name}"));
    }

    fn end_by(&mut self, host: usize, number: i32) {
        let name_of = &self.hosts[host].name;
        self.tell(Part::Plain, || format!("{} ends {name_of}", name(number)));
        self.end_process(host);
    }

    /// Gives the pending signals of a process to threads that do not block them.
    pub(super) fn distribute(&mut self, host: usize) {
        for number in 1..=LAST {
            let signals = &self.hosts[host].signals;
            // A process that was stopped takes them when it goes on.
            let is_late = signals.is_stopped && number != libc::SIGKILL;
            if is_late || !signals.pending.has(number) {
                continue;
            }
            let takes = |thread: usize| {
                let it = &self.threads[thread];
                it.run.is_alive() && it.host == host && !it.signals.mask.has(number)
            };
            let takers: Vec<usize> = (0..self.threads.len()).filter(|&it| takes(it)).collect();
            if takers.is_empty() {
                continue;
            }
            self.hosts[host].signals.pending.remove(number);
            match self.effect(host, number) {
                Effect::Nothing => {}
                Effect::Stops => self.stop(host),
                Effect::Ends => return self.end_by(host, number),
                Effect::Handler => {
                    // Linux prefers the main thread, which is the first one.
                    let thread = takers[self.which(takers.len())];
                    self.threads[thread].signals.chosen.insert(number);
                    self.interrupt(thread);
                }
            }
        }
    }

    /// Has a thread notice that it has a signal: a wait ends that can.
    fn interrupt(&mut self, thread: usize) {
        // SAFETY: nobody else accesses it while the caller runs.
        unsafe { HAS_SIGNALS.as_ptr().write_volatile(true) };
        let it = &mut self.threads[thread];
        if matches!(it.run, Run::Waits(wait, _) if wait.can_be_interrupted()) {
            it.signals.was_interrupted = true;
            it.run = Run::Ready;
            it.since = 0;
            self.changed = true;
        }
    }

    /// Sets what the calling thread blocks. Returns what it did before.
    pub(crate) fn set_mask(&mut self, to: Set) -> Set {
        let Some(me) = me() else {
            return Set::default();
        };
        let host = self.threads[me].host;
        let signals = &mut self.threads[me].signals;
        let before = mem::replace(&mut signals.mask, to.without(UNBLOCKED));
        // Another thread may take what this one blocks from here on.
        let given_up = signals.chosen.common(signals.mask);
        signals.chosen = signals.chosen.without(given_up);
        let pending = &mut self.hosts[host].signals.pending;
        *pending = pending.with(given_up);
        // SAFETY: as in `interrupt`.
        unsafe { HAS_SIGNALS.as_ptr().write_volatile(true) };
        self.distribute(host);
        before
    }

    /// Returns what the calling thread blocks.
    pub(crate) fn mask(&self) -> Set {
        me().map_or(Set::default(), |me| self.threads[me].signals.mask)
    }

    /// Returns the signals that the calling thread blocks and that wait for it.
    pub(crate) fn pending(&self) -> Set {
        let Some(me) = me() else {
            return Set::default();
        };
        let signals = &self.threads[me].signals;
        let all = self.hosts[self.host()].signals.pending;
        let all = all.with(signals.own).with(signals.chosen);
        all.common(signals.mask)
    }

    /// Returns what the process of the calling thread does with a signal.
    pub(crate) fn action(&mut self, number: i32) -> Action {
        let host = self.host();
        *self.hosts[host].signals.action(number)
    }

    /// Sets what the process of the calling thread does with a signal.
    pub(crate) fn set_action(&mut self, number: i32, action: Action) {
        let host = self.host();
        *self.hosts[host].signals.action(number) = action;
        // What is ignored from here on is not pending.
        if let Effect::Nothing = self.effect(host, number) {
            self.hosts[host].signals.pending.remove(number);
            for thread in self.threads.iter_mut().filter(|it| it.host == host) {
                thread.signals.chosen.remove(number);
                thread.signals.own.remove(number);
            }
        }
    }

    /// Returns whether a thread has a signal to take.
    pub(super) fn has_signal(&self, thread: usize) -> bool {
        !self.threads[thread].signals.deliverable().is_empty()
    }

    /// Returns and forgets whether a signal has ended the wait of a thread.
    pub(super) fn was_interrupted(&mut self, thread: usize) -> bool {
        mem::take(&mut self.threads[thread].signals.was_interrupted)
    }

    /// Takes the next signal of a thread.
    fn take_signal(&mut self, me: usize) -> Next {
        let host = self.threads[me].host;
        while let Some(number) = self.threads[me].signals.deliverable().first() {
            let signals = &mut self.threads[me].signals;
            // One that was sent to this thread alone comes first, and the other one stays.
            match signals.own.has(number) {
                true => signals.own.remove(number),
                false => signals.chosen.remove(number),
            }
            match self.effect(host, number) {
                Effect::Nothing => {}
                Effect::Stops => {
                    self.stop(host);
                    // It takes the others when it goes on.
                    break;
                }
                Effect::Ends => {
                    self.end_by(host, number);
                    return Next::Ends;
                }
                Effect::Handler => return Next::Calls(self.begin_handler(me, number)),
            }
        }
        // A thread that is gone takes none.
        let mut alive = self.threads.iter();
        let more = alive.any(|it| {
            let has_some = !it.signals.chosen.with(it.signals.own).is_empty();
            has_some && it.run.is_alive()
        });
        // SAFETY: as in `interrupt`.
        unsafe { HAS_SIGNALS.as_ptr().write_volatile(more) };
        Next::GoesOn
    }

    fn begin_handler(&mut self, me: usize, number: i32) -> Call {
        self.note(|| format!("handles {}", name(number)));
        let action = self.action(number);
        let mut mask = self.mask().with(action.mask);
        if action.flags & libc::SA_NODEFER == 0 {
            mask.insert(number);
        }
        if action.flags & libc::SA_RESETHAND != 0 {
            let host = self.threads[me].host;
            self.hosts[host].signals.action(number).handler = libc::SIG_DFL;
        }
        let mask = self.set_mask(mask);
        Call {
            number,
            action,
            mask,
        }
    }
}

impl Call {
    /// Calls the handler.
    fn perform(&self) {
        let Self { number, action, .. } = self;
        if action.flags & libc::SA_SIGINFO == 0 {
            type Plain = extern "C" fn(i32);
            // SAFETY: the program has set it as a handler of this type.
            return unsafe { mem::transmute::<usize, Plain>(action.handler)(*number) };
        }
        type Informed = extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void);
        // SAFETY: zeros are valid for both. The handler is one of this type.
        unsafe {
            let mut info: libc::siginfo_t = mem::zeroed();
            (info.si_signo, info.si_code) = (*number, libc::SI_USER);
            let mut context: libc::ucontext_t = mem::zeroed();
            let handler = mem::transmute::<usize, Informed>(action.handler);
            handler(*number, &mut info, ptr::from_mut(&mut context).cast());
        }
    }
}

impl World {
    /// Has the calling thread, which is inside, take its signals. Returns `None` if no handler has
    /// run, or else whether the call that it interrupts begins again.
    pub(super) fn take_signals(&self) -> Option<bool> {
        let me = me()?;
        let mut restarts = None;
        loop {
            let mut state = self.lock();
            if state.has_ended() {
                self.leave(state);
            }
            let call = match state.take_signal(me) {
                // What it blocks from here on may have gone to nobody, and have ended the process.
                Next::Calls(_) if state.has_ended() => self.leave(state),
                Next::Calls(call) => call,
                Next::Ends => self.leave(state),
                Next::GoesOn => return restarts,
            };
            drop(state);
            // As on Linux, the first one decides.
            restarts.get_or_insert(call.action.flags & libc::SA_RESTART != 0);
            // SAFETY: the pointer is valid for the calling thread.
            let errno = unsafe { *libc::__errno_location() };
            IS_INSIDE.set(false);
            call.perform();
            IS_INSIDE.set(true);
            // SAFETY: as above.
            unsafe { *libc::__errno_location() = errno };
            let mut state = self.lock();
            state.set_mask(call.mask);
            if state.has_ended() {
                self.leave(state);
            }
        }
    }

    /// Gives the baton away for ever if the process of the calling thread has ended.
    pub(crate) fn stand_still_if_ended(&self) {
        let state = self.lock();
        if state.has_ended() {
            self.leave(state);
        }
    }
}

impl Wait {
    /// Returns whether a signal ends this wait.
    fn can_be_interrupted(self) -> bool {
        !matches!(self, Wait::Disk | Wait::Core | Wait::Host)
    }

    pub(super) fn ends_by_signal(self, state: &State, thread: usize) -> bool {
        self.can_be_interrupted() && state.has_signal(thread)
    }
}
