//! `block_on` of a current-thread runtime: the calling thread is its only worker meanwhile.
//!
//! The worker has no thread of its own. Between two calls of `block_on` its queues wait in a
//! *seat*, and nothing of the runtime runs. A thread in `block_on` takes the queues out of the
//! seat, runs the loop of a worker, and puts them back. Several threads may be in `block_on` at a
//! time. Those that find the seat empty wait for their futures, which the worker's thread wakes;
//! and for the seat, since the worker may leave before these futures are ready.
//!
//! The worker's thread polls the future of `block_on` in turn with other jobs. The future has a
//! state word, as every `block_on` has: see `paused/quiescence.rs`. The word says `WAITS` while the
//! worker runs other jobs or sleeps. A thread that wakes the future changes the word, and then
//! wakes the worker as after a push to any of its queues. The worker checks the word at each turn
//! of its loop, and between the announcement of its sleep and the sleep.

use std::{
    fmt,
    future::{Future, poll_fn},
    panic::{AssertUnwindSafe, Location, catch_unwind, resume_unwind},
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll, Waker, ready},
    time::Instant,
};

use slab::Slab;
use tourbillon_shards::{Sleep, TypeName};

use crate::{
    engine::{
        block_on,
        context::{
            entered,
            placement::{Choice, with_home_of},
            tolerance,
        },
        core::WorkerShard,
        local::Local,
        paused::quiescence::BlockedGuard,
        shared::Shared,
        shutdown, worker,
    },
    sys,
    sys::sync::{Mutex, thread},
    util::{budget, contained::each, lock::lock},
};

/// How often [`run_until_empty`](Seat::run_until_empty) checks for tasks, in ns.
const RECHECK: u64 = 1_000_000;

/// Polls the future of `block_on`, and keeps its output.
type PollRoot<'a> = dyn FnMut(&mut Context<'_>) -> Poll<()> + 'a;

/// Where the only worker of a current-thread runtime waits for a thread.
pub(crate) struct Seat(Mutex<State>);

struct State {
    /// The queues of the worker, while no thread is the worker.
    local: Option<Box<Local>>,
    /// The wakers of the threads that wait for the seat.
    waiting: Slab<Waker>,
}

impl fmt::Debug for Seat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_taken = lock(&self.0).local.is_none();
        f.debug_struct("Seat").field("is_taken", &is_taken).finish()
    }
}

impl Seat {
    /// Creates the seat of a worker that has not run yet.
    pub(crate) fn new(local: Local) -> Self {
        Self(Mutex::new(State {
            local: Some(Box::new(local)),
            waiting: Slab::new(),
        }))
    }

    /// Runs a future to completion on the calling thread, which is the worker meanwhile, unless
    /// another thread is.
    #[track_caller]
    pub(crate) fn block_on<F: Future>(&self, shared: &Arc<Shared>, future: F) -> F::Output {
        let called = Location::caller();
        let future = pin!(Some(future));
        let mut future = DroppedInside { shared, future };
        let mut output = None;
        let mut poll = |cx: &mut Context<'_>| {
            output = Some(ready!(future.get().poll(cx)));
            Poll::Ready(())
        };
        self.run(shared, TypeName::of::<F>(), called, &mut poll);
        output.expect("the future is ready")
    }

    /// Polls a future until it is ready. A generic function would be compiled in the user's crate,
    /// which may be built without optimizations though this crate is built with them.
    fn run(
        &self,
        shared: &Arc<Shared>,
        name: &'static TypeName,
        called: &'static Location<'static>,
        poll: &mut PollRoot<'_>,
    ) {
        loop {
            let taken = lock(&self.0).local.take();
            if let Some(local) = taken {
                let (seat, local) = (self, Some(local));
                return Seated { seat, local }.drive(shared, name, called, poll);
            }
            // What the future arms and spawns goes to this runtime.
            let _entered = entered::enter(shared);
            let register = |waker: &Waker| Waiting::register(self, waker);
            let is_over = || lock(&self.0).local.is_some();
            // Polls the future while another thread is the worker, or until it is ready.
            let future = pin!(poll_fn(&mut *poll));
            if block_on::drive_unless(shared, future, register, is_over).is_some() {
                return;
            }
        }
    }

    /// Runs the worker on this thread until the runtime has no tasks, or until `deadline`. Returns
    /// whether it has none.
    pub(crate) fn run_until_empty(&self, shared: &Arc<Shared>, deadline: Option<Instant>) -> bool {
        if shared.tasks.is_empty() {
            return true;
        }
        // A paused clock stands still while a blocking job runs, and then so does a timer of this
        // thread. So another thread waits for the deadline by the kernel's clock.
        let woken = Arc::new(Mutex::new(None::<Waker>));
        let waiter = shared.clock.was_paused().then(|| {
            let (shared, woken) = (shared.clone(), woken.clone());
            thread::Builder::new().spawn(move || {
                shared.tasks.wait_until_empty(deadline);
                let waker = lock(&woken).take();
                // After unlocking, as for all wakers.
                each(waker, Waker::wake);
            })
        });
        let is_past = || deadline.is_some_and(|at| at <= sys::clock::instant());
        let mut recheck = None;
        let poll = |cx: &mut Context<'_>| {
            // The waker first: the other thread finds it, or this one sees below why it was woken.
            let before = lock(&woken).replace(cx.waker().clone());
            drop(before);
            // Check each time before the wait: a wait of this thread lets a paused clock go on.
            if shared.tasks.is_empty() || is_past() {
                // Cancel the timer while this thread is the worker: it is one step for its owner.
                recheck = None;
                return Poll::Ready(());
            }
            // A task that ends wakes nobody here.
            let at = shared.clock.now_for_deadline() + RECHECK;
            let arm = |home: &Arc<WorkerShard>| Sleep::with_waker(home, at, cx.waker());
            recheck = with_home_of(shared, Choice::Stay, arm).ok();
            if recheck.is_none() {
                // The runtime ends, and its tasks with it.
                cx.waker().wake_by_ref();
            }
            Poll::Pending
        };
        self.block_on(shared, poll_fn(poll));
        if let Some(Ok(waiter)) = waiter {
            let _ = waiter.join();
        }
        shared.tasks.is_empty()
    }

    /// Ends the worker of a runtime that was told to stop. No thread is in `block_on` any more.
    pub(crate) fn end(&self, shared: &Arc<Shared>) {
        let local = lock(&self.0).local.take();
        if let Some(local) = local {
            // Its jobs stay in its deque, where `leave` finds and ends them: this worker is the
            // last one, as there are no others.
            drop(local);
            shutdown::leave(shared);
        }
    }
}

