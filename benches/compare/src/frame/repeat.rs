//! The rule for repeating rounds that other activity on the machine disturbed.
//!
//! The rule considers only what the machine did during a run, never the figures of the run. It
//! repeats a round of a workload with all its systems. Tourbillon and its peers are therefore
//! always measured side by side, and the same rule holds for all of them.

use serde::Serialize;

use super::{child::Outcome, results::Run};
use tourbillon_support::disturbance::{BOUND, Disturbance};

/// Disturbance of a run by other activity on the machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Disturbed {
    /// Share of the processors' time that the hypervisor gave to other virtual machines.
    ///
    /// It is between 0 and 1, or `None` if it is unknown.
    pub stolen: Option<f64>,
    /// Share of the processors' time in which other processes ran.
    ///
    /// It is between 0 and 1, or `None` if it is unknown.
    pub other_load: Option<f64>,
    /// Number of times that the kernel preempted a runnable thread of the run.
    pub preempted: u64,
    /// Whether the run lost more than [`BOUND`] of the processors' time.
    pub disturbed: bool,
    /// Sum of `stolen` and `other_load` before rounding, or 0 if they are unknown.
    #[serde(skip)]
    lost: f64,
}

impl From<Disturbance> for Disturbed {
    fn from(read: Disturbance) -> Self {
        // NaN means that the share is unknown. Four decimal places are enough for the report.
        let known = |share: f64| (!share.is_nan()).then_some((share * 1e4).round() / 1e4);
        Self {
            stolen: known(read.stolen()),
            other_load: known(read.other_load()),
            preempted: read.preempted,
            disturbed: read.is_disturbed(),
            lost: read.lost(),
        }
    }
}

impl Disturbed {
    /// Returns the share of the processors' time that the run lost, in percent.
    ///
    /// Returns `None` if it is unknown.
    pub fn lost_percent(&self) -> Option<f64> {
        self.stolen.map(|_| 100.0 * self.lost)
    }
}

/// Returns the rule as text for the report, with at most `retries` repetitions.
pub fn rule(retries: usize) -> String {
    let bound = 100.0 * BOUND;
    let times = match retries {
        0 => "0 times".to_owned(),
        1 => "once".to_owned(),
        times => format!("{times} times"),
    };
    format!(
        "A run is disturbed if more than {bound:.0} % of the processors' time was stolen or went to \
         other processes. A round of a workload with a disturbed run is repeated with all its \
         systems, at most {times}; the attempt whose worst run lost least counts. † marks a \
         figure of which a run was disturbed even so."
    )
}

/// Runs a round of a workload, and repeats the round while one of its runs is disturbed.
///
/// `attempt` runs the workload on all systems. Its argument is the number of the attempt, from 0 to
/// `retries`. Returns the runs of the attempt that counts, and the runs of the other attempts.
///
/// The most disturbed run of each attempt is compared, and the attempt that lost the least counts.
/// If attempts lost the same, the first one counts. An attempt with a failed run counts in any
/// case, and ends the repetition.
pub fn round(retries: usize, mut attempt: impl FnMut(usize) -> Vec<Run>) -> (Vec<Run>, Vec<Run>) {
    // The largest share of the processors' time that a run of the attempt lost.
    let worst = |runs: &[Run]| runs.iter().map(|run| run.machine.lost).fold(0.0, f64::max);
    // An attempt with a failed run is never repeated or discarded: that would hide the failure.
    let has_failed = |runs: &[Run]| {
        let failed = |run: &Run| matches!(run.outcome, Outcome::Failed(_));
        runs.iter().any(failed)
    };
    let (mut best, mut discarded) = (attempt(0), Vec::new());
    for number in 1..=retries {
        if has_failed(&best) || !best.iter().any(|run| run.machine.disturbed) {
            break;
        }
        let next = attempt(number);
        if has_failed(&next) || worst(&next) < worst(&best) {
            discarded.extend(std::mem::replace(&mut best, next));
        } else {
            discarded.extend(next);
        }
    }
    (best, discarded)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{frame::results::tests::run, system::System};

    /// Runs a round whose attempts lose the given shares: Tourbillon's run, then the peer's.
    ///
    /// `None` stands for a failed run. Returns the numbers of the attempts of all runs that count,
    /// and of all discarded runs.
    fn rounds(retries: usize, attempts: &[[Option<f64>; 2]]) -> (Vec<usize>, Vec<usize>) {
        let (kept, discarded) = round(retries, |number| {
            let systems = [System::Tourbillon, System::Tokio];
            let runs = systems.iter().zip(attempts[number]);
            let runs = runs.map(|(system, lost)| Run {
                attempt: number,
                machine: Disturbed {
                    lost: lost.unwrap_or_default(),
                    disturbed: lost.is_some_and(|lost| lost > BOUND),
                    ..Disturbed::default()
                },
                ..run(0, *system, "ns", lost)
            });
            runs.collect()
        });
        let attempts = |runs: Vec<Run>| runs.iter().map(|run| run.attempt).collect();
        (attempts(kept), attempts(discarded))
    }

    /// Returns the shares of an attempt without a failed run.
    fn lost(ours: f64, peer: f64) -> [Option<f64>; 2] {
        [Some(ours), Some(peer)]
    }

    #[test]
    fn an_undisturbed_round_is_run_once() {
        assert_eq!(rounds(2, &[lost(0.03, 0.0)]), (vec![0, 0], vec![]));
    }

    #[test]
    fn a_round_is_repeated_with_all_systems_whichever_was_disturbed() {
        let calm = lost(0.0, 0.0);
        for first in [lost(0.04, 0.0), lost(0.0, 0.04)] {
            assert_eq!(rounds(2, &[first, calm]), (vec![1, 1], vec![0, 0]));
        }
    }

    #[test]
    fn the_least_disturbed_attempt_counts() {
        let attempts = [lost(0.2, 0.0), lost(0.05, 0.1), lost(0.0, 0.15)];
        assert_eq!(rounds(2, &attempts), (vec![1, 1], vec![0, 0, 2, 2]));
        assert_eq!(rounds(1, &attempts), (vec![1, 1], vec![0, 0]));
        assert_eq!(rounds(0, &attempts), (vec![0, 0], vec![]));
    }

    #[test]
    fn an_attempt_with_a_failure_counts_and_is_not_repeated() {
        let failed = [Some(0.5), None];
        let calm = lost(0.0, 0.0);
        assert_eq!(rounds(2, &[failed, calm]), (vec![0, 0], vec![]));
        let attempts = [lost(0.1, 0.1), failed, calm];
        assert_eq!(rounds(2, &attempts), (vec![1, 1], vec![0, 0]));
    }

    #[test]
    fn the_rule_states_the_bound_and_the_number_of_repetitions() {
        assert!(rule(2).contains("more than 3 %") && rule(2).contains("at most 2 times"));
        assert!(rule(1).contains("at most once"));
    }
}
