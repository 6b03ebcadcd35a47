//! The program `tourbillon-soak`: a test that runs for minutes or hours. It arms, moves and cancels
//! timers from all threads, and uses all other parts of the runtime. It checks for growth, losses
//! and wrong counts.
//!
//! 1. *Set-up.* Start the watchdog and the signal listeners, which run to the end. Build and drop
//!    one runtime, so that memory and descriptors that a process allocates once are there. Count
//!    descriptors and threads.
//! 2. *Load.* Build the runtime under test. Tasks and threads arm one timer in each slot of the
//!    ledger. When a timer ends, the callback or the canceller that recorded the end arms the
//!    slot's next timer or queues the slot. All of them also move and cancel timers of others.
//! 3. *Watching.* The watch samples the process, window by window, until the time is over or
//!    Ctrl-C.
//! 4. *Rest.* Start nothing new, and wait until the tasks end. Cancel half of the timers and let
//!    the rest fire. Then compare the runtime's counters with the ledger.
//! 5. *End.* Drop the runtime, which ends some long timers that exist for this purpose. Count what
//!    is left.
//!
//! | file | content |
//! |---|---|
//! | `shared` | the state that all threads share, with the ledger |
//! | `tally` | counters, lateness, faults |
//! | `arm` | timers of the ledger: arming, moving, cancelling |
//! | `scenarios` | what tasks do with timers |
//! | `echo` | TCP with timeouts |
//! | `beside` | short-lived runtimes beside the one under test |
//! | `end` | signals, the watchdog, waiting with a deadline |
//! | `watch` | samples, in windows |
//! | `judge` | the checks |
//! | `report` | the report, as a table or as JSON |

mod arm;
mod beside;
mod echo;
mod end;
mod judge;
mod report;
mod scenarios;
mod shared;
mod tally;
mod watch;

use std::{
    fs::{self, File},
    io::{self, Write},
    panic,
    path::{Path, PathBuf},
    process::ExitCode,
    thread,
    time::{Duration, Instant},
};

use clap::Parser;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tourbillon::{JoinHandle, Runtime};
use tourbillon_cli::{
    args::{RuntimeArgs, count, nanos, number, positive_duration},
    arguments::arguments,
    figures::{Format, rounded, scaled},
    proc,
    record::{Traces, cannot_write},
    say::{self, print, say},
};

use self::{
    end::POLL,
    judge::Rest,
    report::{Report, Setting},
    shared::{Deliberate, PATIENCE, Shared, State},
    tally::Count,
    watch::{Watch, Window},
};

/// Run a long test: do everything that a runtime does, for minutes or hours.
///
/// Checks that every timer ends exactly once, that the runtime's counters balance, and that memory,
/// descriptors and threads do not grow. The exit status is 1 if a check fails.
#[derive(Debug, Parser)]
#[command(name = "tourbillon-soak", after_long_help = report::HELP)]
struct Args {
    /// Run for this long.
    ///
    /// Ctrl-C ends the run early, with the same checks. Growth is checked in runs of a minute or
    /// more.
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = positive_duration)]
    duration: Duration,
    /// Number of pending timers, such as 20k or 1M.
    #[arg(long, value_name = "COUNT", default_value = "20k", value_parser = count)]
    timers: u32,
    /// Number of threads outside the runtime that arm, move and cancel timers; 0 leaves this to
    /// tasks and callbacks.
    #[arg(
        long, value_name = "N", default_value_t = 2,
        value_parser = clap::value_parser!(u32).range(..=1024),
    )]
    outside: u32,
    /// Operations per second of all outside threads together; 0 means no limit. Tasks and callbacks
    /// are not limited.
    #[arg(long, value_name = "PER SECOND", default_value = "0", value_parser = number)]
    rate: u64,
    /// Random seed. Results also depend on the scheduling of threads.
    #[arg(long, value_name = "N", default_value = "1", value_parser = number)]
    seed: u64,
    /// Interval at which a second runtime is built and dropped beside the one under test.
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = positive_duration)]
    beside: Duration,
    /// At the end, wait this long before a timer counts as lost.
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = positive_duration)]
    grace: Duration,
    /// Also write the report to this file, as JSON with all windows.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Report format.
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
    #[command(flatten)]
    runtime: RuntimeArgs,
}

