//! A pod whose CPU limit is changed while it runs: as many workers take part as it pays for.
//!
//! In a cluster, the kubelet writes the limit into the control group of the pod. Here the program
//! makes a group for itself, which needs root. Of version 2, a process can enter only a group below
//! one that has no other processes, or below the root.

use std::{
    hint::black_box,
    io,
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use tourbillon::{
    Runtime,
    runtime::Builder,
    task::{JoinHandle, yield_now},
};
use tourbillon_examples::say;
use tourbillon_support::quota::enter_group;

/// Computes until it is told to stop.
async fn work(stop: Arc<AtomicBool>) {
    let mut hash = 0_u64;
    while !stop.load(Relaxed) {
        for i in 0..10_000 {
            hash = black_box(hash.rotate_left(5) ^ i);
        }
        yield_now().await;
    }
}

fn main() -> ExitCode {
    say::end("resized_pod", run())
}

fn run() -> io::Result<()> {
    // The limit of the pod when it starts. A worker waits for each core that it may get later.
    let Some(pod) = enter_group(0.5) else {
        return Err(io::Error::other("no control group can be made"));
    };
    let runtime = Builder::new()
        .follow_limits(true)
        .build()
        .map_err(io::Error::other)?;
    let stop = Arc::new(AtomicBool::new(false));
    let tasks: Vec<_> = (0..8).map(|_| runtime.spawn(work(stop.clone()))).collect();
    for cores in [0.5, 2.0, 1.5, 1.0] {
        pod.limit(Some(cores))?;
        report(&runtime, cores);
    }
    stop.store(true, Relaxed);
    end(&runtime, tasks)
}

/// Waits until the workers have looked at the limit, which an awake one does once a second.
fn report(runtime: &Runtime, cores: f64) {
    let since = Instant::now();
    let expected = (cores.ceil() as usize).min(runtime.metrics().num_workers());
    let active = || runtime.metrics().active_workers();
    while active() != expected && since.elapsed() < Duration::from_secs(60) {
        thread::sleep(Duration::from_millis(10));
    }
    say::say(format_args!(
        "{cores} cores: {} of {} workers take part, after {:.1} s",
        active(),
        runtime.metrics().num_workers(),
        since.elapsed().as_secs_f64(),
    ));
}

fn end(runtime: &Runtime, tasks: Vec<JoinHandle<()>>) -> io::Result<()> {
    let mut ended = tasks.into_iter().map(|task| runtime.block_on(task));
    ended.try_for_each(|task| task.map_err(io::Error::other))
}
