//! How late things are that belong to a worker which is stuck in a job; ours and tokio's, by turns, in
//! one run.
//!
//! Each runtime has two workers, and is new in each round. One of them, or both, run a job that takes
//! 200 ms; everything else would take microseconds. Lateness counts from the moment at which something
//! was due, or was done, to the first instruction of what follows from it.
//!
//! | | what is done | late since | what runs |
//! |---|---|---|---|
//! | *armed* | a task arms 100 timers, due in 10 ms, then spins | the deadline | ours: callbacks; tokio, which has none: tasks that sleep |
//! | *asleep* | the same, with tasks that sleep for both | the deadline | tasks |
//! | *spawn* | a task spawns 100 tasks, then spins | each one's spawn | tasks |
//! | *woken* | a task sends to another, which waits on a channel, then spins | the sending | the task that waited |
//! | *sockets* | a task registers 100 loopback TCP connections, each read by a task, then spins; 10 ms later a thread writes a byte to each | each one's write | the tasks that read, after the read |
//! | *outside* | a task spins; 10 ms later a thread outside arms 100 timers, due in 10 ms | the deadline | as *armed* |
//! | *all spin* | as *armed*, while another task spins on the other worker, from before to after | the deadline | as *armed* |
//! | *all block* | the same, but that both block their threads instead of spinning | the deadline | as *armed* |
//!
//! What is registered before the job that takes long is registered by its worker:
//!
//! - A sleep is polled once by the task that will spin, and handed to a task of its own; then the
//!   task that will spin yields, until all of these tasks have been polled, on whichever worker. A callback
//!   of ours is armed by the call, so there is nothing to yield for.
//! - A socket is registered by the task that will spin; the tasks that read it are awaited in the same way.
//! - Should the task that will spin have been moved to the other worker by then, or the deadline have passed,
//!   the round is done again, in a new runtime.
//!
//! *resumed*: the same, but that the task sleeps for 1 ms before it spins, as one does that waits for
//! anything. tokio has one driver for all workers, and who is resumed by it is run by the worker that looked
//! after it; nobody does so then until that worker is done. Without that sleep it is the other worker, having
//! polled the last of the tasks, that looks after the driver, and nothing is late. (tokio's timers count in
//! milliseconds, rounded up: 1 to 2 ms are no sign of a worker that is stuck.)
//!
//! The columns: p50 of all rounds together; the maximum of each round, and the median of these; and the
//! maximum of all. The second is what to compare: one interruption by the rest of the machine in
//! one of the rounds makes the third.
//!
//! `cargo bench --bench stall`; with tokio's unstable options beside it, which takes a build of its own,
//! `RUSTFLAGS="--cfg tokio_unstable" cargo bench --bench stall --target-dir target/unstable`.

#[path = "stall/systems.rs"]
mod systems;

use std::{
    future::Future,
    io::Write,
    net::{Ipv4Addr, TcpListener, TcpStream},
    process::Command,
    sync::{Arc, OnceLock, mpsc},
    thread,
    time::{Duration, Instant},
};

use systems::{Count, Ours, System, Tokio, counted, sleep_here};

const ROUNDS: usize = 7;
const WORKERS: usize = 2;
const COUNT: usize = 100;
/// How long the job takes.
const STUCK: Duration = Duration::from_millis(200);
/// From arming to the deadline, and from the beginning of the job to what comes from outside.
const AHEAD: Duration = Duration::from_millis(10);
/// For how long a task sleeps that is resumed.
const NAP: Duration = Duration::from_millis(1);
/// How often *woken* is done in a round: each is one task.
const WAKES: usize = 5;
/// How long a runtime gets to start its workers, and to let them go to sleep.
const SETTLE: Duration = Duration::from_millis(10);
/// After this long something is lost.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often a round is begun at most.
const ATTEMPTS: usize = 100;

