//! Jobs that are added in the transactions of clients, which are killed, leave exactly what was
//! committed.
//!
//! Four clients make orders, each with a job: by tokio-postgres on our runtime, by sqlx on tokio's,
//! by psql, and by psycopg in Python. They roll a third back. Their sessions and their processes
//! are killed, and the server once. A node runs the jobs of one half of the orders meanwhile. Each
//! client says what was acknowledged to it.

use std::{
    collections::HashSet,
    env,
    io::{BufRead, BufReader, Write},
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex, mpsc},
    thread,
    time::Duration,
};

use sqlx::Connection;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tourbillon::{task::block_in_place, time::sleep};
use tourbillon_jobs::{Node, Queue, postgres::Postgres as Store};

use crate::{
    postgres::{client, client_of},
    server::{Postgres, Server},
    shared::{connect, skip, with_server},
    support::PATIENCE,
};

/// The program of the client in Python.
const PYTHON: &str = include_str!("transactions.py");

/// Sessions of this name are killed.
const NAME: &str = "orders";

/// How many transactions all clients make, unless a variable says it.
const TRANSACTIONS: u32 = 4000;

/// Returns psql, with the arguments that connect it, if it is installed.
pub fn psql(port: u16) -> Option<Command> {
    let found = Command::new("psql").arg("--version").output();
    found.ok().filter(|found| found.status.success())?;
    let mut psql = Command::new("psql");
    psql.args(["-h", "127.0.0.1", "-p", &port.to_string()])
        .args(["-U", "postgres", "-d", "postgres"])
        .args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1"])
        .env("PGAPPNAME", NAME);
    Some(psql)
}

/// Returns a Python that has psycopg.
pub fn python() -> Option<Command> {
    let python = env::var_os("TOURBILLON_PYTHON").unwrap_or_else(|| "python3".into());
    let found = Command::new(&python)
        .args(["-c", "import psycopg"])
        .stderr(Stdio::null())
        .status();
    found.ok().filter(|found| found.success())?;
    Some(Command::new(python))
}

/// What a client says of an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Said {
    Committed,
    RolledBack,
}

type Says = mpsc::Sender<(u32, Said)>;

/// Says how a client ends the transaction of an order.
fn end(id: u32) -> Said {
    match id % 3 {
        0 => Said::RolledBack,
        _ => Said::Committed,
    }
}

/// Returns the delay of an order's job. Those of one half stay until the test has counted them.
fn delay(id: u32) -> &'static str {
    match id % 2 {
        0 => "1 hour",
        _ => "0",
    }
}

/// Returns the payload of an order's job.
fn payload(id: u32) -> String {
    format!("{{\"order\": \"{id}\"}}")
}

const ADD_ORDER: &str = "INSERT INTO orders VALUES ($1)";
const ADD_JOB: &str = "SELECT jobs_schedule($1, $2, delay => $3::text::interval)";

/// The client that uses tokio-postgres. It connects again when it is killed, and goes on with the
/// next order.
async fn by_tokio_postgres(config: String, port: u16, ids: std::ops::Range<u32>, says: Says) {
    let mut connected = None;
    for id in ids {
        let client = match &mut connected {
            Some(client) => client,
            none => match client_of(&config, port).await {
                Ok(client) => none.insert(client),
                Err(_) => {
                    sleep(Duration::from_millis(50)).await;
                    continue;
                }
            },
        };
        let order = async {
            let transaction = client.transaction().await?;
            transaction.execute(ADD_ORDER, &[&i64::from(id)]).await?;
            let (key, payload) = (id.to_string(), payload(id));
            let added = transaction
                .query_one(ADD_JOB, &[&key, &payload, &delay(id)])
                .await?;
            assert!(added.get::<_, bool>(0));
            match end(id) {
                Said::Committed => transaction.commit().await,
                Said::RolledBack => transaction.rollback().await,
            }
        };
        match order.await {
            Ok(()) => says.send((id, end(id))).unwrap(),
            Err(_) => connected = None,
        }
    }
}

