//! The results of all runs, and the statistics that follow from them.

use serde::Serialize;

use super::{child::Outcome, machine::Machine, repeat::Disturbed};
use crate::system::System;

/// One run of a workload on a system, in a child process of its own.
#[derive(Clone, Debug, Serialize)]
pub struct Run {
    /// Number of the round, from 0.
    pub round: usize,
    /// Number of repetitions of the round before this run.
    pub attempt: usize,
    pub workload: &'static str,
    pub system: System,
    pub outcome: Outcome,
    /// Disturbance of the run by other activity on the machine.
    pub machine: Disturbed,
}

/// Results of all runs, in the form of `results.json`.
#[derive(Clone, Debug, Serialize)]
pub struct Results {
    pub machine: Machine,
    /// Load average of the last minute before the first run.
    pub load_before: f64,
    /// Load average of the last minute after the last run.
    pub load_after: f64,
    /// Number of rounds.
    pub rounds: usize,
    /// Whether the runs were quick ones. Their figures only show that everything works.
    pub quick: bool,
    /// Maximum number of repetitions of a disturbed round of a workload.
    pub retries: usize,
    /// The runs that count.
    pub runs: Vec<Run>,
    /// The runs of discarded attempts. No figure of the report includes them.
    pub discarded: Vec<Run>,
}

/// Median, minimum and maximum of a figure over the rounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    pub median: f64,
    pub min: f64,
    pub max: f64,
}

impl Spread {
    /// Returns the spread of `values`, or `None` if there are none.
    ///
    /// The median of an even number of values is the mean of the middle two.
    pub fn of(mut values: Vec<f64>) -> Option<Self> {
        values.sort_by(f64::total_cmp);
        let (&min, &max) = (values.first()?, values.last()?);
        let middle = values.len() / 2;
        let median = if values.len().is_multiple_of(2) {
            f64::midpoint(values[middle - 1], values[middle])
        } else {
            values[middle]
        };
        Some(Self { median, min, max })
    }
}

impl Results {
    /// Returns the runs that count, for a workload on a system.
    fn of<'a>(&'a self, workload: &'a str, system: System) -> impl Iterator<Item = &'a Run> {
        let is_it = move |run: &&Run| run.workload == workload && run.system == system;
        self.runs.iter().filter(is_it)
    }

    /// Returns the systems that have runs of a workload, in the order of [`System::ALL`].
    ///
    /// Failed and refused runs are included.
    pub fn systems(&self, workload: &str) -> Vec<System> {
        let was_run = |system: &System| self.of(workload, *system).next().is_some();
        System::ALL.into_iter().filter(was_run).collect()
    }

    /// Returns the names of a workload's figures, in the order in which they first appear.
    pub fn figures(&self, workload: &str) -> Vec<&str> {
        let mut names = Vec::new();
        for run in self.runs.iter().filter(|run| run.workload == workload) {
            if let Outcome::Figures(figures) = &run.outcome {
                for figure in figures {
                    if !names.contains(&figure.name.as_str()) {
                        names.push(figure.name.as_str());
                    }
                }
            }
        }
        names
    }

    /// Returns the number of each round that has this figure, with the value of the figure.
    fn values(&self, workload: &str, system: System, figure: &str) -> Vec<(usize, f64)> {
        self.of(workload, system)
            .filter_map(|run| {
                let Outcome::Figures(figures) = &run.outcome else {
                    return None;
                };
                let found = figures.iter().find(|measured| measured.name == figure)?;
                Some((run.round, found.value))
            })
            .collect()
    }

    /// Returns the spread of a figure over the rounds, or `None` if no round has the figure.
    pub fn spread(&self, workload: &str, system: System, figure: &str) -> Option<Spread> {
        let values = self.values(workload, system, figure);
        Spread::of(values.into_iter().map(|(_, value)| value).collect())
    }

    /// Returns the spread of a disturbance over all runs of a workload on a system.
    ///
    /// `figure` reads the value of one run. Returns `None` if no run has a value.
    pub fn beside(
        &self,
        workload: &str,
        system: System,
        figure: impl Fn(&Disturbed) -> Option<f64>,
    ) -> Option<Spread> {
        let runs = self.of(workload, system);
        Spread::of(runs.filter_map(|run| figure(&run.machine)).collect())
    }

    /// Returns whether any run of the workload on this system was disturbed.
    pub fn is_disturbed(&self, workload: &str, system: System) -> bool {
        let mut runs = self.of(workload, system);
        runs.any(|run| run.machine.disturbed)
    }

