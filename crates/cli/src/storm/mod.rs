//! `tourbillon storm`: arms, cancels, refreshes and resets timers from all threads, and checks each
//! timer against a ledger of its own, independent of the runtime's counters.
//!
//! 1. *Set-up.* Allocate the ledger and start the runtime.
//! 2. *Arming.* Workers and outside threads arm most of the timers (the *early* ones) for a window
//!    that has not begun. Memory is measured before and after.
//! 3. *The window.* The early timers fire. Meddlers, which are separate threads, cancel, refresh
//!    and reset a share of them: some at any time, some close to their deadlines. Meanwhile workers
//!    and outside threads arm the rest (the *late* timers). The meddlers act on these as soon as
//!    they are armed.
//! 4. *The verdict.* Wait for all timers, end the runtime, and evaluate the ledger.
//!
//! | file | content |
//! |---|---|
//! | `plan` | the deadline of each timer, and the action on it |
//! | `ledger` | the deadline and the end of each timer |
//! | `arm` | arming, from workers and from outside |
//! | `lanes` | counters per worker |
//! | `meddle` | cancelling, refreshing, resetting |
//! | `report` | the report, as a table or as JSON |
//! | `beside` | the comparison with another runtime, which is a program of its own |

mod arm;
mod beside;
mod lanes;
mod ledger;
mod meddle;
mod plan;
mod report;

use std::{
    path::PathBuf,
    process::ExitCode,
    thread,
    time::{Duration, Instant},
};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tourbillon_flight::{causes, late_timers};

use self::{
    arm::Context,
    beside::BesideArgs,
    ledger::Ledger,
    meddle::Meddled,
    plan::Plan,
    report::{Measured, Report},
};
use crate::{
    args::{RuntimeArgs, count, duration, nanos, number, positive_duration, usage_error},
    complain,
    disturbance::Meter,
    figures::Format,
    proc,
    record::{self, Traces},
    say::{print, say},
};

/// Arguments of `tourbillon storm`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = format!("{}\n\n{}", report::HELP, beside::HELP))]
pub(crate) struct Args {
    #[command(flatten)]
    beside: BesideArgs,
    /// Number of timers, such as 20k or 10M [default: 1M].
    #[arg(long, value_name = "COUNT", value_parser = count)]
    timers: Option<u32>,
    /// Spread the deadlines over this time [default: 5s, or longer to stay below 500k timers per
    /// second].
    #[arg(long, value_name = "DURATION", value_parser = positive_duration)]
    spread: Option<Duration>,
    /// Time from the start to the first deadline, for arming [default: 500ms, plus 0.5us per
    /// timer].
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    lead: Option<Duration>,
    /// Number of threads outside the runtime that arm timers; 0 lets the workers arm all of them.
    #[arg(
        long, value_name = "N", default_value_t = 2,
        value_parser = clap::value_parser!(u32).range(..=1024),
    )]
    outside: u32,
    /// Number of threads that cancel, refresh and reset timers.
    #[arg(
        long, value_name = "N", default_value = "2",
        value_parser = clap::value_parser!(u32).range(1..=1024),
    )]
    meddlers: u32,
    /// Percentage of timers to cancel.
    #[arg(
        long, value_name = "PERCENT", default_value_t = 10,
        value_parser = clap::value_parser!(u32).range(..=100),
    )]
    cancel: u32,
    /// Percentage of timers to refresh.
    #[arg(
        long, value_name = "PERCENT", default_value_t = 10,
        value_parser = clap::value_parser!(u32).range(..=100),
    )]
    refresh: u32,
    /// Percentage of timers to reset, to an earlier or a later deadline.
    #[arg(
        long, value_name = "PERCENT", default_value_t = 10,
        value_parser = clap::value_parser!(u32).range(..=100),
    )]
    reset: u32,
    /// Percentage of the early timers that are sleeps of tasks. The others are callbacks.
    #[arg(
        long, value_name = "PERCENT", default_value_t = 0,
        value_parser = clap::value_parser!(u32).range(..=100),
    )]
    tasks: u32,
    /// Write a trace of the storm's end to this file: see `tourbillon trace`.
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Random seed.
    #[arg(long, value_name = "N", default_value = "1", value_parser = number)]
    seed: u64,
    /// After the last deadline, wait this long before a timer counts as lost.
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration)]
    grace: Duration,
    /// Report format.
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
    #[command(flatten)]
    runtime: RuntimeArgs,
}

/// Number of timers, if the user names none.
const TIMERS: u32 = 1_000_000;
/// Interval at which the main thread checks for the end.
const POLL: Duration = Duration::from_millis(10);
/// Upper bound of the memory per timer, with its record in the ledger.
const BYTES_PER_TIMER: u64 = 160 + 48;
/// Upper bound of the memory of a task that sleeps, in addition.
const BYTES_PER_TASK: u64 = 256;
/// Give up if no timer was armed for this long.
const STALLED: Duration = Duration::from_secs(30);

/// Runs the storm and prints the report.
pub(crate) fn run(args: &Args) -> Result<ExitCode, String> {
    if let Some(peer) = args.beside.beside {
        let options = beside::Options {
            timers: args.timers,
            spread: args.spread,
            lead: args.lead,
            grace: args.grace,
            seed: args.seed,
            format: args.format,
            runtime: &args.runtime,
        };
        return args.beside.run(peer, options);
    }
    let shares = args.cancel + args.refresh + args.reset;
    if shares > 100 {
        usage_error(&format!(
            "--cancel, --refresh and --reset add up to {shares} %: they must add up to at most \
             100 %"
        ));
    }
    let each = BYTES_PER_TIMER + BYTES_PER_TASK * u64::from(args.tasks).div_ceil(100);
    let timers = args.timers.unwrap_or(TIMERS);
    proc::require_memory(timers, each)?;
    let report = storm(timers, args)?;
    match args.format {
        Format::Table => print(&report),
        Format::Json => say(report.to_json()),
    }
    Ok(report.exit_code())
}

