//! Arming: from tasks and callbacks on the workers, and from outside threads.

use std::{
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

use tourbillon::{
    Handle, JoinHandle, Runtime, Timer,
    task::yield_now,
    time::{Instant, sleep, sleep_until},
};

use super::{ledger::Ledger, plan::Plan};
use crate::ledger::Granted;

/// Number of timers to arm before yielding.
const CHUNK: u32 = 256;
/// Sleep between two rounds of arming late timers.
const NAP: Duration = Duration::from_micros(500);

/// The ledger and the plan. They live as long as the process.
#[derive(Clone, Copy)]
pub(super) struct Context {
    pub(super) ledger: &'static Ledger,
    pub(super) plan: &'static Plan,
}

/// How to arm a timer: on the current worker, or through a handle from outside.
#[derive(Clone, Copy)]
enum Place<'a> {
    Here,
    Through(&'a Handle),
}

impl Place<'_> {
    fn after(self, delay: Duration, f: impl FnOnce() + Send + 'static) -> Timer {
        match self {
            Place::Here => tourbillon::after(delay, f),
            Place::Through(handle) => handle.after(delay, f),
        }
    }

    fn spawn(self, task: impl Future<Output = ()> + Send + 'static) -> JoinHandle<()> {
        match self {
            Place::Here => tourbillon::spawn(task),
            Place::Through(handle) => handle.spawn(task),
        }
    }

    fn at(self, deadline: Instant, f: impl FnOnce() + Send + 'static) -> Timer {
        match self {
            Place::Here => tourbillon::at(deadline, f),
            Place::Through(handle) => handle.at(deadline, f),
        }
    }
}

impl Context {
    /// Arms an early timer.
    fn arm_early(self, index: u32, place: Place<'_>) {
        self.arm(index, self.plan.deadline(index), place);
    }

    /// Arms a late timer.
    fn arm_late(self, index: u32, place: Place<'_>) {
        let deadline = self.ledger.clock.now() + self.plan.late_delay(index);
        self.arm(index, deadline, place);
    }

    fn arm(self, index: u32, deadline: u64, place: Place<'_>) {
        let Context { ledger, plan } = self;
        if plan.is_task(index) {
            ledger.grant(index, Granted::at(deadline));
            let until = ledger.clock.instant(deadline);
            drop(place.spawn(async move {
                sleep_until(until).await;
                ledger.ran(index);
            }));
            return ledger.enter(index, None);
        }
        let callback = move || ledger.ran(index);
        let timer = if plan.is_armed_by_delay(index) {
            let delay = deadline.saturating_sub(ledger.clock.now());
            ledger.grant(index, Granted::after(ledger.clock, delay));
            place.after(Duration::from_nanos(delay), callback)
        } else {
            ledger.grant(index, Granted::at(deadline));
            place.at(ledger.clock.instant(deadline), callback)
        };
        ledger.enter(index, Some(timer));
    }
}

/// Hands out indices chunk by chunk.
struct Chunks {
    all: Range<u32>,
    given: AtomicUsize,
}

impl Chunks {
    fn new(all: Range<u32>) -> Arc<Self> {
        Arc::new(Self {
            all,
            given: AtomicUsize::new(0),
        })
    }

    fn next(&self) -> Option<Range<u32>> {
        let chunk = self.given.fetch_add(1, Relaxed);
        let start = (self.all.start as usize).checked_add(chunk.checked_mul(CHUNK as usize)?)?;
        let start = u32::try_from(start).ok().filter(|&s| s < self.all.end)?;
        Some(start..start.saturating_add(CHUNK).min(self.all.end))
    }
}

/// Starts to arm the early timers: half on the workers, by tasks and callbacks, half outside.
/// Returns the outside threads.
pub(super) fn start_early(
    runtime: &Runtime,
    context: Context,
    outside: u32,
) -> Vec<thread::JoinHandle<()>> {
    let early = context.plan.early();
    let middle = if outside == 0 { early } else { early / 2 };
    // Split the early timers between the workers and the outside threads.
    let inner = Chunks::new(0..middle);
    let outer = Chunks::new(middle..early);
    // On each worker, a task and a chain of callbacks arm, so that both paths are tested.
    for _ in 0..runtime.metrics().num_workers() {
        let chunks = inner.clone();
        drop(runtime.spawn(async move {
            while let Some(chunk) = chunks.next() {
                chunk.for_each(|index| context.arm_early(index, Place::Here));
                yield_now().await;
            }
        }));
        let chunks = inner.clone();
        drop(
            runtime
                .handle()
                .after(Duration::ZERO, move || arm_by_callbacks(context, chunks)),
        );
    }
    let threads = (0..outside).map(|_| {
        let (chunks, handle) = (outer.clone(), runtime.handle().clone());
        thread::spawn(move || {
            while let Some(chunk) = chunks.next() {
                chunk.for_each(|index| context.arm_early(index, Place::Through(&handle)));
            }
        })
    });
    threads.collect()
}

/// Arms a chunk, then a timer whose callback arms the next chunk.
fn arm_by_callbacks(context: Context, chunks: Arc<Chunks>) {
    if let Some(chunk) = chunks.next() {
        chunk.for_each(|index| context.arm_early(index, Place::Here));
        drop(tourbillon::after(Duration::ZERO, move || {
            arm_by_callbacks(context, chunks);
        }));
    }
}

/// The late timers of one task or thread: every `stride`-th index.
struct Late {
    context: Context,
    next: u32,
    stride: u32,
}

impl Late {
    /// Arms the timers whose moment has come. Returns `false` at the end.
    fn arm_some(&mut self, place: Place<'_>) -> bool {
        let now = self.context.ledger.clock.now();
        let plan = self.context.plan;
        while plan.late().contains(&self.next) {
            if plan.late_arming(self.next) > now {
                return true;
            }
            self.context.arm_late(self.next, place);
            let Some(next) = self.next.checked_add(self.stride) else {
                break;
            };
            self.next = next;
        }
        false
    }
}

/// The tasks and threads that arm the late timers.
pub(super) struct LateArmers<'scope> {
    tasks: Vec<JoinHandle<()>>,
    threads: Vec<thread::ScopedJoinHandle<'scope, ()>>,
}

impl LateArmers<'_> {
    /// Returns whether all late timers are armed.
    pub(super) fn are_done(&self) -> bool {
        self.tasks.iter().all(JoinHandle::is_finished)
            && self.threads.iter().all(|thread| thread.is_finished())
    }
}

/// Starts to arm the late timers, each at its moment, on one task per worker and on the outside
/// threads.
pub(super) fn start_late<'scope>(
    scope: &'scope thread::Scope<'scope, '_>,
    runtime: &Runtime,
    context: Context,
    outside: u32,
) -> LateArmers<'scope> {
    let workers = runtime.metrics().num_workers() as u32;
    // Each task or thread arms every `stride`-th late timer, so all of them have equal shares.
    let late = |number| Late {
        context,
        next: context.plan.late().start.saturating_add(number),
        stride: workers + outside,
    };
    let tasks = (0..workers).map(|number| {
        let mut late = late(number);
        runtime.spawn(async move {
            while late.arm_some(Place::Here) {
                sleep(NAP).await;
            }
        })
    });
    let tasks = tasks.collect();
    let threads = (workers..workers + outside).map(|number| {
        let mut late = late(number);
        let handle = runtime.handle().clone();
        scope.spawn(move || {
            while late.arm_some(Place::Through(&handle)) {
                thread::sleep(NAP);
            }
        })
    });
    let threads = threads.collect();
    LateArmers { tasks, threads }
}
