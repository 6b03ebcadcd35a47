//! How late other work of a worker is while that worker is stuck in a job; Tourbillon and tokio in
//! turns.
//!
//! Each round uses a new runtime with two workers. One of them, or both, run a job that takes 60
//! ms; all other work takes microseconds. Lateness counts from the deadline, or from the event, to
//! the first instruction that runs because of it.
//!
//! | | scenario | late since | what runs |
//! |---|---|---|---|
//! | *armed* | a task arms 100 timers, due in 10 ms, then spins | the deadline | Tourbillon: callbacks; tokio, which has none: tasks that sleep |
//! | *spread* | a task arms 100 timers, one due every 100 µs; it spins from 100 µs before the first is due | the deadline | as *armed* |
//! | *asleep* | a task starts 100 sleeping tasks, due in 10 ms, then spins | the deadline | tasks |
//! | *spawn* | a task spawns 100 tasks, then spins | each spawn | tasks |
//! | *woken* | a task sends to another one, which waits on a channel, then spins | the send | the task that waited |
//! | *sockets* | a task registers 100 loopback TCP connections, each read by a task, then spins; a thread writes a byte to ten of them in each of the next 10 ms | each write | the reading tasks, after the read |
//! | *outside* | a task spins; 10 ms later an outside thread arms 100 timers, due in 10 ms | the deadline | as *armed* |
//! | *all spin* | as *armed*, while another task spins on the other worker, from before to after | the deadline | as *armed* |
//! | *all block* | as *all spin*, but both block their threads instead of spinning | the deadline | as *armed* |
//!
//! The worker of the long job registers everything before that job:
//!
//! - The spinning task polls each sleep once and hands it to a task. Then it yields until all of
//!   these tasks have been polled, on either worker. A call arms a callback of Tourbillon, so there
//!   is nothing to wait for.
//! - The spinning task registers each socket. It waits for the reading tasks in the same way.
//! - If the spinning task has moved to the other worker by then, or the deadline has passed, the
//!   round is repeated in a new runtime.
//!
//! *resumed*: the task sleeps for 1 ms before it spins, as a task does that waits for anything.
//! tokio has one I/O and timer driver for all workers. The worker that polled the driver runs the
//! resumed task, and no worker polls the driver until that worker is done. Without the sleep, the
//! other worker polls the last of the tasks and then the driver, and nothing is late. (tokio's
//! timers count milliseconds, rounded up: a lateness of 1 to 2 ms is no sign of a stuck worker.)
//!
//! Columns: the p50 of all rounds together; the median of the rounds' maxima; and the maximum of
//! all. Compare the second one: a single interruption by the rest of the machine decides the third.
//!
//! Run `cargo bench --bench stall`, or `cargo bench --bench stall -- woken` for the scenarios with
//! that word in their names. To include tokio's unstable options, which need a separate
//! build, run `RUSTFLAGS="--cfg tokio_unstable" cargo bench --bench stall --target-dir
//! target/unstable`.

#[path = "stall/systems.rs"]
mod systems;

use std::{
    future::Future,
    io::Write,
    process::Command,
    sync::{Arc, OnceLock, mpsc},
    thread,
    time::{Duration, Instant},
};

use systems::{Count, Ours, System, Tokio, counted, sleep_here};
use tourbillon_support::{
    bench::{median, turns},
    disturbance::Meter,
    net::connections,
    spin,
};

const ROUNDS: usize = 50;
const WORKERS: usize = 2;
const COUNT: usize = 100;
/// Duration of the long job.
const STUCK: Duration = Duration::from_millis(60);
/// Time from arming to the deadline, and from the start of the job to the events from outside.
const AHEAD: Duration = Duration::from_millis(10);
/// Time between two deadlines of *spread*.
const APART: Duration = Duration::from_micros(100);
/// Number of sockets that are written to at once.
const WRITES: usize = 10;
/// Sleep of a *resumed* task.
const NAP: Duration = Duration::from_millis(1);
/// Number of wake-ups in a round of *woken*; each wakes one task.
const WAKES: usize = 5;
/// Time for a runtime to start its workers and let them sleep.
const SETTLE: Duration = Duration::from_millis(10);
/// Something is lost if it takes this long.
const PATIENCE: Duration = Duration::from_secs(10);
/// Maximum number of attempts per round.
const ATTEMPTS: usize = 100;