/// What is measured. A runtime with other options is a line here.
const SYSTEMS: &[(&str, Setup)] = &[
    ("tourbillon", Setup::Ours(|builder| builder)),
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
    Ours(fn(tourbillon::runtime::Builder) -> tourbillon::runtime::Builder),
    Tokio(fn(&mut tokio::runtime::Builder) -> &mut tokio::runtime::Builder),
}

impl Setup {
    /// One round.
    fn run(&self, scenario: Scenario) -> Vec<Duration> {
        let lateness = (0..ATTEMPTS).find_map(|_| match self {
            Setup::Ours(options) => {
                let builder = tourbillon::runtime::Builder::new().worker_threads(WORKERS);
                scenario.run(&Ours(options(builder).build().expect("a runtime")))
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

/// When each of some things was due, and when it came.
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
        // First of all.
        let now = Instant::now();
        self.0[index][1].set(now).expect("once");
    }

    /// What notes that one came, which is due then.
    fn comes(&self, index: usize, due: Instant) -> impl FnOnce() + Send + 'static {
        self.due(index, due);
        let moments = self.clone();
        move || moments.came(index)
    }

    /// Waits for all of them, without keeping a core busy.
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

/// How a job takes long.
#[derive(Clone, Copy)]
enum Stuck {
    Spinning,
    Blocked,
}

impl Stuck {
    fn stay(self) {
        match self {
            Stuck::Spinning => spin(),
            Stuck::Blocked => thread::sleep(STUCK),
        }
    }

    /// Until the other end is dropped.
    fn stay_until(self, over: &mpsc::Receiver<()>) {
        match self {
            Stuck::Spinning => while over.try_recv() == Err(mpsc::TryRecvError::Empty) {},
            Stuck::Blocked => drop(over.recv()),
        }
    }
}

fn spin() {
    let begun = Instant::now();
    while begun.elapsed() < STUCK {}
}

/// What the task does that will spin, between the last that it registers and that.
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

/// Runs a task, and waits for what it answers.
fn run<S: System, R: Send + 'static>(
    system: &S,
    task: impl Future<Output = R> + Send + 'static,
) -> R {
    let (sender, receiver) = mpsc::channel();
    system.start(async move {
        let answer = task.await;
        sender.send(answer).expect("somebody waits");
    });
    receiver.recv().expect("tasks do not panic")
}

#[derive(Clone, Copy)]
enum Scenario {
    Armed(Before),
    Asleep(Before),
    Spawn,
    Woken,
    Sockets(Before),
    Outside,
    All(Stuck),
}

const SCENARIOS: [(&str, Scenario); 11] = [
    ("armed", Scenario::Armed(Before::Nothing)),
    ("armed, resumed", Scenario::Armed(Before::Sleep)),
    ("asleep", Scenario::Asleep(Before::Nothing)),
    ("asleep, resumed", Scenario::Asleep(Before::Sleep)),
    ("spawn", Scenario::Spawn),
    ("woken", Scenario::Woken),
    ("sockets", Scenario::Sockets(Before::Nothing)),
    ("sockets, resumed", Scenario::Sockets(Before::Sleep)),
    ("outside", Scenario::Outside),
    ("all spin", Scenario::All(Stuck::Spinning)),
    ("all block", Scenario::All(Stuck::Blocked)),
];

impl Scenario {
    /// One round on a new runtime; `None` if it was not as it should be when the job began.
    fn run<S: System>(self, system: &S) -> Option<Vec<Duration>> {
        thread::sleep(SETTLE);
        run(system, async {});
        thread::sleep(SETTLE);
        match self {
            Scenario::Armed(before) => armed(system, S::arm_here, before),
            Scenario::Asleep(before) => armed(system, sleep_here::<S, _>, before),
            Scenario::Spawn => Some(spawned(system)),
            Scenario::Woken => Some(woken(system)),
            Scenario::Sockets(before) => sockets(system, before),
            Scenario::Outside => Some(outside(system)),
            Scenario::All(stuck) => all(system, stuck),
        }
    }
}

/// Arms a timer from a task: [`System::arm_here`] or [`sleep_here`].
type Arm = fn(Instant, &Count, Box<dyn FnOnce() + Send>);

/// From a task: arms all timers, and lets others run until nothing has to be done for any. True if the
/// task is still on the worker whose timers they are, and in time.
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
            spin();
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
        spin();
    });
    moments.lateness()
}

