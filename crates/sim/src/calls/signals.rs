//! Signals of the hosts' processes.

use std::{ffi::CStr, mem, ptr, sync::atomic::AtomicUsize};

use libc::{
    c_int, c_uint, clockid_t, itimerval, pid_t, pthread_t, sigevent, sighandler_t, siginfo_t,
    sigset_t, sigval, timer_t, timespec,
};

use super::{
    fail,
    raw::{real, really},
    thread::original,
};
use crate::world::{
    Inside, World, die_with, enter,
    signals::{Action, LAST, Set},
};

pub(super) fn symbols() -> [usize; 20] {
    [
        sigaction as *const () as usize,
        signal as *const () as usize,
        sigprocmask as *const () as usize,
        pthread_sigmask as *const () as usize,
        sigpending as *const () as usize,
        kill as *const () as usize,
        raise as *const () as usize,
        pthread_kill as *const () as usize,
        sigwait as *const () as usize,
        sigwaitinfo as *const () as usize,
        sigtimedwait as *const () as usize,
        sigsuspend as *const () as usize,
        pause as *const () as usize,
        signalfd as *const () as usize,
        killpg as *const () as usize,
        alarm as *const () as usize,
        setitimer as *const () as usize,
        timer_create as *const () as usize,
        sigqueue as *const () as usize,
        pthread_sigqueue as *const () as usize,
    ]
}

static ACTION: AtomicUsize = AtomicUsize::new(0);
static SIGNAL: AtomicUsize = AtomicUsize::new(0);
static PROCESS_MASK: AtomicUsize = AtomicUsize::new(0);
static MASK: AtomicUsize = AtomicUsize::new(0);
static RAISE: AtomicUsize = AtomicUsize::new(0);
static KILL: AtomicUsize = AtomicUsize::new(0);
static WAIT: AtomicUsize = AtomicUsize::new(0);
static WAIT_INFO: AtomicUsize = AtomicUsize::new(0);
static TIMED_WAIT: AtomicUsize = AtomicUsize::new(0);
static SUSPEND: AtomicUsize = AtomicUsize::new(0);
static PAUSE: AtomicUsize = AtomicUsize::new(0);
static DESCRIPTOR: AtomicUsize = AtomicUsize::new(0);
static ALARM: AtomicUsize = AtomicUsize::new(0);
static INTERVAL: AtomicUsize = AtomicUsize::new(0);
static TIMER: AtomicUsize = AtomicUsize::new(0);
static QUEUE: AtomicUsize = AtomicUsize::new(0);
static QUEUE_FOR_THREAD: AtomicUsize = AtomicUsize::new(0);

/// What the system sends to a thread that does something impossible.
const FAULTS: [c_int; 4] = [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL];

/// All of the functions here, each with the place for the C library's own one.
const FUNCTIONS: [(&AtomicUsize, &CStr); 17] = [
    (&ACTION, c"sigaction"),
    (&SIGNAL, c"signal"),
    (&PROCESS_MASK, c"sigprocmask"),
    (&MASK, c"pthread_sigmask"),
    (&RAISE, c"raise"),
    (&KILL, c"pthread_kill"),
    (&WAIT, c"sigwait"),
    (&WAIT_INFO, c"sigwaitinfo"),
    (&TIMED_WAIT, c"sigtimedwait"),
    (&SUSPEND, c"sigsuspend"),
    (&PAUSE, c"pause"),
    (&DESCRIPTOR, c"signalfd"),
    (&ALARM, c"alarm"),
    (&INTERVAL, c"setitimer"),
    (&TIMER, c"timer_create"),
    (&QUEUE, c"sigqueue"),
    (&QUEUE_FOR_THREAD, c"pthread_sigqueue"),
];

/// Looks up the C library's own functions.
pub(super) fn find() {
    for (known, name) in FUNCTIONS {
        original(known, name);
    }
}

/// Enters the simulation, if the calling thread is one of a host.
fn on_host() -> Option<Inside> {
    enter().filter(|world| world.lock().host() > 0)
}

/// Fails the seed if a signal is none that the simulation has. Returns whether it is one.
fn is_known(number: c_int) -> bool {
    if number > LAST && number <= libc::SIGRTMAX() {
        refuse("a real-time signal");
    }
    (1..=LAST).contains(&number)
}

