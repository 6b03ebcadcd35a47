//! Eventfds, timerfds and epoll instances.

use libc::{
    c_int, c_uint, c_void, clockid_t, epoll_event, itimerspec, nfds_t, pollfd, sigset_t, size_t,
    ssize_t, timespec,
};

use super::{
    clock::{nanos, sleep},
    fail,
    outside::{is_ready, refuse_wait, waits},
    raw::real,
    signals::with_mask,
};
use crate::world::{
    Ended, NEVER, Wait, World,
    clocks::Clock,
    decide::Class,
    disk::Range,
    enter,
    kernel::{Kernel, Object, Timer},
};

pub(super) fn symbols() -> [usize; 13] {
    [
        eventfd as *const () as usize,
        epoll_create as *const () as usize,
        epoll_create1 as *const () as usize,
        epoll_ctl as *const () as usize,
        epoll_wait as *const () as usize,
        epoll_pwait as *const () as usize,
        timerfd_create as *const () as usize,
        timerfd_settime as *const () as usize,
        read as *const () as usize,
        write as *const () as usize,
        close as *const () as usize,
        poll as *const () as usize,
        ppoll as *const () as usize,
    ]
}

/// Passes a point, and makes a descriptor. Its number is that of a real one, with which nothing can
/// be done: a call that is not simulated fails with `EBADF`.
pub(crate) fn open(world: &World, object: Object) -> c_int {
    open_by(world, |kernel, fd, host| kernel.open(fd, host, object))
}

/// Does the same. `open` adds the descriptor of a machine.
fn open_by(world: &World, open: impl FnOnce(&mut Kernel, c_int, usize)) -> c_int {
    world.point();
    let fd = number(world);
    if fd >= 0 {
        let mut state = world.lock();
        let host = state.host();
        open(&mut state.kernel, fd, host);
    }
    fd
}

/// Returns whether the calling thread's machine may have another descriptor. Sets the error number
/// if not.
pub(super) fn has_room(world: &World) -> bool {
    let state = world.lock();
    let has_room = state.has_room();
    if !has_room {
        state.note(|| "has too many descriptors for another one".into());
        fail(libc::EMFILE);
    }
    has_room
}

/// The least number of a new descriptor. Lower ones are those that the seed's process inherits, and
/// other tests of its parent open and close some meanwhile: a seed must not see how many.
const LEAST: c_int = 200;

/// Returns the number of a new descriptor.
pub(super) fn number(world: &World) -> c_int {
    if !has_room(world) {
        return -1;
    }
    let path = c"/dev/null".as_ptr();
    let flags = libc::O_PATH | libc::O_CLOEXEC;
    let first = real!(SYS_openat, libc::AT_FDCWD, path, flags) as c_int;
    if first < 0 {
        return first;
    }
    let fd = real!(SYS_fcntl, first, libc::F_DUPFD_CLOEXEC, LEAST) as c_int;
    really_close(first);
    fd
}

#[unsafe(no_mangle)]
extern "C" fn eventfd(count: c_uint, flags: c_int) -> c_int {
    match enter() {
        Some(world) => open_by(&world, |kernel, fd, host| {
            kernel.open_event(fd, host, count.into());
        }),
        None => real!(SYS_eventfd2, count, flags) as c_int,
    }
}

#[unsafe(no_mangle)]
extern "C" fn epoll_create(_: c_int) -> c_int {
    epoll_create1(0)
}

#[unsafe(no_mangle)]
extern "C" fn epoll_create1(flags: c_int) -> c_int {
    match enter() {
        Some(world) => open(&world, Object::Epoll(Default::default())),
        None => real!(SYS_epoll_create1, flags) as c_int,
    }
}

#[unsafe(no_mangle)]
extern "C" fn timerfd_create(clock: clockid_t, flags: c_int) -> c_int {
    let Some(world) = enter() else {
        return real!(SYS_timerfd_create, clock, flags) as c_int;
    };
    let clock = match clock {
        libc::CLOCK_MONOTONIC => Clock::Monotonic,
        libc::CLOCK_BOOTTIME => Clock::Boot,
        _ => Clock::Wall,
    };
    let host = world.lock().host();
    open(
        &world,
        Object::Timer(Timer {
            host,
            clock,
            at: NEVER,
            ticks: 0,
            cancel_on_set: false,
            stepped: false,
        }),
    )
}