fn woken<S: System>(system: &S) -> Vec<Duration> {
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
        // It has been polled then, and the workers sleep.
        thread::sleep(SETTLE);
        let sending = moments.clone();
        run(system, async move {
            sending.due(index, Instant::now());
            sender.send(()).expect("it waits");
            spin();
        });
    }
    moments.lateness()
}

/// Both ends of some connections.
fn connections() -> Vec<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let addr = listener.local_addr().expect("it is bound");
    let connect = |_| {
        let client = TcpStream::connect(addr).expect("somebody listens");
        (client, listener.accept().expect("somebody connects").0)
    };
    (0..COUNT).map(connect).collect()
}

fn sockets<S: System>(system: &S, before: Before) -> Option<Vec<Duration>> {
    let moments = Moments::new(COUNT);
    let (theirs, ours): (Vec<_>, Vec<_>) = connections().into_iter().unzip();
    let (sender, spinning) = mpsc::channel();
    let reading = moments.clone();
    system.start(async move {
        let here = thread::current().id();
        let waits = Count::default();
        for (index, stream) in ours.into_iter().enumerate() {
            let (mut socket, reading) = (S::socket(stream), reading.clone());
            let waits = waits.clone();
            S::spawn(async move {
                // Not so in a round that is done again.
                if counted(S::read(&mut socket), waits).await {
                    reading.came(index);
                }
            });
        }
        waits.wait_for::<S>(COUNT).await;
        before.pass::<S>().await;
        let stayed = thread::current().id() == here;
        sender.send(stayed).expect("somebody waits");
        if stayed {
            spin();
        }
    });
    let stayed = spinning.recv().expect("tasks do not panic");
    stayed.then(|| {
        thread::sleep(AHEAD);
        for (index, mut stream) in theirs.iter().enumerate() {
            moments.due(index, Instant::now());
            stream.write_all(&[1]).expect("it is open");
        }
        moments.lateness()
    })
}

fn outside<S: System>(system: &S) -> Vec<Duration> {
    let moments = Moments::new(COUNT);
    let (sender, spinning) = mpsc::channel();
    system.start(async move {
        sender.send(()).expect("somebody waits");
        spin();
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
        sender.send(()).expect("somebody waits");
        stuck.stay_until(&until_over);
    });
    begun.recv().expect("tasks do not panic");
    let arming = moments.clone();
    // On the only worker that is left, so it cannot be moved.
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
    let median = |mut all: Vec<Duration>| {
        all.sort_unstable();
        all[all.len() / 2].as_nanos() as f64 / 1e3
    };
    let maxima = rounds
        .iter()
        .map(|round| *round.iter().max().expect("some"));
    let maxima: Vec<_> = maxima.collect();
    let max = *maxima.iter().max().expect("some");
    println!(
        "{what:<18}{system:<18}{:>12.1}{:>16.1}{:>12.1}",
        median(rounds.concat()),
        median(maxima),
        max.as_nanos() as f64 / 1e3,
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
    for (what, scenario) in SCENARIOS {
        let mut rounds: Vec<Vec<_>> = SYSTEMS.iter().map(|_| Vec::new()).collect();
        for _ in 0..ROUNDS {
            for ((_, setup), rounds) in SYSTEMS.iter().zip(&mut rounds) {
                rounds.push(setup.run(scenario));
            }
        }
        for ((system, _), rounds) in SYSTEMS.iter().zip(rounds) {
            print(what, system, rounds);
        }
    }
}
