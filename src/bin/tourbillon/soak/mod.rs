//! `tourbillon soak`: timers armed, moved and cancelled from all sides for as long as one likes, with all else that a
//! runtime does beside them; and a judge who looks for what grows, what is lost, and what does not add up.
//!
//! 1. A watchdog and a listener to signals are started, which are there to the end. A runtime is built and dropped, so
//!    that what a process keeps for good is there. Descriptors and threads are counted.
//! 2. The runtime that is soaked is built. Tasks and threads arm one timer in each slot of the ledger; whoever notes
//!    the end of one, be it its callback or who cancelled it, sees to it that the next is armed. All meddle.
//! 3. The watch looks at the process, window by window, until the time is over or Ctrl-C comes.
//! 4. Nothing is begun any more; tasks come to their ends; half of the timers are cancelled and the rest run. At rest,
//!    what the runtime says of itself is compared with the books.
//! 5. The runtime is dropped, which ends some timers that were there for that. What is left is counted.
//!
//! | file | what is there |
//! |---|---|
//! | `books` | what all share |
//! | `ledger` | slots, and the ends of their timers |
//! | `tally` | counts, lateness, and what went wrong |
//! | `arm` | timers of the ledger: armed, moved, cancelled |
//! | `lives` | what tasks do with timers |
//! | `echo` | TCP, with timeouts |
//! | `beside` | runtimes that come and go |
//! | `end` | what ends it: signals, a watchdog, patience |
//! | `watch` | what is looked at, in windows |
//! | `judge` | the checks |
//! | `report` | the verdict, as a table or as JSON |

mod arm;
mod beside;
mod books;
mod echo;
mod end;
mod judge;
mod ledger;
mod lives;
mod report;
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

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tourbillon::{JoinHandle, Runtime};

use self::{
    books::{Books, Meant, PATIENCE, Shared},
    end::GLANCE,
    judge::Rest,
    report::{Report, Setting},
    tally::Count,
    watch::{Watch, Window},
};
use crate::{
    args::{RuntimeArgs, count, nanos, positive_duration},
    figures::{Format, rounded},
    proc,
};

/// Arguments of `tourbillon soak`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// For how long; Ctrl-C ends it before that, with the same checks. Trends are judged from a minute on.
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = positive_duration)]
    duration: Duration,
    /// How many timers are in flight, such as 20k or 1M.
    #[arg(long, value_name = "COUNT", default_value = "20k", value_parser = count)]
    timers: u32,
    /// How many threads outside of the runtime arm, move and cancel; without any, tasks and callbacks do.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(..=1024))]
    outside: u32,
    /// How many operations these threads do in a second, all together; 0: as many as they can. What tasks and
    /// callbacks do comes to that.
    #[arg(long, value_name = "PER SECOND", default_value_t = 0)]
    rate: u64,
    /// What is decided at random follows from this number, but for what depends on who is faster.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// How often a runtime is built and dropped beside the one that is soaked.
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = positive_duration)]
    beside: Duration,
    /// At the end, how long to wait for timers before they count as lost.
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = positive_duration)]
    grace: Duration,
    /// A file to write the report to, as JSON, with all windows.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// How to say what came of it.
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
    #[command(flatten)]
    runtime: RuntimeArgs,
}

/// What a timer costs at most, with its slot.
const BYTES_PER_TIMER: u64 = 160 + 160;
/// Timers that last until the runtime ends.
const LASTING: u64 = 100;
/// Tasks for each worker that lead lives of their own.
const LIVES: usize = 2;

/// Runs the soak, and prints what came of it.
pub(crate) fn run(args: &Args) -> Result<ExitCode, String> {
    proc::require_memory(args.timers, BYTES_PER_TIMER)?;
    nanos(args.duration)?;
    // Now, and not in some hours, it turns out that it cannot be written.
    if let Some(path) = &args.report {
        let part = part_of(path);
        let tried = File::create(&part).and_then(|_| fs::remove_file(&part));
        tried.map_err(|error| cannot_write(path, &error))?;
    }
    let report = soak(args)?;
    let mut stdout = io::stdout().lock();
    let said = match args.format {
        Format::Table => write!(stdout, "{report}"),
        Format::Json => writeln!(stdout, "{}", report.to_json()),
    };
    // Who does not read it to its end has read enough; the status tells the rest.
    let _ = said.and_then(|()| stdout.flush());
    // After that: where the disk is full, the report was said at least.
    if let Some(path) = &args.report {
        write(path, &report).map_err(|error| cannot_write(path, &error))?;
    }
    Ok(if report.passed {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn cannot_write(path: &Path, error: &io::Error) -> String {
    format!("cannot write {}: {error}", path.display())
}

/// The file that is written first, beside the one that it becomes.
fn part_of(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".tmp");
    name.into()
}

/// Writes the report, all of it or nothing: what was there stays until then.
fn write(path: &Path, report: &Report) -> io::Result<()> {
    let part = part_of(path);
    let written = File::create(&part).and_then(|mut file| {
        writeln!(file, "{}", report.to_json())?;
        file.sync_all()
    });
    let written = written.and_then(|()| fs::rename(&part, path));
    if written.is_err() {
        // What there is of it says nothing, and takes room where there may be none.
        let _ = fs::remove_file(&part);
    }
    written
}

/// Panics that are meant are counted, and not printed by the thousand.
fn silence_what_is_meant() {
    let hook = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        if !info.payload().is::<Meant>() {
            hook(info);
        }
    }));
}

