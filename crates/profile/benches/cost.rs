//! What a sample costs: processor time of the worker, and of the thread that reads the samples.
//!
//! The worker sleeps in a job meanwhile, so nearly all of its processor time is the signal, its
//! handler, and the way back into the sleep, which a busy worker has not. The stack has some 60
//! functions and 10 KiB.

use std::{fs, hint::black_box, mem, thread, time::Duration};

use tourbillon::runtime::Builder;
use tourbillon_profile::{Clock, Options, profile};
use tourbillon_support::bench::median;

/// How many samples a second are taken here.
const RATE: u32 = 1_000;
const SLEEP: Duration = Duration::from_secs(1);
const TURNS: usize = 9;

fn main() {
    let runtime = Builder::new().worker_threads(1).build().unwrap();
    let costs: Vec<_> = (0..TURNS)
        .map(|_| {
            let options = Options::new(Duration::from_secs(60))
                .rate(RATE)
                .clock(Clock::Wall);
            let profile = profile(runtime.handle(), options);
            let worker = runtime.block_on(runtime.spawn(async {
                let before = own_processor_time();
                deep(30);
                own_processor_time() - before
            }));
            // Before it names functions, which it does once for each.
            let reader = processor_time_of("profile");
            drop(profile);
            // It ends soon, and then there may be another one.
            thread::sleep(SLEEP);
            let samples = f64::from(RATE) * SLEEP.as_secs_f64();
            (worker.unwrap() / samples * 1e6, reader / samples * 1e6)
        })
        .collect();
    let worker = median(costs.iter().map(|cost| cost.0));
    let reader = median(costs.iter().map(|cost| cost.1));
    println!("a sample: {worker:.1} us of the worker, {reader:.1} us of the reading thread");
    let share = (worker + reader) * 99.0 / 1e6 * 100.0;
    println!("99 samples a second: {share:.2} % of a core");
}

#[inline(never)]
fn deep(functions: u32) -> u32 {
    let room = black_box([functions; 64]);
    match functions {
        0 => thread::sleep(SLEEP),
        _ => _ = deep(functions - 1),
    }
    room[functions as usize]
}

/// Returns the processor time of the calling thread, in s.
fn own_processor_time() -> f64 {
    // SAFETY: zeros are a valid time, and the pointer is to it.
    let time = unsafe {
        let mut time: libc::timespec = mem::zeroed();
        libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time);
        time
    };
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Returns the processor time of the thread of this process with this name, in s.
fn processor_time_of(name: &str) -> f64 {
    let tasks = fs::read_dir("/proc/self/task").unwrap();
    let of = |dir: fs::DirEntry| {
        let comm = fs::read_to_string(dir.path().join("comm")).ok()?;
        let stat = fs::read_to_string(dir.path().join("schedstat")).ok()?;
        let ns = stat.split(' ').next()?.parse::<f64>().ok()?;
        (comm.trim_end() == name).then_some(ns / 1e9)
    };
    tasks
        .filter_map(Result::ok)
        .find_map(of)
        .unwrap_or_default()
}