/// A future that is dropped in the context of the runtime, as it is polled. Its destructor may
/// spawn.
struct DroppedInside<'a, F> {
    shared: &'a Arc<Shared>,
    /// `None` only at the end of the drop.
    future: Pin<&'a mut Option<F>>,
}

impl<F> DroppedInside<'_, F> {
    fn get(&mut self) -> Pin<&mut F> {
        let future = self.future.as_mut().as_pin_mut();
        future.expect("it is dropped with `self`")
    }
}

impl<F> Drop for DroppedInside<'_, F> {
    fn drop(&mut self) {
        let _entered = entered::enter(self.shared);
        self.future.set(None);
    }
}

/// Lists a thread as waiting for the seat, until it is dropped.
struct Waiting<'a> {
    seat: &'a Seat,
    place: usize,
}

impl<'a> Waiting<'a> {
    /// Lists a thread that is woken by `waker`. Returns `None` if the seat is taken by no thread.
    fn register(seat: &'a Seat, waker: &Waker) -> Option<Self> {
        let mut state = lock(&seat.0);
        // Under the mutex: a thread that leaves the seat later finds the waker.
        (state.local.is_none()).then(|| Self {
            seat,
            place: state.waiting.insert(waker.clone()),
        })
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let waker = lock(&self.seat.0).waiting.remove(self.place);
        // After unlocking, as for all wakers.
        drop(waker);
    }
}

/// The worker's queues, with the thread that has taken them. They go back when this is dropped.
struct Seated<'a> {
    seat: &'a Seat,
    /// `None` only while this is dropped.
    local: Option<Box<Local>>,
}

impl Seated<'_> {
    /// Runs the future, and the worker's loop in between.
    fn drive(
        &self,
        shared: &Arc<Shared>,
        name: &'static TypeName,
        called: &'static Location<'static>,
        poll: &mut PollRoot<'_>,
    ) {
        let local = self.local.as_ref().expect("it is taken at the end only");
        // A runtime that the thread has entered takes precedence over its worker: enter this one.
        let _entered = entered::any_entered().then(|| entered::push(shared));
        // List the thread before the first poll: a paused clock must not advance while the future
        // runs.
        let thread = shared.quiescence.enter_as(shared, local);
        let waker = thread.waker();
        // This thread may be in a poll of another runtime. Its budget and its tolerance are not for
        // the jobs of this one.
        let drives = || {
            worker::run_as(local, |worker| {
                worker.root = Some(thread.blocked().clone());
                let mut cx = Context::from_waker(&waker);
                loop {
                    // Leave the loop of the worker in order before a panic goes on to the caller.
                    let poll = || catch_unwind(AssertUnwindSafe(|| poll(&mut cx)));
                    match worker.poll_root(name, called, poll) {
                        Ok(Poll::Ready(())) => return Some(Ok(())),
                        Err(panic) => return Some(Err(panic)),
                        Ok(Poll::Pending) => take_turns(worker, &thread),
                    }
                    if worker.shared.has_panicked() {
                        return None;
                    }
                }
            })
        };
        let output = budget::apart(|| tolerance::apart(drives));
        match output {
            Some(output) => output.unwrap_or_else(|panic| resume_unwind(panic)),
            None => panic!(
                "a spawned task panicked and the runtime is configured to shut down on unhandled \
                 panic"
            ),
        }
    }
}

/// Runs other jobs for one turn at least, until the future of `block_on` is woken.
fn take_turns(worker: &mut worker::Worker<'_>, thread: &BlockedGuard<'_>) {
    // If the future was woken while it was polled, the loop still takes one turn: a future that
    // wakes itself must not starve the tasks.
    thread.begin_wait();
    loop {
        // Panics of callbacks and tasks are caught where those run. Panics of user destructors and
        // wakers end up here; the worker then goes on.
        worker.core.contain(|| worker.run());
        if worker.root_is_woken() {
            break;
        }
    }
    // While this thread counts as a searcher, an injected job wakes no worker.
    if worker.search.is_on {
        worker.found();
    }
    thread.end_wait();
}

impl Drop for Seated<'_> {
    fn drop(&mut self) {
        let wakers: Vec<Waker> = {
            let mut state = lock(&self.seat.0);
            state.local = self.local.take();
            if state.waiting.is_empty() {
                return;
            }
            state
                .waiting
                .iter()
                .map(|(_, waker)| waker.clone())
                .collect()
        };
        // One of these threads takes the seat. Another one may just return, so wake all.
        each(wakers, Waker::wake);
    }
}
