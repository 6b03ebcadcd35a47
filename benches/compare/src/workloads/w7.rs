//! W7: lateness of timers and tasks whose worker is stuck, while another worker is idle.
//!
//! The runtime has two workers. One task creates timers or tasks, then spins for 200 ms, which
//! blocks its worker. (`cargo bench --bench stall` has more cases of this kind.)
//!
//! - *armed*: 100 timers that are due in 10 ms. The task makes each sleep and polls it once,
//!   which registers the sleep from the task's worker. Then the task moves the sleep into a new
//!   task. It yields until each of the new tasks has been polled once. Then it sleeps for 1 ms,
//!   like any task that waits for an event. This sleep matters for tokio: if the driver resumes a
//!   worker, no other worker takes the driver over. Lateness counts from the deadline.
//! - *spawn*: the task spawns 100 tasks. Lateness counts from each task's spawn to its first
//!   instruction.
//!
//! A round of *armed* is repeated if its task is on the other worker after the sleep of 1 ms, or
//! if the deadline has passed by then. Each round has a new runtime (smol has one per process).
//! The figures are medians over five rounds: of the p50s, and of the maxima.

use std::{
    pin::Pin,
    sync::atomic::{AtomicUsize, Ordering::SeqCst},
    task::{Context, Poll, Waker},
    thread,
    time::{Duration, Instant},
};

use tourbillon_support::bench::median;

use crate::{
    measure::lateness::{Lateness, Left, Slot, slots},
    runtimes::{self, Program, Runtime},
    system::System,
    workload::{Figure, Workload, refuse},
};

pub const WORKLOAD: Workload = Workload {
    name: "w7",
    systems: &System::THREADED,
    run,
};

/// Number of timers or tasks per round.
const COUNT: usize = 100;
/// Time for which the task spins.
const STUCK: Duration = Duration::from_millis(200);
/// Time from arming to the deadline.
const AHEAD: Duration = Duration::from_millis(10);
/// Time for which the task sleeps before it spins.
const NAP: Duration = Duration::from_millis(1);
/// Time that a runtime gets to start its workers, and then again to let them go to sleep.
const SETTLE: Duration = Duration::from_millis(10);
/// Time after which a timer or task counts as lost.
const PATIENCE: Duration = Duration::from_secs(10);
/// Number of rounds per figure.
const ROUNDS: usize = 5;
/// Maximum number of attempts per round. Some schedulers nearly always resume the task on the
/// other worker.
const ATTEMPTS: usize = 1_000;

/// Blocks the calling thread for [`STUCK`] and keeps it busy.
fn spin() {
    let begun = Instant::now();
    while begun.elapsed() < STUCK {}
}

/// Waits until all timers have fired, or all tasks have started, and returns their lateness.
///
/// The calling thread is not a worker. It sleeps between two checks, so that it keeps no core
/// busy.
///
/// # Panics
///
/// Panics if a timer or task is missing after [`PATIENCE`].
fn lateness(slots: &'static [Slot]) -> Lateness {
    let begun = Instant::now();
    let mut left = Left::of(slots);
    while !left.is_over(Slot::has_come) {
        assert!(begun.elapsed() < PATIENCE, "something never came");
        thread::sleep(Duration::from_millis(5));
    }
    Lateness::of(slots)
}

/// A round of one kind.
///
/// As a [`Program`], the round returns `None` if its conditions do not hold when the task is
/// about to spin.
#[derive(Clone, Copy)]
enum Round {
    Armed,
    Spawn,
}

impl Program for Round {
    type Output = Option<Lateness>;

    fn on<R: Runtime>(self, runtime: &R) -> Option<Lateness> {
        let slots = slots(COUNT);
        // Let the workers start, run a first task, and go to sleep.
        thread::sleep(SETTLE);
        runtime.run(async {});
        thread::sleep(SETTLE);
        let is_set = match self {
            Round::Armed => runtime.run(armed::<R>(slots)),
            Round::Spawn => runtime.run(async { spawn::<R>(slots) }),
        };
        is_set.then(|| lateness(slots))
    }
}

/// A sleep that its runtime has registered before the task of the sleep polls it.
struct Registered<F> {
    sleep: Pin<Box<F>>,
    /// Counter that the first poll by the task increments; `None` after this poll.
    polled: Option<&'static AtomicUsize>,
}

impl<F: Future<Output = ()>> Future for Registered<F> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let answer = self.sleep.as_mut().poll(cx);
        if let Some(polled) = self.polled.take() {
            polled.fetch_add(1, SeqCst);
        }
        answer
    }
}

/// Arms the timers from the worker of this task, then spins.
///
/// Returns `false`, without spinning, if the deadline has passed or if the task is on another
/// worker than at its start.
async fn armed<R: Runtime>(slots: &'static [Slot]) -> bool {
    let here = thread::current().id();
    let polled: &'static AtomicUsize = Box::leak(Box::default());
    let deadline = Instant::now() + AHEAD;
    for slot in slots {
        let mut sleep = Box::pin(R::sleep_until(deadline));
        // Register the sleep from this worker. The new task polls it again, with its own waker.
        let first = sleep.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        if first.is_ready() {
            return false;
        }
        let sleep = Registered {
            sleep,
            polled: Some(polled),
        };
        R::spawn(async move {
            sleep.await;
            slot.came(deadline);
        });
    }
    // Let each task replace the waker of its sleep before this worker blocks.
    while polled.load(SeqCst) < slots.len() {
        R::yield_now().await;
    }
    // Resume from the driver; the documentation of the module says why.
    R::sleep_until(Instant::now() + NAP).await;
    let is_set = thread::current().id() == here && Instant::now() < deadline;
    if is_set {
        spin();
    }
    is_set
}

/// Spawns the tasks from the worker of this task, then spins. Always returns `true`.
fn spawn<R: Runtime>(slots: &'static [Slot]) -> bool {
    for slot in slots {
        let spawned = Instant::now();
        R::spawn(async move { slot.came(spawned) });
    }
    spin();
    true
}

/// Returns the median of the p50s and the median of the maxima, both in µs, and the number of
/// early timers in all rounds.
///
/// Calls [`refuse`] if all attempts of a round fail.
fn rounds(system: System, round: Round, quick: bool) -> (f64, f64, usize) {
    let rounds = if quick { 1 } else { ROUNDS };
    let lateness: Vec<_> = (0..rounds)
        .map(|_| {
            let mut attempts = (0..ATTEMPTS).filter_map(|_| runtimes::on(system, round));
            attempts.next().unwrap_or_else(|| {
                refuse("the task that is to spin never stays on its worker");
            })
        })
        .collect();
    let median_of = |percent| median(lateness.iter().map(|it| it.percentile(percent)));
    let early = lateness.iter().map(|it| it.early).sum();
    (median_of(50.0), median_of(100.0), early)
}

fn run(system: System, quick: bool) -> Vec<Figure> {
    let figure = |name, value| Figure { name, value };
    let (armed_p50, armed_max, early) = rounds(system, Round::Armed, quick);
    let (spawn_p50, spawn_max, _) = rounds(system, Round::Spawn, quick);
    vec![
        figure("armed: p50 µs", armed_p50),
        figure("armed: max µs", armed_max),
        figure("spawn: p50 µs", spawn_p50),
        figure("spawn: max µs", spawn_max),
        figure("early", early as f64),
    ]
}