/// The systems to measure. Add a line to measure other options.
const SYSTEMS: &[(&str, Setup)] = &[
    ("tourbillon", Setup::Ours(|builder| builder)),
    (
        "latency 200 µs",
        Setup::Ours(|builder| builder.rescue_latency(Duration::from_micros(200))),
    ),
    (
        "with helpers",
        Setup::Ours(|builder| builder.helpers(0..=2)),
    ),
    ("tokio", Setup::Tokio(|builder| builder)),
    #[cfg(tokio_unstable)]
    (
        "tokio, alt timer",
        Setup::Tokio(|builder| builder.enable_alt_timer()),
    ),
    #[cfg(tokio_unstable)]
    (
        "tokio, handoff",
        Setup::Tokio(|builder| builder.enable_eager_driver_handoff()),
    ),
];

enum Setup {
    Ours(fn(&mut tourbillon::runtime::Builder) -> &mut tourbillon::runtime::Builder),
    Tokio(fn(&mut tokio::runtime::Builder) -> &mut tokio::runtime::Builder),
}

impl Setup {
    /// Runs one round.
    fn run(&self, scenario: Scenario) -> Vec<Duration> {
        let lateness = (0..ATTEMPTS).find_map(|_| match self {
            Setup::Ours(options) => {
                let mut builder = tourbillon::runtime::Builder::new();
                builder.worker_threads(WORKERS);
                scenario.run(&Ours(options(&mut builder).build().expect("a runtime")))
            }
            Setup::Tokio(options) => {
                let mut builder = tokio::runtime::Builder::new_multi_thread();
                builder.worker_threads(WORKERS).enable_all();
                scenario.run(&Tokio(options(&mut builder).build().expect("a runtime")))
            }
        });
        lateness.expect("the task that spins stays on its worker, now and then")
    }
}

/// The due time and the actual time of each event.
#[derive(Clone)]
struct Moments(Arc<[[OnceLock<Instant>; 2]]>);

impl Moments {
    fn new(count: usize) -> Self {
        Self((0..count).map(|_| Default::default()).collect())
    }

    fn due(&self, index: usize, at: Instant) {
        self.0[index][0].set(at).expect("once");
    }

    fn came(&self, index: usize) {
        // Read the clock first.
        let now = Instant::now();
        self.0[index][1].set(now).expect("once");
    }

    /// Records the due time of an event. Returns a function that records its actual time.
    fn comes(&self, index: usize, due: Instant) -> impl FnOnce() + Send + 'static {
        self.due(index, due);
        let moments = self.clone();
        move || moments.came(index)
    }

    /// Waits for all events without keeping a core busy, and returns their lateness.
    fn lateness(&self) -> Vec<Duration> {
        let begun = Instant::now();
        let have_come = || self.0.iter().all(|[_, came]| came.get().is_some());
        while !have_come() {
            assert!(begun.elapsed() < PATIENCE, "something never came");
            thread::sleep(Duration::from_millis(5));
        }
        let moment = |moment: &OnceLock<Instant>| *moment.get().expect("it was noted");
        let late = |[due, came]: &[OnceLock<Instant>; 2]| {
            let late = moment(came).checked_duration_since(moment(due));
            late.expect("nothing is early")
        };
        self.0.iter().map(late).collect()
    }
}

/// How a job is stuck.
#[derive(Clone, Copy)]
enum Stuck {
    Spinning,
    Blocked,
}

impl Stuck {
    fn stay(self) {
        match self {
            Stuck::Spinning => spin(STUCK),
            Stuck::Blocked => thread::sleep(STUCK),
        }
    }

    /// Stays until the other end of the channel is dropped.
    fn stay_until(self, over: &mpsc::Receiver<()>) {
        match self {
            Stuck::Spinning => while over.try_recv() == Err(mpsc::TryRecvError::Empty) {},
            Stuck::Blocked => drop(over.recv()),
        }
    }
}

/// The action of the spinning task between the last registration and spinning.
#[derive(Clone, Copy, PartialEq)]
enum Before {
    Nothing,
    Sleep,
}

impl Before {
    async fn pass<S: System>(self) {
        if self == Before::Sleep {
            S::sleep_until(Instant::now() + NAP).await;
        }
    }
}

/// Runs a task and waits for its result.
fn run<S: System, R: Send + 'static>(
    system: &S,
    task: impl Future<Output = R> + Send + 'static,
) -> R {
    let (sender, receiver) = mpsc::channel();
    system.start(async move {
        let answer = task.await;
        sender.send(answer).expect("the receiver exists");
    });
    receiver.recv().expect("tasks do not panic")
}

#[derive(Clone, Copy)]
enum Scenario {
    Armed(Before),
    Spread,
    Asleep(Before),
    Spawn,
    Woken(Before),
    Sockets(Before),
    Outside,
    All(Stuck),
}

