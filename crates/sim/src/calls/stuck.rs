//! Seeds that do not end: which thread has the core, and where it is.

use std::{
    backtrace::Backtrace,
    mem, ptr,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
};

use libc::{c_int, timespec};

use super::raw::real;
use crate::world;

/// For how many seconds the process may run.
static SECONDS: AtomicU32 = AtomicU32::new(0);
/// The backtrace of the thread that was asked for it.
static SHOWN: Mutex<Option<String>> = Mutex::new(None);
/// How long that thread has for it, in parts of 10 ms. To read what the debugger knows takes long.
const PARTS: u32 = 2_000;
/// How many functions of it are shown.
const FUNCTIONS: usize = 16;

/// Has this process end after so many seconds of real time, and say what its threads do.
pub(crate) fn watch(seconds: u32) {
    SECONDS.store(seconds, Ordering::Relaxed);
    let handlers: [(c_int, extern "C" fn(c_int)); 2] = [(libc::SIGALRM, end), (libc::SIGURG, show)];
    for (signal, handler) in handlers {
        // SAFETY: all bytes may be zero. The calling thread is of no host, so the action is the
        // process's own.
        unsafe {
            let mut action: libc::sigaction = mem::zeroed();
            action.sa_sigaction = handler as *const () as usize;
            // The second alarm ends the process, also while the handler of the first one runs.
            action.sa_flags = libc::SA_RESTART | libc::SA_NODEFER;
            libc::sigaction(signal, &action, ptr::null_mut());
        }
    }
    // SAFETY: a call with a number.
    unsafe { libc::alarm(seconds) };
}

/// Returns the number that the system gives the calling thread.
pub(crate) fn thread_id() -> i32 {
    real!(SYS_gettid) as i32
}

/// Ends the process. The system calls this on the thread that waits for the end of the seed, which
/// has no lock.
extern "C" fn end(_: c_int) {
    world::stay_inside();
    // If what follows needs a lock that nobody gives back, the second alarm ends the process.
    // SAFETY: calls with numbers.
    unsafe {
        libc::signal(libc::SIGALRM, libc::SIG_DFL);
        libc::alarm(PARTS / 100 + 10);
    }
    world::end_late(SECONDS.load(Ordering::Relaxed));
}

/// Leaves the backtrace of the calling thread, and has it stop.
extern "C" fn show(_: c_int) {
    world::stay_inside();
    let text = Backtrace::force_capture().to_string();
    *SHOWN.lock().unwrap_or_else(PoisonError::into_inner) = Some(text);
    loop {
        rest();
    }
}

fn rest() {
    let time = timespec {
        tv_sec: 0,
        tv_nsec: 10_000_000,
    };
    real!(SYS_nanosleep, &raw const time, 0);
}

/// Returns where a thread is, if it can say so.
pub(crate) fn backtrace(thread: i32) -> Option<String> {
    real!(SYS_tgkill, real!(SYS_getpid), thread, libc::SIGURG);
    let shown = || SHOWN.lock().unwrap_or_else(PoisonError::into_inner).take();
    let text = (0..PARTS).find_map(|_| {
        rest();
        shown()
    })?;
    Some(functions(&text))
}

/// Returns the functions of a backtrace that were called before that of the signal.
fn functions(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let begins = |line: &str| {
        let number = line.trim_start().split(':').next();
        number.is_some_and(|number| number.parse::<u32>().is_ok())
    };
    let starts: Vec<usize> = (0..lines.len()).filter(|at| begins(lines[*at])).collect();
    let own = starts
        .iter()
        .rposition(|at| lines[*at].contains("stuck::show"));
    // Behind it is the function by which the system calls it.
    let first = own.map_or(0, |own| own + 2);
    let end = starts
        .iter()
        .rposition(|at| lines[*at].contains("__rust_begin_short_backtrace"));
    let last = end.unwrap_or(starts.len()).min(first + FUNCTIONS);
    let line = |place: usize| starts.get(place).copied().unwrap_or(lines.len());
    let range = line(first)..line(last).max(line(first));
    lines[range].join("\n")
}
