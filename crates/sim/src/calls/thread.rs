//! Threads, and what they wait for: futexes, and the ends of others.

use std::{
    cell::UnsafeCell,
    mem::ManuallyDrop,
    sync::atomic::{AtomicUsize, Ordering},
};

use libc::{c_char, c_int, c_long, c_void, pthread_attr_t, pthread_t, timespec};

use super::{
    clock::nanos,
    fail, outside,
    raw::{self, real},
    signals,
};
use crate::world::{Ended, NEVER, Run, Wait, World, clocks::Clock, decide::Class, enter};

pub(super) fn symbols() -> [usize; 7] {
    [
        getpid as *const () as usize,
        pthread_create as *const () as usize,
        pthread_join as *const () as usize,
        pthread_setname_np as *const () as usize,
        sched_yield as *const () as usize,
        syscall as *const () as usize,
        __cxa_thread_atexit_impl as *const () as usize,
    ]
}

/// The main function of a thread.
type Main = extern "C" fn(*mut c_void) -> *mut c_void;
/// A destructor of a thread-local value.
type Destructor = unsafe extern "C" fn(*mut c_void);

/// Returns the C library's own function of a name.
pub(super) fn original(known: &AtomicUsize, name: &std::ffi::CStr) -> usize {
    match known.load(Ordering::Relaxed) {
        0 => {
            // SAFETY: the name is a valid text.
            let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) } as usize;
            assert_ne!(found, 0, "the C library has {name:?}");
            known.store(found, Ordering::Relaxed);
            found
        }
        found => found,
    }
}

static CREATE: AtomicUsize = AtomicUsize::new(0);
static JOIN: AtomicUsize = AtomicUsize::new(0);
static REGISTER: AtomicUsize = AtomicUsize::new(0);
static LOOK_UP: AtomicUsize = AtomicUsize::new(0);
static FREE: AtomicUsize = AtomicUsize::new(0);

/// Looks up the C library's own functions.
pub(super) fn find() {
    original(&CREATE, c"pthread_create");
    original(&JOIN, c"pthread_join");
    original(&REGISTER, c"__cxa_thread_atexit_impl");
    original(&LOOK_UP, c"getaddrinfo");
    original(&FREE, c"freeaddrinfo");
}

unsafe fn really_create(
    thread: *mut pthread_t,
    attributes: *const pthread_attr_t,
    main: Main,
    argument: *mut c_void,
) -> c_int {
    type Create =
        unsafe extern "C" fn(*mut pthread_t, *const pthread_attr_t, Main, *mut c_void) -> c_int;
    let found = original(&CREATE, c"pthread_create");
    // SAFETY: this is the function's type, and the caller vouches for its arguments.
    unsafe { std::mem::transmute::<usize, Create>(found)(thread, attributes, main, argument) }
}

unsafe fn really_join(thread: pthread_t, result: *mut *mut c_void) -> c_int {
    type Join = unsafe extern "C" fn(pthread_t, *mut *mut c_void) -> c_int;
    let found = original(&JOIN, c"pthread_join");
    // SAFETY: as above.
    unsafe { std::mem::transmute::<usize, Join>(found)(thread, result) }
}

/// The C library's own `getaddrinfo`.
pub(super) unsafe fn really_look_up(
    name: *const c_char,
    service: *const c_char,
    hints: *const libc::addrinfo,
    found: *mut *mut libc::addrinfo,
) -> c_int {
    type LookUp = unsafe extern "C" fn(
        *const c_char,
        *const c_char,
        *const libc::addrinfo,
        *mut *mut libc::addrinfo,
    ) -> c_int;
    let known = original(&LOOK_UP, c"getaddrinfo");
    // SAFETY: as above.
    unsafe { std::mem::transmute::<usize, LookUp>(known)(name, service, hints, found) }
}

/// The C library's own `freeaddrinfo`.
pub(super) unsafe fn really_free(found: *mut libc::addrinfo) {
    type Free = unsafe extern "C" fn(*mut libc::addrinfo);
    let known = original(&FREE, c"freeaddrinfo");
    // SAFETY: as above.
    unsafe { std::mem::transmute::<usize, Free>(known)(found) }
}

/// What a simulated thread begins with.
struct Start {
    number: usize,
    main: Main,
    argument: *mut c_void,
}

extern "C" fn simulated(start: *mut c_void) -> *mut c_void {
    // SAFETY: the pointer is that of a box which the creator of the thread gave away.
    let start = unsafe { Box::from_raw(start.cast::<Start>()) };
    World::begin(start.number);
    let result = (start.main)(start.argument);
    // The C library would do this after the thread has left the simulation.
    run_destructors();
    World::end();
    result
}

/// Each life of a host is a process of its own.
#[unsafe(no_mangle)]
extern "C" fn getpid() -> libc::pid_t {
    let process = enter().and_then(|world| world.lock().process());
    process.unwrap_or_else(|| real!(SYS_getpid) as libc::pid_t)
}

