//! The companion with feature `tokio-compat`.

use std::{
    cell::{Cell, RefCell},
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    ptr,
    sync::{Arc, OnceLock, Weak},
    thread,
    time::{Duration, Instant},
};

use tokio::runtime::{Builder, EnterGuard, Handle, Runtime};

use crate::{
    engine::{
        context::entered::{self, Entered},
        shared::Shared,
    },
    sys,
    sys::sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    util::{contained::forget, lock::lock, tokio_budget},
};

/// The panic of `pause` on a runtime that has a companion.
const NO_PAUSE: &str = "the clock of a runtime with a tokio companion cannot be paused: it would \
    jump while tokio still has something to do";

thread_local! {
    /// On a thread of a companion: keeps the runtime entered that the companion belongs to.
    static ENTERED: RefCell<Option<Entered>> = const { RefCell::new(None) };
    /// The companion whose thread this is, or null. Compared, and never followed.
    static OWNER: Cell<*const Companion> = const { Cell::new(ptr::null()) };
}

/// The companion of a runtime, once it has been started.
#[derive(Debug)]
pub(crate) struct Companion {
    /// Whether all threads of the runtime enter the companion, and not only `Compat`.
    is_everywhere: bool,
    /// Set once, when the companion is started.
    handle: OnceLock<Handle>,
    state: Mutex<State>,
    /// How many threads of the companion have started and not stopped.
    threads: Arc<AtomicUsize>,
}

/// Whether there is a companion. It goes through the states in this order, and may skip `Running`.
#[derive(Debug)]
enum State {
    NotStarted,
    Running(Runtime),
    Ended,
}

/// Keeps a companion entered until it is dropped.
pub(crate) type EnteredCompanion<'a> = EnterGuard<'a>;

impl Companion {
    /// Creates the companion of a runtime. It does not run yet. If `is_everywhere`, all threads of
    /// the runtime are to enter it.
    pub(crate) fn new(is_everywhere: bool) -> Self {
        Self {
            is_everywhere,
            handle: OnceLock::new(),
            state: Mutex::new(State::NotStarted),
            threads: Arc::default(),
        }
    }

    /// Starts the companion if all threads are to enter it.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`start`](Companion::start).
    pub(crate) fn start_if_enabled(&self, shared: &Arc<Shared>) -> io::Result<()> {
        if self.is_everywhere {
            self.start(shared)?;
        }
        Ok(())
    }

    /// Starts the companion if it does not run.
    ///
    /// # Errors
    ///
    /// Returns an error if the runtime has been shut down, if its clock is paused, or if the system
    /// refuses a thread or a descriptor.
    pub(crate) fn start(&self, shared: &Arc<Shared>) -> io::Result<()> {
        // Several threads may poll a `Compat` for the first time: one of them starts the companion.
        let mut state = lock(&self.state);
        match *state {
            State::NotStarted => {}
            State::Running(_) => return Ok(()),
            State::Ended => return Err(io::Error::other("the runtime has been shut down")),
        }
        if shared.clock.is_paused() {
            return Err(io::Error::other(NO_PAUSE));
        }
        let runtime = self.build(shared)?;
        // Store the runtime first: a thread that finds the handle may rely on it.
        let handle = runtime.handle().clone();
        *state = State::Running(runtime);
        let is_first = self.handle.set(handle).is_ok();
        debug_assert!(is_first, "the companion is started once");
        Ok(())
    }

    /// Builds the tokio runtime, with one thread for each worker of `shared`.
    fn build(&self, shared: &Arc<Shared>) -> io::Result<Runtime> {
        // The threads do not keep the runtime alive before they enter it: it owns the companion.
        let weak = Arc::downgrade(shared);
        let (starting, stopping) = (self.threads.clone(), self.threads.clone());
        let mut builder = Builder::new_multi_thread();
        builder
            .worker_threads(shared.recorders.len())
            .max_blocking_threads(shared.config.max_blocking_threads)
            .thread_keep_alive(shared.config.thread_keep_alive)
            .thread_name("tourbillon-tokio")
            .enable_all()
            .on_thread_start(move || {
                starting.fetch_add(1, Ordering::Relaxed);
                begin_thread(&weak);
            })
            .on_thread_stop(move || {
                // The reference to the runtime is dropped outside of the borrow.
                let left = ENTERED.with_borrow_mut(Option::take);
                drop(left);
                // The thread that shuts the companion down sees what this thread has done.
                stopping.fetch_sub(1, Ordering::Release);
            });
        let mut trial = thread::Builder::new();
        if let Some(bytes) = shared.config.thread_stack_size {
            builder.thread_stack_size(bytes);
            trial = trial.stack_size(bytes);
        }
        // tokio panics, and keeps its descriptors, if the system refuses the first thread. So try
        // to start one before.
        let _ = trial.spawn(|| ())?.join();
        // The system may still refuse the next one.
        let built = catch_unwind(AssertUnwindSafe(|| builder.build()));
        built.unwrap_or_else(|panic| {
            forget(panic);
            Err(io::Error::other("tokio could not start its threads"))
        })
    }

