//! What a server does that is offered four times what it can: with the layer, without it, and on
//! tokio.
//!
//! The server runs on the first core, on one worker, and spins for a millisecond for each request.
//! The client runs on the second core. It sends requests at random moments, whether or not earlier
//! ones were answered, and gives up after a second.
//!
//! ```sh
//! cargo bench -p tourbillon-admission --bench overload
//! ```

use std::{
    io::{BufRead, BufReader},
    net::{SocketAddr, TcpListener as StdListener},
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use axum::{Router, routing::get};
use futures_lite::{AsyncReadExt, AsyncWriteExt};
use rustix::thread::{CpuSet, sched_setaffinity};
use tourbillon::{net::TcpStream, time};
use tourbillon_admission::Admission;

/// How long a handler computes.
const WORK: Duration = Duration::from_millis(1);
/// When a client gives up.
const PATIENCE: Duration = Duration::from_secs(1);
/// The most connections of the client.
const CONNECTIONS: usize = 4_000;

fn main() {
    let arguments: Vec<_> = std::env::args()
        .skip(1)
        .filter(|a| a != "--bench")
        .collect();
    match &*arguments {
        [kind, role] if role == "server" => serve(kind),
        _ => compare(&arguments),
    }
}

fn on_core(core: usize) {
    let mut set = CpuSet::new();
    set.set(core);
    sched_setaffinity(None, &set).expect("the core exists");
}

fn router() -> Router {
    async fn work() -> &'static str {
        let begin = Instant::now();
        while begin.elapsed() < WORK {
            std::hint::spin_loop();
        }
        "done"
    }
    Router::new()
        .route("/work", get(work))
        .route("/health", get(|| async { "ok" }))
}

/// Runs a server, and prints its address.
fn serve(kind: &str) {
    on_core(0);
    let listener = StdListener::bind("127.0.0.1:0").expect("a port");
    listener.set_nonblocking(true).expect("an option");
    println!("{}", listener.local_addr().expect("it has an address"));
    if kind == "tokio" {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime");
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::from_std(listener).expect("a listener");
            axum::serve(listener, router()).await.expect("it serves");
        });
        return;
    }
    let runtime = tourbillon::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let listener = tourbillon::net::TcpListener::from_std(listener).expect("a listener");
        let router = match kind {
            "admission" => router().layer(Admission::start().layer()),
            _ => router(),
        };
        tourbillon_axum::serve(listener, router)
            .await
            .expect("it serves");
    });
}

struct Server {
    child: Child,
    address: SocketAddr,
}

