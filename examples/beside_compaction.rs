//! An API beside a compaction: how long its requests take, with the compaction in the same group of
//! tasks and in a group of its own.

use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use axum::{Router, routing::get};
use tourbillon::{
    Runtime,
    net::TcpListener,
    runtime::Builder,
    task::{Group, JoinHandle, yield_now},
};
use tourbillon_examples::say;

/// How many entries a step of the compaction merges. It takes some 100 µs: a worker does not
/// interrupt a task, so the steps between two yields bound how long others wait.
const STEP: usize = 20_000;
const REQUEST: &[u8] = b"GET /user HTTP/1.1\r\nHost: localhost\r\n\r\n";

/// Two sorted files, which here are in memory.
type Files = [Vec<u64>; 2];

/// Merges two files until it is told to stop. Returns how many entries it has merged.
async fn compact(files: Arc<Files>, stop: Arc<AtomicBool>) -> u64 {
    let (mut merged, mut out) = (0, Vec::with_capacity(STEP));
    loop {
        let [mut left, mut right] = [&files[0][..], &files[1][..]];
        while let ([first, others @ ..], [second, rest @ ..]) = (left, right) {
            match first < second {
                true => (left, _) = (others, out.push(*first)),
                false => (right, _) = (rest, out.push(*second)),
            }
            if out.len() == STEP {
                merged += std::hint::black_box(&out).len() as u64;
                out.clear();
                if stop.load(Relaxed) {
                    return merged;
                }
                yield_now().await;
            }
        }
    }
}

/// Asks the API for a second, over one connection. Returns how long the answers took, sorted.
fn ask(address: SocketAddr) -> io::Result<Vec<Duration>> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    let (begin, mut took) = (Instant::now(), Vec::new());
    while begin.elapsed() < Duration::from_secs(1) {
        // A pause as between two clients. Without one, this thread would take a core.
        thread::sleep(Duration::from_millis(1));
        let since = Instant::now();
        stream.write_all(REQUEST)?;
        // The answer is short, so it comes as a whole.
        if stream.read(&mut [0; 1024])? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        took.push(since.elapsed());
    }
    took.sort_unstable();
    Ok(took)
}

fn main() -> ExitCode {
    say::end("beside_compaction", run())
}

fn run() -> io::Result<()> {
    let runtime = Builder::new()
        .worker_threads(2)
        .build()
        .map_err(io::Error::other)?;
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0"))?;
    let address = listener.local_addr()?;
    let api = Router::new().route("/user", get(|| async { "Ada" }));
    let _api = runtime.spawn(async move { tourbillon_axum::serve(listener, api).await });
    // A sixth of the time while the API has work, whose group has 100 shares.
    let group = Group::builder("compaction").shares(20);
    let group = group.build_on(runtime.handle()).map_err(io::Error::other)?;

    let sorted = |odd: u64| (0..1_000_000).map(|i| 2 * i + odd).collect();
    let files: Arc<Files> = Arc::new([0, 1].map(sorted));
    let compaction = |stop| compact(files.clone(), stop);
    report("no compaction", ask(address)?, 0);
    let beside = |name, spawn: &dyn Fn(Arc<AtomicBool>) -> JoinHandle<u64>| {
        let stop = Arc::new(AtomicBool::new(false));
        let tasks: Vec<_> = (0..4).map(|_| spawn(stop.clone())).collect();
        let took = ask(address);
        stop.store(true, Relaxed);
        let merged = merged(&runtime, tasks)?;
        report(name, took?, merged);
        io::Result::Ok(())
    };
    beside("in the same group", &|stop| runtime.spawn(compaction(stop)))?;
    beside("in its own group", &|stop| group.spawn(compaction(stop)))
}

fn merged(runtime: &Runtime, tasks: Vec<JoinHandle<u64>>) -> io::Result<u64> {
    let ended = tasks.into_iter().map(|task| runtime.block_on(task));
    ended.sum::<Result<u64, _>>().map_err(io::Error::other)
}

fn report(name: &str, took: Vec<Duration>, merged: u64) {
    let at = |part: usize| took[(took.len() - 1) * part / 100];
    say::say(format_args!(
        "{name}: half of {} answers came within {:?}, 99 % within {:?}; {} million entries merged",
        took.len(),
        at(50),
        at(99),
        merged / 1_000_000,
    ));
}
