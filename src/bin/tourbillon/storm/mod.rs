//! `tourbillon storm`: timers armed, cancelled, refreshed and reset from all sides, and books about
//! each of them that owe nothing to the runtime's own.
//!
//! 1. The books are laid out, and the runtime is started.
//! 2. *Arming.* Workers and threads outside arm most of the timers (the *early* ones), for a window
//!    that has not begun. Memory is measured before and after.
//! 3. *The window.* The early timers come due. Meddlers, which are threads of their own, cancel,
//!    refresh and reset a share of them: some at any time, some just when they come due. Workers
//!    and threads outside arm the rest (the *late* ones) meanwhile, and the meddlers are at these
//!    as soon as they are armed.
//! 4. All are waited for, the runtime is ended, and the books are read.
//!
//! | file | what is there |
//! |---|---|
//! | `plan` | which timer is due when, who meddles with it, and how |
//! | `ledger` | the books: what was asked for, and what happened |
//! | `arm` | arming, from workers and from outside |
//! | `lanes` | counts that each worker keeps for itself |
//! | `meddle` | cancelling, refreshing, resetting |
//! | `report` | the verdict, as a table or as JSON |

mod arm;
mod lanes;
mod ledger;
mod meddle;
mod plan;
mod report;

use std::{
    io::{self, Write},
    process::ExitCode,
    thread,
    time::{Duration, Instant},
};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use self::{
    arm::Books,
    ledger::Ledger,
    meddle::Meddled,
    plan::Plan,
    report::{Measured, Report},
};
use crate::{
    args::{RuntimeArgs, count, duration, nanos, positive_duration, usage_error},
    complain,
    figures::Format,
    proc,
};

/// Arguments of `tourbillon storm`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// How many timers, such as 20k or 10M.
    #[arg(long, value_name = "COUNT", default_value = "1M", value_parser = count)]
    timers: u32,
    /// Over how long their deadlines are spread [default: 5s, or more if 500k a second is less].
    #[arg(long, value_name = "DURATION", value_parser = positive_duration)]
    spread: Option<Duration>,
    /// How long after the start the first deadline is; arming should be done by then [default:
    /// 500ms and 1us for two timers].
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    lead: Option<Duration>,
    /// How many threads outside of the runtime arm timers; without any, the workers arm them all.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(..=1024))]
    outside: u32,
    /// How many threads cancel, refresh and reset.
    #[arg(long, value_name = "N", default_value = "2", value_parser = clap::value_parser!(u32).range(1..=1024))]
    meddlers: u32,
    /// How many of 100 timers are cancelled, or tried to.
    #[arg(long, value_name = "PERCENT", default_value_t = 10, value_parser = clap::value_parser!(u32).range(..=100))]
    cancel: u32,
    /// How many of 100 timers are refreshed.
    #[arg(long, value_name = "PERCENT", default_value_t = 10, value_parser = clap::value_parser!(u32).range(..=100))]
    refresh: u32,
    /// How many of 100 timers are reset, to earlier or to later.
    #[arg(long, value_name = "PERCENT", default_value_t = 10, value_parser = clap::value_parser!(u32).range(..=100))]
    reset: u32,
    /// What is decided at random follows from this number.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// After the last deadline, how long to wait for timers before they count as lost.
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration)]
    grace: Duration,
    /// How to say what happened.
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
    #[command(flatten)]
    runtime: RuntimeArgs,
}

/// How often the books are looked at while all waits.
const GLANCE: Duration = Duration::from_millis(10);
/// What a timer costs at most, with what is written about it.
const BYTES_PER_TIMER: u64 = 160 + 48;
/// With nothing armed for so long, something is broken.
const STALLED: Duration = Duration::from_secs(30);

/// Runs the storm, and prints what came of it.
pub(crate) fn run(args: &Args) -> Result<ExitCode, String> {
    let shares = args.cancel + args.refresh + args.reset;
    if shares > 100 {
        usage_error(&format!(
            "--cancel, --refresh and --reset are {shares} % together: at most 100 % of the timers \
             can be meddled with"
        ));
    }
    proc::require_memory(args.timers, BYTES_PER_TIMER)?;
    let report = storm(args)?;
    let mut stdout = io::stdout().lock();
    let said = match args.format {
        Format::Table => write!(stdout, "{report}"),
        Format::Json => writeln!(stdout, "{}", report.to_json()),
    };
    // Who does not read it to its end has read enough; the status tells the rest.
    let _ = said.and_then(|()| stdout.flush());
    Ok(report.exit_code())
}

