//! Compares the stores with a worker that polls PostgreSQL once a second: jobs per second, lateness
//! and cost.
//!
//! Run it with `cargo bench --all-features --bench queues`. Arguments choose rows by parts of
//! their names. `benches/peers/run.py` measures other queues in the same way.

use std::{
    collections::HashMap,
    env, fs,
    future::poll_fn,
    net::Ipv4Addr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio_postgres::{Client, NoTls};
use tourbillon::{
    Runtime,
    net::TcpStream,
    time::{Instant, sleep},
};
use tourbillon_jobs::{Attempt, Node, Queue, Time, When, sqlite::Sqlite, store::Store};

#[allow(dead_code, reason = "this bench never crashes the server")]
#[path = "../src/bin/torture/server/mod.rs"]
mod server;

use self::server::{Postgres, Redis, Server};

/// Number of jobs that are due one after another.
const PACED: usize = 20_000;
/// The time between two of them.
const PACE: Duration = Duration::from_millis(1);
/// How many jobs are due at once.
const BACKLOG: usize = 20_000;
/// How many clients schedule jobs.
const CLIENTS: usize = 256;
const PAYLOAD: [u8; 64] = [7; 64];

/// The lateness of the jobs, and the number of jobs whose end the store has not taken.
struct Seen {
    lateness: Mutex<Vec<i64>>,
    left: AtomicUsize,
}

impl Seen {
    fn new(jobs: usize) -> Arc<Self> {
        Arc::new(Self {
            lateness: Mutex::new(Vec::with_capacity(jobs)),
            left: AtomicUsize::new(jobs),
        })
    }

    fn handle(&self, at: Time) {
        let late = Time::wall().as_micros() - at.as_micros();
        self.lateness.lock().unwrap().push(late);
    }

    /// Records that the store has taken the ends of `jobs` jobs.
    fn end(&self, jobs: usize) {
        self.left.fetch_sub(jobs, Ordering::Relaxed);
    }

    async fn all(&self) {
        while self.left.load(Ordering::Relaxed) > 0 {
            sleep(Duration::from_millis(1)).await;
        }
    }

    fn lateness(&self, part: usize) -> f64 {
        let mut lateness = self.lateness.lock().unwrap();
        lateness.sort_unstable();
        lateness[(lateness.len() - 1) * part / 100] as f64 / 1e3
    }
}

/// A queue with its workers.
trait Bench {
    /// Adds jobs that are due at these times.
    async fn schedule(&self, round: &str, times: Vec<Time>);
    /// Starts workers, which run until this is dropped.
    async fn work(&mut self, seen: Arc<Seen>);
    async fn stop(&mut self);
}

struct Ours<S> {
    queues: Vec<Queue<S>>,
    nodes: Vec<Node<S>>,
}

impl<S: Store> Ours<S> {
    fn new(stores: Vec<S>) -> Self {
        Self {
            queues: stores.into_iter().map(Queue::new).collect(),
            nodes: Vec::new(),
        }
    }
}

impl<S: Store> Bench for Ours<S> {
    async fn schedule(&self, round: &str, times: Vec<Time>) {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|client| {
                let queue = self.queues[client % self.queues.len()].clone();
                let (times, round) = (times.clone(), round.to_owned());
                tourbillon::spawn(async move {
                    for number in (client..times.len()).step_by(CLIENTS) {
                        let key = format!("{round}-{number}");
                        let when = When::At(times[number]);
                        queue.schedule(key, when, PAYLOAD).await.unwrap();
                    }
                })
            })
            .collect();
        for client in clients {
            client.await.unwrap();
        }
    }

    async fn work(&mut self, seen: Arc<Seen>) {
        for queue in &self.queues {
            let (handles, ends) = (seen.clone(), seen.clone());
            let node = Node::builder(queue.clone())
                .on_end(move |_| ends.end(1))
                .start(move |attempt: Attempt| {
                    handles.handle(attempt.at);
                    async { Ok(()) }
                });
            self.nodes.push(node);
        }
    }

    async fn stop(&mut self) {
        for node in self.nodes.drain(..) {
            assert!(node.stop(Duration::from_secs(60)).await);
        }
    }
}

/// A table of jobs, and a worker that looks for due ones once a second.
struct Polling {
    client: Arc<Client>,
    worker: Option<tourbillon::task::JoinHandle<()>>,
}

impl Polling {
    async fn new(port: u16) -> Self {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))
            .await
            .unwrap();
        stream.set_nodelay(true).unwrap();
        let config: tokio_postgres::Config = Postgres::config(port).parse().unwrap();
        let (client, mut connection) = config.connect_raw(stream, NoTls).await.unwrap();
        tourbillon::spawn(async move {
            while let Some(Ok(_)) = poll_fn(|cx| connection.poll_message(cx)).await {}
        });
        let tables = "CREATE TABLE polled (key text PRIMARY KEY, at bigint NOT NULL,
                          payload bytea NOT NULL);
                      CREATE INDEX ON polled (at)";
        client.batch_execute(tables).await.unwrap();
        Self {
            client: Arc::new(client),
            worker: None,
        }
    }
}

impl Bench for Polling {
    async fn schedule(&self, round: &str, times: Vec<Time>) {
        let add = "INSERT INTO polled SELECT key, at, $3
                   FROM unnest($1::text[], $2::bigint[]) AS n (key, at)";
        let add = self.client.prepare(add).await.unwrap();
        for (number, times) in times.chunks(CLIENTS).enumerate() {
            let keys: Vec<_> = (0..times.len())
                .map(|key| format!("{round}-{number}-{key}"))
                .collect();
            let times: Vec<_> = times.iter().map(|time| time.as_micros()).collect();
            self.client
                .query(&add, &[&keys, &times, &PAYLOAD.as_slice()])
                .await
                .unwrap();
        }
    }

