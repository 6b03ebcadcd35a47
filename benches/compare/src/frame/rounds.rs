//! Runs all rounds. Each round runs each workload on each system in turn.

use std::{
    env,
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use indicatif::{ProgressBar, ProgressStyle};
use tourbillon_support::disturbance::Meter;

use super::{
    child::{self, Outcome},
    error::Error,
    machine::{self, Machine},
    repeat::{self, Disturbed},
    results::{Results, Run},
};
use crate::{system::System, workload::Workload, workloads::ALL};

/// Some ticks of the kernel's counters. The load of a shorter run cannot be told.
const TICKS: Duration = Duration::from_millis(100);

/// Workloads and systems to run, and the number of rounds.
pub struct Plan {
    /// Number of rounds.
    pub rounds: usize,
    /// Workloads of each round, in order.
    pub workloads: Vec<&'static Workload>,
    /// Systems that run each workload they support.
    pub systems: Vec<System>,
    /// Whether each workload does so little that it only shows that it works.
    pub quick: bool,
    /// Time limit of each child process.
    pub limit: Duration,
    /// Maximum number of repetitions of a disturbed round of a workload.
    pub retries: usize,
}

/// Returns the workloads with these names, or all workloads if `names` is empty.
///
/// # Errors
///
/// Returns [`Error::UnknownWorkload`] for the first name that no workload has.
pub fn workloads(names: &[String]) -> Result<Vec<&'static Workload>, Error> {
    for name in names {
        if !ALL.iter().any(|known| known.name == name) {
            return Err(Error::UnknownWorkload(name.clone()));
        }
    }
    let wanted = |known: &&Workload| names.is_empty() || names.iter().any(|n| n == known.name);
    Ok(ALL.iter().filter(wanted).collect())
}

impl Plan {
    /// Returns the systems that run a workload, in the order of this round.
    ///
    /// The order rotates after every two rounds, and each second round reverses it. No system
    /// therefore always runs first, or always after the same other system.
    fn order(&self, workload: &Workload, round: usize) -> Vec<System> {
        let can = |system: &System| workload.systems.contains(system);
        let mut systems: Vec<_> = self.systems.iter().copied().filter(can).collect();
        if !systems.is_empty() {
            let by = round / 2 % systems.len();
            systems.rotate_left(by);
        }
        if round % 2 == 1 {
            systems.reverse();
        }
        systems
    }

    /// Runs all rounds and returns their results.
    ///
    /// # Errors
    ///
    /// Returns [`Error::NothingToDo`] if there is nothing to run, and [`Error::NoProgram`] if the
    /// path of this executable is unknown.
    pub fn run(&self) -> Result<Results, Error> {
        let program = env::current_exe().map_err(Error::NoProgram)?;
        let in_a_round = self.workloads.iter().map(|w| self.order(w, 0).len());
        let total = in_a_round.sum::<usize>() * self.rounds;
        if total == 0 {
            return Err(Error::NothingToDo);
        }
        // The progress bar is drawn only when it changes. A thread that redraws it would distort
        // the measurements.
        let progress = ProgressBar::new(total as u64);
        let style = ProgressStyle::with_template("{elapsed} {bar:30} {pos}/{len} {msg}");
        progress.set_style(style.expect("the template is well-formed"));
        let load_before = machine::load();
        let (mut runs, mut discarded) = (Vec::with_capacity(total), Vec::new());
        for round in 0..self.rounds {
            for workload in &self.workloads {
                let (kept, disturbed) = repeat::round(self.retries, |attempt| {
                    // A repetition adds its runs to the total of the progress bar.
                    if attempt > 0 {
                        progress.inc_length(self.order(workload, round).len() as u64);
                    }
                    let run = |system: System| {
                        progress.set_message(format!("{} {}", workload.name, system.name()));
                        // `child::run` waits for the child process, so `meter` counts the processor
                        // time of the child process as own time, not as load of other processes.
                        let (meter, begin) = (Meter::start(), Instant::now());
                        let outcome =
                            child::run(self.command(&program, workload, system), self.limit);
                        // A system that is refused at once ends within a tick of the kernel's
                        // counters, so its reading means nothing.
                        let machine = match outcome {
                            Outcome::Refused(_) if begin.elapsed() < TICKS => Disturbed::default(),
                            _ => meter.read().into(),
                        };
                        progress.inc(1);
                        Run {
                            round,
                            attempt,
                            workload: workload.name,
                            system,
                            outcome,
                            machine,
                        }
                    };
                    self.order(workload, round).into_iter().map(run).collect()
                });
                runs.extend(kept);
                discarded.extend(disturbed);
            }
        }
        progress.finish_and_clear();
        Ok(Results {
            machine: Machine::look(),
            load_before,
            load_after: machine::load(),
            rounds: self.rounds,
            quick: self.quick,
            retries: self.retries,
            runs,
            discarded,
        })
    }

    /// Returns the command that runs a workload on a system and prints the figures as JSON.
    fn command(&self, program: &Path, workload: &Workload, system: System) -> Command {
        let mut command = Command::new(program);
        command.args(["run", workload.name, system.name()]);
        if self.quick {
            command.arg("--quick");
        }
        command
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_changes_from_round_to_round() {
        let plan = Plan {
            rounds: 2,
            workloads: workloads(&["w1".to_owned()]).unwrap(),
            systems: vec![System::Tourbillon, System::Tokio, System::Smol],
            quick: true,
            limit: Duration::ZERO,
            retries: 0,
        };
        let order = |round| plan.order(plan.workloads[0], round);
        assert_eq!(order(0), [System::Tourbillon, System::Tokio, System::Smol]);
        assert_eq!(order(1), [System::Smol, System::Tokio, System::Tourbillon]);
        assert_eq!(order(2), [System::Tokio, System::Smol, System::Tourbillon]);
        assert_eq!(order(3), [System::Tourbillon, System::Smol, System::Tokio]);
        assert_eq!(order(6), order(0));
    }

    #[test]
    fn workloads_are_found_by_name() {
        assert_eq!(workloads(&[]).unwrap().len(), ALL.len());
        assert!(matches!(
            workloads(&["w0".to_owned()]),
            Err(Error::UnknownWorkload(name)) if name == "w0"
        ));
    }
}