/// Upper bound of the memory per timer, with its slot.
const BYTES_PER_TIMER: u64 = 160 + 160;
/// Number of timers that last until the runtime ends.
const LASTING: u64 = 100;
/// Number of scenario tasks per worker.
const SCENARIO_TASKS: usize = 2;

fn main() -> ExitCode {
    say::end("tourbillon-soak", run(&arguments()))
}

/// Runs the soak and prints the report.
fn run(args: &Args) -> Result<ExitCode, String> {
    proc::require_memory(args.timers, BYTES_PER_TIMER)?;
    nanos(args.duration)?;
    // Check now, not after hours, that the report file can be written.
    if let Some(path) = &args.report {
        let part = part_of(path);
        let tried = File::create(&part).and_then(|_| fs::remove_file(&part));
        tried.map_err(|error| cannot_write(path, &error))?;
    }
    let report = soak(args)?;
    match args.format {
        Format::Table => print(&report),
        Format::Json => say(report.to_json()),
    }
    // Write the file last: if the disk is full, the report was at least printed.
    if let Some(path) = &args.report {
        write(path, &report).map_err(|error| cannot_write(path, &error))?;
    }
    Ok(if report.passed {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Returns the name of the temporary file, which is renamed to the report file.
fn part_of(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".tmp");
    name.into()
}

/// Writes the whole report or nothing: an existing file stays until the new one is complete.
fn write(path: &Path, report: &Report) -> io::Result<()> {
    let part = part_of(path);
    let written = File::create(&part).and_then(|mut file| {
        writeln!(file, "{}", report.to_json())?;
        file.sync_all()
    });
    let written = written.and_then(|()| fs::rename(&part, path));
    if written.is_err() {
        // Remove the incomplete file, which may fill the disk.
        let _ = fs::remove_file(&part);
    }
    written
}

/// Stops the panic hook from printing deliberate panics, of which there are thousands.
fn silence_deliberate_panics() {
    let hook = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        if !info.payload().is::<Deliberate>() {
            hook(info);
        }
    }));
}

