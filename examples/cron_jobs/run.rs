//! Running commands.

use std::{
    io,
    os::unix::process::CommandExt,
    process::{Command, ExitStatus, Stdio},
    time::{Duration, Instant, SystemTime},
};

use tourbillon::{
    Handle,
    cron::{Occurrence, Schedule},
    task::{block_in_place, spawn_blocking},
};

use crate::say::say;

/// A command, as it is run.
pub struct Runner {
    /// The number of its job.
    pub job: usize,
    pub schedule: Schedule,
    pub command: String,
}

impl Runner {
    /// Runs the command, and returns when it has ended, so that the job knows that it runs.
    pub fn run(&self, occurrence: &Occurrence) {
        let began = SystemTime::now();
        let (job, due) = (self.job, self.time(occurrence.scheduled()));
        // Not even late, if the clock was put back meanwhile.
        let late = began
            .duration_since(occurrence.scheduled())
            .unwrap_or_default();
        let missed = match occurrence.missed() {
            0 => String::new(),
            missed => format!(", after {missed} that were not run"),
        };
        say(&format!(
            "[{job}] due {due}: began {}, {} late{missed}",
            self.time(began),
            milliseconds(late)
        ));

        let begin = Instant::now();
        let command = self.command.clone();
        // On a thread that blocks, whose core and timer slack are those of the process: workers are pinned,
        // and what they start would be, too. The worker gives its work to others while it waits.
        let ended = spawn_blocking(move || shell(&command));
        let ended = block_in_place(|| Handle::current().block_on(ended));
        let how = match ended {
            Ok(Ok(status)) => status.to_string(),
            Ok(Err(error)) => format!("could not be started: {error}"),
            Err(error) => format!("could not be started: {error}"),
        };
        say(&format!(
            "[{job}] due {due}: {how}, after {}",
            milliseconds(begin.elapsed())
        ));
    }

    /// A time, as clocks show it in the zone of the job.
    fn time(&self, at: SystemTime) -> String {
        self.schedule
            .zoned(at)
            .map_or_else(|| format!("{at:?}"), |at| at.to_string())
    }
}

fn shell(command: &str) -> io::Result<ExitStatus> {
    // What it prints goes where our lines go; it has nothing to read. In a process group of its own it does not
    // hear of Ctrl-C, which a terminal sends to the whole group that stands before it.
    Command::new("sh")
        .args(["-c", command])
        .stdin(Stdio::null())
        .process_group(0)
        .status()
}

fn milliseconds(duration: Duration) -> String {
    format!("{:.3} ms", duration.as_secs_f64() * 1e3)
}