/// # Safety
///
/// As in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn timerfd_settime(
    fd: c_int,
    flags: c_int,
    new: *const itimerspec,
    old: *mut itimerspec,
) -> c_int {
    let Some(world) = enter() else {
        return real!(SYS_timerfd_settime, fd, flags, new, old) as c_int;
    };
    world.point();
    // SAFETY: the caller passes a valid pointer, as for the real call.
    let value = nanos(unsafe { (*new).it_value });
    let mut state = world.lock();
    let (now, clocks) = (state.now, state.clocks().clone());
    let Some(Object::Timer(timer)) = state.kernel.get(fd) else {
        return fail(libc::EBADF);
    };
    let absolute = flags & libc::TFD_TIMER_ABSTIME != 0;
    timer.cancel_on_set =
        absolute && timer.clock == Clock::Wall && flags & libc::TFD_TIMER_CANCEL_ON_SET != 0;
    timer.ticks = 0;
    timer.at = match value {
        0 => NEVER,
        value if absolute => value,
        value => clocks.read(timer.clock, now).saturating_add(value),
    };
    let stepped = value != 0 && timer.take_step();
    state.detail(|| format!("sets timerfd {fd} to {value}, absolute: {absolute}"));
    // A time in the past fires at once.
    state.fire_due();
    if stepped {
        return fail(libc::ECANCELED);
    }
    0
}

/// # Safety
///
/// As in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn read(fd: c_int, buffer: *mut c_void, len: size_t) -> ssize_t {
    let Some(world) = enter().filter(|world| world.lock().kernel.has(fd)) else {
        waits("read", fd, libc::POLLIN, 0);
        return real!(SYS_read, fd, buffer, len);
    };
    if world.lock().socket(fd).is_ok() {
        // SAFETY: the caller passes room for `len` bytes.
        return unsafe { super::net::read(&world, fd, buffer, len) };
    }
    if world.lock().kernel.file(fd).is_some() {
        // SAFETY: as above.
        return unsafe { super::files::read(&world, fd, Range::Next, buffer, len) };
    }
    if world.lock().kernel.is_random(fd) {
        world.point();
        // SAFETY: as above.
        return unsafe { super::clock::random(&world, buffer, len) };
    }
    world.point();
    let mut state = world.lock();
    let count = match state.kernel.get(fd) {
        Some(&mut Object::Event(number)) => state.kernel.take_count(number),
        Some(Object::Timer(timer)) => {
            if timer.ticks > 0 && timer.take_step() {
                timer.ticks = 0;
                return fail(libc::ECANCELED) as ssize_t;
            }
            std::mem::take(&mut timer.ticks)
        }
        _ => return fail(libc::EBADF) as ssize_t,
    };
    if count == 0 {
        return fail(libc::EAGAIN) as ssize_t;
    }
    // SAFETY: the caller passes a buffer of eight bytes.
    unsafe { buffer.cast::<u64>().write_unaligned(count) };
    8
}

/// # Safety
///
/// As in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn write(fd: c_int, buffer: *const c_void, len: size_t) -> ssize_t {
    let Some(world) = enter().filter(|world| world.lock().kernel.has(fd)) else {
        waits("write", fd, libc::POLLOUT, 0);
        return real!(SYS_write, fd, buffer, len);
    };
    if world.lock().socket(fd).is_ok() {
        // SAFETY: the caller passes `len` bytes.
        return unsafe { super::net::write(&world, fd, buffer, len) };
    }
    if world.lock().kernel.file(fd).is_some() {
        // SAFETY: as above.
        return unsafe { super::files::write(&world, fd, Range::Next, buffer, len) };
    }
    world.point();
    if world.lock().kernel.is_random(fd) {
        return len as ssize_t;
    }
    write_event(&world, fd)
}

/// Writes to an eventfd. Faults: the write may be lost, delayed or doubled.
fn write_event(world: &World, fd: c_int) -> ssize_t {
    let mut state = world.lock();
    let plan = state.plan.clone();
    if state.drops() && state.happens(Class::Event, plan.drop) {
        state.faults.dropped += 1;
        let now = state.now;
        state.faults.drop_first.get_or_insert(now);
        state.decided(|| format!("writes to {fd}, in vain"));
        return 8;
    }
    if state.happens(Class::Event, plan.delay) {
        state.faults.delayed += 1;
        let now = state.now;
        state.faults.delays.push(now);
        let at = state.now + state.rng().u64(1_000..3_000_000);
        state.decided(|| format!("writes to {fd}, which comes later"));
        state.write_later(fd, at);
        return 8;
    }
    if state.happens(Class::Event, plan.double) {
        state.faults.doubled += 1;
        let at = state.now + state.rng().u64(100..1_000_000);
        state.write_later(fd, at);
    }
    state.detail(|| format!("writes to {fd}"));
    state.written(fd);
    8
}