/// Fails the seed.
fn refuse(what: &str) -> ! {
    die_with(&format!("{what} is not simulated"), "")
}

/// Fails the seed if the calling thread is one of a host.
pub(super) fn refuse_on_host(what: &str) {
    if on_host().is_some() {
        refuse(what);
    }
}

/// Returns whether a program lets one of the [`FAULTS`] end the process.
fn ends_at_fault(number: c_int, handler: sighandler_t) -> bool {
    FAULTS.contains(&number) && handler == libc::SIG_DFL
}

/// Returns the signals of a set of the C library.
///
/// # Safety
///
/// `at` is a set.
unsafe fn read_set(at: *const sigset_t) -> Set {
    // SAFETY: as the caller says. A set begins with the word of the first 64 signals.
    Set(unsafe { at.cast::<u64>().read() })
}

/// # Safety
///
/// There is room for a set.
unsafe fn write_set(set: Set, at: *mut sigset_t) {
    // SAFETY: as the caller says. All bytes of a set may be zero.
    unsafe {
        at.write(mem::zeroed());
        at.cast::<u64>().write(set.0);
    }
}

/// # Safety
///
/// As in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn sigaction(
    number: c_int,
    new: *const libc::sigaction,
    old: *mut libc::sigaction,
) -> c_int {
    let Some(world) = on_host() else {
        return really!(ACTION, c"sigaction", number => c_int, new => *const libc::sigaction,
            old => *mut libc::sigaction => c_int);
    };
    let is_fixed = [libc::SIGKILL, libc::SIGSTOP].contains(&number) && !new.is_null();
    if !is_known(number) || is_fixed {
        return fail(libc::EINVAL);
    }
    // SAFETY: the caller passes an action, or none.
    let handler = unsafe { new.as_ref() }.map(|new| new.sa_sigaction);
    match handler.is_some_and(|handler| ends_at_fault(number, handler)) {
        // A real fault is to end the real process. The standard library's handler asks for that,
        // and the fault then comes again. It may be anywhere, so this is no point.
        true => {
            _ = really!(ACTION, c"sigaction", number => c_int, new => *const libc::sigaction,
            ptr::null_mut() => *mut libc::sigaction => c_int)
        }
        false => world.point(),
    }
    let mut state = world.lock();
    let before = state.action(number);
    if !new.is_null() {
        // SAFETY: the caller passes an action.
        let action = unsafe {
            Action {
                handler: (*new).sa_sigaction,
                flags: (*new).sa_flags,
                mask: read_set(&(*new).sa_mask),
            }
        };
        state.set_action(number, action);
    }
    if !old.is_null() {
        // SAFETY: the caller passes room for an action, whose bytes may be zero.
        unsafe {
            old.write(mem::zeroed());
            (*old).sa_sigaction = before.handler;
            (*old).sa_flags = before.flags;
            write_set(before.mask, &mut (*old).sa_mask);
        }
    }
    0
}

/// # Safety
///
/// As in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn signal(number: c_int, handler: sighandler_t) -> sighandler_t {
    let Some(world) = on_host() else {
        return really!(SIGNAL, c"signal", number => c_int, handler => sighandler_t
            => sighandler_t);
    };
    if !is_known(number) || [libc::SIGKILL, libc::SIGSTOP].contains(&number) {
        fail(libc::EINVAL);
        return libc::SIG_ERR;
    }
    match ends_at_fault(number, handler) {
        // As in `sigaction`.
        true => {
            _ = really!(SIGNAL, c"signal", number => c_int, handler => sighandler_t
            => sighandler_t)
        }
        false => world.point(),
    }
    let mut state = world.lock();
    let before = state.action(number);
    let action = Action {
        handler,
        flags: libc::SA_RESTART,
        mask: Set::default(),
    };
    state.set_action(number, action);
    before.handler
}

