//! Runs commands.

use std::{
    io,
    os::unix::process::CommandExt,
    process::{Command, ExitStatus, Stdio},
    time::{Duration, Instant, SystemTime},
};

use tourbillon::{
    Handle,
    task::{block_in_place, spawn_blocking},
};
use tourbillon_cron::{Occurrence, Schedule};
use tourbillon_examples::say::say;

/// Runs the command of a job.
pub struct Runner {
    /// The number of the job.
    pub job: usize,
    pub schedule: Schedule,
    pub command: String,
}

impl Runner {
    /// Runs the command and returns when it has ended, so that the job counts as running meanwhile.
    pub fn run(&self, occurrence: &Occurrence) {
        let began = SystemTime::now();
        let (job, due) = (self.job, self.time(occurrence.scheduled()));
        // If the clock was set back meanwhile, this run is not late.
        let late = began
            .duration_since(occurrence.scheduled())
            .unwrap_or_default();
        let missed = match occurrence.missed() {
            0 => String::new(),
            missed => format!(", after {missed} that were not run"),
        };
        say(format_args!(
            "[{job}] due {due}: began {}, {} late{missed}",
            self.time(began),
            milliseconds(late)
        ));

        let begin = Instant::now();
        let command = self.command.clone();
        // Run it on a blocking thread, which is not pinned: a child process inherits the affinity
        // of its thread. Meanwhile `block_in_place` hands this worker's tasks to others.
        let ended = spawn_blocking(move || shell(&command));
        let ended = block_in_place(|| Handle::current().block_on(ended));
        let how = match ended {
            Ok(Ok(status)) => status.to_string(),
            Ok(Err(error)) => format!("could not be started: {error}"),
            Err(error) => format!("could not be started: {error}"),
        };
        say(format_args!(
            "[{job}] due {due}: {how}, after {}",
            milliseconds(begin.elapsed())
        ));
    }

    /// Formats a time in the time zone of the job.
    fn time(&self, at: SystemTime) -> String {
        self.schedule
            .zoned(at)
            .map_or_else(|| format!("{at:?}"), |at| at.to_string())
    }
}

fn shell(command: &str) -> io::Result<ExitStatus> {
    // The command inherits stdout and stderr; its stdin is empty. Its own process group keeps it
    // from receiving Ctrl-C, which a terminal sends to the whole foreground group.
    Command::new("sh")
        .args(["-c", command])
        .stdin(Stdio::null())
        .process_group(0)
        .status()
}

fn milliseconds(duration: Duration) -> String {
    format!("{:.3} ms", duration.as_secs_f64() * 1e3)
}
