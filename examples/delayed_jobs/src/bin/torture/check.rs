//! The checker: reads a history and judges whether the promises were kept.

use std::collections::{HashMap, HashSet};

use tourbillon_durable::{Time, job::Token};

use crate::history::{Event, Kind};

/// What a history has.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Jobs that the store acknowledged.
    pub acknowledged: usize,
    /// Jobs of which a client does not know whether the store has them.
    pub in_doubt: usize,
    /// Jobs that were cancelled before an attempt.
    pub cancelled: usize,
    /// Attempts.
    pub runs: usize,
    /// Attempts whose end the store refused.
    pub stale: usize,
    /// Attempts of which no end is known: their process was killed.
    pub cut: usize,
    /// Jobs that died.
    pub dead: usize,
    /// The lateness of the first attempts, in microseconds, in order.
    pub lateness: Vec<u64>,
}

#[derive(Default)]
struct Job {
    is_acknowledged: bool,
    /// The job may have been cancelled.
    may_be_cancelled: bool,
    is_cancelled: bool,
    /// Times at which it may be due.
    times: Vec<Time>,
    tokens: HashSet<Token>,
    ended: HashSet<Token>,
    /// The token with which it was done.
    done: Option<Token>,
    is_dead: bool,
}

/// Judges a history that is over: the store had no live job left.
///
/// Returns each broken promise, with the job's key.
pub fn judge(events: &[(&str, Event)]) -> Result<Summary, Vec<String>> {
    let mut jobs: HashMap<&str, Job> = HashMap::new();
    let mut summary = Summary::default();
    let mut wrong = Vec::new();
    for &(key, event) in events {
        let is_new = !jobs.contains_key(key);
        let job = jobs.entry(key).or_default();
        let mut blame = |text: String| wrong.push(format!("{key}: {text}"));
        match event {
            Event::Asks { at } => {
                if !is_new {
                    blame("the history has this key twice".into());
                }
                job.times.push(at);
            }
            Event::Scheduled => job.is_acknowledged = true,
            // Until the answer, the old time counts, too.
            Event::Moves { at } => job.times.push(at),
            Event::Moved { at } => job.times = vec![at],
            Event::Cancels => job.may_be_cancelled = true,
            Event::Cancelled => job.is_cancelled = true,
            Event::TooLate => {}
            Event::Runs {
                token,
                number,
                at,
                now,
            } => {
                summary.runs += 1;
                if is_new {
                    blame("a handler got a job that nobody scheduled".into());
                }
                if now < at {
                    blame(format!("early by {:?}", at.since(now)));
                }
                match job.times.iter().min() {
                    Some(&due) if now < due => {
                        blame(format!("early by {:?}, as it was moved", due.since(now)));
                    }
                    Some(_) if number == 1 && job.tokens.is_empty() => {
                        let lateness = now.since(at).as_micros();
                        summary
                            .lateness
                            .push(u64::try_from(lateness).unwrap_or(u64::MAX));
                    }
                    _ => {}
                }
                if job.is_cancelled {
                    blame("an attempt began after it was cancelled".into());
                }
                if !job.tokens.insert(token) {
                    blame(format!("two attempts have token {token}"));
                }
                if job.done.is_some_and(|done| token > done) {
                    blame("an attempt has a newer token than the one that did it".into());
                }
            }
            Event::Ended {
                token,
                kind,
                accepted,
            } => {
                if !job.ended.insert(token) || !job.tokens.contains(&token) {
                    blame(format!("the attempt {token} ended, but did not run"));
                }
                if !accepted {
                    summary.stale += 1;
                    continue;
                }
                if kind == Kind::Done {
                    if job.done.is_some() {
                        blame("the store took two ends as the last".into());
                    }
                    if job.tokens.iter().any(|&other| other > token) {
                        blame(format!("the store took the stale token {token}"));
                    }
                    job.done = Some(token);
                }
                job.is_dead |= kind == Kind::Dead;
            }
        }
    }
    for (key, job) in &jobs {
        summary.acknowledged += usize::from(job.is_acknowledged);
        summary.in_doubt += usize::from(!job.is_acknowledged);
        summary.cancelled += usize::from(job.is_cancelled && job.tokens.is_empty());
        summary.dead += usize::from(job.is_dead);
        summary.cut += job.tokens.len() - job.ended.len().min(job.tokens.len());
        if job.is_acknowledged && job.tokens.is_empty() && !job.may_be_cancelled {
            wrong.push(format!("{key}: lost"));
        }
    }
    summary.lateness.sort_unstable();
    if wrong.is_empty() {
        Ok(summary)
    } else {
        Err(wrong)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::read;

    const GOOD: &str = "\
a asks 100
a scheduled
b asks 200
b scheduled
a runs 1 1 100 105
a ended 1 Retry true
b cancels
b cancelled
a runs 2 2 150 150
c asks 300
a ended 2 Done true
d asks 300
d scheduled
d moves 400
d moved 400
d runs 3 1 400 401
d runs 7 2 400 500
d ended 3 Done false
d ended 7 Done true
";

    #[test]
    fn a_good_history_passes() {
        let summary = judge(&read(GOOD).unwrap()).unwrap();
        assert_eq!(
            summary,
            Summary {
                acknowledged: 3,
                in_doubt: 1,
                cancelled: 1,
                runs: 4,
                stale: 1,
                cut: 0,
                dead: 0,
                lateness: vec![1, 5],
            }
        );
    }

    #[test]
    fn each_broken_promise_is_seen() {
        let broken = [
            ("e asks 1\ne scheduled\n", "e: lost"),
            (
                "a runs 9 3 200 300\n",
                "a: an attempt has a newer token than the one that did it",
            ),
            (
                "b runs 9 1 200 300\n",
                "b: an attempt began after it was cancelled",
            ),
            (
                "x runs 9 1 200 300\n",
                "x: a handler got a job that nobody scheduled",
            ),
            ("d runs 5 3 400 399\n", "d: early by 1µs"),
            ("d runs 5 3 300 399\n", "d: early by 1µs, as it was moved"),
            ("d runs 3 1 400 401\n", "d: two attempts have token 3"),
            (
                "c runs 9 1 300 300\nc runs 10 2 300 300\nc ended 9 Done true\n",
                "c: the store took the stale token 9",
            ),
            (
                "c runs 9 1 300 300\nc ended 9 Done true\n\
                 c runs 8 1 300 300\nc ended 8 Done true\n",
                "c: the store took two ends as the last",
            ),
            (
                "c ended 9 Done true\n",
                "c: the attempt 9 ended, but did not run",
            ),
            ("a asks 100\n", "a: the history has this key twice"),
        ];
        for (more, blame) in broken {
            let text = format!("{GOOD}{more}");
            let wrong = judge(&read(&text).unwrap()).unwrap_err();
            assert!(
                wrong.iter().any(|wrong| wrong == blame),
                "{more}: {wrong:?}"
            );
        }
    }
}