/// Closes a descriptor of the system.
pub(crate) fn really_close(fd: c_int) {
    real!(SYS_close, fd);
}

#[unsafe(no_mangle)]
extern "C" fn close(fd: c_int) -> c_int {
    if let Some(world) = enter().filter(|world| world.lock().kernel.has(fd)) {
        world.point();
        let mut state = world.lock();
        // What another process has left may have a number that is used again.
        if state.kernel.host_of(fd) != Some(state.host()) {
            return fail(libc::EBADF);
        }
        state.close(fd);
    }
    real!(SYS_close, fd) as c_int
}

/// # Safety
///
/// As in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn epoll_ctl(
    instance: c_int,
    operation: c_int,
    fd: c_int,
    event: *mut epoll_event,
) -> c_int {
    let Some(world) = enter().filter(|world| world.lock().kernel.has(instance)) else {
        return real!(SYS_epoll_ctl, instance, operation, fd, event) as c_int;
    };
    world.point();
    let mut state = world.lock();
    if operation == libc::EPOLL_CTL_DEL {
        return match state.kernel.unwatch(instance, fd) {
            true => 0,
            false => fail(libc::ENOENT),
        };
    }
    if state.kernel.get(fd).is_none() || state.kernel.file(fd).is_some() {
        // Real descriptors are not part of the simulation, and files are always ready.
        return fail(libc::EPERM);
    }
    let is_watched = state.kernel.watches(instance, fd);
    match operation == libc::EPOLL_CTL_MOD {
        true if is_watched => _ = state.kernel.unwatch(instance, fd),
        true => return fail(libc::ENOENT),
        false if is_watched => return fail(libc::EEXIST),
        false => {}
    }
    // Instances must not watch each other in a circle.
    if state.kernel.reaches(fd, instance) {
        return fail(libc::ELOOP);
    }
    // SAFETY: the caller passes a valid pointer, as for the real call.
    let (conditions, token) = unsafe { ((*event).events, (*event).u64) };
    if state.watch(instance, fd, token, conditions) {
        state.wake(|wait| wait == Wait::Epoll(instance));
        state.signal(instance);
    }
    0
}

/// Waits at an instance until it has events, or at another descriptor until it has one of these
/// conditions, for at most `left` ns. An error is an errno: a signal interrupted the wait.
fn wait(world: &World, instance: c_int, conditions: u32, left: Option<u64>) -> Result<(), c_int> {
    world.point();
    let mut state = world.lock();
    let until = match left {
        None => NEVER,
        Some(0) => return Ok(()),
        Some(left) => {
            let late = match state.plan.late_ns {
                0 => 0,
                most => {
                    let key = state.meet(Class::Late);
                    state.vary(key, 0, |rng| rng.u64(..=most))
                }
            };
            state.ahead(left).saturating_add(late)
        }
    };
    let chance = state.plan.interrupt;
    if state.happens(Class::Early, chance) {
        state.faults.interrupts += 1;
        state.detail(|| format!("is interrupted at {instance}"));
        return Err(libc::EINTR);
    }
    let event = match state.kernel.is_instance(instance) {
        true => Wait::Epoll(instance),
        false => Wait::Socket(instance),
    };
    // Another thread may take the events before the woken one runs. Then sleep again.
    while !state.is_ready(instance, conditions) {
        match world.wait(state, event, until) {
            Ended::Event | Ended::Nothing => {}
            Ended::Time => break,
            // Whatever the handler was set up with.
            Ended::Handler { .. } => return Err(libc::EINTR),
        }
        world.point();
        state = world.lock();
        // Fault: the thread was woken but gets no core for a while.
        if let Some(length) = state.late_core() {
            let until = state.now + length;
            world.wait(state, Wait::Core, until);
            state = world.lock();
        }
    }
    Ok(())
}

