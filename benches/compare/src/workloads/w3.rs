//! W3: many timers whose deadlines are spread over one second.
//!
//! The workload has 1,000,000, 200,000 or 20,000 timers. Their deadlines are spread evenly over one
//! second and are in random order. This second begins 1 s after the first timer is armed. A task of
//! the runtime spawns a task for each timer, which sleeps until its deadline. In the parts with
//! callbacks, the task arms a callback for each timer instead. The first step of each task or
//! callback is to record its lateness, `now - deadline`, in a word of its own.
//!
//! - *arm*: time from the first spawn until every task has been polled and so has armed its sleep,
//!   divided by the number of timers. It is wall time, so a system with two workers can use both.
//!   For callbacks, it is the time of the calls that arm them.
//! - *CPU*: processor time of the process from the end of arming until all timers have fired. The
//!   *CPU s* figures of a million callbacks begin with the first call, so they include arming.
//! - *1 ms*: Tourbillon's `timer_tolerance` is 1 ms. The peers have no tolerance: beside such a
//!   figure, the table shows the peers' figure of the part without one.
//! - The system *exact* is Tourbillon with `Builder::exact`. It has the parts that the budget for
//!   wake-ups changes.
//! - *early*: number of timers that fired before their deadline, in all parts. It must be zero.
//! - *s ahead*: longest time from the start of arming to the first deadline that any part needed,
//!   in seconds.
//!
//! If the first deadline passes before all timers are armed, the part is repeated. The next
//! attempt has a new runtime and twice the time ahead, and a line on standard error reports it.
//!
//! The arming task checks every 2 ms whether all tasks have armed their sleeps. Then it sleeps
//! until the last deadline, and checks every 2 ms whether all timers have fired. All systems run
//! the same program. compio, glommio and monoio have one thread.
//!
//! Callbacks are measured on Tourbillon and on `DelayQueue` of tokio-util. One task polls the
//! queue, without tokio's budget, on a tokio runtime with one thread. The other systems have no
//! callbacks, so the table compares callbacks with their tasks. *In batches*, Tourbillon arms a
//! thousand callbacks at a time, by `at_many`. Each part has a process of its own.

use std::{
    future::poll_fn,
    time::{Duration, Instant},
};

use tokio_util::time::DelayQueue;

use crate::{
    measure::{
        cpu,
        lateness::{Lateness, Left, Slot, slots},
        parts,
    },
    runtimes::{self, Program, Runtime, Tourbillon},
    system::System,
    workload::{Figure, Workload, refuse},
};

pub const WORKLOAD: Workload = Workload {
    name: "w3",
    systems: &System::ALL,
    run,
};

/// Time from the first arming to the first deadline, in the first attempt.
const AHEAD: Duration = Duration::from_secs(1);
/// Longest time ahead. A system that needs more is refused.
const AHEAD_AT_MOST: Duration = Duration::from_secs(16);
/// Time from the first deadline to the last.
const SPAN: Duration = Duration::from_secs(1);
/// Interval at which the arming task checks whether a phase is over.
const LOOK: Duration = Duration::from_millis(2);
/// Factor by which a quick run has fewer timers.
const QUICK: usize = 100;

/// Number of callbacks that are armed by one call, in batches.
const BATCH: usize = 1_000;

/// The timers of a part.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Of {
    /// Tasks that sleep.
    Tasks,
    Callbacks,
    /// Callbacks that are armed in batches.
    Batches,
}

/// A part of the workload, with the names of its figures.
struct Part {
    name: &'static str,
    count: usize,
    of: Of,
    /// Tourbillon's `timer_tolerance`. The peers have none, and skip a part where it is not zero.
    tolerance: Duration,
    p50: &'static str,
    p99: &'static str,
    p99_9: &'static str,
    /// If this name ends with "CPU s", the figure is a total and includes arming.
    cpu: &'static str,
    arm: &'static str,
}

/// Name of the number of early timers. Each part reports one, and [`run`] adds them up.
const EARLY: &str = "early";
/// Name of the time ahead, in seconds. Each part reports one, and [`run`] keeps the longest.
const LEAD: &str = "s ahead";

/// Builds a [`Part`]. The names of its figures begin with its own name.
macro_rules! part {
    ($name:literal, $count:expr, of: $of:ident, tolerance: $ms:expr, $cpu:literal) => {
        Part {
            name: $name,
            count: $count,
            of: Of::$of,
            tolerance: Duration::from_millis($ms),
            p50: concat!($name, ": p50 µs"),
            p99: concat!($name, ": p99 µs"),
            p99_9: concat!($name, ": p99.9 µs"),
            cpu: concat!($name, ": ", $cpu),
            arm: concat!($name, ": arm ns"),
        }
    };
}

