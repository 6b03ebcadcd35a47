//! Calls that the real system answers, though a host makes them.
//!
//! Most are noted, and the report of a seed names them. Those that would have a run depend on
//! something outside of the simulation fail the seed: child processes, and waits for the real
//! system.

use std::{
    ffi::{CStr, OsStr},
    os::unix::ffi::OsStrExt,
    ptr,
    sync::{OnceLock, atomic::AtomicUsize},
};

use libc::{
    FILE, c_char, c_int, c_short, c_void, mode_t, pid_t, pollfd, sigset_t, timespec, timeval,
};

use super::{
    TICK,
    clock::{nanos, sleep},
    fail, files,
    raw::{real, really},
    thread::original,
};
use crate::world::{Inside, die_with, enter};

pub(super) fn symbols() -> [usize; 16] {
    [
        fork as *const () as usize,
        vfork as *const () as usize,
        posix_spawn as *const () as usize,
        posix_spawnp as *const () as usize,
        execve as *const () as usize,
        execvp as *const () as usize,
        system as *const () as usize,
        popen as *const () as usize,
        socketpair as *const () as usize,
        pipe as *const () as usize,
        pipe2 as *const () as usize,
        fopen as *const () as usize,
        fopen64 as *const () as usize,
        creat as *const () as usize,
        select as *const () as usize,
        pselect as *const () as usize,
    ]
}

static FORK: AtomicUsize = AtomicUsize::new(0);
static SPAWN: AtomicUsize = AtomicUsize::new(0);
static SPAWN_BY_NAME: AtomicUsize = AtomicUsize::new(0);
static EXECUTE: AtomicUsize = AtomicUsize::new(0);
static SHELL: AtomicUsize = AtomicUsize::new(0);
static SHELL_PIPE: AtomicUsize = AtomicUsize::new(0);
static OPEN: AtomicUsize = AtomicUsize::new(0);
static SELECT: AtomicUsize = AtomicUsize::new(0);
static SELECT_WITH_MASK: AtomicUsize = AtomicUsize::new(0);

/// Looks up the C library's own functions.
pub(super) fn find() {
    original(&FORK, c"fork");
    original(&SPAWN, c"posix_spawn");
    original(&SPAWN_BY_NAME, c"posix_spawnp");
    original(&EXECUTE, c"execvp");
    original(&SHELL, c"system");
    original(&SHELL_PIPE, c"popen");
    original(&OPEN, c"fopen");
    original(&SELECT, c"select");
    original(&SELECT_WITH_MASK, c"pselect");
}

/// Enters the simulation, if the calling thread is one of a host.
fn on_host() -> Option<Inside> {
    enter().filter(|world| world.lock().host() > 0)
}

/// Notes a call, if a host makes it.
pub(super) fn leaves(call: impl FnOnce() -> String) {
    if let Some(world) = on_host() {
        world.lock().leaves(&call());
    }
}

/// Notes a call on a path, if a host makes it. Files that are the same for each run are not noted:
/// those of devices that keep nothing, of this program, and of its libraries.
///
/// # Safety
///
/// `path` is a text that ends with a zero byte, or null.
pub(super) unsafe fn leaves_by_path(call: &str, path: *const c_char) {
    static PROGRAM: OnceLock<Option<std::path::PathBuf>> = OnceLock::new();
    let Some(world) = on_host() else { return };
    if path.is_null() {
        return;
    }
    // SAFETY: as the caller says.
    let path = OsStr::from_bytes(unsafe { CStr::from_ptr(path) }.to_bytes());
    let bytes = path.as_bytes();
    let program = PROGRAM.get_or_init(|| std::env::current_exe().ok());
    let is_program = program.as_ref().is_some_and(|it| it.as_os_str() == path);
    let files: [&[u8]; 5] = [
        b"/dev/null",
        b"/dev/zero",
        b"/dev/full",
        b"/proc/self/exe",
        b"/proc/self/maps",
    ];
    let libraries: [&[u8]; 3] = [b"/lib/", b"/lib64/", b"/usr/lib/"];
    let is_known = files.contains(&bytes) || libraries.iter().any(|it| bytes.starts_with(it));
    if !is_program && !is_known {
        world.lock().leaves(&format!("{call}({path:?})"));
    }
}

/// Fails the seed if a call of a host would wait for a descriptor of the real system. Nothing of
/// the simulation ends such a wait: the thread that would do so gets no core. The standard streams
/// are left out, since a person or a file is behind them.
pub(super) fn waits(call: &str, fd: c_int, events: c_short, flags: c_int) {
    if fd <= 2 || flags & libc::MSG_DONTWAIT != 0 {
        return;
    }
    let Some(world) = on_host() else { return };
    let modes = real!(SYS_fcntl, fd, libc::F_GETFL) as c_int;
    // It fails at once, or does not wait.
    if modes < 0 || modes & libc::O_NONBLOCK != 0 {
        return;
    }
    let mut entry = pollfd {
        fd,
        events,
        revents: 0,
    };
    if !is_ready(std::slice::from_mut(&mut entry)) {
        drop(world);
        refuse_wait(|| format!("{call}({fd})"));
    }
}