    /// Enters the companion until the guard is dropped. Returns `None` if there is none.
    ///
    /// Guards of one thread must be dropped in the reverse order, or tokio panics.
    pub(crate) fn enter(&self) -> Option<EnterGuard<'_>> {
        self.handle.get().map(Handle::enter)
    }

    /// Enters the companion if all threads of the runtime are to do so.
    pub(crate) fn enter_if_enabled(&self) -> Option<EnterGuard<'_>> {
        if self.is_everywhere {
            self.enter()
        } else {
            None
        }
    }

    /// Runs `f`. If all threads are to enter the companion, each poll in `f` by this runtime has
    /// tokio's budget.
    pub(crate) fn with_budget<R>(&self, f: impl FnOnce() -> R) -> R {
        if self.is_everywhere {
            tokio_budget::with_budget(f)
        } else {
            f()
        }
    }

    /// Returns whether the calling thread is one of this companion.
    pub(crate) fn is_of_this_thread(&self) -> bool {
        OWNER
            .try_with(|owner| ptr::eq(owner.get(), self))
            .unwrap_or(false)
    }

    /// Calls `pause`, which pauses the clock of the runtime. No companion is started meanwhile:
    /// [`start`](Companion::start) looks at the clock under the same lock.
    ///
    /// # Panics
    ///
    /// Panics if there is a companion, since the clock of its runtime cannot be paused.
    #[track_caller]
    pub(crate) fn pause_by(&self, pause: impl FnOnce()) {
        let state = lock(&self.state);
        if self.handle.get().is_none() {
            return pause();
        }
        drop(state);
        panic!("{NO_PAUSE}");
    }

    /// Ends the companion when the threads of `shared`, which stops, have ended. Does not wait:
    /// blocking jobs of `shared` may use the companion until they have ended.
    pub(crate) fn end_after(&self, shared: &Arc<Shared>) {
        let Some(runtime) = self.take() else { return };
        let shared = shared.clone();
        on_another_thread(runtime, move |runtime| {
            shared.lifecycle.wait_for_end(None);
            shared.blocking.wait_for_end(&shared, None);
            runtime.shutdown_background();
        });
    }

    /// Ends the companion, and waits until its threads have ended, or until `deadline`. Returns
    /// whether they have. The threads of its runtime have ended before.
    pub(crate) fn wait_for_end(&self, deadline: Option<Instant>) -> bool {
        let Some(runtime) = self.take() else {
            return true;
        };
        let left = deadline.map(|at| at.saturating_duration_since(sys::clock::instant()));
        // tokio panics if a thread waits that is polling a task of any tokio runtime. A program
        // whose `main` is tokio's may end this runtime there: so another thread waits in its place.
        if Handle::try_current().is_ok() {
            let ending = on_another_thread(runtime, move |runtime| shut_down(runtime, left));
            _ = ending.map(thread::JoinHandle::join);
        } else {
            shut_down(runtime, left);
        }
        self.threads.load(Ordering::Acquire) == 0
    }

    /// Takes the tokio runtime, which this thread must end. From then on none is started.
    fn take(&self) -> Option<Runtime> {
        match std::mem::replace(&mut *lock(&self.state), State::Ended) {
            State::Running(runtime) => Some(runtime),
            State::NotStarted | State::Ended => None,
        }
    }
}

/// Prepares a thread of the companion: it enters the runtime that the companion belongs to.
fn begin_thread(shared: &Weak<Shared>) {
    // The runtime may have ended meanwhile. There is nothing to enter then.
    if let Some(shared) = shared.upgrade() {
        shared.mask.take();
        OWNER.set(&shared.companion);
        ENTERED.set(Some(entered::push(&shared)));
    }
}

/// Ends a tokio runtime, and waits for at most `left`.
fn shut_down(runtime: Runtime, left: Option<Duration>) {
    match left {
        Some(left) => runtime.shutdown_timeout(left),
        None => drop(runtime),
    }
}

/// Passes a tokio runtime to `end`, on a thread of its own. If the system gives no thread, this
/// ends the runtime without waiting, and returns `None`.
fn on_another_thread(
    runtime: Runtime,
    end: impl FnOnce(Runtime) + Send + 'static,
) -> Option<thread::JoinHandle<()>> {
    // If the thread cannot be started, its closure is dropped. A tokio runtime may not be dropped
    // just anywhere, so the closure takes it from a slot.
    let slot = Arc::new(Mutex::new(Some(runtime)));
    let taken = slot.clone();
    let end = move || {
        let runtime = lock(&taken).take();
        if let Some(runtime) = runtime {
            end(runtime);
        }
    };
    let thread = thread::Builder::new().name("tourbillon-tokio-end".to_owned());
    let ending = sys::cpu::with_all_cores(|| thread.spawn(end));
    if ending.is_err() {
        let runtime = lock(&slot).take();
        if let Some(runtime) = runtime {
            runtime.shutdown_background();
        }
    }
    ending.ok()
}