fn soak(args: &Args) -> Result<Report, String> {
    silence_what_is_meant();
    // Callbacks live for as long as the runtime pleases, and so must what they refer to. It is the last thing that the
    // process does.
    let shared = Shared::new(args.timers, args.outside, args.seed);
    let books: Books = Box::leak(Box::new(shared));
    books.enlist();
    // Before all else, so that they are counted with what was there before; and to the end.
    end::guard(books, args.duration, args.grace)?;
    let signals = end::listen(books)?;
    // What makes a process keep something for good is done once.
    beside::once(books)?;
    let (fds, threads) = (proc::descriptors()?, proc::threads()?);

    let builder = args.runtime.builder().on_thread_start(|| books.enlist());
    // One helper, for when all workers are blocked: always there, so that it is no thread more.
    let builder = builder.helpers(1..=1).max_blocking_threads(4);
    let runtime = builder.build().map_err(|error| error.to_string())?;
    let handle = runtime.handle().clone();
    let workers = runtime.metrics().num_workers();
    let page = args.runtime.inspect(&runtime)?;
    let cpu = proc::cpu_seconds()?;
    let start = Instant::now();
    arm::lay_out(books, &handle, LASTING);
    let tasks = start_tasks(books, &runtime, workers)?;
    let windows = thread::scope(|scope| {
        let outside = (0..args.outside).map(|i| {
            let rate = share(args.rate, i, args.outside);
            let handle = handle.clone();
            scope.spawn(move || arm::thread(books, &handle, rate))
        });
        let outside: Vec<_> = outside.collect();
        let beside = scope.spawn(|| beside::thread(books, args.beside, page.is_none()));
        let bar = progress(args.duration);
        let windows = Watch::new(books, &runtime).run(args.duration, |passed, windows| {
            bar.set_position(passed.as_secs());
            if let Some(window) = windows.last() {
                bar.set_message(glance(window));
            }
        });
        books.stop();
        bar.finish_and_clear();
        for thread in outside {
            let well = thread.join().is_ok();
            books.faults.unless(well, "a thread that arms panicked", "");
        }
        let well = beside.join().is_ok();
        let what = "the thread of runtimes beside panicked";
        books.faults.unless(well, what, "");
        windows
    });
    let seconds = start.elapsed().as_secs_f64();

    come_to_rest(books, &runtime, tasks, args.grace);
    let mut rest = look_at_rest(books, &runtime);
    let cpu_seconds = watch::seen(books, proc::cpu_seconds()).map_or(0.0, |now| now - cpu);
    // A bound, so that what keeps the runtime from its end is told, and does not hang.
    if !runtime.shutdown_timeout(PATIENCE) {
        books.faults.add("the shutdown came to no end", "");
    }
    // The handle of a timer that is over keeps its worker's descriptors.
    for slot in &books.slots {
        slot.held().timer = None;
    }
    let metrics = handle.metrics();
    (rest.total, rest.workers) = (metrics.total(), metrics.num_workers());
    rest.fds = [fds, settled(books, fds, proc::descriptors)];
    rest.threads = [threads, settled(books, threads, proc::threads)];
    drop(signals);

    let faults = books.faults.all();
    let mut checks = judge::exact(&books.tally, &rest, &faults);
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
        counts: books.tally.all(),
        runtime: rest.total.iter().collect(),
        windows,
    })
}

