//! The simulated system calls, with the signatures of libc. Each is a point.

use libc::{c_int, c_void, clockid_t, epoll_event, itimerspec, pollfd, size_t, ssize_t, timespec};

use super::{
    kernel::{Object, Timer},
    world::{NEVER, State, Wait, World, me, with},
};

const TICK: u64 = 1_000_000_000;

fn world() -> &'static World {
    with(|world| world).expect("only threads of the world call its kernel")
}

fn fail(errno: c_int) -> c_int {
    // SAFETY: the pointer is valid for the calling thread.
    unsafe { *libc::__errno_location() = errno };
    -1
}

fn nanos(time: timespec) -> u64 {
    (time.tv_sec as u64)
        .saturating_mul(TICK)
        .saturating_add(time.tv_nsec as u64)
}

/// Allocates a descriptor number: that of a real eventfd, which is otherwise unused.
pub(super) fn open(object: Object) -> c_int {
    let world = world();
    world.point();
    // SAFETY: the call takes no pointers.
    let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
    if fd >= 0 {
        world.lock().kernel.open(fd, object);
    }
    fd
}

pub(crate) unsafe fn eventfd(_: u32, _: c_int) -> c_int {
    open(Object::Event(0))
}

pub(crate) unsafe fn epoll_create1(_: c_int) -> c_int {
    open(Object::Epoll(Default::default()))
}

pub(crate) unsafe fn timerfd_create(clock: clockid_t, _: c_int) -> c_int {
    let clock = match clock {
        libc::CLOCK_MONOTONIC => 0,
        libc::CLOCK_BOOTTIME => 1,
        _ => 2,
    };
    open(Object::Timer(Timer {
        clock,
        at: NEVER,
        ticks: 0,
        cancel_on_set: false,
        stepped: false,
    }))
}

pub(crate) unsafe fn timerfd_settime(
    fd: c_int,
    flags: c_int,
    new: *const itimerspec,
    _: *mut itimerspec,
) -> c_int {
    let world = world();
    world.point();
    // SAFETY: the caller passes a valid pointer, as for the real call.
    let value = nanos(unsafe { (*new).it_value });
    let mut state = world.lock();
    // Read the clocks before borrowing the timer from the state.
    let clocks = [state.now, state.boot(), state.wall()];
    let Some(Object::Timer(timer)) = state.kernel.get(fd) else {
        return fail(libc::EBADF);
    };
    let absolute = flags & libc::TFD_TIMER_ABSTIME != 0;
    timer.cancel_on_set =
        absolute && timer.clock == 2 && flags & libc::TFD_TIMER_CANCEL_ON_SET != 0;
    timer.ticks = 0;
    timer.at = match value {
        0 => NEVER,
        value if absolute => value,
        value => clocks[timer.clock].saturating_add(value),
    };
    let stepped = value != 0 && timer.take_step();
    state.note(|| format!("sets timerfd {fd} to {value}, absolute: {absolute}"));
    // A time in the past fires at once.
    state.fire_due();
    if stepped {
        return fail(libc::ECANCELED);
    }
    0
}