    async fn work(&mut self, seen: Arc<Seen>) {
        let client = self.client.clone();
        let take = "DELETE FROM polled WHERE key IN
                        (SELECT key FROM polled WHERE at <= $1 ORDER BY at LIMIT 1000
                         FOR UPDATE SKIP LOCKED)
                    RETURNING key, at, payload";
        let take = client.prepare(take).await.unwrap();
        self.worker = Some(tourbillon::spawn(async move {
            loop {
                // A crash before the commit leaves the jobs in the table.
                client.batch_execute("BEGIN").await.unwrap();
                let now = Time::wall().as_micros();
                let found = client.query(&take, &[&now]).await.unwrap();
                for row in &found {
                    seen.handle(Time::from_micros(row.get(1)));
                }
                client.batch_execute("COMMIT").await.unwrap();
                seen.end(found.len());
                if found.len() < 1000 {
                    sleep(Duration::from_secs(1)).await;
                }
            }
        }));
    }

    async fn stop(&mut self) {
        if let Some(worker) = self.worker.take() {
            worker.abort();
        }
    }
}

/// Returns the processor time of this process and of those that descend from it, in seconds.
fn processor_time() -> f64 {
    // The parent and the time of each process.
    let mut processes = HashMap::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let name = entry.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        let Ok(stat) = fs::read_to_string(entry.path().join("stat")) else {
            continue;
        };
        // The fields after the name begin with the state and the parent. The twelfth to the
        // fifteenth are the processor time of the process and of its children that ended, in ticks
        // of 10 ms.
        let (_, fields) = stat.rsplit_once(") ").unwrap();
        let fields: Vec<_> = fields.split(' ').collect();
        let ticks: u64 = fields[11..15]
            .iter()
            .map(|f| f.parse::<u64>().unwrap())
            .sum();
        processes.insert(pid, (fields[1].parse::<u32>().unwrap(), ticks));
    }
    let own = std::process::id();
    let descends = |mut pid: u32| {
        while pid != own {
            match processes.get(&pid) {
                Some(&(parent, _)) => pid = parent,
                None => return false,
            }
        }
        true
    };
    let all = processes.iter().filter(|(pid, _)| descends(**pid));
    all.map(|(_, (_, ticks))| *ticks).sum::<u64>() as f64 / 100.0
}

async fn measure(name: &str, mut bench: impl Bench) {
    // First the paced jobs. All are scheduled before the first one is due.
    let before = processor_time();
    let start = Time::wall().after(Duration::from_secs(20));
    let times = (0..PACED as u32).map(|number| start.after(PACE * number));
    let asked = Instant::now();
    bench.schedule("paced", times.collect()).await;
    let scheduled = PACED as f64 / asked.elapsed().as_secs_f64();
    assert!(Time::wall() < start, "20 s are too short to schedule all");
    let paced = Seen::new(PACED);
    bench.work(paced.clone()).await;
    paced.all().await;
    bench.stop().await;

    // Then the backlog: jobs that are all due at the same time.
    let start = Time::wall().after(Duration::from_secs(20));
    bench.schedule("backlog", vec![start; BACKLOG]).await;
    let backlog = Seen::new(BACKLOG);
    bench.work(backlog.clone()).await;
    assert!(Time::wall() < start, "20 s are too short to schedule all");
    sleep(start.since(Time::wall())).await;
    backlog.all().await;
    let ran = BACKLOG as f64 / Time::wall().since(start).as_secs_f64();
    bench.stop().await;
    let cost = (processor_time() - before) / (PACED + BACKLOG) as f64;
    println!(
        "{name:<34} {:>10.2} {:>10.2} {scheduled:>12.0} {ran:>9.0} {:>9.0}",
        paced.lateness(50),
        paced.lateness(99),
        cost * 1e6,
    );
}

/// Measures nodes that share a server.
async fn on_server<S: Server>(name: &str, nodes: usize) {
    let server = S::start().unwrap();
    let mut stores = Vec::new();
    for _ in 0..nodes {
        stores.push(S::connect(server.port()).await.unwrap());
    }
    measure(name, Ours::new(stores)).await;
}

fn main() {
    let parts: Vec<_> = env::args()
        .skip(1)
        .filter(|a| !a.starts_with('-'))
        .collect();
    let is_chosen = |name: &str| parts.is_empty() || parts.iter().any(|part| name.contains(part));
    println!(
        "{:<34} {:>10} {:>10} {:>12} {:>9} {:>9}",
        "", "p50 ms", "p99 ms", "scheduled/s", "run/s", "µs/job"
    );
    let runtime = || Runtime::new().unwrap();
    let name = "SQLite";
    if is_chosen(name) {
        let dir = env::temp_dir().join(format!("durable-queues-{}", std::process::id()));
        fs::create_dir(&dir).unwrap();
        runtime().block_on(async {
            let store = Sqlite::open(dir.join("jobs.db")).unwrap();
            measure(name, Ours::new(vec![store])).await;
        });
        fs::remove_dir_all(&dir).unwrap();
    }
    for (name, nodes) in [("PostgreSQL, one node", 1), ("PostgreSQL, three nodes", 3)] {
        if is_chosen(name) {
            runtime().block_on(on_server::<Postgres>(name, nodes));
        }
    }
    for (name, nodes) in [("Redis, one node", 1), ("Redis, three nodes", 3)] {
        if is_chosen(name) {
            runtime().block_on(on_server::<Redis>(name, nodes));
        }
    }
    let name = "PostgreSQL, polled once a second";
    if is_chosen(name) {
        let server = Postgres::start().unwrap();
        runtime().block_on(async {
            measure(name, Polling::new(server.port()).await).await;
        });
    }
}
