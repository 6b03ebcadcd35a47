//! Keep-alive of many quiet connections: each gets a few bytes every five seconds.

use std::{
    env,
    io::Read,
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    process::{Child, Command, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use tourbillon::time::with_tolerance;
use tourbillon_support::limit_descriptors;

use crate::{Figures, System, Used, table};

const STREAMS: usize = 5_000;
const PERIOD: Duration = Duration::from_secs(5);
/// The default of `axum::keep_alive`: a 32nd of the period.
const TOLERANCE: Duration = Duration::from_micros(156_250);
const BEAT: &[u8] = b":\n\n";
const MEASURED: Duration = Duration::from_secs(10);

/// The number of connections for which this process and its client have descriptors.
fn streams() -> usize {
    STREAMS.min((limit_descriptors(u64::MAX) as usize).saturating_sub(100))
}

/// Runs the client: opens the connections, prints `connected`, and reads until they end.
pub(crate) fn client(address: &str, count: usize) {
    streams();
    let runtime = tourbillon::runtime::Builder::new()
        .worker_threads(1)
        .build()
        .expect("a runtime of one worker");
    let address: SocketAddr = address.parse().expect("an address");
    let tasks: Vec<_> = (0..count)
        .map(|_| {
            let stream = TcpStream::connect(address).expect("the server listens");
            stream.set_nonblocking(true).expect("a socket");
            runtime.spawn(async move {
                let stream = tourbillon::net::TcpStream::from_std(stream);
                let mut stream = stream.expect("a socket in non-blocking mode");
                let mut beats = [0; 64];
                while matches!(
                    futures::AsyncReadExt::read(&mut stream, &mut beats).await,
                    Ok(1..)
                ) {}
            })
        })
        .collect();
    println!("connected");
    for task in tasks {
        runtime.block_on(task).expect("the task does not panic");
    }
}

/// State that the connections share.
#[derive(Default)]
struct Beats {
    measuring: AtomicBool,
    late: Mutex<Vec<u64>>,
}

impl Beats {
    fn note(&self, deadline: Instant) {
        if self.measuring.load(Relaxed) {
            let late = Instant::now().checked_duration_since(deadline);
            let late = late.expect("no beat is early").as_nanos();
            self.late.lock().expect("no panic").push(late as u64);
        }
    }
}

/// Connects the client to this process, and gives each connection to `serve`.
fn connect(count: usize, serve: impl Fn(TcpStream)) -> Child {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port is free");
    let address = listener.local_addr().expect("it is bound");
    let mut child = Command::new(env::current_exe().expect("this program"))
        .args(["client", &address.to_string(), &count.to_string()])
        .stdout(Stdio::piped())
        .spawn()
        .expect("the client starts");
    for _ in 0..count {
        let (stream, _) = listener.accept().expect("the client connects");
        stream.set_nonblocking(true).expect("a socket");
        serve(stream);
        // Wait between connections, so that their beats are spread over the period.
        thread::sleep(PERIOD / count as u32);
    }
    let mut ready = [0; 10];
    let output = child.stdout.as_mut().expect("it is piped");
    output.read_exact(&mut ready).expect("it is connected");
    child
}

fn measure(count: usize, beats: &Beats, serve: impl Fn(TcpStream)) -> (Figures, Child) {
    let child = connect(count, serve);
    thread::sleep(PERIOD);
    let (before, begun) = (Used::now(), Instant::now());
    beats.measuring.store(true, Relaxed);
    thread::sleep(MEASURED);
    beats.measuring.store(false, Relaxed);
    let (after, seconds) = (Used::now(), begun.elapsed().as_secs_f64());
    let late = std::mem::take(&mut *beats.late.lock().expect("no panic"));
    (Figures::new(before, after, seconds, late), child)
}

fn run(system: System, count: usize) -> Figures {
    let beats = Arc::new(Beats::default());
    let (figures, mut child) = if system == System::Tokio {
        let runtime = System::build_tokio();
        measure(count, &beats, |stream| {
            let beats = beats.clone();
            runtime.spawn(async move {
                let mut stream = tokio::net::TcpStream::from_std(stream).expect("a socket");
                loop {
                    let deadline = Instant::now() + PERIOD;
                    tokio::time::sleep_until(deadline.into()).await;
                    beats.note(deadline);
                    if tokio::io::AsyncWriteExt::write_all(&mut stream, BEAT)
                        .await
                        .is_err()
                    {
                        return;
                    }
                }
            });
        })
        // The runtime is dropped here, which closes the connections.
    } else {
        // The tolerance belongs to the connections, as in `axum::keep_alive`.
        let System::Tourbillon(tolerance) = system else {
            unreachable!("there is no such row")
        };
        let runtime = System::Tourbillon(Duration::ZERO).build();
        measure(count, &beats, |stream| {
            let beats = beats.clone();
            let serve = async move {
                let stream = tourbillon::net::TcpStream::from_std(stream);
                let mut stream = stream.expect("a socket in non-blocking mode");
                loop {
                    let deadline = Instant::now() + PERIOD;
                    tourbillon::time::sleep_until(deadline.into()).await;
                    beats.note(deadline);
                    if futures::AsyncWriteExt::write_all(&mut stream, BEAT)
                        .await
                        .is_err()
                    {
                        return;
                    }
                }
            };
            drop(runtime.spawn(with_tolerance(tolerance, serve)));
        })
    };
    child.wait().expect("the client ends with its connections");
    figures
}

pub(crate) fn main(rounds: usize) {
    let count = streams();
    let systems = [Duration::ZERO, TOLERANCE].map(System::Tourbillon);
    let systems = [System::Tokio, systems[0], systems[1]];
    table(
        &format!("beats, {count} streams"),
        &systems,
        rounds,
        |system| run(system, count),
    );
}