pub(crate) unsafe fn read(fd: c_int, buffer: *mut c_void, _: size_t) -> ssize_t {
    let world = world();
    world.point();
    let mut state = world.lock();
    let count = match state.kernel.get(fd) {
        Some(Object::Event(count)) => std::mem::take(count),
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

pub(crate) unsafe fn write(fd: c_int, _: *const c_void, _: size_t) -> ssize_t {
    let world = world();
    world.point();
    let mut state = world.lock();
    let plan = state.plan.clone();
    // Faults: the write may be lost, delayed or doubled.
    if state.drops() && state.happens(plan.drop) {
        state.faults.dropped += 1;
        let now = state.now;
        state.faults.drop_first.get_or_insert(now);
        state.note(|| format!("writes to {fd}, in vain"));
        return 8;
    }
    if state.happens(plan.delay) {
        state.faults.delayed += 1;
        let now = state.now;
        state.faults.delays.push(now);
        let at = state.now + state.rng.u64(1_000..3_000_000);
        state.note(|| format!("writes to {fd}, which comes later"));
        state.write_later(fd, at);
        return 8;
    }
    if state.happens(plan.double) {
        state.faults.doubled += 1;
        let at = state.now + state.rng.u64(100..1_000_000);
        state.write_later(fd, at);
    }
    state.note(|| format!("writes to {fd}"));
    state.written(fd);
    8
}

pub(crate) unsafe fn epoll_ctl(
    instance: c_int,
    operation: c_int,
    fd: c_int,
    event: *mut epoll_event,
) -> c_int {
    let world = world();
    world.point();
    let mut state = world.lock();
    if operation == libc::EPOLL_CTL_DEL {
        return match state.kernel.unwatch(instance, fd) {
            true => 0,
            false => fail(libc::ENOENT),
        };
    }
    if state.kernel.get(fd).is_none() {
        // Real descriptors are not part of the simulation.
        return fail(libc::EPERM);
    }
    if state.kernel.watches(instance, fd) {
        return fail(libc::EEXIST);
    }
    // Instances must not watch each other in a circle.
    if state.kernel.reaches(fd, instance) {
        return fail(libc::ELOOP);
    }
    // SAFETY: the caller passes a valid pointer, as for the real call.
    let (conditions, token) = unsafe { ((*event).events, (*event).u64) };
    if state.kernel.watch(instance, fd, token, conditions) {
        state.wake(|wait| wait == Wait::Epoll(instance));
        state.signal(instance);
    }
    0
}

/// Waits at an instance until it has events, for at most `left` ns. An error is an errno: a signal
/// interrupted the wait.
fn wait(instance: c_int, left: Option<u64>) -> Result<(), c_int> {
    let world = world();
    world.point();
    let mut state = world.lock();
    let until = match left {
        None => NEVER,
        Some(0) => return Ok(()),
        Some(left) => {
            let late = match state.plan.late_ns {
                0 => 0,
                most => state.rng.u64(..=most),
            };
            state.now.saturating_add(left).saturating_add(late)
        }
    };
    let chance = state.plan.interrupt;
    if state.happens(chance) {
        state.faults.interrupts += 1;
        state.note(|| format!("is interrupted at {instance}"));
        return Err(libc::EINTR);
    }
    // Another thread may take the events before the woken one runs. Then sleep again.
    while !state.kernel.has_events(instance) {
        if !world.wait(state, Wait::Epoll(instance), until) {
            break;
        }
        world.point();
        state = world.lock();
        // Fault: the thread was woken but gets no core for a while.
        let chance = state.plan.freeze.saturating_mul(30);
        if state.happens(chance) {
            let length = state.draw_freeze();
            let until = state.now + length;
            world.wait(state, Wait::Time, until);
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
unsafe fn take(instance: c_int, events: *mut epoll_event, room: c_int) -> c_int {
    let mut state = world().lock();
    let taken = state.kernel.take(instance, room as usize);
    state.note(|| format!("has {} events at {instance}", taken.len()));
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

pub(crate) unsafe fn epoll_wait(
    instance: c_int,
    events: *mut epoll_event,
    room: c_int,
    millis: c_int,
) -> c_int {
    let left = (millis >= 0).then(|| millis as u64 * 1_000_000);
    match wait(instance, left) {
        // SAFETY: the caller passes room for `room` events.
        Ok(()) => unsafe { take(instance, events, room) },
        Err(errno) => fail(errno),
    }
}

pub(crate) unsafe fn poll(fds: *mut pollfd, count: libc::nfds_t, millis: c_int) -> c_int {
    // SAFETY: the caller passes `count` valid entries.
    let fds = unsafe { std::slice::from_raw_parts_mut(fds, count as usize) };
    let [one] = fds else {
        return fail(libc::EINVAL);
    };
    let left = (millis >= 0).then(|| millis as u64 * 1_000_000);
    if let Err(errno) = wait(one.fd, left) {
        return fail(errno);
    }
    let ready = world().lock().kernel.has_events(one.fd);
    one.revents = if ready { libc::POLLIN } else { 0 };
    c_int::from(ready)
}

pub(crate) unsafe fn clock_gettime(clock: clockid_t, time: *mut timespec) -> c_int {
    let shown = with(|world| {
        world.point();
        let state: std::sync::MutexGuard<'_, State> = world.lock();
        match clock {
            libc::CLOCK_MONOTONIC => state.now,
            libc::CLOCK_BOOTTIME => state.boot(),
            libc::CLOCK_REALTIME => state.wall(),
            _ => me().map_or(0, |me| state.threads[me].cpu),
        }
    });
    // Threads outside of the simulation only read constants once per process. They see zero.
    let shown = shown.unwrap_or(0);
    // SAFETY: the caller passes a valid place for the result.
    unsafe {
        (*time).tv_sec = (shown / TICK) as libc::time_t;
        (*time).tv_nsec = (shown % TICK) as libc::c_long;
    }
    0
}