    /// Returns the repeated rounds: workload, number of the round, and number of repetitions.
    pub fn repeated(&self) -> Vec<(&'static str, usize, usize)> {
        let mut repeated: Vec<(&'static str, usize, usize)> = Vec::new();
        // Read both lists, because the last attempt of a round may be a discarded one.
        for run in self.runs.iter().chain(&self.discarded) {
            let is_it =
                |known: &&mut (&str, usize, usize)| (known.0, known.1) == (run.workload, run.round);
            match repeated.iter_mut().find(is_it) {
                Some((_, _, times)) => *times = run.attempt.max(*times),
                None if run.attempt > 0 => repeated.push((run.workload, run.round, run.attempt)),
                None => {}
            }
        }
        repeated
    }

    /// Returns the ratio of a figure of ours to a peer's figure.
    ///
    /// This is the median of the ratios within each round, because the state of the machine varies
    /// less within a round than between rounds. Returns `None` if no round has both figures.
    pub fn ratio(
        &self,
        workload: &str,
        ours: (System, &str),
        theirs: (System, &str),
    ) -> Option<f64> {
        let theirs = self.values(workload, theirs.0, theirs.1);
        let ours = self.values(workload, ours.0, ours.1);
        let ratios = ours.iter().filter_map(|&(round, value)| {
            let (_, of_peer) = theirs.iter().find(|(at, _)| *at == round)?;
            // Equal values have the ratio 1, even if both are 0.
            Some(if value == *of_peer {
                1.0
            } else {
                value / of_peer
            })
        });
        Spread::of(ratios.collect()).map(|spread| spread.median)
    }

    /// Returns the distinct errors and refusals of a system, each with its number of runs.
    pub fn troubles(&self, workload: &str, system: System) -> Vec<(String, usize)> {
        let mut troubles: Vec<(String, usize)> = Vec::new();
        for run in self.of(workload, system) {
            let what = match &run.outcome {
                Outcome::Figures(_) => continue,
                Outcome::Refused(reason) => format!("cannot run here: {reason}"),
                Outcome::Failed(reason) => format!("failed: {reason}"),
            };
            match troubles.iter_mut().find(|(known, _)| *known == what) {
                Some((_, times)) => *times += 1,
                None => troubles.push((what, 1)),
            }
        }
        troubles
    }

    /// Returns whether any run failed. A refusal is not a failure.
    pub fn any_failed(&self) -> bool {
        let failed = |run: &Run| matches!(run.outcome, Outcome::Failed(_));
        self.runs.iter().any(failed)
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::workload::Measured;

    /// Returns a run of W1 with one figure, or a failed run if `value` is `None`.
    pub fn run(round: usize, system: System, figure: &str, value: Option<f64>) -> Run {
        let name = figure.to_owned();
        let outcome = match value {
            Some(value) => Outcome::Figures(vec![Measured { name, value }]),
            None => Outcome::Failed("it broke".to_owned()),
        };
        Run {
            round,
            attempt: 0,
            workload: "w1",
            system,
            outcome,
            machine: Disturbed::default(),
        }
    }

    /// Returns the results of these runs, as if there were three rounds.
    pub fn results(runs: Vec<Run>) -> Results {
        let machine = Machine::look();
        let (load_before, load_after) = (0.0, 0.0);
        let (rounds, quick) = (3, true);
        Results {
            machine,
            load_before,
            load_after,
            rounds,
            quick,
            retries: 2,
            runs,
            discarded: Vec::new(),
        }
    }

    #[test]
    fn repeated_rounds_are_counted_once() {
        let ours = System::Tourbillon;
        let attempt = |round, attempt| Run {
            attempt,
            ..run(round, ours, "ns", Some(1.0))
        };
        // In round 1, the first of three attempts counts, as if it was the least disturbed one.
        let mut results = results(vec![attempt(0, 0), attempt(1, 0), attempt(2, 1)]);
        results.discarded = vec![attempt(1, 1), attempt(1, 2), attempt(2, 0)];
        assert_eq!(results.repeated(), [("w1", 2, 1), ("w1", 1, 2)]);
        results.discarded.clear();
        results.runs.truncate(2);
        assert_eq!(results.repeated(), []);
    }

    #[test]
    fn a_spread_has_median_minimum_and_maximum() {
        assert_eq!(Spread::of(vec![]), None);
        let spread = Spread::of(vec![3.0, 1.0, 2.0]).unwrap();
        assert_eq!((spread.median, spread.min, spread.max), (2.0, 1.0, 3.0));
        assert_eq!(Spread::of(vec![1.0, 2.0]).unwrap().median, 1.5);
    }

    #[test]
    fn a_ratio_compares_figures_of_the_same_round() {
        let ours = System::Tourbillon;
        // The machine becomes slower, but the ratio is one half in each round.
        let results = results(vec![
            run(0, ours, "ns", Some(1.0)),
            run(0, System::Tokio, "ns", Some(2.0)),
            run(1, ours, "ns", Some(10.0)),
            run(1, System::Tokio, "ns", Some(20.0)),
            run(2, ours, "ns", Some(100.0)),
            run(2, System::Tokio, "ns", None),
        ]);
        let to = |peer| results.ratio("w1", (ours, "ns"), (peer, "ns"));
        assert_eq!((to(System::Tokio), to(System::Smol)), (Some(0.5), None));
        assert_eq!(
            results.troubles("w1", System::Tokio),
            [("failed: it broke".to_owned(), 1)]
        );
        assert!(results.any_failed());
    }
}