/// Changes what the calling thread blocks. Returns an error number, or 0.
///
/// # Safety
///
/// `new` is null or a set, and `old` is null or has room for one.
unsafe fn change_mask(
    world: &Inside,
    how: c_int,
    new: *const sigset_t,
    old: *mut sigset_t,
) -> c_int {
    world.point();
    let mut state = world.lock();
    let before = state.mask();
    if !new.is_null() {
        // SAFETY: as the caller says.
        let set = unsafe { read_set(new) };
        let to = match how {
            libc::SIG_BLOCK => before.with(set),
            libc::SIG_UNBLOCK => before.without(set),
            libc::SIG_SETMASK => set,
            _ => return libc::EINVAL,
        };
        state.set_mask(to);
    }
    if !old.is_null() {
        // SAFETY: as the caller says.
        unsafe { write_set(before, old) };
    }
    drop(state);
    // A signal that was blocked may have ended the process.
    world.stand_still_if_ended();
    0
}

/// Calls `wait` while the calling thread blocks the signals of a set, unless that is null.
///
/// # Safety
///
/// `mask` is null or a set.
pub(super) unsafe fn with_mask<T>(
    world: &World,
    mask: *const sigset_t,
    wait: impl FnOnce() -> T,
) -> T {
    if mask.is_null() {
        return wait();
    }
    // SAFETY: as the caller says.
    let mask = unsafe { read_set(mask) };
    let before = world.lock().set_mask(mask);
    world.stand_still_if_ended();
    let result = wait();
    world.lock().set_mask(before);
    // One that was blocked during the wait may have, too.
    world.stand_still_if_ended();
    result
}

/// # Safety
///
/// As in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn sigprocmask(how: c_int, new: *const sigset_t, old: *mut sigset_t) -> c_int {
    let Some(world) = on_host() else {
        return really!(PROCESS_MASK, c"sigprocmask", how => c_int, new => *const sigset_t,
            old => *mut sigset_t => c_int);
    };
    // SAFETY: the caller vouches for the arguments.
    match unsafe { change_mask(&world, how, new, old) } {
        0 => 0,
        errno => fail(errno),
    }
}

/// # Safety
///
/// As in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_sigmask(
    how: c_int,
    new: *const sigset_t,
    old: *mut sigset_t,
) -> c_int {
    let Some(world) = on_host() else {
        return really!(MASK, c"pthread_sigmask", how => c_int, new => *const sigset_t,
            old => *mut sigset_t => c_int);
    };
    // SAFETY: the caller vouches for the arguments.
    unsafe { change_mask(&world, how, new, old) }
}

/// # Safety
///
/// As in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn sigpending(set: *mut sigset_t) -> c_int {
    let Some(world) = on_host() else {
        return real!(SYS_rt_sigpending, set, 8) as c_int;
    };
    // SAFETY: the caller passes room for a set.
    unsafe { write_set(world.lock().pending(), set) };
    0
}

/// A host has one process. Other numbers than its own are those of real ones.
#[unsafe(no_mangle)]
pub(super) extern "C" fn kill(pid: pid_t, number: c_int) -> c_int {
    let own = enter().and_then(|world| world.lock().process());
    let (Some(own), Some(world)) = (own, on_host()) else {
        return real!(SYS_kill, pid, number) as c_int;
    };
    // Also all processes, those of its group, and the group itself.
    let group = -(real!(SYS_getpgid, 0) as pid_t);
    if ![own, -own, 0, -1, group].contains(&pid) {
        return real!(SYS_kill, pid, number) as c_int;
    }
    if number == 0 {
        return 0;
    }
    if !is_known(number) {
        return fail(libc::EINVAL);
    }
    world.point();
    let mut state = world.lock();
    let host = state.host();
    state.send_signal(host, number);
    drop(state);
    world.stand_still_if_ended();
    // The signal may have stopped it.
    world.point();
    0
}

#[unsafe(no_mangle)]
extern "C" fn killpg(group: pid_t, number: c_int) -> c_int {
    match group {
        ..0 => fail(libc::EINVAL),
        _ => kill(-group, number),
    }
}

/// Sends a signal to one thread. Returns an error number, or 0.
fn signal_thread(world: &Inside, thread: Option<usize>, number: c_int) -> c_int {
    if number != 0 && !is_known(number) {
        return libc::EINVAL;
    }
    world.point();
    let mut state = world.lock();
    let alive = thread.filter(|it| state.threads[*it].run.is_alive());
    let Some(thread) = alive else {
        return libc::ESRCH;
    };
    if number != 0 {
        state.signal_thread(thread, number);
        drop(state);
        world.stand_still_if_ended();
        world.point();
    }
    0
}