const SCENARIOS: [(&str, Scenario); 13] = [
    ("armed", Scenario::Armed(Before::Nothing)),
    ("armed, resumed", Scenario::Armed(Before::Sleep)),
    ("spread", Scenario::Spread),
    ("asleep", Scenario::Asleep(Before::Nothing)),
    ("asleep, resumed", Scenario::Asleep(Before::Sleep)),
    ("spawn", Scenario::Spawn),
    ("woken", Scenario::Woken(Before::Nothing)),
    ("woken, resumed", Scenario::Woken(Before::Sleep)),
    ("sockets", Scenario::Sockets(Before::Nothing)),
    ("sockets, resumed", Scenario::Sockets(Before::Sleep)),
    ("outside", Scenario::Outside),
    ("all spin", Scenario::All(Stuck::Spinning)),
    ("all block", Scenario::All(Stuck::Blocked)),
];

impl Scenario {
    /// Runs one round on a new runtime. Returns `None` if the state was wrong when the job began.
    fn run<S: System>(self, system: &S) -> Option<Vec<Duration>> {
        thread::sleep(SETTLE);
        run(system, async {});
        thread::sleep(SETTLE);
        match self {
            Scenario::Armed(before) => armed(system, S::arm_here, before),
            Scenario::Spread => spread(system),
            Scenario::Asleep(before) => armed(system, sleep_here::<S, _>, before),
            Scenario::Spawn => Some(spawned(system)),
            Scenario::Woken(before) => Some(woken(system, before)),
            Scenario::Sockets(before) => Some(sockets(system, before)),
            Scenario::Outside => Some(outside(system)),
            Scenario::All(stuck) => all(system, stuck),
        }
    }
}

/// Arms a timer from a task: [`System::arm_here`] or [`sleep_here`].
type Arm = fn(Instant, &Count, Box<dyn FnOnce() + Send>);

/// Arms all timers from a task, and yields until arming is complete. Returns `true` if the task is
/// still on the worker that owns the timers, and the deadline has not passed.
async fn arm_all<S: System>(moments: Moments, arm: Arm, before: Before) -> bool {
    let here = thread::current().id();
    let set = Count::default();
    let deadline = Instant::now() + AHEAD;
    for index in 0..COUNT {
        arm(deadline, &set, Box::new(moments.comes(index, deadline)));
    }
    set.wait_for::<S>(COUNT).await;
    before.pass::<S>().await;
    thread::current().id() == here && Instant::now() < deadline
}

fn armed<S: System>(system: &S, arm: Arm, before: Before) -> Option<Vec<Duration>> {
    let moments = Moments::new(COUNT);
    let arming = moments.clone();
    let is_set = run(system, async move {
        let is_set = arm_all::<S>(arming, arm, before).await;
        if is_set {
            spin(STUCK);
        }
        is_set
    });
    is_set.then(|| moments.lateness())
}

/// Runs *spread*, in which the first timers are due before a peer has been called.
fn spread<S: System>(system: &S) -> Option<Vec<Duration>> {
    let moments = Moments::new(COUNT);
    let arming = moments.clone();
    let is_set = run(system, async move {
        let here = thread::current().id();
        let set = Count::default();
        let first = Instant::now() + AHEAD;
        for index in 0..COUNT {
            let due = first + APART * index as u32;
            S::arm_here(due, &set, arming.comes(index, due));
        }
        set.wait_for::<S>(COUNT).await;
        // Keep this worker in its loop until shortly before the first deadline.
        while Instant::now() + APART < first {
            S::yield_now().await;
        }
        let is_set = thread::current().id() == here && Instant::now() < first;
        if is_set {
            spin(STUCK);
        }
        is_set
    });
    is_set.then(|| moments.lateness())
}

fn spawned<S: System>(system: &S) -> Vec<Duration> {
    let moments = Moments::new(COUNT);
    let spawning = moments.clone();
    run(system, async move {
        for index in 0..COUNT {
            let came = spawning.comes(index, Instant::now());
            S::spawn(async move { came() });
        }
        spin(STUCK);
    });
    moments.lateness()
}

fn woken<S: System>(system: &S, before: Before) -> Vec<Duration> {
    let moments = Moments::new(WAKES);
    for index in 0..WAKES {
        let (sender, receiver) = tokio::sync::oneshot::channel();
        let (waits, coming) = (Count::default(), moments.clone());
        let waiting = counted(receiver, waits.clone());
        system.start(async move {
            waiting.await.expect("it is sent");
            coming.came(index);
        });
        while waits.get() < 1 {
            thread::sleep(SETTLE);
        }
        // The task has been polled. Wait until the workers sleep.
        thread::sleep(SETTLE);
        let sending = moments.clone();
        run(system, async move {
            before.pass::<S>().await;
            sending.due(index, Instant::now());
            sender.send(()).expect("it waits");
            spin(STUCK);
        });
    }
    moments.lateness()
}

