//! How late a sleep ends on an idle runtime; Tourbillon and tokio in one run.
//!
//! A task makes 2,000 sleeps of 0.1 to 5 ms, one after another. The systems take turns of 400
//! sleeps, so that disturbances hit all of them. `floor` is a plain thread that only calls
//! `epoll_pwait2`. *spinning* is Tourbillon with a `spin_before` of 200 µs, which can cost that
//! much CPU time per sleep. Then a few sleeps of half a second follow, at which `epoll_pwait2` may
//! be half a millisecond late.
//!
//! Run `cargo bench --bench precision`. With `-- --check` it fails unless Tourbillon's lateness is
//! at most a tenth of tokio's at p50 and p99.

use std::{
    process::ExitCode,
    time::{Duration, Instant},
};

use tourbillon_support::disturbance::{Disturbance, Meter};

const SYSTEMS: usize = 4;
const ROUNDS: usize = 5;
const SLEEPS: usize = 400;
const LONG_ROUNDS: usize = 3;
const LONG_SLEEPS: usize = 4;
const LONG: Duration = Duration::from_millis(500);
const SPIN: Duration = Duration::from_micros(200);

/// Sleeps of 0.1 to 5 ms from the generator MINSTD, equal for all systems.
struct Lengths(u64);

impl Iterator for Lengths {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        self.0 = self.0 * 48_271 % 0x7fff_ffff;
        Some(Duration::from_nanos(100_000 + self.0 % 4_900_000))
    }
}

#[derive(Default)]
struct Figures {
    lateness: Vec<Duration>,
    disturbance: Disturbance,
}

impl Figures {
    fn percentile(&self, percent: usize) -> f64 {
        let at = (self.lateness.len() * percent / 100).min(self.lateness.len() - 1);
        self.lateness[at].as_nanos() as f64 / 1e3
    }
}

async fn tourbillon(lengths: Vec<Duration>) -> Vec<Duration> {
    let mut lateness = Vec::with_capacity(lengths.len());
    for length in lengths {
        let deadline = Instant::now() + length;
        tourbillon::time::sleep_until(deadline.into()).await;
        lateness.push(
            Instant::now()
                .checked_duration_since(deadline)
                .expect("ended early"),
        );
    }
    lateness
}

async fn tokio(lengths: Vec<Duration>) -> Vec<Duration> {
    let mut lateness = Vec::with_capacity(lengths.len());
    for length in lengths {
        let deadline = Instant::now() + length;
        tokio::time::sleep_until(deadline.into()).await;
        lateness.push(
            Instant::now()
                .checked_duration_since(deadline)
                .expect("ended early"),
        );
    }
    lateness
}

/// Measures a thread that only waits.
fn floor(lengths: Vec<Duration>) -> Vec<Duration> {
    let thread = std::thread::spawn(move || {
        // SAFETY: no pointers.
        let epoll = unsafe {
            libc::prctl(libc::PR_SET_TIMERSLACK, 1_u64, 0, 0, 0);
            libc::epoll_create1(libc::EPOLL_CLOEXEC)
        };
        assert!(epoll >= 0, "no descriptor");
        let mut lateness = Vec::with_capacity(lengths.len());
        for length in lengths {
            let deadline = Instant::now() + length;
            let mut event = libc::epoll_event { events: 0, u64: 0 };
            let left = deadline.saturating_duration_since(Instant::now());
            let timeout = libc::timespec {
                tv_sec: left.as_secs() as libc::time_t,
                tv_nsec: left.subsec_nanos().into(),
            };
            // SAFETY: `event` has room for one event; the timeout lives through the call.
            unsafe {
                libc::syscall(
                    libc::SYS_epoll_pwait2,
                    epoll,
                    &raw mut event,
                    1,
                    &raw const timeout,
                    std::ptr::null::<libc::sigset_t>(),
                    0_usize,
                );
            }
            lateness.push(Instant::now().saturating_duration_since(deadline));
        }
        // SAFETY: this function owns the descriptor.
        unsafe { libc::close(epoll) };
        lateness
    });
    thread.join().expect("the thread does not panic")
}

/// A name, and a function that makes sleeps of these lengths and returns their lateness.
type System<'a> = (&'a str, Box<dyn Fn(Vec<Duration>) -> Vec<Duration> + 'a>);

/// Runs the systems in turns and sorts their lateness.
fn measure(
    systems: &[System<'_>; SYSTEMS],
    rounds: usize,
    mut lengths: impl FnMut() -> Vec<Duration>,
) -> [Figures; SYSTEMS] {
    let mut figures = systems.each_ref().map(|_| Figures::default());
    for _ in 0..rounds {
        let lengths = lengths();
        for ((_, run), figures) in systems.iter().zip(&mut figures) {
            let meter = Meter::start();
            figures.lateness.extend(run(lengths.clone()));
            figures.disturbance += meter.read();
        }
    }
    for figures in &mut figures {
        figures.lateness.sort_unstable();
    }
    figures
}

fn print(what: &str, systems: &[System<'_>; SYSTEMS], figures: &[Figures; SYSTEMS]) {
    println!(
        "{what:<12}{:>12}{:>12}{:>12}{:>16}  the machine",
        "p50 µs", "p99 µs", "max µs", "CPU µs a sleep"
    );
    for ((name, _), figures) in systems.iter().zip(figures) {
        println!(
            "{name:<12}{:>12.1}{:>12.1}{:>12.1}{:>16.1}  {}",
            figures.percentile(50),
            figures.percentile(99),
            figures.percentile(100),
            figures.disturbance.cpu * 1e6 / figures.lateness.len() as f64,
            figures.disturbance,
        );
    }
}

fn main() -> ExitCode {
    let check = std::env::args().any(|arg| arg == "--check");
    let builder = || tourbillon::runtime::Builder::new().worker_threads(2);
    let ours = builder().build().expect("a runtime");
    let spinning = builder().spin_before(SPIN).build().expect("a runtime");
    let theirs = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_time()
        .build()
        .expect("a runtime");
    let systems: [System<'_>; SYSTEMS] = [
        (
            "tourbillon",
            Box::new(|l| ours.block_on(ours.spawn(tourbillon(l))).expect("a result")),
        ),
        (
            "spinning",
            Box::new(|l| {
                let sleeps = spinning.spawn(tourbillon(l));
                spinning.block_on(sleeps).expect("a result")
            }),
        ),
        (
            "tokio",
            Box::new(|l| theirs.block_on(theirs.spawn(tokio(l))).expect("a result")),
        ),
        ("floor", Box::new(floor)),
    ];
    let mut lengths = Lengths(20_261_121);
    let short = measure(&systems, ROUNDS, || lengths.by_ref().take(SLEEPS).collect());
    print("0.1 to 5 ms", &systems, &short);
    let [ours, _, theirs, floor] = &short;
    let ratio = |percent| theirs.percentile(percent) / ours.percentile(percent);
    println!(
        "tokio / tourbillon: {:.1} at p50, {:.1} at p99; tourbillon / floor: {:.2} at p50\n",
        ratio(50),
        ratio(99),
        ours.percentile(50) / floor.percentile(50),
    );
    let long = measure(&systems, LONG_ROUNDS, || vec![LONG; LONG_SLEEPS]);
    print("500 ms", &systems, &long);
    if check && (ratio(50) < 10.0 || ratio(99) < 10.0) {
        eprintln!("ours is more than a tenth of tokio's");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}