fn storm(count: u32, args: &Args) -> Result<Report, String> {
    let timers = u64::from(count);
    let spread = args
        .spread
        .unwrap_or_else(|| Duration::from_secs(5).max(Duration::from_micros(2 * timers)));
    let lead = args
        .lead
        .unwrap_or_else(|| Duration::from_millis(500) + Duration::from_micros(timers / 2));
    let (spread, lead, grace) = (nanos(spread)?, nanos(lead)?, nanos(args.grace)?);
    let shares = [args.cancel, args.refresh, args.reset];
    let mut plan = Plan::new(count, spread, shares, args.seed).with_tasks(args.tasks);
    // Callbacks may outlive this function, so what they refer to is leaked. The process ends soon
    // after.
    let ledger: &'static Ledger = Box::leak(Box::new(Ledger::new(count)));
    let mut builder = args.runtime.builder();
    builder.on_thread_start(lanes::enlist);
    let runtime = builder.build().map_err(|error| error.to_string())?;
    let workers = runtime.metrics().num_workers();
    // Each worker registers its lane when it starts. Wait, so that the CPU time of all is measured.
    while lanes::threads().len() < workers {
        thread::sleep(Duration::from_millis(1));
    }
    Traces::listen()?.show(&runtime);
    args.runtime.inspect(&runtime)?;

    // Measure memory and CPU time from here: the ledger is allocated and the workers run.
    let memory = proc::resident_bytes()?;
    let meter = Meter::start();
    let worker_cpu = proc::thread_cpu_seconds(&lanes::threads())?;
    let begun = ledger.clock.now();
    plan.begin(begun, begun + lead);
    let plan: &'static Plan = Box::leak(Box::new(plan));
    let context = Context { ledger, plan };
    // Arm the early timers.
    let bar = progress(timers);
    let armers = arm::start_early(&runtime, context, args.outside);
    wait_until_armed(context, &bar)?;
    for armer in armers {
        armer.join().map_err(|_| "an outside thread panicked")?;
    }
    // Measure memory while most timers are pending.
    let armed_at = ledger.clock.now();
    let grown = proc::resident_bytes()?.saturating_sub(memory);
    let pending = u64::from(plan.early()).saturating_sub(fired());
    if armed_at > plan.base() {
        complain(format_args!(
            "arming took longer than --lead, and {} timers fired meanwhile: the memory per timer \
             includes what they left behind",
            fired()
        ));
    }

    // Arm the late timers and meddle, until each timer has ended or the grace period is over. A
    // meddler without work would only take a core from the workers.
    bar.set_message("firing");
    let meddled = Meddled::default();
    let meddlers = if args.cancel + args.refresh + args.reset == 0 {
        0
    } else {
        args.meddlers
    };
    thread::scope(|scope| {
        let armers = arm::start_late(scope, &runtime, context, args.outside);
        let meddlers = meddle::start(scope, context, meddlers, &meddled);
        let all_over = || {
            armers.are_done()
                && meddlers.iter().all(|meddler| meddler.is_finished())
                && ended() >= timers
        };
        while !all_over() && ledger.clock.now() < plan.latest() + grace {
            bar.set_position(ended());
            thread::sleep(POLL);
        }
    });
    let disturbance = meter.read();
    let worker_cpu_seconds = proc::thread_cpu_seconds(&lanes::threads())? - worker_cpu;
    let over_at = ledger.clock.now();
    bar.finish_and_clear();
    let counts = runtime.metrics().total();
    let recorded = runtime.flight_recorder().snapshot();
    if let Some(path) = &args.trace {
        record::save(&recorded, path)?;
    }
    let causes = causes(&late_timers(&recorded, Duration::ZERO));
    // Drop the runtime first: no callback runs after this, so the ledger is final.
    drop(runtime);

    let measured = Measured {
        workers,
        seconds: (over_at - begun) as f64 / 1e9,
        cpu_seconds: disturbance.cpu,
        worker_cpu_seconds,
        arm_seconds: (armed_at - begun) as f64 / 1e9,
        bytes_per_timer: grown as f64 / pending.max(1) as f64,
        measured_timers: pending,
        disturbance,
    };
    let report = Report::new(timers, ledger, &meddled, &counts, measured);
    Ok(report.with_late(&causes))
}

/// Returns the number of callbacks that ran.
fn fired() -> u64 {
    lanes::total(|lane| &lane.fired)
}

/// Returns the number of timers that ended.
fn ended() -> u64 {
    lanes::total(|lane| &lane.ended)
}

/// Returns the number of timers that were armed.
fn armed() -> u64 {
    lanes::total(|lane| &lane.armed)
}

/// Waits until the early timers are armed. Fails if arming stalls.
fn wait_until_armed(context: Context, bar: &ProgressBar) -> Result<(), String> {
    let early = u64::from(context.plan.early());
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
                "arming has stalled: {armed} of {early} timers, no more in {STALLED:?}"
            ));
        }
        bar.set_position(armed);
        thread::sleep(Duration::from_millis(1));
    }
}

fn progress(timers: u64) -> ProgressBar {
    // Draws nothing if stderr is not a terminal.
    let bar = ProgressBar::with_draw_target(Some(timers), ProgressDrawTarget::stderr_with_hz(10));
    let style = "{msg:7} {wide_bar} {human_pos}/{human_len} {elapsed_precise}";
    let style =
        ProgressStyle::with_template(style).unwrap_or_else(|_| ProgressStyle::default_bar());
    bar.set_style(style);
    bar.set_message("arming");
    bar
}