fn sockets<S: System>(system: &S, before: Before) -> Vec<Duration> {
    let moments = Moments::new(COUNT);
    let (ours, theirs) = connections(COUNT);
    let (sender, spinning) = mpsc::channel();
    let reading = moments.clone();
    system.start(async move {
        before.pass::<S>().await;
        let waits = Count::default();
        for (index, stream) in ours.into_iter().enumerate() {
            // The socket belongs to this worker.
            let (mut socket, reading) = (S::socket(stream), reading.clone());
            let waits = waits.clone();
            S::spawn(async move {
                if counted(S::read(&mut socket), waits).await {
                    reading.came(index);
                }
            });
        }
        // Spawn one more task, because tokio's peers do not steal the task that was spawned last.
        S::spawn(async {});
        // Stay on this worker until a peer has stolen all tasks, and each waits for its socket.
        let begun = Instant::now();
        while waits.get() < COUNT {
            assert!(begun.elapsed() < PATIENCE, "no peer steals the tasks");
        }
        sender.send(()).expect("the receiver exists");
        spin(STUCK);
    });
    spinning.recv().expect("tasks do not panic");
    for (index, mut stream) in theirs.iter().enumerate() {
        if index % WRITES == 0 {
            thread::sleep(AHEAD / (COUNT / WRITES) as u32);
        }
        moments.due(index, Instant::now());
        stream.write_all(&[1]).expect("it is open");
    }
    moments.lateness()
}

fn outside<S: System>(system: &S) -> Vec<Duration> {
    let moments = Moments::new(COUNT);
    let (sender, spinning) = mpsc::channel();
    system.start(async move {
        sender.send(()).expect("the receiver exists");
        spin(STUCK);
    });
    spinning.recv().expect("tasks do not panic");
    thread::sleep(AHEAD);
    let deadline = Instant::now() + AHEAD;
    for index in 0..COUNT {
        system.arm(deadline, moments.comes(index, deadline));
    }
    moments.lateness()
}

fn all<S: System>(system: &S, stuck: Stuck) -> Option<Vec<Duration>> {
    let moments = Moments::new(COUNT);
    let (sender, begun) = mpsc::channel();
    let (over, until_over) = mpsc::channel();
    system.start(async move {
        sender.send(()).expect("the receiver exists");
        stuck.stay_until(&until_over);
    });
    begun.recv().expect("tasks do not panic");
    let arming = moments.clone();
    // Only one worker is free, so the task cannot move.
    let is_set = run(system, async move {
        let is_set = arm_all::<S>(arming, S::arm_here, Before::Nothing).await;
        if is_set {
            stuck.stay();
        }
        drop(over);
        is_set
    });
    is_set.then(|| moments.lateness())
}

fn print(what: &str, system: &str, rounds: Vec<Vec<Duration>>) {
    let micros = |time: Duration| time.as_nanos() as f64 / 1e3;
    let maxima = rounds
        .iter()
        .map(|round| *round.iter().max().expect("some"));
    let maxima: Vec<_> = maxima.collect();
    let max = *maxima.iter().max().expect("some");
    println!(
        "{what:<18}{system:<18}{:>12.1}{:>16.1}{:>12.1}",
        micros(median(rounds.concat())),
        micros(median(maxima)),
        micros(max),
    );
}

fn main() {
    let date = Command::new("date").args(["-u", "+%F"]).output();
    let date = date.map_or_else(|_| "?".into(), |date| date.stdout);
    let (flags, target) = if cfg!(tokio_unstable) {
        (
            "RUSTFLAGS=\"--cfg tokio_unstable\" ",
            " --target-dir target/unstable",
        )
    } else {
        ("", "")
    };
    println!(
        "# {}: {flags}cargo bench --bench stall{target}",
        String::from_utf8_lossy(&date).trim()
    );
    println!(
        "{:<18}{:<18}{:>12}{:>16}{:>12}",
        "late", "system", "p50 µs", "max, median µs", "max µs"
    );
    // Cargo adds an option of its own.
    let chosen = std::env::args().skip(1).find(|arg| !arg.starts_with('-'));
    let is_chosen = |what: &str| chosen.as_ref().is_none_or(|word| what.contains(word));
    for (what, scenario) in SCENARIOS.into_iter().filter(|(what, _)| is_chosen(what)) {
        let meter = Meter::start();
        let rounds = turns(ROUNDS, SYSTEMS.len(), |at| SYSTEMS[at].1.run(scenario));
        let disturbance = meter.read();
        for ((system, _), rounds) in SYSTEMS.iter().zip(rounds) {
            print(what, system, rounds);
        }
        println!("{what:<18}{:<18}{disturbance}", "the machine");
    }
}
