//! The rule by which disturbed rounds are repeated.
//!
//! What counts is what the machine did during a run, never the figures of the run. A round of a
//! workload is repeated as a whole, with all its systems, so that ours and the peers' are measured
//! side by side, and by one rule.

use serde::Serialize;

use super::{child::Outcome, results::Run};
use crate::measure::disturbance::{BOUND, Disturbance};

/// What else the machine did during a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Disturbed {
    /// The share of the CPUs' time that was stolen; `None` if it is not known.
    pub stolen: Option<f64>,
    /// The share of the CPUs' time in which other processes ran; `None` if it is not known.
    pub other_load: Option<f64>,
    /// How often a thread of the run lost its CPU although it could have gone on.
    pub preempted: u64,
    /// Whether the run lost more of the CPUs' time than the rule allows.
    pub disturbed: bool,
    /// Both shares together.
    #[serde(skip)]
    lost: f64,
}

impl From<Disturbance> for Disturbed {
    fn from(read: Disturbance) -> Self {
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
    /// Returns the lost share of the CPUs' time, in percent.
    pub fn lost_percent(&self) -> Option<f64> {
        self.stolen.map(|_| 100.0 * self.lost)
    }
}

/// Returns the rule in words.
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

/// Runs the round of a workload by `attempt`, which gets the number of the attempt, until no run of
/// it is disturbed, at most `retries` times more. Returns the runs that count, and the others.
pub fn round(retries: usize, mut attempt: impl FnMut(usize) -> Vec<Run>) -> (Vec<Run>, Vec<Run>) {
    let worst = |runs: &[Run]| runs.iter().map(|run| run.machine.lost).fold(0.0, f64::max);
    // A failure is never repeated: that would hide it.
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

    /// Runs a round whose attempts lose these shares, of ours and of a peer. `None`: it failed.
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

    fn lost(ours: f64, peer: f64) -> [Option<f64>; 2] {
        [Some(ours), Some(peer)]
    }

    #[test]
    fn a_calm_round_is_run_once() {
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
    fn a_failure_stays() {
        let failed = [Some(0.5), None];
        let calm = lost(0.0, 0.0);
        assert_eq!(rounds(2, &[failed, calm]), (vec![0, 0], vec![]));
        let attempts = [lost(0.1, 0.1), failed, calm];
        assert_eq!(rounds(2, &attempts), (vec![1, 1], vec![0, 0]));
    }

    #[test]
    fn the_rule_has_its_numbers() {
        assert!(rule(2).contains("more than 3 %") && rule(2).contains("at most 2 times"));
        assert!(rule(1).contains("at most once"));
    }
}