/// Moves pending events to `events`, and returns their number.
///
/// # Safety
///
/// `events` has room for `room` events.
unsafe fn take(world: &World, instance: c_int, events: *mut epoll_event, room: c_int) -> c_int {
    let mut state = world.lock();
    let taken = state.take(instance, room as usize);
    state.detail(|| format!("has {} events at {instance}", taken.len()));
    for (place, (token, conditions)) in taken.iter().enumerate() {
        let event = epoll_event {
            events: *conditions,
            u64: *token,
        };
        // SAFETY: `Kernel::take` returns at most `room` events.
        unsafe { events.add(place).write_unaligned(event) };
    }
    taken.len() as c_int
}

fn limit(millis: c_int) -> Option<u64> {
    (millis >= 0).then(|| millis as u64 * 1_000_000)
}

/// # Safety
///
/// As in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn epoll_wait(
    instance: c_int,
    events: *mut epoll_event,
    room: c_int,
    millis: c_int,
) -> c_int {
    // SAFETY: the caller vouches for the arguments.
    unsafe { epoll_pwait(instance, events, room, millis, std::ptr::null()) }
}

/// # Safety
///
/// As in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn epoll_pwait(
    instance: c_int,
    events: *mut epoll_event,
    room: c_int,
    millis: c_int,
    mask: *const sigset_t,
) -> c_int {
    let Some(world) = enter().filter(|world| world.lock().kernel.has(instance)) else {
        return real!(SYS_epoll_pwait, instance, events, room, millis, mask, 8) as c_int;
    };
    let wait = || wait(&world, instance, 0, limit(millis));
    // SAFETY: the caller passes a set, or none.
    match unsafe { with_mask(&world, mask, wait) } {
        // SAFETY: the caller passes room for `room` events.
        Ok(()) => unsafe { take(&world, instance, events, room) },
        Err(errno) => fail(errno),
    }
}

/// # Safety
///
/// As in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn poll(fds: *mut pollfd, count: nfds_t, millis: c_int) -> c_int {
    let time = timespec {
        tv_sec: libc::time_t::from(millis / 1_000),
        tv_nsec: libc::c_long::from(millis % 1_000) * 1_000_000,
    };
    let time: *const timespec = match millis {
        0.. => &time,
        _ => std::ptr::null(),
    };
    // SAFETY: the caller vouches for the arguments.
    unsafe { ppoll(fds, count, time, std::ptr::null()) }
}

/// # Safety
///
/// As in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn ppoll(
    fds: *mut pollfd,
    count: nfds_t,
    time: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    let entries: &mut [pollfd] = match count {
        0 => &mut [],
        // SAFETY: the caller passes `count` valid entries.
        _ => unsafe { std::slice::from_raw_parts_mut(fds, count as usize) },
    };
    let entered = enter().filter(|world| {
        let state = world.lock();
        entries.iter().any(|it| state.kernel.has(it.fd))
    });
    // SAFETY: the caller passes a valid time, or none.
    let limit = unsafe { time.as_ref() }.map(|time| nanos(*time));
    let Some(world) = entered else {
        match (entries, limit) {
            ([], Some(length)) => {
                if let Some(world) = enter() {
                    // SAFETY: the caller passes a set, or none.
                    let left = unsafe { sleep(&world, length, mask) };
                    return left.map_or(0, |_| fail(libc::EINTR));
                }
            }
            (_, Some(0)) => {}
            (entries, _) => {
                if !is_ready(entries) {
                    refuse_wait(|| "poll()".into());
                }
            }
        }
        return real!(SYS_ppoll, fds, count, time, mask, 8) as c_int;
    };
    let time = limit;
    match entries {
        [one] => {
            let conditions = one.events | libc::POLLERR | libc::POLLHUP;
            let wait = || wait(&world, one.fd, conditions as u32, time);
            // SAFETY: the caller passes a set, or none.
            if let Err(errno) = unsafe { with_mask(&world, mask, wait) } {
                return fail(errno);
            }
        }
        // The runtime looks at several sockets without waiting.
        _ if time == Some(0) => world.point(),
        _ => return fail(libc::EINVAL),
    }
    let state = world.lock();
    let mut ready = 0;
    for entry in entries {
        let conditions = state.conditions(entry.fd) as libc::c_short;
        entry.revents = conditions & (entry.events | libc::POLLERR | libc::POLLHUP);
        ready += c_int::from(entry.revents != 0);
    }
    ready
}
