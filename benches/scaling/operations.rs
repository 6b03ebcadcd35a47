//! The operations that are measured and counted.

use std::{
    future::{Future, poll_fn},
    hint::black_box,
    mem,
    ops::Range,
    pin::pin,
    sync::{
        Arc, Barrier, Mutex, MutexGuard,
        atomic::{
            AtomicBool, AtomicUsize,
            Ordering::{AcqRel, Acquire, Release},
        },
        mpsc,
    },
    task::Poll,
    thread,
    time::{Duration, Instant},
};

use futures::task::AtomicWaker;
use tourbillon::{
    Handle, Runtime, Timer,
    runtime::Builder,
    sync::Notify,
    task::{spawn_pinned_by_idx, yield_now},
    time::sleep,
};

const HOUR: Duration = Duration::from_secs(3600);
/// The most timers that a worker refreshes, in turn.
const REFRESHED: usize = 10_000;

/// An operation. Each worker, or each outside thread, does it again and again, all at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// A worker arms callbacks, on its own shard.
    Arm,
    /// A worker cancels its own callbacks.
    Cancel,
    /// A worker refreshes its own callbacks.
    Refresh,
    /// A worker refreshes callbacks of the next worker.
    RefreshPeer,
    /// A worker cancels callbacks of the next worker.
    CancelPeer,
    /// A task spawns a task that ends at once, and waits for it.
    Spawn,
    /// A task yields.
    Yield,
    /// A task wakes another one, and is woken by it.
    Wake,
    /// One worker spawns tasks of some µs for all.
    Steal,
    /// An outside thread arms callbacks, on the shards in turn.
    ArmOutside,
    /// An outside thread arms callbacks, all on one shard.
    ArmOneShard,
    /// A task sleeps for 20 ms, on one worker. The worker searches for work, finds none, and parks.
    Sleep,
    /// An outside thread spawns a task while all workers sleep, and waits for it.
    SpawnOutside,
}

