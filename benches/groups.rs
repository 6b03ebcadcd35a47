//! How long the tasks of a server wait while batch work keeps all cores busy: with groups of tasks,
//! and with what else there is.
//!
//! The batch work is eight tasks that compute for 200 µs and yield, again and again. The server's
//! work is four tasks that sleep for 1 ms, again and again, and a connection over which a thread
//! sends a request of HTTP, waits for the answer, and thinks for 1.0 to 1.4 ms. The time is random:
//! otherwise a request would come at the same moment of each poll.
//!
//! That thread stands for clients on other machines, so it must not wait for a core. It has no core
//! of its own, but real-time priority, if the system permits that. Otherwise the kernel makes it
//! wait behind the workers, and this counts as the server's time.
//!
//! | system | the batch work is |
//! |---|---|
//! | *tourbillon* | in the same group |
//! | *with a group* | in a group of 50 shares; the server's has 100 |
//! | *with a group, 50 µs* | the same, in polls of 50 µs |
//! | *tokio* | on the same runtime |
//! | *tokio, two runtimes* | on a second one, with two more threads |
//! | *tokio, nice* | on a second one, whose threads have niceness 19 |
//!
//! Each runtime has two workers. *alone* is the same without batch work, on the same runtimes. The
//! rounds take turns; p50 and p99 are the medians of the rounds' ones, in µs. *times* is the p99
//! beside that alone. *batch* is how many cores the batch work got.
//!
//! Beside batch work no core is free. So whatever else runs on the machine takes one from a worker,
//! which *alone* it does not. A program that runs for some ms three times a second doubles the p99.
//! Such a round is repeated, at most twice, if others took more than a hundredth of the cores.
//! *others* is what they took of the rounds that count; *alone* it is also what it takes the kernel
//! to wake a core.
//!
//! Run `cargo bench --bench groups`. After `--` a number sets the seconds of each round, and
//! `ordinary` leaves the client at ordinary priority.

use std::{
    array, env,
    future::Future,
    io::{Read, Write},
    net::TcpStream,
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use tourbillon::task::Group;
use tourbillon_support::{
    bench::{median, percentiles, time_of, turns},
    disturbance::Meter,
    spin,
};

const ROUNDS: usize = 3;
/// What others may take of the cores in a round, and how often a round is made for that.
const DISTURBED: f64 = 0.01;
const TRIES: usize = 3;
const MS: Duration = Duration::from_millis(1);
const BATCH_TASKS: usize = 8;
const SLEEPERS: usize = 4;
const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: here\r\n\r\n";
const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nhello\n";

const SYSTEMS: [&str; 6] = [
    "tourbillon",
    "with a group",
    "with a group, 50 µs",
    "tokio",
    "tokio, two runtimes",
    "tokio, nice",
];

type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// What one round has measured, in µs.
#[derive(Default)]
struct Round {
    sleeps: Vec<f64>,
    requests: Vec<f64>,
    /// How many cores the batch work got.
    batch: f64,
    /// Which part of the cores others took.
    others: f64,
}

/// What the tasks of a round share.
#[derive(Default)]
struct Shared {
    over: AtomicBool,
    /// How long the batch work has computed, in ns of processor time.
    computed: AtomicU64,
    sleeps: Mutex<Vec<f64>>,
}

/// Whether the client has real-time priority.
static IS_PREFERRED: AtomicBool = AtomicBool::new(false);

/// Gives the calling thread real-time priority, if the system permits that.
fn prefer_this_thread() -> bool {
    let lowest = libc::sched_param { sched_priority: 1 };
    // SAFETY: zero is the calling thread, and the call reads `lowest`.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const lowest) == 0 }
}

fn micros(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e6
}

/// A runtime, or two, for the work of the server and for the batch work.
enum System {
    Ours(tourbillon::Runtime, Option<Group>),
    Tokio(tokio::runtime::Runtime, Option<tokio::runtime::Runtime>),
}

fn tokio_runtime(niceness: i32) -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .on_thread_start(move || {
            if niceness > 0 {
                // SAFETY: it takes integers alone. Zero is the calling thread.
                let set = unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, niceness) };
                assert_eq!(set, 0, "a thread may always be nicer");
            }
        })
        .build()
        .expect("a runtime of two workers")
}