/// Starts all tasks; those of the echo's server that wait for clients come last.
fn start_tasks(
    books: Books,
    runtime: &Runtime,
    workers: usize,
) -> Result<Vec<JoinHandle<()>>, String> {
    let mut tasks = Vec::new();
    tasks.extend((0..workers).map(|_| runtime.spawn(arm::task(books))));
    let lives = 0..(workers * LIVES) as u64;
    tasks.extend(lives.map(|number| runtime.spawn(lives::task(books, number))));
    tasks.push(runtime.spawn(lives::block_workers(books, workers)));
    let (listener, addr) = runtime
        .block_on(echo::listen())
        .map_err(|error| format!("cannot listen for the echo: {error}"))?;
    tasks.extend((0..echo::CLIENTS).map(|_| runtime.spawn(echo::client(books, addr))));
    tasks.push(runtime.spawn(echo::serve(books, listener)));
    Ok(tasks)
}

/// The rate of one thread; 0 stands for any.
fn share(rate: u64, i: u32, threads: u32) -> u64 {
    let share = rate / u64::from(threads) + u64::from(u64::from(i) < rate % u64::from(threads));
    if rate == 0 { 0 } else { share.max(1) }
}

/// Waits until nothing is left to do but what lasts.
fn come_to_rest(books: Books, runtime: &Runtime, mut tasks: Vec<JoinHandle<()>>, grace: Duration) {
    // By our own clock, and not by that of the runtime: one that hangs is told.
    let server = tasks.pop();
    let deadline = Instant::now() + PATIENCE;
    for task in tasks {
        let well = matches!(end::ended(task, deadline), Some(Ok(())));
        let what = "a task of the soak did not come to its end";
        books.faults.unless(well, what, "");
    }
    if let Some(server) = server {
        server.abort();
        let is_gone = end::ended(server, Instant::now() + PATIENCE).is_some();
        let what = "a task that was aborted did not come to its end";
        books.faults.unless(is_gone, what, "");
    }
    arm::wind_up(books, runtime.handle());
    let deadline = Instant::now() + grace;
    let is_at_rest = || {
        let metrics = runtime.metrics();
        let total = metrics.total();
        books.slots.iter().all(|slot| !slot.is_open())
            && metrics.num_alive_tasks() == 0
            && total.armed() <= total.over() + LASTING
            && runtime.timers().pending() as u64 <= LASTING
            // A callback is counted by the runtime when it has returned, a moment after the books.
            && total.callbacks == books.tally.get(Count::Runs)
            && total.panics == books.tally.get(Count::Panics)
    };
    while !is_at_rest() && Instant::now() < deadline {
        thread::sleep(GLANCE);
    }
}

/// What there is to be seen at rest.
fn look_at_rest(books: Books, runtime: &Runtime) -> Rest {
    let metrics = runtime.metrics();
    Rest {
        lost: books.slots.iter().filter(|slot| slot.is_open()).count() as u64,
        lasting: LASTING,
        pending: runtime.timers().pending(),
        garbage_share: watch::garbage_share(&metrics),
        tasks: metrics.num_alive_tasks(),
        resting: metrics.total(),
        ..Rest::default()
    }
}

/// Counts what should be so many again, as soon as the system has noticed.
fn settled(books: Books, wanted: usize, count: fn() -> Result<usize, String>) -> usize {
    let start = Instant::now();
    loop {
        let there = watch::seen(books, count());
        if there == Some(wanted) || start.elapsed() > PATIENCE {
            return there.unwrap_or(0);
        }
        thread::sleep(GLANCE);
    }
}

fn progress(duration: Duration) -> ProgressBar {
    // Draws nothing where stderr is no terminal.
    let target = ProgressDrawTarget::stderr_with_hz(4);
    let bar = ProgressBar::with_draw_target(Some(duration.as_secs()), target);
    let style = "{elapsed_precise} {wide_bar} {duration_precise}  {msg}";
    let style =
        ProgressStyle::with_template(style).unwrap_or_else(|_| ProgressStyle::default_bar());
    bar.set_style(style);
    bar
}

/// A window in a few words.
fn glance(window: &Window) -> String {
    format!(
        "{:.0}k/s, {:.0} MB, late {:.0} us",
        window.rate() / 1e3,
        window.rss as f64 / 1e6,
        window.late_us.p50
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_shared_out() {
        let shares = |rate, threads| (0..threads).map(move |i| share(rate, i, threads));
        assert_eq!(shares(10, 4).collect::<Vec<_>>(), [3, 3, 2, 2]);
        assert_eq!(shares(0, 2).collect::<Vec<_>>(), [0, 0]);
        // None of them may be without a bound.
        assert_eq!(shares(1, 2).collect::<Vec<_>>(), [1, 1]);
    }
}
