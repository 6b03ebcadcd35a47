//! W3: many timers over one second, each of which notes how late it was.
//!
//! 1M timers (or 200k), whose deadlines are spread evenly over one second, in no order, and begin 1 s after the
//! first of them is armed. A task of the runtime spawns a task for each, which sleeps until its deadline; or it arms
//! a callback for each. What is run notes `now - deadline` first of all, into a word of its own.
//!
//! - *arm*: the time from the first spawn until each of the tasks has been polled, so that its
//!   sleep is armed, divided by their number. It is clock time: systems with two workers may use
//!   both. For callbacks: the time of the calls.
//! - *CPU*: of the process, from when all is armed until all have come; for *callbacks 1M: CPU s* from the first call
//!   on, so arming and firing together.
//! - *1 ms*: our `timer_tolerance`; the peers' figures beside it are those of the part without.
//! - *early*: how many came before their deadline. None may.
//!
//! If not all are armed when the first is due, the same is done again in a new runtime with twice the time ahead,
//! and standard error says so; *s ahead* is the longest that any part needed.
//!
//! The task that spawns looks every few ms whether all are armed, and after the last deadline whether all have come;
//! between these it sleeps. The same program runs on all. compio, glommio and monoio are one thread. Callbacks are ours,
//! and those of tokio-util's `DelayQueue`: one task, on a tokio of one thread, that polls the queue without a budget.
//! (The others have no callbacks: theirs are tasks, as above.) Each part is a process of its own.

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
    systems: &[
        System::Tourbillon,
        System::Tokio,
        System::TokioAlt,
        System::DelayQueue,
        System::Smol,
        System::Compio,
        System::Monoio,
        System::Glommio,
    ],
    run,
};

/// From the first arming to the first deadline.
const AHEAD: Duration = Duration::from_secs(1);
const AHEAD_AT_MOST: Duration = Duration::from_secs(16);
/// From the first deadline to the last.
const SPAN: Duration = Duration::from_secs(1);
/// How often the task that armed looks whether something is over.
const LOOK: Duration = Duration::from_millis(2);
/// The quick version has so many times fewer timers.
const QUICK: usize = 100;

/// A part of the workload, with the names of its figures.
struct Part {
    name: &'static str,
    count: usize,
    callbacks: bool,
    /// Our `timer_tolerance`. A peer has none, and takes no part where it is not zero.
    tolerance: Duration,
    p50: &'static str,
    p99: &'static str,
    p99_9: &'static str,
    cpu: &'static str,
    arm: &'static str,
}

const EARLY: &str = "early";
const LEAD: &str = "s ahead";

macro_rules! part {
    ($name:literal, $count:expr, callbacks: $callbacks:expr, tolerance: $ms:expr, $cpu:literal) => {
        Part {
            name: $name,
            count: $count,
            callbacks: $callbacks,
            tolerance: Duration::from_millis($ms),
            p50: concat!($name, ": p50 µs"),
            p99: concat!($name, ": p99 µs"),
            p99_9: concat!($name, ": p99.9 µs"),
            cpu: concat!($name, ": ", $cpu),
            arm: concat!($name, ": arm ns"),
        }
    };
}

const PARTS: [Part; 8] = [
    part!("tasks 1M", 1_000_000, callbacks: false, tolerance: 0, "CPU ns per fire"),
    part!("callbacks 1M", 1_000_000, callbacks: true, tolerance: 0, "CPU s"),
    part!("tasks 200k", 200_000, callbacks: false, tolerance: 0, "CPU ns per fire"),
    part!("callbacks 200k", 200_000, callbacks: true, tolerance: 0, "CPU ns per fire"),
    part!("tasks 1M, 1 ms", 1_000_000, callbacks: false, tolerance: 1, "CPU ns per fire"),
    part!("callbacks 1M, 1 ms", 1_000_000, callbacks: true, tolerance: 1, "CPU s"),
    part!("tasks 200k, 1 ms", 200_000, callbacks: false, tolerance: 1, "CPU ns per fire"),
    part!("callbacks 200k, 1 ms", 200_000, callbacks: true, tolerance: 1, "CPU ns per fire"),
];

impl Part {
    /// Does this system have what the part is about?
    fn is_for(&self, system: System) -> bool {
        match system {
            System::Tourbillon => true,
            _ if !self.tolerance.is_zero() => false,
            System::DelayQueue => self.callbacks,
            _ => !self.callbacks,
        }
    }

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

    fn attempt(&self, system: System, count: usize, ahead: Duration) -> Came {
        let ours = || Tourbillon::new(|builder| builder.timer_tolerance(self.tolerance));
        match (self.callbacks, system) {
            (false, System::Tourbillon) => Tasks { count, ahead }.on(&ours()),
            (false, _) => runtimes::on(system, Tasks { count, ahead }),
            (true, System::Tourbillon) => ours().run(callbacks(count, ahead)),
            (true, System::DelayQueue) => delay_queue(count, ahead),
            (true, _) => refuse("it has no callbacks"),
        }
    }

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
    let of_all = |name| figures.iter().filter(move |figure| figure.name == name);
    let early = of_all(EARLY).map(|figure| figure.value).sum();
    let lead = of_all(LEAD).map(|figure| figure.value).fold(0.0, f64::max);
    figures.retain(|figure| ![EARLY, LEAD].contains(&figure.name));
    let figure = |name, value| Figure { name, value };
    figures.extend([figure(EARLY, early), figure(LEAD, lead)]);
    figures
}

/// The result of one attempt in which all timers came.
struct Came {
    slots: &'static [Slot],
    /// All were armed before the first was due.
    in_time: bool,
    arming: Duration,
    cpu_arming: Duration,
    cpu_firing: Duration,
}

/// Deadlines in no order, alike for all systems: `first`, and up to [`SPAN`] more, by splitmix64.
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

/// When, and at what cost, each phase began.
struct Phases {
    slots: &'static [Slot],
    begun: Instant,
    cpu: Duration,
    first: Instant,
    armed: Option<(Instant, Duration)>,
}

impl Phases {
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

    fn are_armed(&mut self) {
        self.armed = Some((Instant::now(), cpu::of_this_process()));
    }

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

/// Looks again and again, until all slots are `over`.
async fn until<R: Runtime>(slots: &'static [Slot], over: fn(&Slot) -> bool) {
    let mut left = Left::of(slots);
    while !left.is_over(over) {
        R::sleep_until(Instant::now() + LOOK).await;
    }
}

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

async fn callbacks(count: usize, ahead: Duration) -> Came {
    let slots = slots(count);
    let mut phases = Phases::begin(slots, ahead);
    for (slot, deadline) in slots.iter().zip(deadlines(phases.first)) {
        drop(tourbillon::at(deadline, move || slot.came(deadline)));
    }
    phases.are_armed();
    Tourbillon::sleep_until(phases.first + SPAN).await;
    until::<Tourbillon>(slots, Slot::has_come).await;
    phases.have_come()
}

fn delay_queue(count: usize, ahead: Duration) -> Came {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap_or_else(|error| refuse(error));
    let slots = slots(count);
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
