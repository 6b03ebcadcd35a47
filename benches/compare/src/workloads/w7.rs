//! W7: how late things are that belong to a worker which is stuck, while another has nothing to do.
//!
//! Two workers. A task gives others something to do, then spins for 200 ms. (`cargo bench --bench stall` has more of
//! this kind.)
//!
//! - *armed*: 100 timers due in 10 ms. The task makes each sleep and polls it once, so that it is
//!   registered from its worker, and hands it to a task of its own; it lets others run until each
//!   of these has been polled as well. Then it sleeps for 1 ms, as a task does that waits for
//!   anything: when the driver resumes a tokio worker, no other worker takes the driver over.
//!   Lateness counts from the deadline.
//! - *spawn*: it spawns 100 tasks. Lateness counts from each one's spawn to its first instruction.
//!
//! Should the task that is to spin have been moved to the other worker by then, or a deadline have passed, then the
//! round is done again. Each round has a new runtime (smol has one for the process). The figures are medians over five
//! rounds: of their p50s, and of their maxima.

use std::{
    pin::Pin,
    sync::atomic::{AtomicUsize, Ordering::SeqCst},
    task::{Context, Poll, Waker},
    thread,
    time::{Duration, Instant},
};

use crate::{
    measure::lateness::{Lateness, Left, Slot, median, slots},
    runtimes::{self, Program, Runtime},
    system::System,
    workload::{Figure, Workload, refuse},
};

pub const WORKLOAD: Workload = Workload {
    name: "w7",
    systems: &[
        System::Tourbillon,
        System::Tokio,
        System::TokioAlt,
        System::Smol,
    ],
    run,
};

const COUNT: usize = 100;
const STUCK: Duration = Duration::from_millis(200);
/// From arming to the deadline.
const AHEAD: Duration = Duration::from_millis(10);
const NAP: Duration = Duration::from_millis(1);
/// How long a runtime gets to start its workers, and to let them go to sleep.
const SETTLE: Duration = Duration::from_millis(10);
/// After this long something is lost.
const PATIENCE: Duration = Duration::from_secs(10);
const ROUNDS: usize = 5;
/// How often a round is begun at most: some schedulers nearly always resume the task on the other worker.
const ATTEMPTS: usize = 1_000;

fn spin() {
    let begun = Instant::now();
    while begun.elapsed() < STUCK {}
}

/// Waits, from outside and without keeping a core busy.
fn lateness(slots: &'static [Slot]) -> Lateness {
    let begun = Instant::now();
    let mut left = Left::of(slots);
    while !left.is_over(Slot::has_come) {
        assert!(begun.elapsed() < PATIENCE, "something never came");
        thread::sleep(Duration::from_millis(5));
    }
    Lateness::of(slots)
}

/// Each answers nothing if the round is not as it should be when the task begins to spin.
#[derive(Clone, Copy)]
enum Round {
    Armed,
    Spawn,
}

impl Program for Round {
    type Output = Option<Lateness>;

    fn on<R: Runtime>(self, runtime: &R) -> Option<Lateness> {
        let slots = slots(COUNT);
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

/// A sleep that is in its runtime's timers, and counts when its task has been polled.
struct Registered<F> {
    sleep: Pin<Box<F>>,
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

async fn armed<R: Runtime>(slots: &'static [Slot]) -> bool {
    let here = thread::current().id();
    let polled: &'static AtomicUsize = Box::leak(Box::default());
    let deadline = Instant::now() + AHEAD;
    for slot in slots {
        let mut sleep = Box::pin(R::sleep_until(deadline));
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
    while polled.load(SeqCst) < slots.len() {
        R::yield_now().await;
    }
    R::sleep_until(Instant::now() + NAP).await;
    let is_set = thread::current().id() == here && Instant::now() < deadline;
    if is_set {
        spin();
    }
    is_set
}

fn spawn<R: Runtime>(slots: &'static [Slot]) -> bool {
    for slot in slots {
        let spawned = Instant::now();
        R::spawn(async move { slot.came(spawned) });
    }
    spin();
    true
}

/// The medians of the p50s and of the maxima; and how many were early.
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