impl Operation {
    pub const ALL: [Self; 13] = [
        Self::Arm,
        Self::Cancel,
        Self::Refresh,
        Self::RefreshPeer,
        Self::CancelPeer,
        Self::Spawn,
        Self::Yield,
        Self::Wake,
        Self::Steal,
        Self::ArmOutside,
        Self::ArmOneShard,
        Self::Sleep,
        Self::SpawnOutside,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Arm => "arm",
            Self::Cancel => "cancel",
            Self::Refresh => "refresh",
            Self::RefreshPeer => "refresh a peer's",
            Self::CancelPeer => "cancel a peer's",
            Self::Spawn => "spawn and join",
            Self::Yield => "yield",
            Self::Wake => "wake and be woken",
            Self::Steal => "steal, run a task",
            Self::ArmOutside => "arm from outside",
            Self::ArmOneShard => "arm on one shard",
            Self::Sleep => "sleep, alone",
            Self::SpawnOutside => "spawn from outside",
        }
    }

    fn is_from_outside(self) -> bool {
        matches!(
            self,
            Self::ArmOutside | Self::ArmOneShard | Self::SpawnOutside
        )
    }

    /// Returns how many threads do the operation in a runtime of this many workers.
    pub fn actors(self, workers: usize) -> usize {
        match self {
            // All other workers have to be asleep.
            Self::Sleep | Self::SpawnOutside | Self::Steal => 1,
            _ => workers,
        }
    }

    /// Builds the runtime of this operation.
    pub fn runtime(
        self,
        workers: usize,
        options: impl FnOnce(&mut Builder) -> &mut Builder,
    ) -> Runtime {
        let workers = match self {
            Self::ArmOneShard => 1,
            _ => workers,
        };
        let mut builder = Builder::new();
        builder.worker_threads(workers);
        options(&mut builder).build().expect("a runtime")
    }

    /// Does `n` operations on each of `actors` threads at once. Returns the time from the first
    /// start to the last end.
    ///
    /// Calls `mark` with the number of the thread, and with `true` where an operation begins, which
    /// also ends the operation before it. Passes `false` where an operation ends and none begins.
    pub fn run(
        self,
        runtime: &Runtime,
        actors: usize,
        n: usize,
        mark: impl Fn(usize, bool) + Copy + Send + Sync + 'static,
    ) -> Duration {
        let stage = Arc::new(Stage {
            handle: runtime.handle().clone(),
            barrier: Barrier::new(actors),
            timers: (0..actors).map(|_| Mutex::default()).collect(),
        });
        let spans = if self.is_from_outside() {
            if self == Self::ArmOneShard {
                // Let the worker sleep until this timer. The threads arm later timers, so none of
                // them has to wake the worker.
                runtime.handle().after(HOUR, || ());
            }
            thread::sleep(Duration::from_millis(5));
            thread::scope(|scope| {
                let threads: Vec<_> = (0..actors)
                    .map(|at| {
                        let stage = &stage;
                        scope.spawn(move || self.outside(stage, n, |begins| mark(at, begins)))
                    })
                    .collect();
                let spans = threads.into_iter().map(|it| it.join().expect("it ran"));
                spans.collect::<Vec<_>>()
            })
        } else {
            let (sender, spans) = mpsc::channel();
            let _guard = runtime.enter();
            for at in 0..actors {
                let (stage, sender) = (stage.clone(), sender.clone());
                let act = move || async move {
                    let span = self
                        .on_worker(&stage, at, n, |begins| mark(at, begins))
                        .await;
                    sender.send(span).expect("the receiver exists");
                };
                drop(spawn_pinned_by_idx(act, at));
            }
            drop(sender);
            spans.iter().collect()
        };
        let start = spans.iter().map(|span| span.start).min();
        let end = spans.iter().map(|span| span.end).max();
        end.expect("it ran") - start.expect("it ran")
    }

    async fn on_worker(
        self,
        stage: &Stage,
        at: usize,
        n: usize,
        mark: impl Fn(bool),
    ) -> Range<Instant> {
        // 1. The timers that are cancelled or refreshed are there before all workers start.
        let is_peers = matches!(self, Self::RefreshPeer | Self::CancelPeer);
        if is_peers || matches!(self, Self::Refresh | Self::Cancel) {
            // A refreshed timer can be refreshed again.
            let can_repeat = matches!(self, Self::Refresh | Self::RefreshPeer);
            let count = if can_repeat { n.min(REFRESHED) } else { n };
            *stage.timers(at) = (0..count).map(arm).collect();
        }
        stage.barrier.wait();
        let of = (at + usize::from(is_peers)) % stage.timers.len();
        let timers = mem::take(&mut *stage.timers(of));
        // Spawn the other task of *wake*: it waits for the first bell, and then rings the second
        // one.
        let bells: Arc<[Bell; 2]> = Arc::default();
        if self == Self::Wake {
            let bells = bells.clone();
            drop(tourbillon::spawn(async move {
                loop {
                    bells[0].rung().await;
                    bells[1].ring();
                }
            }));
            yield_now().await;
        }
        stage.barrier.wait();
        // 2. The operations.
        let start = Instant::now();
        match self {
            Self::Arm => {
                for i in 0..n {
                    mark(true);
                    drop(arm(i));
                }
            }
            Self::Cancel | Self::CancelPeer => {
                for timer in &timers {
                    mark(true);
                    black_box(timer.cancel());
                }
            }
            Self::Refresh | Self::RefreshPeer => {
                for timer in timers.iter().cycle().take(n) {
                    mark(true);
                    black_box(timer.refresh());
                }
            }
            Self::Spawn => {
                for _ in 0..n {
                    mark(true);
                    tourbillon::spawn(async {})
                        .await
                        .expect("it does not panic");
                }
            }
            Self::Yield => {
                for _ in 0..n {
                    mark(true);
                    yield_now().await;
                }
            }
            Self::Wake => {
                for _ in 0..n {
                    mark(true);
                    bells[0].ring();
                    bells[1].rung().await;
                }
            }
            Self::Sleep => {
                for _ in 0..n {
                    mark(true);
                    sleep(Duration::from_millis(20)).await;
                }
            }
            Self::Steal => spawn_for_all(n).await,
            Self::ArmOutside | Self::ArmOneShard | Self::SpawnOutside => {
                unreachable!("an outside thread does it")
            }
        }
        mark(false);
        start..Instant::now()
    }

    fn outside(self, stage: &Stage, n: usize, mark: impl Fn(bool)) -> Range<Instant> {
        stage.barrier.wait();
        let start = Instant::now();
        for i in 0..n {
            if self == Self::SpawnOutside {
                // Wait until all workers sleep again.
                thread::sleep(Duration::from_millis(5));
            }
            mark(true);
            if self == Self::SpawnOutside {
                let (sender, ended) = mpsc::channel();
                drop(stage.handle.spawn(async move { sender.send(()) }));
                mark(false);
                ended.recv().expect("it runs");
            } else {
                let delay = 2 * HOUR + Duration::from_micros(i as u64);
                drop(stage.handle.after(delay, || ()));
            }
        }
        mark(false);
        let end = Instant::now();
        // Wait for all threads. Otherwise a thread that starts late could get memory of a thread
        // that has ended.
        stage.barrier.wait();
        start..end
    }
}

/// A bell that wakes the task that waits for it.
#[derive(Default)]
struct Bell {
    is_rung: AtomicBool,
    waker: AtomicWaker,
}

impl Bell {
    fn ring(&self) {
        self.is_rung.store(true, Release);
        self.waker.wake();
    }

    async fn rung(&self) {
        poll_fn(|cx| {
            self.waker.register(cx.waker());
            match self.is_rung.swap(false, Acquire) {
                true => Poll::Ready(()),
                false => Poll::Pending,
            }
        })
        .await;
    }
}

/// State that all actors share.
struct Stage {
    handle: Handle,
    barrier: Barrier,
    /// The timers that each worker has armed.
    timers: Vec<Mutex<Vec<Timer>>>,
}

impl Stage {
    fn timers(&self, of: usize) -> MutexGuard<'_, Vec<Timer>> {
        self.timers[of].lock().expect("no thread panics")
    }
}

fn arm(i: usize) -> Timer {
    tourbillon::after(HOUR + Duration::from_micros(i as u64), || ())
}

/// Spawns `n` tasks of some µs on this worker, and waits until all have run, on any worker.
async fn spawn_for_all(n: usize) {
    let left = Arc::new(AtomicUsize::new(n));
    let all = Arc::new(Notify::new());
    for _ in 0..n {
        let (left, all) = (left.clone(), all.clone());
        drop(tourbillon::spawn(async move {
            (0..10_000_u32).for_each(|i| _ = black_box(i));
            if left.fetch_sub(1, AcqRel) == 1 {
                all.notify_one();
            }
        }));
    }
    let mut ended = pin!(all.notified());
    poll_fn(|cx| ended.as_mut().poll(cx)).await;
}
