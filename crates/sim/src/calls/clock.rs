//! Clocks, sleeps and random numbers.

use std::sync::atomic::AtomicUsize;

use libc::{
    c_int, c_long, c_uint, c_void, clockid_t, sigset_t, size_t, ssize_t, time_t, timespec, timeval,
};

use super::{
    TICK, fail,
    raw::{real, really},
    signals::with_mask,
    thread::original,
};
use crate::world::{Ended, NEVER, State, Wait, World, clocks::Clock, enter, me};

pub(super) fn symbols() -> [usize; 9] {
    [
        clock_gettime as *const () as usize,
        gettimeofday as *const () as usize,
        time as *const () as usize,
        nanosleep as *const () as usize,
        clock_nanosleep as *const () as usize,
        getrandom as *const () as usize,
        sched_getaffinity as *const () as usize,
        sched_getcpu as *const () as usize,
        sysconf as *const () as usize,
    ]
}

static SYSTEM: AtomicUsize = AtomicUsize::new(0);
static CORE: AtomicUsize = AtomicUsize::new(0);

/// Looks up the C library's own functions.
pub(super) fn find() {
    original(&SYSTEM, c"sysconf");
    original(&CORE, c"sched_getcpu");
}

pub(super) fn nanos(time: timespec) -> u64 {
    (time.tv_sec as u64)
        .saturating_mul(TICK)
        .saturating_add(time.tv_nsec as u64)
}

fn read(state: &State, clock: clockid_t) -> u64 {
    let clock = match clock {
        libc::CLOCK_MONOTONIC | libc::CLOCK_MONOTONIC_RAW | libc::CLOCK_MONOTONIC_COARSE => {
            Clock::Monotonic
        }
        libc::CLOCK_BOOTTIME => Clock::Boot,
        libc::CLOCK_REALTIME | libc::CLOCK_REALTIME_COARSE => Clock::Wall,
        _ => return me().map_or(0, |me| state.threads[me].cpu),
    };
    state.clocks().read(clock, state.now)
}

/// # Safety
///
/// As in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn clock_gettime(clock: clockid_t, time: *mut timespec) -> c_int {
    let Some(world) = enter() else {
        return real!(SYS_clock_gettime, clock, time) as c_int;
    };
    world.point();
    let shown = read(&world.lock(), clock);
    // SAFETY: the caller passes a valid place for the result.
    unsafe {
        (*time).tv_sec = (shown / TICK) as time_t;
        (*time).tv_nsec = (shown % TICK) as libc::c_long;
    }
    0
}

/// # Safety
///
/// As in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn gettimeofday(time: *mut timeval, zone: *mut c_void) -> c_int {
    let Some(world) = enter() else {
        return real!(SYS_gettimeofday, time, zone) as c_int;
    };
    world.point();
    let shown = read(&world.lock(), libc::CLOCK_REALTIME);
    if !time.is_null() {
        // SAFETY: the caller passes a valid place for the result.
        unsafe {
            (*time).tv_sec = (shown / TICK) as time_t;
            (*time).tv_usec = (shown % TICK / 1_000) as libc::suseconds_t;
        }
    }
    0
}

/// # Safety
///
/// As in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn time(place: *mut time_t) -> time_t {
    let mut shown = timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the place is valid.
    unsafe { clock_gettime(libc::CLOCK_REALTIME, &mut shown) };
    if !place.is_null() {
        // SAFETY: the caller passes a valid place or none.
        unsafe { *place = shown.tv_sec };
    }
    shown.tv_sec
}

/// # Safety
///
/// As in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn nanosleep(length: *const timespec, left: *mut timespec) -> c_int {
    let Some(world) = enter() else {
        return real!(SYS_nanosleep, length, left) as c_int;
    };
    world.point();
    // SAFETY: the caller passes a valid time.
    let length = nanos(unsafe { *length });
    match rest(&world, length, NEVER) {
        None => 0,
        Some(rest) => {
            // SAFETY: the caller passes room for a time, or none.
            unsafe { write_rest(rest, left) };
            fail(libc::EINTR)
        }
    }
}

/// Has the calling thread sleep for so many ns of its machine's clock, and until `most` at most. If
/// a signal wakes it, returns how many ns are left.
fn rest(world: &World, length: u64, most: u64) -> Option<u64> {
    let mut state = world.lock();
    let (begin, until) = (read(&state, libc::CLOCK_MONOTONIC), state.ahead(length));
    loop {
        match world.wait(state, Wait::Time, until.min(most)) {
            Ended::Handler { .. } => {
                let slept = read(&world.lock(), libc::CLOCK_MONOTONIC) - begin;
                return Some(length.saturating_sub(slept));
            }
            Ended::Nothing => state = world.lock(),
            _ => return None,
        }
    }
}