impl System {
    fn new(name: &str) -> Self {
        match name {
            "tourbillon" | "with a group" | "with a group, 50 µs" => {
                let mut builder = tourbillon::runtime::Builder::new();
                let runtime = builder.worker_threads(2).build().expect("two workers");
                let group = (name != "tourbillon").then(|| {
                    let batch = Group::builder("batch").shares(50);
                    batch.build_on(runtime.handle()).expect("the first group")
                });
                Self::Ours(runtime, group)
            }
            "tokio" => Self::Tokio(tokio_runtime(0), None),
            "tokio, nice" => Self::Tokio(tokio_runtime(0), Some(tokio_runtime(19))),
            _ => Self::Tokio(tokio_runtime(0), Some(tokio_runtime(0))),
        }
    }

    fn spawn(&self, task: Task) {
        match self {
            Self::Ours(runtime, _) => drop(runtime.spawn(task)),
            Self::Tokio(runtime, _) => drop(runtime.spawn(task)),
        }
    }

    fn spawn_batch(&self, task: Task) {
        match self {
            Self::Ours(_, Some(group)) => drop(group.spawn(task)),
            Self::Tokio(_, Some(runtime)) => drop(runtime.spawn(task)),
            _ => self.spawn(task),
        }
    }

    /// Spawns a task that sleeps for 1 ms, again and again.
    fn spawn_sleeper(&self, shared: &Arc<Shared>) {
        let (is_ours, shared) = (matches!(self, Self::Ours(..)), shared.clone());
        self.spawn(Box::pin(async move {
            let mut sleeps = Vec::new();
            while !shared.over.load(Relaxed) {
                let since = Instant::now();
                match is_ours {
                    true => tourbillon::time::sleep(MS).await,
                    false => tokio::time::sleep(MS).await,
                }
                sleeps.push(micros(since));
            }
            shared.sleeps.lock().expect("no panic").extend(sleeps);
        }));
    }

    /// Spawns a task that computes in polls of this length.
    fn spawn_computation(&self, shared: &Arc<Shared>, poll: Duration) {
        let (is_ours, shared) = (matches!(self, Self::Ours(..)), shared.clone());
        self.spawn_batch(Box::pin(async move {
            while !shared.over.load(Relaxed) {
                let before = processor_time();
                spin(poll);
                shared
                    .computed
                    .fetch_add(processor_time() - before, Relaxed);
                match is_ours {
                    true => tourbillon::task::yield_now().await,
                    false => tokio::task::yield_now().await,
                }
            }
        }));
    }

    /// Spawns a server of one connection. Returns the other end.
    fn connect(&self) -> TcpStream {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let ours = TcpStream::connect(listener.local_addr().expect("bound")).expect("a connection");
        let (theirs, _) = listener.accept().expect("it waits");
        theirs.set_nonblocking(true).expect("a socket");
        for socket in [&ours, &theirs] {
            socket.set_nodelay(true).expect("a socket of TCP");
        }
        let mut request = [0; REQUEST.len()];
        match self {
            Self::Ours(..) => self.spawn(Box::pin(async move {
                let mut stream = tourbillon::net::TcpStream::from_std(theirs).expect("watched");
                while futures_lite::AsyncReadExt::read_exact(&mut stream, &mut request)
                    .await
                    .is_ok()
                {
                    futures_lite::AsyncWriteExt::write_all(&mut stream, ANSWER)
                        .await
                        .expect("the client reads");
                }
            })),
            Self::Tokio(..) => self.spawn(Box::pin(async move {
                let mut stream = tokio::net::TcpStream::from_std(theirs).expect("watched");
                while tokio::io::AsyncReadExt::read_exact(&mut stream, &mut request)
                    .await
                    .is_ok()
                {
                    tokio::io::AsyncWriteExt::write_all(&mut stream, ANSWER)
                        .await
                        .expect("the client reads");
                }
            })),
        }
        ours
    }
}

/// Returns the processor time of the calling thread, in ns.
fn processor_time() -> u64 {
    time_of(libc::CLOCK_THREAD_CPUTIME_ID).as_nanos() as u64
}

