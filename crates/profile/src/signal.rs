//! The signal handler, and how its memory comes and goes.
//!
//! Each worker has a timer of the kernel that sends it `SIGPROF`, by its processor time. The
//! handler runs on the worker, between two of its instructions:
//!
//! 1. It counts itself in [`INSIDE`], and reads [`SESSION`].
//! 2. It finds the ring of this thread by the value that the timer sends: the number of the session
//!    and the place of the ring.
//! 3. It writes a sample to the ring: registers, a copy of the stack, and what the runtime and
//!    `SpanLayer` say of this thread. All of these are this thread's own, or only read.
//! 4. It counts itself out.
//!
//! So it allocates nothing, takes no lock and never waits. The other threads observe this:
//!
//! | who | what | when |
//! |---|---|---|
//! | the handler | writes to its ring | there is room; otherwise it counts a lost sample |
//! | the profile's thread | reads the rings, walks the stacks, counts equal ones | each 50 ms |
//! | the same | gives new threads a timer and a ring, stops timers of threads that are gone | then |
//! | the same | stops all timers, takes the session away, waits until nobody is inside, frees it | at the end |
//!
//! A signal may come after its timer is gone, even in a later session: then the number is another
//! one, and the handler does nothing. So the handler stays installed for ever. A ring is freed only
//! with its session, since the thread that wrote to it may still be inside.
//!
//! *Why nobody uses a session that is freed*: the count and the pointer are in one order for all
//! threads (`SeqCst`). If a handler reads the pointer before it is taken away, then it was counted
//! before that as well, and the profile's thread sees the count, and waits.
//!
//! One session is there at a time: [`Session::begin`] says so if there is another one.

use std::{
    ffi::{c_int, c_void},
    fs::File,
    io, ptr,
    sync::atomic::{
        AtomicBool, AtomicPtr, AtomicUsize,
        Ordering::{Acquire, Relaxed, Release, SeqCst},
    },
    thread,
    time::Duration,
};

use tourbillon_stacks::{Registers, install_handler};

use crate::{profiling::ProfileError, ring::Ring};

/// What a thread is asked by. Debuggers and other tools know that it is for profilers.
pub(crate) const SIGNAL: c_int = libc::SIGPROF;

/// The most threads of a session, those that have ended included.
const THREADS: usize = 1 << 10;
/// How many bits of a signal's value are the place of a ring.
const PLACE: u32 = 10;

/// The session that handlers write to.
static SESSION: AtomicPtr<Shared> = AtomicPtr::new(ptr::null_mut());
/// How many handlers run.
static INSIDE: AtomicUsize = AtomicUsize::new(0);
/// Whether there is a session.
static IS_TAKEN: AtomicBool = AtomicBool::new(false);
/// The number of the last session.
static LAST: AtomicUsize = AtomicUsize::new(0);

/// What the handlers of a session use.
struct Shared {
    number: usize,
    /// Null for threads that are not there yet. A ring is never replaced.
    rings: [AtomicPtr<Ring>; THREADS],
}

/// The only session, until it is dropped.
pub(crate) struct Session {
    shared: *mut Shared,
    /// How many rings there are.
    rings: usize,
    memory: File,
    samples: usize,
}

// SAFETY: what the pointer leads to may be used on any thread, and is freed by the drop alone.
unsafe impl Send for Session {}

impl Session {
    /// Begins a session with room for so many samples of a thread.
    pub(crate) fn begin(samples: usize) -> Result<Self, ProfileError> {
        if cfg!(not(any(target_arch = "x86_64", target_arch = "aarch64"))) {
            return Err(ProfileError::Unsupported);
        }
        if IS_TAKEN.swap(true, Acquire) {
            return Err(ProfileError::Running);
        }
        let free = || IS_TAKEN.store(false, Release);
        let memory = File::open("/proc/self/mem");
        let memory = memory.map_err(ProfileError::Os).inspect_err(|_| free())?;
        // SAFETY: see `on_signal`.
        let installed = unsafe { install_handler(SIGNAL, on_signal) };
        let installed = installed.map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => ProfileError::SignalTaken,
            _ => ProfileError::Os(error),
        });
        installed.inspect_err(|_| free())?;
        let shared = Box::into_raw(Box::new(Shared {
            number: LAST.fetch_add(1, Relaxed) + 1,
            rings: [const { AtomicPtr::new(ptr::null_mut()) }; THREADS],
        }));
        SESSION.store(shared, SeqCst);
        Ok(Self {
            shared,
            rings: 0,
            memory,
            samples,
        })
    }

    fn shared(&self) -> &Shared {
        // SAFETY: it is freed by the drop.
        unsafe { &*self.shared }
    }

    /// Makes a ring for a further thread. Returns the value by which a signal leads to it, or `None`
    /// if there are too many threads.
    pub(crate) fn add(&mut self) -> io::Result<Option<usize>> {
        let place = self.rings;
        let Some(ring) = self.shared().rings.get(place) else {
            return Ok(None);
        };
        let made = Ring::new(self.samples, &self.memory)?;
        ring.store(Box::into_raw(Box::new(made)), Release);
        self.rings += 1;
        Ok(Some(self.shared().number << PLACE | place))
    }

    /// Returns the rings. Only the owner of the session reads their samples.
    pub(crate) fn rings(&self) -> impl Iterator<Item = &Ring> {
        let rings = self.shared().rings[..self.rings].iter();
        // SAFETY: `add` has made it, and the drop of the session frees it.
        rings.map(|ring| unsafe { &*ring.load(Relaxed) })
    }

    /// Takes the session away from the handlers, and waits until none of them uses it. There are no
    /// timers any more.
    pub(crate) fn close(&self) {
        SESSION.store(ptr::null_mut(), SeqCst);
        while INSIDE.load(SeqCst) > 0 {
            // A thread has lost its processor in the handler.
            thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.close();
        // SAFETY: no handler uses it, none finds it, and no reference to it is left.
        unsafe {
            for ring in &self.shared().rings[..self.rings] {
                drop(Box::from_raw(ring.load(Relaxed)));
            }
            drop(Box::from_raw(self.shared));
        }
        IS_TAKEN.store(false, Release);
    }
}

/// Writes a sample of this thread. It allocates nothing, takes no lock, and calls nothing but the
/// system.
extern "C" fn on_signal(_: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: each thread has its own `errno`, and the interrupted code may be about to read it.
    let errno = unsafe { *libc::__errno_location() };
    INSIDE.fetch_add(1, SeqCst);
    // SAFETY: the owner frees it only while no handler is counted that has seen it.
    let session = unsafe { SESSION.load(SeqCst).as_ref() };
    // SAFETY: the kernel passes it to a handler with `SA_SIGINFO`.
    let info = unsafe { &*info };
    if let Some(session) = session.filter(|_| info.si_code == libc::SI_TIMER) {
        // SAFETY: a signal of a timer has a value.
        let value = unsafe { info.si_value() }.sival_ptr as usize;
        let place = value & (THREADS - 1);
        // SAFETY: a ring is freed with its session.
        let ring = unsafe { session.rings[place].load(Acquire).as_ref() };
        if let Some(ring) = ring.filter(|_| value >> PLACE == session.number) {
            // SAFETY: the timer with this value sends its signals to this thread alone, and all
            // signals are blocked meanwhile. The context is the kernel's.
            unsafe { ring.write(Registers::of_handler(context)) };
        }
    }
    INSIDE.fetch_sub(1, SeqCst);
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
}