const PARTS: [Part; 10] = [
    part!("tasks 1M", 1_000_000, of: Tasks, tolerance: 0, "CPU ns per fire"),
    part!("callbacks 1M", 1_000_000, of: Callbacks, tolerance: 0, "CPU s"),
    part!("tasks 200k", 200_000, of: Tasks, tolerance: 0, "CPU ns per fire"),
    part!("callbacks 200k", 200_000, of: Callbacks, tolerance: 0, "CPU ns per fire"),
    part!("tasks 20k", 20_000, of: Tasks, tolerance: 0, "CPU ns per fire"),
    part!("tasks 1M, 1 ms", 1_000_000, of: Tasks, tolerance: 1, "CPU ns per fire"),
    part!("callbacks 1M, 1 ms", 1_000_000, of: Callbacks, tolerance: 1, "CPU s"),
    part!("tasks 200k, 1 ms", 200_000, of: Tasks, tolerance: 1, "CPU ns per fire"),
    part!("callbacks 200k, 1 ms", 200_000, of: Callbacks, tolerance: 1, "CPU ns per fire"),
    part!("callbacks 1M, in batches", 1_000_000, of: Batches, tolerance: 0, "CPU s"),
];

impl Part {
    /// Returns whether `system` has this part's kind of timer, and its tolerance.
    fn is_for(&self, system: System) -> bool {
        match system {
            System::Tourbillon => true,
            // A tolerance that is not zero replaces the budget.
            _ if !self.tolerance.is_zero() => false,
            System::Exact => self.of != Of::Batches,
            System::DelayQueue => self.of == Of::Callbacks,
            _ => self.of == Of::Tasks,
        }
    }

    /// Makes attempts with more and more time ahead until one arms all timers before the first
    /// deadline. Returns the figures of that attempt.
    ///
    /// Refuses the system if the longest time ahead is not enough.
    fn run(&self, system: System, quick: bool) -> Vec<Figure> {
        let count = if quick {
            self.count / QUICK
        } else {
            self.count
        };
        let mut ahead = AHEAD;
        loop {
            let came = self.attempt(system, count, ahead);
            if came.in_time {
                return self.figures(&came, count, ahead);
            }
            ahead *= 2;
            if ahead > AHEAD_AT_MOST {
                refuse(format_args!(
                    "{}: not armed in {AHEAD_AT_MOST:?}",
                    self.name
                ));
            }
            eprintln!("{}: not armed in time; again, {ahead:?} ahead", self.name);
        }
    }

    /// Runs all timers once, on a new runtime.
    fn attempt(&self, system: System, count: usize, ahead: Duration) -> Came {
        let ours = || {
            Tourbillon::new(|builder| match system {
                System::Exact => builder.exact(),
                _ => builder.timer_tolerance(self.tolerance),
            })
        };
        match (self.of, system) {
            (Of::Tasks, _) if system.is_ours() => Tasks { count, ahead }.on(&ours()),
            (Of::Tasks, _) => runtimes::on(system, Tasks { count, ahead }),
            (of, _) if system.is_ours() => ours().run(callbacks(count, ahead, of)),
            (Of::Callbacks, System::DelayQueue) => delay_queue(count, ahead),
            (_, _) => refuse("it has no callbacks"),
        }
    }

    /// Returns the figures of an attempt.
    fn figures(&self, came: &Came, count: usize, ahead: Duration) -> Vec<Figure> {
        let lateness = Lateness::of(came.slots);
        let figure = |name, value| Figure { name, value };
        let each = |time: Duration| time.as_nanos() as f64 / count as f64;
        let cpu = if self.cpu.ends_with("CPU s") {
            (came.cpu_arming + came.cpu_firing).as_secs_f64()
        } else {
            each(came.cpu_firing)
        };
        vec![
            figure(self.p50, lateness.percentile(50.0)),
            figure(self.p99, lateness.percentile(99.0)),
            figure(self.p99_9, lateness.percentile(99.9)),
            figure(self.cpu, cpu),
            figure(self.arm, each(came.arming)),
            figure(EARLY, lateness.early as f64),
            figure(LEAD, ahead.as_secs_f64()),
        ]
    }
}

fn run(system: System, quick: bool) -> Vec<Figure> {
    let parts = PARTS.iter().filter(|part| part.is_for(system));
    let parts: Vec<_> = parts.map(|part| part.name).collect();
    let names = |part: &Part| {
        let Part {
            p50,
            p99,
            p99_9,
            cpu,
            arm,
            ..
        } = *part;
        [p50, p99, p99_9, cpu, arm, EARLY, LEAD]
    };
    let names: Vec<_> = PARTS.iter().flat_map(names).collect();
    let mut figures = parts::each(&parts, &names, |name| {
        let part = PARTS.iter().find(|part| part.name == name);
        part.expect("a part of w3").run(system, quick)
    });
    // Each part has reported its own `EARLY` and `LEAD`. Report one of each for the workload.
    let of_all = |name| figures.iter().filter(move |figure| figure.name == name);
    let early = of_all(EARLY).map(|figure| figure.value).sum();
    let lead = of_all(LEAD).map(|figure| figure.value).fold(0.0, f64::max);
    figures.retain(|figure| ![EARLY, LEAD].contains(&figure.name));
    let figure = |name, value| Figure { name, value };
    figures.extend([figure(EARLY, early), figure(LEAD, lead)]);
    figures
}