impl Server {
    fn start(kind: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().expect("a path"))
            .args([kind, "server"])
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let mut line = String::new();
        let out = child.stdout.as_mut().expect("a pipe");
        BufReader::new(out).read_line(&mut line).expect("a line");
        let address = line.trim().parse().expect("an address");
        Self { child, address }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Answer {
    Done,
    Refused,
    /// None in time, or no connection.
    Failed,
}

/// A request: when it was to be sent, counted from the start of its phase, what came, and after how
/// long.
#[derive(Clone, Copy)]
struct Sent {
    at: Duration,
    answer: Answer,
    took: Duration,
}

#[derive(Default)]
struct Client {
    idle: Mutex<Vec<TcpStream>>,
    sent: Mutex<Vec<Sent>>,
}

async fn exchange(stream: &mut TcpStream, path: &str) -> std::io::Result<Answer> {
    let request = format!("GET {path} HTTP/1.1\r\nhost: bench\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut got = Vec::new();
    loop {
        let mut buffer = [0; 1_024];
        let count = stream.read(&mut buffer).await?;
        if count == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        got.extend_from_slice(&buffer[..count]);
        let text = String::from_utf8_lossy(&got);
        let Some((head, body)) = text.split_once("\r\n\r\n") else {
            continue;
        };
        let length = head.to_lowercase();
        let length = length
            .split("content-length: ")
            .nth(1)
            .and_then(|rest| rest.lines().next());
        let length: usize = length.and_then(|length| length.parse().ok()).unwrap_or(0);
        if body.len() >= length {
            let done = head.starts_with("HTTP/1.1 200");
            return Ok(if done { Answer::Done } else { Answer::Refused });
        }
    }
}

impl Client {
    async fn request(self: Arc<Self>, address: SocketAddr, path: &'static str, at: Duration) {
        let begin = Instant::now();
        let whole = async {
            let idle = self.idle.lock().expect("no panic").pop();
            let mut stream = match idle {
                Some(stream) => stream,
                None => TcpStream::connect(address).await?,
            };
            let answer = exchange(&mut stream, path).await?;
            self.idle.lock().expect("no panic").push(stream);
            Ok::<_, std::io::Error>(answer)
        };
        let answer = match time::timeout(PATIENCE, whole).await {
            Ok(Ok(answer)) => answer,
            _ => Answer::Failed,
        };
        let took = begin.elapsed();
        self.sent
            .lock()
            .expect("no panic")
            .push(Sent { at, answer, took });
    }

    /// Sends requests at a rate for some time.
    async fn phase(
        address: SocketAddr,
        path: &'static str,
        rate: f64,
        length: Duration,
    ) -> Vec<Sent> {
        let client = Arc::new(Client::default());
        let begin = time::Instant::now();
        let mut tasks = Vec::new();
        let mut at = Duration::ZERO;
        let mut random = fastrand::Rng::with_seed(1);
        while at < length {
            // The gaps of a Poisson process: many clients that know nothing of each other.
            at += Duration::from_secs_f64(-(1.0 - random.f64()).ln() / rate);
            time::sleep_until(begin + at).await;
            tasks.push(tourbillon::spawn(client.clone().request(address, path, at)));
            if tasks.len() > CONNECTIONS {
                tasks.retain(|task| !task.is_finished());
            }
        }
        for task in tasks {
            task.await.expect("no panic");
        }
        client.sent.lock().expect("no panic").clone()
    }
}

fn percentile(sent: &[Sent], answer: Answer, part: f64) -> Duration {
    let mut took: Vec<_> = sent
        .iter()
        .filter(|sent| sent.answer == answer)
        .map(|s| s.took)
        .collect();
    took.sort();
    let last = took.len().saturating_sub(1);
    took.get((last as f64 * part).round() as usize)
        .copied()
        .unwrap_or_default()
}

fn count(sent: &[Sent], answer: Answer) -> usize {
    sent.iter().filter(|sent| sent.answer == answer).count()
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1_000.0
}

fn compare(kinds: &[String]) {
    on_core(1);
    let kinds = match kinds {
        [] => vec!["admission", "plain", "tokio"],
        kinds => kinds.iter().map(String::as_str).collect(),
    };
    println!(
        "{:10} | {:>8} | {:>11} | {:>8} | {:>12} | {:>10} | {:>11} | {:>8}",
        "server",
        "capacity",
        "alone p99",
        "goodput",
        "admitted p99",
        "health p99",
        "health lost",
        "recovers"
    );
    for kind in kinds {
        let runtime = tourbillon::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .build()
            .expect("a runtime");
        runtime.block_on(measure(kind));
    }
}

async fn measure(kind: &str) {
    let server = Server::start(kind);
    let address = server.address;
    // What the server can do: four connections, each with one request after the other.
    let begin = Instant::now();
    let busy = Duration::from_secs(3);
    let tasks: Vec<_> = (0..4)
        .map(|_| {
            tourbillon::spawn(async move {
                let mut stream = TcpStream::connect(address).await.expect("it listens");
                let mut done = 0;
                while begin.elapsed() < busy {
                    let answer = exchange(&mut stream, "/work").await.expect("an answer");
                    done += u32::from(answer == Answer::Done);
                }
                done
            })
        })
        .collect();
    let mut done = 0;
    for task in tasks {
        done += task.await.expect("no panic");
    }
    let capacity = f64::from(done) / begin.elapsed().as_secs_f64();
    let alone = Client::phase(address, "/work", capacity * 0.2, Duration::from_secs(5)).await;
    let alone = percentile(&alone, Answer::Done, 0.99);

    let length = Duration::from_secs(10);
    let health = tourbillon::spawn(Client::phase(address, "/health", 50.0, length));
    let sent = Client::phase(address, "/work", capacity * 4.0, length).await;
    let health = health.await.expect("no panic");
    // The first second is for finding out.
    let steady: Vec<_> = sent
        .iter()
        .filter(|s| s.at > Duration::from_secs(1))
        .copied()
        .collect();
    let goodput = count(&steady, Answer::Done) as f64 / (capacity * 9.0);
    let healths: Vec<_> = health
        .iter()
        .filter(|s| s.at > Duration::from_secs(1))
        .copied()
        .collect();

    let after = Client::phase(address, "/work", capacity * 0.5, Duration::from_secs(8)).await;
    let bad = after
        .iter()
        .filter(|s| s.answer != Answer::Done || s.took > 5 * alone);
    let recovers = bad.map(|s| s.at).max().unwrap_or_default();
    println!(
        "{kind:10} | {capacity:8.0} | {:8.2} ms | {:6.1} % | {:9.2} ms | {:7.2} ms | {:11} | {:6.2} s",
        millis(alone),
        goodput * 100.0,
        millis(percentile(&steady, Answer::Done, 0.99)),
        millis(percentile(&healths, Answer::Done, 0.99)),
        count(&healths, Answer::Failed) + count(&healths, Answer::Refused),
        recovers.as_secs_f64(),
    );
}