/// Returns whether one of these descriptors of the real system has what is asked for.
pub(super) fn is_ready(entries: &mut [pollfd]) -> bool {
    let none = timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    let (at, count) = (entries.as_mut_ptr(), entries.len());
    real!(SYS_ppoll, at, count, &raw const none, 0, 8) != 0
}

/// Fails the seed if a host makes a call that waits for the real system.
pub(super) fn refuse_wait(call: impl FnOnce() -> String) {
    refuse(
        call,
        "it would wait for something outside of the simulation",
    );
}

/// `call` runs on a host alone: elsewhere, the child of a process with threads may be the caller,
/// which must not ask for memory.
fn refuse(call: impl FnOnce() -> String, why: &str) {
    let Some(world) = on_host() else { return };
    let call = call();
    let state = world.lock();
    let thread = state.caller();
    state.leaves(&call);
    let dump = state.dump();
    drop(state);
    die_with(&format!("{thread} calls {call}: {why}"), &dump);
}

pub(super) fn refuse_child(call: impl FnOnce() -> String) {
    refuse(call, "a child process is not simulated");
}

/// # Safety
///
/// `text` is null, or a text that ends with a zero byte.
unsafe fn shown(text: *const c_char) -> String {
    match text.is_null() {
        true => String::new(),
        // SAFETY: as the caller says.
        false => format!("{:?}", unsafe { CStr::from_ptr(text) }),
    }
}

#[unsafe(no_mangle)]
extern "C" fn fork() -> pid_t {
    refuse_child(|| "fork()".into());
    // The child may need them, and must not wait for a lock of the linker.
    find();
    really!(FORK, c"fork" => pid_t)
}

/// A wrapper cannot return twice on one stack, so the child gets a copy of it.
#[unsafe(no_mangle)]
extern "C" fn vfork() -> pid_t {
    fork()
}

type Texts = *const *mut c_char;

/// # Safety
///
/// As in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn posix_spawn(
    pid: *mut pid_t,
    path: *const c_char,
    actions: *const c_void,
    attributes: *const c_void,
    arguments: Texts,
    environment: Texts,
) -> c_int {
    // SAFETY: the caller passes a text.
    refuse_child(|| format!("posix_spawn({})", unsafe { shown(path) }));
    really!(SPAWN, c"posix_spawn", pid => *mut pid_t, path => *const c_char,
        actions => *const c_void, attributes => *const c_void, arguments => Texts,
        environment => Texts => c_int)
}

/// # Safety
///
/// As in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn posix_spawnp(
    pid: *mut pid_t,
    name: *const c_char,
    actions: *const c_void,
    attributes: *const c_void,
    arguments: Texts,
    environment: Texts,
) -> c_int {
    // SAFETY: the caller passes a text.
    refuse_child(|| format!("posix_spawn({})", unsafe { shown(name) }));
    really!(SPAWN_BY_NAME, c"posix_spawnp", pid => *mut pid_t, name => *const c_char,
        actions => *const c_void, attributes => *const c_void, arguments => Texts,
        environment => Texts => c_int)
}

/// # Safety
///
/// As in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn execve(path: *const c_char, arguments: Texts, environment: Texts) -> c_int {
    // SAFETY: the caller passes a text.
    refuse_child(|| format!("execve({})", unsafe { shown(path) }));
    real!(SYS_execve, path, arguments, environment) as c_int
}

/// # Safety
///
/// As in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn execvp(name: *const c_char, arguments: Texts) -> c_int {
    // SAFETY: the caller passes a text.
    refuse_child(|| format!("execvp({})", unsafe { shown(name) }));
    really!(EXECUTE, c"execvp", name => *const c_char, arguments => Texts => c_int)
}

/// # Safety
///
/// As in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn system(line: *const c_char) -> c_int {
    // SAFETY: the caller passes a text, or none.
    refuse_child(|| format!("system({})", unsafe { shown(line) }));
    really!(SHELL, c"system", line => *const c_char => c_int)
}

/// # Safety
///
/// As in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn popen(line: *const c_char, mode: *const c_char) -> *mut FILE {
    // SAFETY: the caller passes a text.
    refuse_child(|| format!("popen({})", unsafe { shown(line) }));
    really!(SHELL_PIPE, c"popen", line => *const c_char, mode => *const c_char => *mut FILE)
}