/// # Safety
///
/// As in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_create(
    thread: *mut pthread_t,
    attributes: *const pthread_attr_t,
    main: Main,
    argument: *mut c_void,
) -> c_int {
    let Some(world) = enter() else {
        // SAFETY: the caller vouches for the arguments.
        return unsafe { really_create(thread, attributes, main, argument) };
    };
    world.point();
    let number = world.start_thread();
    let start = Box::into_raw(Box::new(Start {
        number,
        main,
        argument,
    }));
    // SAFETY: the caller vouches for the other arguments, and `simulated` owns the box.
    let result = unsafe { really_create(thread, attributes, simulated, start.cast()) };
    let mut state = world.lock();
    if result == 0 {
        // SAFETY: the C library has written the handle. The thread waits for the baton.
        state.threads[number].pthread = unsafe { *thread };
    } else {
        state.threads[number].run = Run::Over;
        // SAFETY: no thread has begun, so the box is still there.
        drop(unsafe { Box::from_raw(start) });
    }
    result
}

/// # Safety
///
/// As in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_join(thread: pthread_t, result: *mut *mut c_void) -> c_int {
    if let Some(world) = enter() {
        world.point();
        let mut state = world.lock();
        let number = state.thread_of(thread);
        // The handler of a signal does not end the wait.
        while let Some(number) = number.filter(|it| state.threads[*it].run != Run::Over) {
            world.wait(state, Wait::End(number), NEVER);
            state = world.lock();
        }
    }
    // The thread has passed its last point, so this is short.
    // SAFETY: the caller vouches for the arguments.
    unsafe { really_join(thread, result) }
}

/// # Safety
///
/// As in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_setname_np(_: pthread_t, name: *const c_char) -> c_int {
    // The standard library names each thread from within it.
    if let Some(world) = enter() {
        // SAFETY: the caller passes a text that ends with a zero byte.
        let name = unsafe { std::ffi::CStr::from_ptr(name) };
        world.lock().set_name(&name.to_string_lossy());
    }
    // SAFETY: the name is valid, as above. It names the calling thread.
    unsafe {
        raw::answer(
            libc::SYS_prctl,
            [libc::PR_SET_NAME as usize, name as usize, 0, 0, 0, 0],
        );
    }
    0
}

#[unsafe(no_mangle)]
extern "C" fn sched_yield() -> c_int {
    match enter() {
        Some(world) => world.give_way(),
        None => _ = real!(SYS_sched_yield),
    }
    0
}

thread_local! {
    /// The destructors of the thread-local values of a simulated thread. It needs none itself.
    static DESTRUCTORS: ManuallyDrop<UnsafeCell<Vec<(Destructor, *mut c_void)>>> =
        const { ManuallyDrop::new(UnsafeCell::new(Vec::new())) };
}

/// Registers a destructor of a thread-local value.
///
/// # Safety
///
/// As in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn __cxa_thread_atexit_impl(
    destructor: Destructor,
    value: *mut c_void,
    object: *mut c_void,
) -> c_int {
    type Register = unsafe extern "C" fn(Destructor, *mut c_void, *mut c_void) -> c_int;
    if crate::world::me().is_none() {
        let found = original(&REGISTER, c"__cxa_thread_atexit_impl");
        // SAFETY: this is the function's type, and the caller vouches for its arguments.
        let register = unsafe { std::mem::transmute::<usize, Register>(found) };
        // SAFETY: as above.
        return unsafe { register(destructor, value, object) };
    }
    // SAFETY: the list is this thread's, and no other reference to it lives now.
    DESTRUCTORS.with(|all| unsafe { (*all.get()).push((destructor, value)) });
    0
}

/// Calls the destructors of the calling thread, the last one first. They may register more.
fn run_destructors() {
    loop {
        // SAFETY: the list is this thread's, and the reference ends before the call.
        let last = DESTRUCTORS.with(|all| unsafe { (*all.get()).pop() });
        let Some((destructor, value)) = last else {
            return;
        };
        // SAFETY: it was registered for this value, and is called once.
        unsafe { destructor(value) };
    }
}

