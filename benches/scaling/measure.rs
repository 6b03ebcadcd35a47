//! Measures the costs that the model uses.

use std::{
    fmt,
    sync::{
        Arc, Barrier,
        atomic::{
            AtomicBool, AtomicU64,
            Ordering::{AcqRel, Acquire, Release},
        },
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use tourbillon::{Runtime, runtime::Builder};
use tourbillon_support::bench::median;

use crate::{operations::Operation, table::rate};

const HOUR: Duration = Duration::from_secs(3600);
const ROUNDS: usize = 7;

/// Costs, in ns.
#[derive(Clone, Copy)]
pub struct Costs {
    /// A read-modify-write of a cache line that this core owns.
    pub own: f64,
    /// A read-modify-write of a cache line that another core used last, including its transfer.
    pub transfer: f64,
    /// Arming a callback on the worker's own shard.
    pub local: f64,
    /// Arming a callback from an uncontended outside thread, without its read-modify-writes of
    /// shared lines.
    pub private: f64,
    /// Moving one new timer from the inbox to the store, by the worker.
    pub drain: f64,
    /// From the write of an eventfd until the woken worker runs.
    pub wake: f64,
}

/// Number of cache lines shared by all pushers to a shard that one push changes: the shard's
/// reference count and the inbox's head. The shard's deadline is on the same line as the head; most
/// pushes find it low enough.
pub const SHARED_LINES: usize = 2;
/// Number of counter sets that a shard has for other threads. Each thread uses one set, which is
/// one line, changed twice.
pub const COUNTER_SETS: usize = 4;

impl Costs {
    pub fn measure() -> Self {
        let own = least(own);
        let outside = 1e3 / rate(Operation::ArmOneShard, 1);
        Self {
            own,
            transfer: least(pass),
            local: 1e3 / rate(Operation::Arm, 1),
            private: (outside - (SHARED_LINES + 2) as f64 * own).max(0.0),
            drain: median(rounds(drain)),
            wake: wake(),
        }
    }
}

impl fmt::Display for Costs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "| | |\n|---|---|")?;
        for (what, cost) in [
            ("read-modify-write of a line that the core has", self.own),
            ("of one that another core had last", self.transfer),
            ("arm, local path", self.local),
            ("arm, from outside, without its shared lines", self.private),
            ("read one arrival from the inbox", self.drain),
            ("wake a worker that sleeps", self.wake),
        ] {
            writeln!(f, "| {what} | {cost:.1} |")?;
        }
        Ok(())
    }
}

/// Measures again and again.
fn rounds(measure: impl FnMut() -> f64) -> impl Iterator<Item = f64> {
    std::iter::repeat_with(measure).take(ROUNDS)
}

/// Returns the minimum, for measurements that can only be disturbed upwards.
fn least(measure: impl FnMut() -> f64) -> f64 {
    rounds(measure)
        .min_by(f64::total_cmp)
        .expect("there are rounds")
}

/// Runs `f` on this many threads at the same time. Returns the longest duration, in ns.
fn at_once(threads: usize, f: impl Fn(usize) + Sync) -> f64 {
    let barrier = Barrier::new(threads);
    let took = thread::scope(|scope| {
        let threads: Vec<_> = (0..threads)
            .map(|i| {
                let (f, barrier) = (&f, &barrier);
                scope.spawn(move || {
                    barrier.wait();
                    let start = Instant::now();
                    f(i);
                    start.elapsed()
                })
            })
            .collect();
        let took = threads
            .into_iter()
            .map(|thread| thread.join().expect("it ran"));
        took.max().expect("there is one")
    });
    took.as_nanos() as f64
}

/// Returns the time of a read-modify-write of a line that the core owns, in ns.
fn own() -> f64 {
    const N: u64 = 2_000_000;
    let word = AtomicU64::new(0);
    let took = at_once(1, |_| {
        for _ in 0..N {
            word.fetch_add(1, AcqRel);
        }
    });
    took / N as f64
}

/// Returns the time of a read-modify-write of a line by two threads in turn, in ns. The threads
/// alternate strictly: otherwise a core does several operations before it gives up the line.
fn pass() -> f64 {
    const N: u64 = 200_000;
    let word = AtomicU64::new(0);
    let took = at_once(2, |i| {
        for turn in 0..N {
            while word.load(Acquire) != 2 * turn + i as u64 {
                std::hint::spin_loop();
            }
            word.fetch_add(1, AcqRel);
        }
    });
    took / (2 * N) as f64
}

fn runtime() -> Runtime {
    Builder::new().worker_threads(1).build().expect("a runtime")
}

/// Returns the time in which a worker moves one new timer from its inbox to its store, in ns. The
/// inbox is filled while the worker is in a callback: a sleeping worker would be woken in between.
fn drain() -> f64 {
    const N: u32 = 100_000;
    let took = |n: u32| {
        let runtime = runtime();
        let within = Arc::new(Barrier::new(2));
        let filled = Arc::new(AtomicBool::new(false));
        let callback = (within.clone(), filled.clone());
        drop(runtime.handle().after(Duration::ZERO, move || {
            let (within, filled) = callback;
            within.wait();
            while !filled.load(Acquire) {
                std::hint::spin_loop();
            }
        }));
        within.wait();
        for i in 0..n {
            drop(
                runtime
                    .handle()
                    .after(2 * HOUR + Duration::from_micros(i.into()), || ()),
            );
        }
        let stored = || runtime.metrics().workers()[0].stored();
        assert_eq!(stored(), 0, "all are in the inbox");
        let start = Instant::now();
        filled.store(true, Release);
        // One more timer, so that there is something to wait for even if `n` is 0.
        drop(runtime.handle().after(2 * HOUR, || ()));
        while stored() <= n as usize {
            std::hint::spin_loop();
        }
        start.elapsed().as_nanos() as f64
    };
    (took(N) - took(0)) / f64::from(N)
}

/// Returns the time from arming until a sleeping worker runs the callback, in ns.
fn wake() -> f64 {
    let runtime = runtime();
    let ran = Arc::new(AtomicU64::new(0));
    let epoch = Instant::now();
    let rounds = rounds(|| {
        thread::sleep(Duration::from_millis(2));
        let (sender, receiver) = mpsc::channel();
        let at = epoch.elapsed();
        ran.fetch_add(1, AcqRel);
        drop(runtime.handle().after(Duration::ZERO, move || {
            sender.send(epoch.elapsed()).expect("the receiver exists");
        }));
        let ran_at: Duration = receiver.recv().expect("it runs");
        (ran_at - at).as_nanos() as f64
    });
    median(rounds)
}