fn soak(args: &Args) -> Result<Report, String> {
    silence_deliberate_panics();
    // Callbacks may outlive this function, so what they refer to is leaked. The process ends soon
    // after.
    let shared: Shared = Box::leak(Box::new(State::new(args.timers, args.outside, args.seed)));
    shared.enlist();
    // Start these first, so that the counts below include their threads and descriptors. They run
    // to the end.
    end::guard(shared, args.duration, args.grace)?;
    let signals = end::listen(shared)?;
    let traces = Traces::listen()?;
    // Let the process allocate what it keeps for good, before counting.
    beside::once(shared)?;
    let (fds, threads) = (proc::descriptors()?, proc::threads()?);

    let mut builder = args.runtime.builder();
    builder.on_thread_start(|| shared.enlist());
    // One helper thread, for when all workers are blocked. It always exists, so the number of
    // threads stays the same.
    builder.helpers(1..=1).max_blocking_threads(4);
    let runtime = builder.build().map_err(|error| error.to_string())?;
    let handle = runtime.handle().clone();
    let workers = runtime.metrics().num_workers();
    traces.show(&runtime);
    let page = args.runtime.inspect(&runtime)?;
    // Measure CPU time from here: the runtime is built.
    let cpu = proc::cpu_seconds()?;
    // Apply the load, and watch until the time is over.
    let start = Instant::now();
    arm::fill_slots(shared, &handle, LASTING);
    let tasks = start_tasks(shared, &runtime, workers)?;
    let windows = thread::scope(|scope| {
        let outside = (0..args.outside).map(|i| {
            let rate = share(args.rate, i, args.outside);
            let handle = handle.clone();
            scope.spawn(move || arm::thread(shared, &handle, rate))
        });
        let outside: Vec<_> = outside.collect();
        let beside = scope.spawn(|| beside::thread(shared, args.beside, page.is_none()));
        let bar = progress(args.duration);
        let windows = Watch::new(shared, &runtime).run(args.duration, |passed, windows| {
            bar.set_position(passed.as_secs());
            if let Some(window) = windows.last() {
                bar.set_message(progress_message(window));
            }
        });
        // Stop the load: all threads and tasks see the flag and end.
        shared.stop();
        bar.finish_and_clear();
        for thread in outside {
            let ok = thread.join().is_ok();
            shared.check(ok, "an outside thread panicked", "");
        }
        let ok = beside.join().is_ok();
        let what = "the thread that builds runtimes beside panicked";
        shared.check(ok, what, "");
        windows
    });
    let seconds = start.elapsed().as_secs_f64();

    // Let all timers end, and compare the counters at rest.
    come_to_rest(shared, &runtime, tasks, args.grace);
    let mut rest = read_at_rest(shared, &runtime);
    let cpu_seconds = watch::or_fault(shared, proc::cpu_seconds()).map_or(0.0, |now| now - cpu);
    // With a time limit: a runtime that cannot shut down is reported and does not hang the test.
    if !runtime.shutdown_timeout(PATIENCE) {
        shared.faults.add("the shutdown did not end in time", "");
    }
    // The handle of a timer that is over still keeps its worker's descriptors open.
    for slot in &shared.slots {
        slot.held().timer = None;
    }
    // Read the final counters. Descriptors and threads close a moment after the shutdown.
    let metrics = handle.metrics();
    let total = metrics.total();
    (rest.total, rest.workers) = ((&total).into(), metrics.num_workers());
    rest.fds = [fds, settled(shared, fds, proc::descriptors)];
    rest.threads = [threads, settled(shared, threads, proc::threads)];
    drop(signals);

    // Judge what was counted.
    let faults = shared.faults.all();
    let mut checks = judge::exact(&shared.tally, &rest, &faults);
    let trends = judge::trends(&windows);
    let trends_judged = trends.iter().any(|check| check.passed.is_some());
    checks.extend(trends);
    Ok(Report {
        passed: checks.iter().all(|check| check.passed != Some(false)),
        trends_judged,
        seconds: rounded(seconds),
        cpu_seconds: rounded(cpu_seconds),
        setting: Setting {
            timers: args.timers,
            workers,
            outside: args.outside,
            rate: args.rate,
            seed: args.seed,
            store: args.runtime.store(),
            duration: rounded(args.duration.as_secs_f64()),
        },
        checks,
        faults,
        counts: shared.tally.all(),
        runtime: total.iter().collect(),
        windows,
    })
}

/// Starts all tasks. The echo server's accept loop, which never ends by itself, comes last.
fn start_tasks(
    shared: Shared,
    runtime: &Runtime,
    workers: usize,
) -> Result<Vec<JoinHandle<()>>, String> {
    let mut tasks = Vec::new();
    tasks.extend((0..workers).map(|_| runtime.spawn(arm::task(shared))));
    let scenarios = 0..(workers * SCENARIO_TASKS) as u64;
    tasks.extend(scenarios.map(|number| runtime.spawn(scenarios::task(shared, number))));
    tasks.push(runtime.spawn(scenarios::block_workers(shared, workers)));
    let (listener, addr) = runtime
        .block_on(echo::listen())
        .map_err(|error| format!("cannot listen for the echo: {error}"))?;
    tasks.extend((0..echo::CLIENTS).map(|_| runtime.spawn(echo::client(shared, addr))));
    tasks.push(runtime.spawn(echo::serve(shared, listener)));
    Ok(tasks)
}