/// The client that uses sqlx, likewise.
async fn by_sqlx(url: String, ids: std::ops::Range<u32>, says: Says) {
    let mut connected = None;
    for id in ids {
        let connection = match &mut connected {
            Some(connection) => connection,
            none => match sqlx::PgConnection::connect(&url).await {
                Ok(connection) => none.insert(connection),
                Err(_) => {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            },
        };
        let order = async {
            let mut transaction = connection.begin().await?;
            sqlx::query(ADD_ORDER)
                .bind(i64::from(id))
                .execute(&mut *transaction)
                .await?;
            let added: bool = sqlx::query_scalar(ADD_JOB)
                .bind(id.to_string())
                .bind(payload(id))
                .bind(delay(id))
                .fetch_one(&mut *transaction)
                .await?;
            assert!(added);
            match end(id) {
                Said::Committed => transaction.commit().await,
                Said::RolledBack => transaction.rollback().await,
            }
        };
        match order.await {
            Ok(()) => says.send((id, end(id))).unwrap(),
            Err(_) => connected = None,
        }
    }
}

/// The process of a client, for those who kill it.
type Victim = Arc<Mutex<Option<Child>>>;

/// Runs a program that says `committed ID` and `rolled back ID`. When it ends before its time, starts
/// it again behind the order which it was about.
fn by_program(
    ids: std::ops::Range<u32>,
    says: &Says,
    victim: &Victim,
    start: impl Fn(std::ops::Range<u32>) -> (Command, String),
) {
    let mut next = ids.start;
    while next < ids.end {
        let (mut command, input) = start(next..ids.end);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        *victim.lock().unwrap() = Some(child);
        // The program may end before it has read all.
        let writes = thread::spawn(move || drop(stdin.write_all(input.as_bytes())));
        for line in lines.map_while(Result::ok) {
            let Some((what, id)) = line.rsplit_once(' ') else {
                continue;
            };
            let said = match what {
                "committed" => Said::Committed,
                "rolled back" => Said::RolledBack,
                _ => continue,
            };
            let id = id.parse().unwrap();
            assert_eq!(said, end(id));
            says.send((id, said)).unwrap();
            next = id + 1;
        }
        writes.join().unwrap();
        let child = victim.lock().unwrap().take();
        let status = child.unwrap().wait().unwrap();
        if !status.success() {
            next += 1;
            thread::sleep(Duration::from_millis(50));
        }
    }
}

/// Returns what psql runs for these orders. A shell says how each ended, as psql would keep what it
/// prints for a while.
fn script(ids: std::ops::Range<u32>) -> String {
    let orders = ids.map(|id| {
        let (end, said) = match end(id) {
            Said::Committed => ("COMMIT", "committed"),
            Said::RolledBack => ("ROLLBACK", "rolled back"),
        };
        let (payload, delay) = (payload(id), delay(id));
        format!(
            "BEGIN; INSERT INTO orders VALUES ({id});
             SELECT jobs_schedule('{id}', '{payload}', delay => '{delay}'); {end};
             \\! echo {said} {id}\n"
        )
    });
    std::iter::once("\\o /dev/null\n".to_owned())
        .chain(orders)
        .collect()
}

/// Ends a session of a client.
const KILL: &str = "
    SELECT count(pg_terminate_backend(pid)) FROM (
        SELECT pid FROM pg_stat_activity WHERE application_name = 'orders'
        ORDER BY random() LIMIT 1) AS victim";

/// Kills a session or a process of the clients each time that it is asked to. Returns how many.
async fn kill(port: u16, victims: Vec<Victim>, mut asked: UnboundedReceiver<()>) -> i64 {
    let config = Postgres::config(port);
    let (mut killed, mut connected) = (0, None);
    while asked.recv().await.is_some() {
        if let Some(victim) = victims.get(random(10) as usize) {
            if let Some(child) = &mut *victim.lock().unwrap() {
                child.kill().unwrap();
                killed += 1;
            }
            continue;
        }
        let client = match &mut connected {
            Some(client) => client,
            none => match client_of(&config, port).await {
                Ok(client) => none.insert(client),
                Err(_) => continue,
            },
        };
        match client.query_one(KILL, &[]).await {
            Ok(found) => killed += found.get::<_, i64>(0),
            Err(_) => connected = None,
        }
    }
    killed
}

/// Returns a random number below `below`.
fn random(below: u32) -> u32 {
    fastrand::u32(0..below)
}

fn transactions() -> u32 {
    match env::var("TOURBILLON_TRANSACTIONS") {
        Ok(count) => count.parse().expect("a number of transactions"),
        Err(_) => TRANSACTIONS,
    }
}

#[test]
fn transactions_under_kills_leave_exactly_what_was_committed() {
    with_server(async |mut server: Postgres| {
        let port = server.port();
        let queue = connect::<Postgres>(port).await;
        let orders = "CREATE TABLE orders (id bigint PRIMARY KEY)";
        client(&server).await.batch_execute(orders).await.unwrap();
        let ran = Arc::new(Mutex::new(HashSet::new()));
        let runs = ran.clone();
        let node = Node::builder(queue.clone())
            .lease(Duration::from_secs(2))
            .start(move |attempt| {
                let id: u32 = attempt.key.parse().unwrap();
                assert_eq!(attempt.payload, payload(id).into_bytes());
                runs.lock().unwrap().insert(id);
                async { Ok(()) }
            });

        let each = transactions().div_ceil(4);
        let ids = move |number: u32| number * 1_000_000..number * 1_000_000 + each;
        let (says, said) = mpsc::channel();
        let config = format!("{} application_name={NAME}", Postgres::config(port));
        let url = format!("postgres://postgres@127.0.0.1:{port}/postgres?application_name={NAME}");
        let mut clients = vec![];
        let ours = tourbillon::spawn(by_tokio_postgres(
            config.clone(),
            port,
            ids(1),
            says.clone(),
        ));
        let theirs = says.clone();
        clients.push(thread::spawn(move || {
            let mut runtime = tokio::runtime::Builder::new_current_thread();
            let runtime = runtime.enable_all().build().unwrap();
            runtime.block_on(by_sqlx(url, ids(2), theirs));
        }));
        let mut victims = Vec::new();
        let mut start = |number, start: Box<dyn Fn(std::ops::Range<u32>) -> _ + Send>| {
            let (says, victim) = (says.clone(), Victim::default());
            victims.push(victim.clone());
            clients.push(thread::spawn(move || {
                by_program(ids(number), &says, &victim, start);
            }));
        };
        match psql(port) {
            Some(_) => start(3, Box::new(move |ids| (psql(port).unwrap(), script(ids)))),
            None => skip("psql is not installed: apt-get install postgresql-client"),
        }
        match python() {
            Some(_) => start(
                4,
                Box::new(move |ids| {
                    let mut python = python().unwrap();
                    python.args(["-c", PYTHON, &config]);
                    python.args([ids.start.to_string(), ids.end.to_string()]);
                    (python, String::new())
                }),
            ),
            None => skip("psycopg is not installed: `.ci/psycopg`"),
        }
        drop(says);

        let (asks, asked) = unbounded_channel();
        let kills = tourbillon::spawn(kill(port, victims, asked));
        let mut heard = Vec::new();
        let half = transactions() as usize / 4;
        let mut has_crashed = false;
        block_in_place(|| {
            for one in said {
                heard.push(one);
                // A slow machine, too, does a part of its transactions between two kills.
                if heard.len() % 12 == 0 {
                    asks.send(()).unwrap();
                }
                if heard.len() == half {
                    server.crash().unwrap();
                    has_crashed = true;
                }
            }
            for client in clients {
                client.join().unwrap();
            }
        });
        ours.await.unwrap();
        drop(asks);
        let killed = kills.await.unwrap();
        assert!(killed > 0 && has_crashed);
        judge(&server, &queue, &heard, &ran).await;
        assert!(node.stop(PATIENCE).await);
    });
}

/// Checks that each order has its job, or had it run, and that there are no other jobs.
async fn judge(
    server: &Postgres,
    queue: &Queue<Store>,
    heard: &[(u32, Said)],
    ran: &Mutex<HashSet<u32>>,
) {
    let other = client(server).await;
    let ask = async |query: &str| -> HashSet<u32> {
        let found = other.query(query, &[]).await.unwrap();
        let id = |row: &tokio_postgres::Row| row.get::<_, i64>(0).try_into().unwrap();
        found.iter().map(id).collect()
    };
    let due = "SELECT key::bigint FROM durable_jobs WHERE at <= durable_now() + 1000000000";
    while !ask(due).await.is_empty() {
        sleep(Duration::from_millis(20)).await;
    }
    let orders = ask("SELECT id FROM orders").await;
    for (id, said) in heard {
        assert_eq!(orders.contains(id), *said == Said::Committed, "{id}");
    }
    let waiting = ask("SELECT key::bigint FROM durable_jobs").await;
    let ran = ran.lock().unwrap().clone();
    assert!(waiting.is_disjoint(&ran));
    let jobs: HashSet<_> = waiting.union(&ran).copied().collect();
    let (missing, too_many) = (orders.difference(&jobs), jobs.difference(&orders));
    let wrong: (Vec<_>, Vec<_>) = (missing.collect(), too_many.collect());
    assert_eq!(
        wrong,
        (vec![], vec![]),
        "orders without jobs, and jobs without orders"
    );
    let dead = queue.count().await.unwrap().dead;
    let count = |said| heard.iter().filter(|(_, other)| *other == said).count();
    let (committed, rolled_back) = (count(Said::Committed), count(Said::RolledBack));
    assert!(dead == 0 && committed > 0 && rolled_back > 0 && !ran.is_empty());
    println!(
        "{committed} committed, {rolled_back} rolled back, {} ran",
        ran.len()
    );
}