/// # Safety
///
/// As in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn socketpair(
    domain: c_int,
    kind: c_int,
    protocol: c_int,
    fds: *mut c_int,
) -> c_int {
    leaves(|| "socketpair()".into());
    real!(SYS_socketpair, domain, kind, protocol, fds) as c_int
}

/// # Safety
///
/// As in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn pipe(fds: *mut c_int) -> c_int {
    // SAFETY: the caller passes room for two numbers.
    unsafe { pipe2(fds, 0) }
}

/// # Safety
///
/// As in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn pipe2(fds: *mut c_int, flags: c_int) -> c_int {
    leaves(|| "pipe()".into());
    real!(SYS_pipe2, fds, flags) as c_int
}

/// # Safety
///
/// As in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn fopen(path: *const c_char, mode: *const c_char) -> *mut FILE {
    // SAFETY: the caller passes a text.
    match unsafe { (files::is_on_disk(path), files::is_hidden(path)) } {
        (true, _) => {
            // SAFETY: as above.
            let call = || format!("fopen({})", unsafe { shown(path) });
            refuse(call, "streams of C on a simulated disk are not simulated");
        }
        (_, true) => {
            fail(libc::ENOENT);
            return ptr::null_mut();
        }
        // SAFETY: as above.
        _ => unsafe { leaves_by_path("fopen", path) },
    }
    really!(OPEN, c"fopen", path => *const c_char, mode => *const c_char => *mut FILE)
}

/// # Safety
///
/// As in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn fopen64(path: *const c_char, mode: *const c_char) -> *mut FILE {
    // SAFETY: the caller vouches for the arguments.
    unsafe { fopen(path, mode) }
}

/// # Safety
///
/// As in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn creat(path: *const c_char, mode: mode_t) -> c_int {
    let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC;
    // SAFETY: the caller vouches for the arguments.
    unsafe { libc::open(path, flags, mode) }
}

/// Sleeps if a thread of the simulation calls `select` with a time and without descriptors, and
/// returns what [`sleep`] does. Otherwise returns `None`, and fails the seed if the call may wait.
///
/// # Safety
///
/// `mask` is null, or a set of signals.
unsafe fn select_sleeps(
    call: &str,
    sets: [*mut c_void; 3],
    length: Option<u64>,
    mask: *const sigset_t,
) -> Option<Option<u64>> {
    match length {
        Some(0) => {}
        Some(length) if sets.iter().all(|set| set.is_null()) => {
            // SAFETY: as the caller says.
            return enter().map(|world| unsafe { sleep(&world, length, mask) });
        }
        _ => refuse_wait(|| format!("{call}()")),
    }
    None
}

/// # Safety
///
/// As in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn select(
    count: c_int,
    reads: *mut c_void,
    writes: *mut c_void,
    errors: *mut c_void,
    time: *mut timeval,
) -> c_int {
    // SAFETY: the caller passes a valid time, or none.
    let length = unsafe { time.as_ref() }.map(|time| {
        let [seconds, micros] = [time.tv_sec, time.tv_usec].map(|part| part as u64);
        seconds
            .saturating_mul(TICK)
            .saturating_add(micros.saturating_mul(1_000))
    });
    let sets = [reads, writes, errors];
    // SAFETY: no mask.
    if let Some(left) = unsafe { select_sleeps("select", sets, length, ptr::null()) } {
        let rest = left.unwrap_or(0);
        // Linux writes the time that is left.
        // SAFETY: a call without a time does not sleep.
        unsafe {
            (*time).tv_sec = (rest / TICK) as libc::time_t;
            (*time).tv_usec = (rest % TICK / 1_000) as libc::suseconds_t;
        }
        return left.map_or(0, |_| fail(libc::EINTR));
    }
    really!(SELECT, c"select", count => c_int, reads => *mut c_void, writes => *mut c_void,
        errors => *mut c_void, time => *mut timeval => c_int)
}

/// # Safety
///
/// As in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn pselect(
    count: c_int,
    reads: *mut c_void,
    writes: *mut c_void,
    errors: *mut c_void,
    time: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: the caller passes a valid time, or none.
    let length = unsafe { time.as_ref() }.map(|time| nanos(*time));
    let sets = [reads, writes, errors];
    // SAFETY: the caller passes a set, or none.
    if let Some(left) = unsafe { select_sleeps("pselect", sets, length, mask) } {
        return left.map_or(0, |_| fail(libc::EINTR));
    }
    really!(SELECT_WITH_MASK, c"pselect", count => c_int, reads => *mut c_void,
        writes => *mut c_void, errors => *mut c_void, time => *const timespec,
        mask => *const sigset_t => c_int)
}