/// Returns the rate of one thread; 0 means no limit.
fn share(rate: u64, i: u32, threads: u32) -> u64 {
    let share = rate / u64::from(threads) + u64::from(u64::from(i) < rate % u64::from(threads));
    if rate == 0 { 0 } else { share.max(1) }
}

/// Waits until all work has ended, except for the long timers.
fn come_to_rest(
    shared: Shared,
    runtime: &Runtime,
    mut tasks: Vec<JoinHandle<()>>,
    grace: Duration,
) {
    // Wait by the clock of the standard library, so that a runtime that hangs is reported.
    let server = tasks.pop();
    let deadline = Instant::now() + PATIENCE;
    for task in tasks {
        let ok = matches!(end::ended(task, deadline), Some(Ok(())));
        let what = "a task of the soak did not end";
        shared.check(ok, what, "");
    }
    // The accept loop has no end of its own: abort it.
    if let Some(server) = server {
        server.abort();
        let is_gone = end::ended(server, Instant::now() + PATIENCE).is_some();
        let what = "an aborted task did not end";
        shared.check(is_gone, what, "");
    }
    // Cancel some of the timers, and wait until the others have fired.
    arm::cancel_some(shared, runtime.handle());
    let deadline = Instant::now() + grace;
    let is_at_rest = || {
        let metrics = runtime.metrics();
        let total = metrics.total();
        shared.slots.iter().all(|slot| !slot.entry.is_open())
            && metrics.num_alive_tasks() == 0
            && total.armed() <= total.over() + LASTING
            && runtime.timers().pending() as u64 <= LASTING
            // The runtime counts a callback after it returned, a moment after the tally.
            && total.callbacks() == shared.tally.get(Count::Runs)
            && total.panics() == shared.tally.get(Count::Panics)
    };
    while !is_at_rest() && Instant::now() < deadline {
        thread::sleep(POLL);
    }
}

/// Reads the counters at rest.
fn read_at_rest(shared: Shared, runtime: &Runtime) -> Rest {
    let metrics = runtime.metrics();
    Rest {
        lost: shared
            .slots
            .iter()
            .filter(|slot| slot.entry.is_open())
            .count() as u64,
        lasting: LASTING,
        pending: runtime.timers().pending(),
        garbage_share: watch::garbage_share(&metrics),
        tasks: metrics.num_alive_tasks(),
        resting: (&metrics.total()).into(),
        ..Rest::default()
    }
}

/// Waits until `count` returns `wanted` again, as the system may be late to show it.
fn settled(shared: Shared, wanted: usize, count: fn() -> Result<usize, String>) -> usize {
    let start = Instant::now();
    loop {
        let there = watch::or_fault(shared, count());
        if there == Some(wanted) || start.elapsed() > PATIENCE {
            return there.unwrap_or(0);
        }
        thread::sleep(POLL);
    }
}

fn progress(duration: Duration) -> ProgressBar {
    // Draws nothing if stderr is not a terminal.
    let target = ProgressDrawTarget::stderr_with_hz(4);
    let bar = ProgressBar::with_draw_target(Some(duration.as_secs()), target);
    let style = "{elapsed_precise} {wide_bar} {duration_precise}  {msg}";
    let style =
        ProgressStyle::with_template(style).unwrap_or_else(|_| ProgressStyle::default_bar());
    bar.set_style(style);
    bar
}

/// Formats a window for the progress bar.
fn progress_message(window: &Window) -> String {
    format!(
        "{:.0}k/s, {:.0} MB, late {}",
        window.rate() / 1e3,
        window.rss as f64 / 1e6,
        scaled(window.late_us.p50 * 1e3)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_divided_among_the_threads() {
        let shares = |rate, threads| (0..threads).map(move |i| share(rate, i, threads));
        assert_eq!(shares(10, 4).collect::<Vec<_>>(), [3, 3, 2, 2]);
        assert_eq!(shares(0, 2).collect::<Vec<_>>(), [0, 0]);
        // A share of 0 would mean no limit.
        assert_eq!(shares(1, 2).collect::<Vec<_>>(), [1, 1]);
    }
}