/// Result of an attempt. All timers have fired.
struct Came {
    slots: &'static [Slot],
    /// Whether all timers were armed before the first deadline.
    in_time: bool,
    /// Wall time of the arming phase.
    arming: Duration,
    /// Processor time of the arming phase.
    cpu_arming: Duration,
    /// Processor time from the end of the arming phase until all timers had fired.
    cpu_firing: Duration,
}

/// Returns deadlines in random order, from `first` up to [`SPAN`] later.
///
/// The generator is splitmix64 with a fixed seed, so all systems get the same deadlines.
fn deadlines(first: Instant) -> impl Iterator<Item = Instant> + Send {
    let mut state = 20_261_121_u64;
    std::iter::repeat_with(move || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        first + Duration::from_nanos(mixed % SPAN.as_nanos() as u64)
    })
}

/// Times at which the phases of an attempt begin, and the processor time at each.
struct Phases {
    slots: &'static [Slot],
    /// Start of the arming phase.
    begun: Instant,
    /// Processor time at `begun`.
    cpu: Duration,
    /// Earliest possible deadline.
    first: Instant,
    /// End of the arming phase, and the processor time then.
    armed: Option<(Instant, Duration)>,
}

impl Phases {
    /// Begins the arming phase. The deadlines begin `ahead` from now.
    fn begin(slots: &'static [Slot], ahead: Duration) -> Self {
        let cpu = cpu::of_this_process();
        let begun = Instant::now();
        Self {
            slots,
            begun,
            cpu,
            first: begun + ahead,
            armed: None,
        }
    }

    /// Ends the arming phase.
    fn are_armed(&mut self) {
        self.armed = Some((Instant::now(), cpu::of_this_process()));
    }

    /// Ends the attempt, after all timers have fired, and returns its result.
    ///
    /// Panics if the arming phase has not ended.
    fn have_come(self) -> Came {
        let (armed, cpu) = self.armed.expect("they are armed by now");
        Came {
            slots: self.slots,
            in_time: armed < self.first,
            arming: armed - self.begun,
            cpu_arming: cpu - self.cpu,
            cpu_firing: cpu::of_this_process() - cpu,
        }
    }
}

/// Waits until `over` is true for all slots. Checks once per [`LOOK`].
async fn until<R: Runtime>(slots: &'static [Slot], over: fn(&Slot) -> bool) {
    let mut left = Left::of(slots);
    while !left.is_over(over) {
        R::sleep_until(Instant::now() + LOOK).await;
    }
}

/// Program that spawns a task for each timer. The task sleeps until its deadline.
struct Tasks {
    count: usize,
    ahead: Duration,
}

impl Program for Tasks {
    type Output = Came;

    fn on<R: Runtime>(self, runtime: &R) -> Came {
        let slots = slots(self.count);
        let ahead = self.ahead;
        runtime.run(async move {
            let mut phases = Phases::begin(slots, ahead);
            for (slot, deadline) in slots.iter().zip(deadlines(phases.first)) {
                R::spawn(async move {
                    // The same poll of this task then arms the sleep, so this mark stands for an
                    // armed sleep.
                    slot.waits();
                    R::sleep_until(deadline).await;
                    slot.came(deadline);
                });
            }
            until::<R>(slots, Slot::is_waiting).await;
            phases.are_armed();
            R::sleep_until(phases.first + SPAN).await;
            until::<R>(slots, Slot::has_come).await;
            phases.have_come()
        })
    }
}

/// Arms `count` callbacks of Tourbillon and waits until all have run.
async fn callbacks(count: usize, ahead: Duration, of: Of) -> Came {
    let slots = slots(count);
    let mut phases = Phases::begin(slots, ahead);
    let pairs = slots.iter().zip(deadlines(phases.first));
    let mut pairs = pairs.map(|(slot, deadline)| (deadline, move || slot.came(deadline)));
    // The callbacks run although their handles are dropped.
    if of == Of::Batches {
        for _ in 0..count.div_ceil(BATCH) {
            drop(tourbillon::at_many(pairs.by_ref().take(BATCH)));
        }
    } else {
        pairs.for_each(|(deadline, f)| drop(tourbillon::at(deadline, f)));
    }
    phases.are_armed();
    Tourbillon::sleep_until(phases.first + SPAN).await;
    until::<Tourbillon>(slots, Slot::has_come).await;
    phases.have_come()
}

/// Inserts `count` values into a `DelayQueue` and polls the queue until all have expired.
fn delay_queue(count: usize, ahead: Duration) -> Came {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap_or_else(|error| refuse(error));
    let slots = slots(count);
    // With a budget, tokio would make the task yield while it polls the queue.
    runtime.block_on(tokio::task::unconstrained(async {
        let mut phases = Phases::begin(slots, ahead);
        let mut queue = DelayQueue::new();
        for (slot, deadline) in slots.iter().zip(deadlines(phases.first)) {
            queue.insert_at((slot, deadline), deadline.into());
        }
        phases.are_armed();
        while let Some(expired) = poll_fn(|cx| queue.poll_expired(cx)).await {
            let (slot, deadline) = *expired.get_ref();
            slot.came(deadline);
        }
        phases.have_come()
    }))
}