/// Sleeps so, with other signals blocked. Programs call `poll` and `select` without descriptors for
/// that.
///
/// # Safety
///
/// `mask` is null, or a set of signals.
pub(super) unsafe fn sleep(world: &World, length: u64, mask: *const sigset_t) -> Option<u64> {
    let wait = || {
        world.point();
        rest(world, length, NEVER)
    };
    // SAFETY: as the caller says.
    unsafe { with_mask(world, mask, wait) }
}

/// # Safety
///
/// `left` is null, or has room for a time.
unsafe fn write_rest(rest: u64, left: *mut timespec) {
    if !left.is_null() {
        // SAFETY: as the caller says.
        unsafe {
            (*left).tv_sec = (rest / TICK) as time_t;
            (*left).tv_nsec = (rest % TICK) as libc::c_long;
        }
    }
}

/// # Safety
///
/// As in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn clock_nanosleep(
    clock: clockid_t,
    flags: c_int,
    length: *const timespec,
    left: *mut timespec,
) -> c_int {
    let Some(world) = enter() else {
        // Unlike other functions, this one returns the error number.
        // SAFETY: the caller vouches for the arguments.
        let answer = unsafe {
            super::raw::answer(
                libc::SYS_clock_nanosleep,
                [
                    clock as usize,
                    flags as usize,
                    length as usize,
                    left as usize,
                    0,
                    0,
                ],
            )
        };
        return -answer as c_int;
    };
    world.point();
    // SAFETY: the caller passes a valid time.
    let length = nanos(unsafe { *length });
    let is_relative = flags & libc::TIMER_ABSTIME == 0;
    let length = match is_relative {
        true => length,
        false => length.saturating_sub(read(&world.lock(), clock)),
    };
    match rest(&world, length, NEVER - 1) {
        None => 0,
        Some(rest) => {
            if is_relative {
                // SAFETY: the caller passes room for a time, or none.
                unsafe { write_rest(rest, left) };
            }
            libc::EINTR
        }
    }
}

/// # Safety
///
/// As in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn getrandom(buffer: *mut c_void, len: size_t, flags: c_uint) -> ssize_t {
    match enter() {
        // SAFETY: the caller passes a buffer of this length.
        Some(world) => unsafe { random(&world, buffer, len) },
        None => real!(SYS_getrandom, buffer, len, flags),
    }
}

/// Fills a buffer with random bytes.
///
/// # Safety
///
/// `buffer` has room for `len` bytes.
pub(super) unsafe fn random(world: &World, buffer: *mut c_void, len: size_t) -> ssize_t {
    if len == 0 {
        return 0;
    }
    if buffer.is_null() {
        return fail(libc::EFAULT) as ssize_t;
    }
    // SAFETY: as the caller says.
    let buffer = unsafe { std::slice::from_raw_parts_mut(buffer.cast::<u8>(), len) };
    world.lock().rng().fill(buffer);
    len as ssize_t
}

/// Each machine has two cores, whatever the real one has.
///
/// # Safety
///
/// As in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn sched_getaffinity(
    thread: libc::pid_t,
    size: size_t,
    mask: *mut libc::cpu_set_t,
) -> c_int {
    if enter().is_none() {
        let written = real!(SYS_sched_getaffinity, thread, size, mask);
        if written < 0 {
            return -1;
        }
        // The C library clears what the kernel leaves.
        // SAFETY: the caller passes a mask of `size` bytes, of which the kernel wrote the first.
        unsafe {
            let rest = mask.cast::<u8>().add(written as usize);
            rest.write_bytes(0, size - written as usize);
        }
        return 0;
    }
    if size == 0 {
        return fail(libc::EINVAL);
    }
    // SAFETY: the caller passes a mask of `size` bytes.
    unsafe {
        mask.cast::<u8>().write_bytes(0, size);
        mask.cast::<u8>().write((1 << CORES) - 1);
    }
    0
}

/// How many cores each machine has.
const CORES: c_long = 2;

/// No core is told from another one.
#[unsafe(no_mangle)]
extern "C" fn sched_getcpu() -> c_int {
    match enter() {
        Some(_) => 0,
        None => really!(CORE, c"sched_getcpu" => c_int),
    }
}

#[unsafe(no_mangle)]
extern "C" fn sysconf(name: c_int) -> c_long {
    match name {
        libc::_SC_NPROCESSORS_ONLN | libc::_SC_NPROCESSORS_CONF if enter().is_some() => CORES,
        _ => really!(SYSTEM, c"sysconf", name => c_int => c_long),
    }
}