/// The calls that the standard library makes by number.
///
/// # Safety
///
/// As the system says for call `number`.
#[unsafe(no_mangle)]
unsafe extern "C" fn syscall(
    number: c_long,
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    e: usize,
    f: usize,
) -> c_long {
    match number {
        libc::SYS_kill => return signals::kill(a as libc::pid_t, b as c_int).into(),
        // `tgkill` names a process, and there is none of the simulated number: it fails.
        libc::SYS_tkill => signals::refuse_on_host("`tkill` by its number"),
        libc::SYS_rt_sigqueueinfo | libc::SYS_rt_tgsigqueueinfo => {
            signals::refuse_on_host("`sigqueue` by its number");
        }
        libc::SYS_setitimer => signals::refuse_on_host("`setitimer` by its number"),
        libc::SYS_timer_create => signals::refuse_on_host("`timer_create` by its number"),
        _ => {}
    }
    match number {
        // SAFETY: the caller vouches for the arguments.
        libc::SYS_futex => unsafe { futex(a, b as c_int, c as u32, d, f as u32) },
        libc::SYS_getrandom => {
            // SAFETY: as above.
            unsafe { libc::getrandom(a as *mut c_void, b, c as libc::c_uint) as c_long }
        }
        libc::SYS_clock_gettime => {
            // SAFETY: as above.
            unsafe { libc::clock_gettime(a as libc::clockid_t, b as *mut timespec).into() }
        }
        libc::SYS_sched_yield => sched_yield().into(),
        // SAFETY: a call with numbers alone.
        libc::SYS_flock => unsafe { libc::flock(a as c_int, b as c_int) }.into(),
        // SAFETY: as above.
        libc::SYS_fsync => unsafe { libc::fsync(a as c_int) }.into(),
        // SAFETY: as above.
        libc::SYS_fdatasync => unsafe { libc::fdatasync(a as c_int) }.into(),
        // SAFETY: as above.
        libc::SYS_openat => unsafe {
            libc::openat(
                a as c_int,
                b as *const c_char,
                c as c_int,
                d as libc::mode_t,
            )
            .into()
        },
        // SAFETY: as above.
        libc::SYS_renameat2 => unsafe {
            let (from, to) = (b as *const c_char, d as *const c_char);
            libc::renameat2(a as c_int, from, c as c_int, to, e as libc::c_uint).into()
        },
        // SAFETY: as above.
        libc::SYS_statx => unsafe {
            let path = b as *const c_char;
            libc::statx(
                a as c_int,
                path,
                c as c_int,
                d as libc::c_uint,
                e as *mut libc::statx,
            )
            .into()
        },
        libc::SYS_clone | libc::SYS_clone3 | libc::SYS_execve => {
            outside::refuse_child(|| format!("syscall({number})"));
            // SAFETY: as above.
            unsafe { raw::call(number, [a, b, c, d, e, f]) as c_long }
        }
        _ => {
            if !SAFE.contains(&number) {
                outside::leaves(|| format!("syscall({number})"));
            }
            // SAFETY: as above.
            unsafe { raw::call(number, [a, b, c, d, e, f]) as c_long }
        }
    }
}

/// Calls whose answers say nothing of the world outside.
const SAFE: [c_long; 5] = [
    libc::SYS_gettid,
    libc::SYS_membarrier,
    libc::SYS_madvise,
    libc::SYS_prctl,
    libc::SYS_sched_setaffinity,
];

/// # Safety
///
/// `address` is that of a futex, and `d` of a time if the operation has one.
unsafe fn futex(address: usize, operation: c_int, value: u32, d: usize, bits: u32) -> c_long {
    let entered = enter();
    let kind = operation & !(libc::FUTEX_PRIVATE_FLAG | libc::FUTEX_CLOCK_REALTIME);
    let world = match (entered, kind) {
        (
            Some(world),
            libc::FUTEX_WAIT | libc::FUTEX_WAIT_BITSET | libc::FUTEX_WAKE | libc::FUTEX_WAKE_BITSET,
        ) => world,
        _ => {
            let args = [
                address,
                operation as usize,
                value as usize,
                d,
                0,
                bits as usize,
            ];
            // SAFETY: the caller vouches for the arguments.
            return unsafe { raw::call(libc::SYS_futex, args) as c_long };
        }
    };
    world.point();
    let mut state = world.lock();
    if matches!(kind, libc::FUTEX_WAKE | libc::FUTEX_WAKE_BITSET) {
        let mut woken = 0;
        while woken < value {
            let waiting = state.waiting(Wait::Futex(address));
            if waiting.is_empty() {
                break;
            }
            let which = state.which(waiting.len());
            state.wake_one(waiting[which]);
            woken += 1;
        }
        return woken.into();
    }
    let until = match d {
        0 => NEVER,
        _ => {
            // SAFETY: the caller passes a valid time.
            let time = nanos(unsafe { *(d as *const timespec) });
            let is_wall = operation & libc::FUTEX_CLOCK_REALTIME != 0;
            match (kind, is_wall) {
                (libc::FUTEX_WAIT, _) => state.ahead(time),
                (_, true) => state.clocks().when(Clock::Wall, time),
                _ => state.clocks().when(Clock::Monotonic, time),
            }
        }
    };
    loop {
        // The thread with the baton is the only one that could change the word now.
        // SAFETY: the caller passes the address of a word that lives as long as somebody waits.
        let now = unsafe { std::ptr::read_volatile(address as *const u32) };
        if now != value {
            return fail(libc::EAGAIN).into();
        }
        let chance = state.plan.spurious;
        if state.happens(Class::Early, chance) {
            return fail(libc::EINTR).into();
        }
        match world.wait(state, Wait::Futex(address), until) {
            Ended::Event => return 0,
            Ended::Time => return fail(libc::ETIMEDOUT).into(),
            Ended::Nothing => state = world.lock(),
            // A wake during the handler had no waiter to find: look at the word again.
            Ended::Handler { restarts } if restarts && d == 0 => state = world.lock(),
            Ended::Handler { .. } => return fail(libc::EINTR).into(),
        }
    }
}
