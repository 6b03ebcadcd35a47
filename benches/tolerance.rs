//! The processor time of timers, depending on how late they may be, compared with tokio.
//!
//! 1. *The curve.* Tasks sleep for 50 to 150 ms at random, again and again, so that a given number
//!    of them is due in each second; then callbacks that arm the next one do the same. The rows are
//!    tokio, which has sleeps alone; Tourbillon by default, exact, and with a `timer_tolerance` up to
//!    5 ms; and exact with `spin(false)`.
//! 2. *Beats.* 5,000 connections get a few bytes every five seconds, as server-sent events do from
//!    `axum::keep_alive`. The client is another process.
//!
//! All runtimes have two workers. They take turns, three times; each figure is the median of the
//! rounds. CPU is the processor time of the process for each timer that fired, and in percent of
//! one core. Switches are the voluntary switches of its threads: how often a worker went to sleep.
//!
//! Run `cargo bench --bench tolerance`. Arguments after `--` choose: `curve` or `beats`; a number
//! sets the rounds.

#[path = "tolerance/beats.rs"]
mod beats;
#[path = "tolerance/curve.rs"]
mod curve;

use std::{env, fmt, time::Duration};

use tourbillon_support::bench::{median, turns};

/// The runtime of a row.
#[derive(Clone, Copy, PartialEq)]
enum System {
    Tokio,
    /// With the default budget for wake-ups.
    Default,
    /// With this `timer_tolerance`, or exact if it is zero.
    Tourbillon(Duration),
    /// With `spin(false)`, and exact timers.
    Sleeps,
}

impl fmt::Display for System {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            System::Tokio => f.pad("tokio"),
            System::Default => f.pad("default"),
            System::Tourbillon(Duration::ZERO) => f.pad("exact"),
            System::Tourbillon(tolerance) => f.pad(&format!("{tolerance:?}")),
            System::Sleeps => f.pad("exact, spin(false)"),
        }
    }
}

impl System {
    /// Builds the runtime of Tourbillon for a row that is not tokio's.
    fn build(self) -> tourbillon::Runtime {
        let mut builder = tourbillon::runtime::Builder::new();
        builder.worker_threads(2);
        match self {
            System::Default => &mut builder,
            System::Tourbillon(Duration::ZERO) => builder.exact(),
            System::Tourbillon(tolerance) => builder.timer_tolerance(tolerance),
            System::Sleeps => builder.spin(false).exact(),
            System::Tokio => unreachable!("tokio has a builder of its own"),
        }
        .build()
        .expect("a runtime of two workers")
    }

    /// Builds tokio's runtime.
    fn build_tokio() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .expect("a runtime of two workers")
    }
}

/// What the process has used so far.
#[derive(Clone, Copy)]
struct Used {
    cpu: f64,
    switches: i64,
}

impl Used {
    fn now() -> Self {
        let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
        // SAFETY: `usage` has room for the result, and a zeroed `rusage` is valid.
        let usage = unsafe {
            libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr());
            usage.assume_init()
        };
        let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
        Self {
            cpu: seconds(usage.ru_utime) + seconds(usage.ru_stime),
            switches: usage.ru_nvcsw,
        }
    }
}

/// The figures of one run.
#[derive(Clone, Copy)]
struct Figures {
    fires_a_second: f64,
    cpu_micros_a_fire: f64,
    cpu_percent: f64,
    switches_a_second: f64,
    p50_millis: f64,
    p99_millis: f64,
}

impl Figures {
    /// `late` has the lateness of each timer that fired, in ns.
    fn new(before: Used, after: Used, seconds: f64, mut late: Vec<u64>) -> Self {
        late.sort_unstable();
        let percentile = |percent: usize| {
            let at = (late.len() * percent / 100).min(late.len().saturating_sub(1));
            late.get(at).map_or(f64::NAN, |nanos| *nanos as f64 / 1e6)
        };
        let cpu = after.cpu - before.cpu;
        Self {
            fires_a_second: late.len() as f64 / seconds,
            cpu_micros_a_fire: cpu * 1e6 / late.len() as f64,
            cpu_percent: cpu * 100.0 / seconds,
            switches_a_second: (after.switches - before.switches) as f64 / seconds,
            p50_millis: percentile(50),
            p99_millis: percentile(99),
        }
    }
}

/// Runs each system once in each round, and prints the medians. The first system is tokio: the
/// ratio to it is the median of the rounds' ratios.
fn table(title: &str, systems: &[System], rounds: usize, run: impl Fn(System) -> Figures) {
    let all = turns(rounds, systems.len(), |at| run(systems[at]));
    println!("{title:<22}  fires/s  CPU µs/fire  of tokio  CPU %  switches/s  late p50  p99 (ms)");
    for (system, of) in systems.iter().zip(&all) {
        let column = |figure: fn(&Figures) -> f64| median(of.iter().map(figure));
        let ratio = |(ours, theirs): (&Figures, &Figures)| {
            ours.cpu_micros_a_fire / theirs.cpu_micros_a_fire
        };
        let ratio = median(of.iter().zip(&all[0]).map(ratio));
        println!(
            "{system:<22}  {:>7.0}  {:>11.2}  {ratio:>8.2}  {:>5.0}  {:>10.0}  {:>8.3}  {:>8.3}",
            column(|it| it.fires_a_second),
            column(|it| it.cpu_micros_a_fire),
            column(|it| it.cpu_percent),
            column(|it| it.switches_a_second),
            column(|it| it.p50_millis),
            column(|it| it.p99_millis),
        );
    }
    println!();
}

fn main() {
    let args: Vec<_> = env::args().skip(1).filter(|arg| arg != "--bench").collect();
    if let [client, address, count] = &args[..] {
        assert_eq!(client, "client");
        return beats::client(address, count.parse().expect("a number"));
    }
    let rounds = args.iter().find_map(|arg| arg.parse().ok()).unwrap_or(3);
    let wanted = |part| {
        !args.iter().any(|arg| arg == "curve" || arg == "beats")
            || args.iter().any(|arg| arg == part)
    };
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    println!("load average before: {}\n", load.trim());
    if wanted("curve") {
        curve::main(rounds);
    }
    if wanted("beats") {
        beats::main(rounds);
    }
}