fn round(name: &str, is_alone: bool, length: Duration) -> Round {
    let system = System::new(name);
    let poll = Duration::from_micros(if name.ends_with("50 µs") { 50 } else { 200 });
    let shared = Arc::new(Shared::default());
    if !is_alone {
        (0..BATCH_TASKS).for_each(|_| system.spawn_computation(&shared, poll));
    }
    (0..SLEEPERS).for_each(|_| system.spawn_sleeper(&shared));
    let mut client = system.connect();
    let meter = Meter::start();
    let begin = Instant::now();
    let ask = || {
        if IS_PREFERRED.load(Relaxed) {
            prefer_this_thread();
        }
        let mut requests = Vec::new();
        let mut answer = [0; ANSWER.len()];
        // The generator MINSTD.
        let mut random = 1_u64;
        while begin.elapsed() < length {
            random = random * 48_271 % 0x7fff_ffff;
            thread::sleep(MS + Duration::from_nanos(random % 400_000));
            let since = Instant::now();
            client.write_all(REQUEST).expect("the server reads");
            client.read_exact(&mut answer).expect("it answers");
            requests.push(micros(since));
            assert_eq!(answer, ANSWER);
        }
        requests
    };
    let requests = thread::scope(|scope| scope.spawn(ask).join().expect("it answers"));
    let elapsed = begin.elapsed().as_nanos() as f64;
    let others = meter.read().lost();
    let batch = shared.computed.load(Relaxed) as f64 / elapsed;
    shared.over.store(true, Relaxed);
    drop(client);
    // The sleepers hand over what they have measured.
    while Arc::strong_count(&shared) > 1 {
        thread::sleep(MS);
    }
    let sleeps = std::mem::take(&mut *shared.sleeps.lock().expect("no panic"));
    Round {
        sleeps,
        requests,
        batch,
        others,
    }
}

/// Makes rounds beside batch work until others disturb one little. Returns the one that they
/// disturbed least.
fn calm_round(name: &str, is_alone: bool, length: Duration) -> Round {
    let mut best = round(name, is_alone, length);
    for _ in 1..TRIES {
        if is_alone || best.others <= DISTURBED {
            break;
        }
        let again = round(name, is_alone, length);
        if again.others < best.others {
            best = again;
        }
    }
    best
}

fn main() {
    let seconds = env::args().skip(1).find_map(|arg| arg.parse().ok());
    let length = Duration::from_secs_f64(seconds.unwrap_or(2.0));
    let is_ordinary = env::args().any(|arg| arg == "ordinary");
    // A thread gives its priority to those that it starts, so this one ends.
    let permits = thread::spawn(prefer_this_thread).join().expect("no panic");
    IS_PREFERRED.store(permits && !is_ordinary, Relaxed);
    if !permits && !is_ordinary {
        println!("The client has ordinary priority: real-time priority is not permitted.\n");
    }
    let all = turns(ROUNDS, 2 * SYSTEMS.len(), |at| {
        calm_round(SYSTEMS[at / 2], at % 2 == 0, length)
    });
    // Of each: p50 and p99 of the sleeps, those of the requests, the cores of the batch work, and
    // what others took.
    let of_round = |round: Round| {
        let (sleeps, requests) = (percentiles(round.sleeps), percentiles(round.requests));
        [
            sleeps.0,
            sleeps.1,
            requests.0,
            requests.1,
            round.batch,
            round.others,
        ]
    };
    let results: Vec<[f64; 6]> = all
        .into_iter()
        .map(|rounds| {
            let rounds: Vec<_> = rounds.into_iter().map(of_round).collect();
            array::from_fn(|figure| median(rounds.iter().map(|round| round[figure])))
        })
        .collect();
    println!("| | sleep of 1 ms: p50 · p99 | times | hello: p50 · p99 | times | batch | others |");
    println!("|---|---|---|---|---|---|---|");
    for (name, pair) in SYSTEMS.iter().zip(results.chunks(2)) {
        let (alone, busy) = (&pair[0], &pair[1]);
        for (label, of) in [(format!("{name}, alone"), alone), (name.to_string(), busy)] {
            let [sleep, late_sleep, hello, late_hello, batch, others] = of;
            println!(
                "| {label} | {sleep:.0} · {late_sleep:.0} | {:.2} | {hello:.0} · {late_hello:.0} | \
                {:.2} | {batch:.2} | {:.1} % |",
                late_sleep / alone[1],
                late_hello / alone[3],
                100.0 * others,
            );
        }
    }
}