fn storm(args: &Args) -> Result<Report, String> {
    let timers = u64::from(args.timers);
    let spread = args
        .spread
        .unwrap_or_else(|| Duration::from_secs(5).max(Duration::from_micros(2 * timers)));
    let lead = args
        .lead
        .unwrap_or_else(|| Duration::from_millis(500) + Duration::from_micros(timers / 2));
    let (spread, lead, grace) = (nanos(spread)?, nanos(lead)?, nanos(args.grace)?);
    let shares = [args.cancel, args.refresh, args.reset];
    let mut plan = Plan::new(args.timers, spread, shares, args.seed);
    // Callbacks live for as long as the runtime pleases, and so must what they refer to. It is the
    // last thing that the process does.
    let ledger: &'static Ledger = Box::leak(Box::new(Ledger::new(args.timers)));
    let builder = args.runtime.builder().on_thread_start(lanes::enlist);
    let runtime = builder.build().map_err(|error| error.to_string())?;
    let workers = runtime.metrics().num_workers();
    while lanes::threads().len() < workers {
        thread::sleep(Duration::from_millis(1));
    }
    args.runtime.inspect(&runtime)?;

    let memory = proc::resident_bytes()?;
    let cpu = proc::cpu_seconds()?;
    let worker_cpu = proc::thread_cpu_seconds(&lanes::threads())?;
    let begun = ledger.now();
    plan.begin(begun, begun + lead);
    let plan: &'static Plan = Box::leak(Box::new(plan));
    let books = Books { ledger, plan };
    let bar = progress(timers);
    let armers = arm::start_early(&runtime, books, args.outside);
    wait_until_armed(books, &bar)?;
    for armer in armers {
        armer.join().map_err(|_| "a thread that arms panicked")?;
    }
    let armed_at = ledger.now();
    let grown = proc::resident_bytes()?.saturating_sub(memory);
    let pending = u64::from(plan.early()).saturating_sub(fired());
    if armed_at > plan.base() {
        complain(format_args!(
            "arming took longer than --lead, and {} timers ran meanwhile: memory per timer is that \
             of the others, and what those left behind",
            fired()
        ));
    }

    bar.set_message("firing");
    let meddled = Meddled::default();
    thread::scope(|scope| {
        let armers = arm::start_late(scope, &runtime, books, args.outside);
        let meddlers = meddle::start(scope, books, args.meddlers, &meddled);
        let all_over = || {
            armers.are_done()
                && meddlers.iter().all(|meddler| meddler.is_finished())
                && ended() >= timers
        };
        while !all_over() && ledger.now() < plan.latest() + grace {
            bar.set_position(ended());
            thread::sleep(GLANCE);
        }
    });
    let cpu_seconds = proc::cpu_seconds()? - cpu;
    let worker_cpu_seconds = proc::thread_cpu_seconds(&lanes::threads())? - worker_cpu;
    let over_at = ledger.now();
    bar.finish_and_clear();
    let counts = runtime.metrics().total();
    // Nothing runs after this: what the books say then is final.
    drop(runtime);

    let measured = Measured {
        workers,
        seconds: (over_at - begun) as f64 / 1e9,
        cpu_seconds,
        worker_cpu_seconds,
        arm_seconds: (armed_at - begun) as f64 / 1e9,
        bytes_per_timer: grown as f64 / pending.max(1) as f64,
        measured_timers: pending,
    };
    Ok(Report::new(timers, ledger, &meddled, &counts, measured))
}

/// How many callbacks ran.
fn fired() -> u64 {
    lanes::total(|lane| &lane.fired)
}

/// How many timers ended.
fn ended() -> u64 {
    lanes::total(|lane| &lane.ended)
}

/// How many timers were armed.
fn armed() -> u64 {
    lanes::total(|lane| &lane.armed)
}

/// Waits until the early timers are armed.
fn wait_until_armed(books: Books, bar: &ProgressBar) -> Result<(), String> {
    let early = u64::from(books.plan.early());
    let mut last = (0, Instant::now());
    loop {
        let armed = armed();
        if armed >= early {
            return Ok(());
        }
        if armed > last.0 {
            last = (armed, Instant::now());
        } else if last.1.elapsed() > STALLED {
            return Err(format!(
                "arming has stalled: {armed} of {early} timers, and no more in {STALLED:?}"
            ));
        }
        bar.set_position(armed);
        thread::sleep(Duration::from_millis(1));
    }
}

fn progress(timers: u64) -> ProgressBar {
    // Draws nothing where stderr is no terminal.
    let bar = ProgressBar::with_draw_target(Some(timers), ProgressDrawTarget::stderr_with_hz(10));
    let style = "{msg:7} {wide_bar} {human_pos}/{human_len} {elapsed_precise}";
    let style =
        ProgressStyle::with_template(style).unwrap_or_else(|_| ProgressStyle::default_bar());
    bar.set_style(style);
    bar.set_message("arming");
    bar
}
