//! Runs commands by cron patterns, in time zones. See the README in this directory.

mod job;
mod run;

use std::{
    convert::Infallible, error::Error, fs, path::PathBuf, process::ExitCode, time::Duration,
};

use clap::{Parser, ValueEnum};
use futures::channel::mpsc;
use futures_lite::{StreamExt, future::or};
use tourbillon::{Runtime, time::timeout};
use tourbillon_cron::{self as cron, CronJob, jiff::Zoned};
use tourbillon_examples::{
    arguments::{arguments, tame},
    say::{self, complain, say},
    server::Stop,
};

use self::{job::Job, run::Runner};

/// Run commands by cron patterns.
#[derive(Parser)]
struct Args {
    /// A job: `[TZ=ZONE] PATTERN -- COMMAND`. A pattern has five fields, or six with a second
    /// first, or is a name such as `@daily`.
    #[arg(long = "job", value_name = "JOB")]
    jobs: Vec<String>,
    /// A file of jobs, one per line. Empty lines and lines that start with `#` are skipped.
    #[arg(long, value_name = "PATH")]
    file: Option<PathBuf>,
    /// Time zone of the jobs that name none.
    #[arg(long, value_name = "ZONE", default_value = "UTC")]
    zone: String,
    /// Policy for a run that is due while the previous one is in progress.
    #[arg(long, value_enum, default_value_t = Overlap::Skip)]
    overlap: Overlap,
    /// Policy for runs that were missed because the machine was suspended or its clock was set
    /// forward.
    #[arg(long, value_enum, default_value_t = Missed::Skip)]
    missed: Missed,
    /// After Ctrl-C or SIGTERM, wait up to this long for running commands.
    #[arg(
        long, value_name = "DURATION", default_value = "10s",
        value_parser = humantime::parse_duration,
    )]
    drain: Duration,
    /// Run nothing; print the next COUNT times of each job.
    #[arg(long, value_name = "COUNT")]
    dry_run: Option<usize>,
    /// Start time of --dry-run, such as 2025-03-29T12:00[Europe/Paris] [default: now].
    #[arg(long, value_name = "TIME", requires = "dry_run")]
    from: Option<Zoned>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Overlap {
    /// Drop it.
    Skip,
    /// Run it after the previous one.
    Queue,
    /// Run both at the same time.
    Both,
}

#[derive(Clone, Copy, ValueEnum)]
enum Missed {
    /// Drop them.
    Skip,
    /// Run once for all of them.
    Once,
    /// Run each of them.
    All,
}

fn main() -> ExitCode {
    say::end("cron_jobs", run(&arguments()))
}

fn run(args: &Args) -> Result<ExitCode, Box<dyn Error>> {
    let jobs = read_jobs(args)?;
    match args.dry_run {
        Some(count) => print_times(&jobs, args.from.clone().unwrap_or_else(Zoned::now), count),
        None => return run_jobs(jobs, args.drain),
    }
    Ok(ExitCode::SUCCESS)
}

/// Reads the jobs of the command line, then those of the file.
fn read_jobs(args: &Args) -> Result<Vec<Job>, Box<dyn Error>> {
    let mut jobs = Vec::new();
    let mut read = |text: &str, place: String| {
        let job = Job::parse(text, &args.zone).map_err(|error| format!("{place}: {error}"))?;
        jobs.push(Job {
            cron: job
                .cron
                .overlap(match args.overlap {
                    Overlap::Skip => cron::Overlap::Skip,
                    Overlap::Queue => cron::Overlap::Queue,
                    Overlap::Both => cron::Overlap::Both,
                })
                .missed(match args.missed {
                    Missed::Skip => cron::Missed::Skip,
                    Missed::Once => cron::Missed::Once,
                    Missed::All => cron::Missed::All,
                }),
            command: job.command,
        });
        Ok::<_, String>(())
    };
    for (at, text) in args.jobs.iter().enumerate() {
        read(text, format!("--job, number {}", at + 1))?;
    }
    if let Some(path) = &args.file {
        let name = tame(path);
        let text = fs::read_to_string(path).map_err(|error| format!("{name}: {error}"))?;
        for (at, line) in text.lines().enumerate() {
            let is_job = |line: &str| !line.is_empty() && !line.starts_with('#');
            if is_job(line.trim()) {
                read(line.trim(), format!("{name}:{}", at + 1))?;
            }
        }
    }
    if jobs.is_empty() {
        return Err("there are no jobs: give some by --job or --file".into());
    }
    Ok(jobs)
}

/// Prints the next `count` times of each job.
fn print_times(jobs: &[Job], from: Zoned, count: usize) {
    let from = from.into();
    for (at, job) in jobs.iter().enumerate() {
        say(format_args!("[{}] {}", at + 1, job.command));
        let schedule = job.cron.schedule();
        let mut times = schedule
            .upcoming(from)
            .map_while(|at| schedule.zoned(at))
            .take(count)
            .peekable();
        if count > 0 && times.peek().is_none() {
            say("    never");
        }
        for time in times {
            say(format_args!("    {time}"));
        }
    }
}

/// Runs jobs until a signal comes. Then waits up to `drain` for running commands. Returns failure
/// if some are still running.
fn run_jobs(jobs: Vec<Job>, drain: Duration) -> Result<ExitCode, Box<dyn Error>> {
    let runtime = Runtime::new()?;
    // Nothing is sent on this channel. It closes when the last callback is dropped.
    let (callback, mut callbacks) = mpsc::unbounded::<Infallible>();
    let running = runtime.block_on(async {
        let mut stop = Stop::new()?;
        // Start all jobs. Each callback holds a sender, to report its end.
        let mut started = Vec::new();
        for (at, job) in jobs.into_iter().enumerate() {
            let runner = Runner {
                job: at + 1,
                schedule: job.cron.schedule(),
                command: job.command,
            };
            let callback = callback.clone();
            let text = format!("[{}] {}", runner.job, runner.command);
            let job = job.cron.try_start_with(move |occurrence| {
                let _held = &callback;
                runner.run(occurrence);
            });
            let job = job.map_err(|error| format!("job {}: {error}", at + 1))?;
            if let Some(next) = job.next_zoned() {
                say(format_args!("{text}: the next at {next}"));
            }
            started.push(job);
        }
        drop(callback);

        // After a signal, start no more runs.
        stop.recv().await?;
        for job in &started {
            job.cancel();
        }
        let running: usize = started.iter().map(CronJob::num_running).sum();
        if running > 0 {
            complain(format_args!(
                "waiting up to {} for running commands ({running}); press Ctrl-C again to stop at \
                 once",
                humantime::format_duration(drain)
            ));
        }
        // Wait for the running commands, until the time limit or another signal.
        let ended = async { callbacks.next().await.is_none() };
        let again = async { stop.recv().await.is_err() };
        Ok::<_, Box<dyn Error>>(match timeout(drain, or(ended, again)).await {
            Ok(true) => 0,
            _ => started.iter().map(CronJob::num_running).sum::<usize>(),
        })
    })?;
    if running == 0 {
        return Ok(ExitCode::SUCCESS);
    }
    // The commands continue without this process, as with a cron daemon that stops.
    complain(format_args!(
        "cron_jobs: {running} still running, and left alone"
    ));
    runtime.shutdown_background();
    Ok(ExitCode::FAILURE)
}