#[unsafe(no_mangle)]
extern "C" fn raise(number: c_int) -> c_int {
    let Some(world) = on_host() else {
        return really!(RAISE, c"raise", number => c_int => c_int);
    };
    match signal_thread(&world, crate::world::me(), number) {
        0 => 0,
        errno => fail(errno),
    }
}

#[unsafe(no_mangle)]
extern "C" fn pthread_kill(thread: pthread_t, number: c_int) -> c_int {
    let Some(world) = on_host() else {
        return really!(KILL, c"pthread_kill", thread => pthread_t, number => c_int => c_int);
    };
    let thread = world.lock().thread_of(thread);
    signal_thread(&world, thread, number)
}

/// # Safety
///
/// As in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn sigwait(set: *const sigset_t, number: *mut c_int) -> c_int {
    refuse_on_host("`sigwait`");
    really!(WAIT, c"sigwait", set => *const sigset_t, number => *mut c_int => c_int)
}

/// # Safety
///
/// As in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn sigwaitinfo(set: *const sigset_t, info: *mut siginfo_t) -> c_int {
    refuse_on_host("`sigwaitinfo`");
    really!(WAIT_INFO, c"sigwaitinfo", set => *const sigset_t, info => *mut siginfo_t => c_int)
}

/// # Safety
///
/// As in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn sigtimedwait(
    set: *const sigset_t,
    info: *mut siginfo_t,
    limit: *const timespec,
) -> c_int {
    refuse_on_host("`sigtimedwait`");
    really!(TIMED_WAIT, c"sigtimedwait", set => *const sigset_t, info => *mut siginfo_t,
        limit => *const timespec => c_int)
}

/// # Safety
///
/// As in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn sigsuspend(set: *const sigset_t) -> c_int {
    refuse_on_host("`sigsuspend`");
    really!(SUSPEND, c"sigsuspend", set => *const sigset_t => c_int)
}

#[unsafe(no_mangle)]
extern "C" fn pause() -> c_int {
    refuse_on_host("`pause`");
    really!(PAUSE, c"pause" => c_int)
}

/// # Safety
///
/// As in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn signalfd(fd: c_int, set: *const sigset_t, flags: c_int) -> c_int {
    refuse_on_host("`signalfd`");
    really!(DESCRIPTOR, c"signalfd", fd => c_int, set => *const sigset_t, flags => c_int => c_int)
}

#[unsafe(no_mangle)]
extern "C" fn alarm(seconds: c_uint) -> c_uint {
    refuse_on_host("`alarm`");
    really!(ALARM, c"alarm", seconds => c_uint => c_uint)
}

/// # Safety
///
/// As in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn setitimer(which: c_int, new: *const itimerval, old: *mut itimerval) -> c_int {
    refuse_on_host("`setitimer`");
    really!(INTERVAL, c"setitimer", which => c_int, new => *const itimerval,
        old => *mut itimerval => c_int)
}

/// # Safety
///
/// As in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn timer_create(
    clock: clockid_t,
    event: *mut sigevent,
    timer: *mut timer_t,
) -> c_int {
    refuse_on_host("`timer_create`");
    really!(TIMER, c"timer_create", clock => clockid_t, event => *mut sigevent,
        timer => *mut timer_t => c_int)
}

#[unsafe(no_mangle)]
extern "C" fn sigqueue(pid: pid_t, number: c_int, value: sigval) -> c_int {
    refuse_on_host("`sigqueue`");
    really!(QUEUE, c"sigqueue", pid => pid_t, number => c_int, value => sigval => c_int)
}

#[unsafe(no_mangle)]
extern "C" fn pthread_sigqueue(thread: pthread_t, number: c_int, value: sigval) -> c_int {
    refuse_on_host("`pthread_sigqueue`");
    really!(QUEUE_FOR_THREAD, c"pthread_sigqueue", thread => pthread_t, number => c_int,
        value => sigval => c_int)
}
