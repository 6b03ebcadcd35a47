//! The checker: reads a history and judges whether the promises were kept.

use std::collections::HashMap;

use tourbillon_durable::{Time, job::Token};

use crate::history::{Event, Kind};

/// The counts of a history.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Jobs that the store acknowledged.
    pub acknowledged: usize,
    /// Jobs that a client asked for and that the store never acknowledged. The store may have them.
    pub in_doubt: usize,
    /// Jobs that were cancelled before an attempt.
    pub cancelled: usize,
    /// Requests for a job that failed, and were repeated.
    pub failed: usize,
    /// Attempts.
    pub runs: usize,
    /// Attempts whose end the store refused.
    pub stale: usize,
    /// Attempts whose end the store may or may not have taken: their process was killed, or an
    /// answer was lost.
    pub cut: usize,
    /// Jobs that died.
    pub dead: usize,
    /// The lateness of the first attempts, in microseconds, in order.
    pub lateness: Vec<u64>,
}

/// What is known of an attempt.
struct Attempt {
    token: Token,
    /// How it ended, and whether the store took the end. `None` if the process was killed before.
    end: Option<(Kind, Option<bool>)>,
}

impl Attempt {
    /// Returns whether the job is certainly still in the store after this attempt.
    fn leaves_the_job(&self) -> bool {
        matches!(self.end, Some((Kind::Retry, Some(true)) | (_, Some(false))))
    }

    fn is_cut(&self) -> bool {
        !matches!(self.end, Some((_, Some(_))))
    }
}

#[derive(Default)]
struct Job {
    is_acknowledged: bool,
    /// Whether the job may have been cancelled.
    may_be_cancelled: bool,
    is_cancelled: bool,
    /// Times at which it may be due.
    times: Vec<Time>,
    attempts: Vec<Attempt>,
    /// The token of the attempt that did the job.
    done: Option<Token>,
    is_dead: bool,
}

impl Job {
    /// Returns what is wrong if the job was lost: it is not in the store any more, and no attempt
    /// did it.
    fn loss(&self) -> Option<&'static str> {
        if !self.is_acknowledged || self.may_be_cancelled {
            return None;
        }
        if self.attempts.is_empty() {
            return Some("lost");
        }
        let is_left = self.attempts.iter().all(Attempt::leaves_the_job);
        is_left.then_some("lost after an attempt that did not do it")
    }
}

/// Judges a history that is over: the store had no live job left.
///
/// Returns each broken promise, with the job's key.
pub fn judge(
    events: impl Iterator<Item = Result<(String, Event), String>>,
) -> Result<Summary, Vec<String>> {
    let mut jobs: HashMap<Box<str>, Job> = HashMap::new();
    let mut summary = Summary::default();
    let mut wrong = Vec::new();
    for event in events {
        let (key, event) = match event {
            Ok(event) => event,
            Err(error) => {
                wrong.push(error);
                continue;
            }
        };
        let is_new = !jobs.contains_key(key.as_str());
        if is_new {
            jobs.insert(key.as_str().into(), Job::default());
        }
        let job = jobs.get_mut(key.as_str()).expect("it is there by now");
        let mut blame = |text: String| wrong.push(format!("{key}: {text}"));
        match event {
            Event::Asks { at } => {
                if !is_new {
                    blame("the history has this key twice".into());
                }
                job.times.push(at);
            }
            Event::Failed => summary.failed += 1,
            Event::Scheduled => job.is_acknowledged = true,
            // Until the store answers, the job may also be due at the old time.
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
                    Some(_) if number == 1 && job.attempts.is_empty() => {
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
                if job.attempts.iter().any(|other| other.token == token) {
                    blame(format!("two attempts have token {token}"));
                }
                if job.done.is_some_and(|done| token > done) {
                    blame("an attempt has a newer token than the one that did it".into());
                }
                job.attempts.push(Attempt { token, end: None });
            }
            Event::Ended {
                token,
                kind,
                accepted,
            } => {
                let attempt = job.attempts.iter_mut().find(|other| other.token == token);
                match attempt {
                    Some(attempt) if attempt.end.is_none() => {
                        attempt.end = Some((kind, accepted));
                    }
                    _ => blame(format!("the attempt {token} ended, but did not run")),
                }
                summary.stale += usize::from(accepted == Some(false));
                if accepted != Some(true) {
                    continue;
                }
                if kind == Kind::Done {
                    if job.done.is_some() {
                        blame("the store took two ends as the last".into());
                    }
                    if job.attempts.iter().any(|other| other.token > token) {
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
        summary.cancelled += usize::from(job.is_cancelled && job.attempts.is_empty());
        summary.dead += usize::from(job.is_dead);
        summary.cut += job.attempts.iter().filter(|one| one.is_cut()).count();
        if let Some(loss) = job.loss() {
            wrong.push(format!("{key}: {loss}"));
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
a ended 1 Retry accepted
b cancels
b cancelled
a runs 2 2 150 150
c asks 300
c failed
a ended 2 Done accepted
d asks 300
d scheduled
d moves 400
d moved 400
d runs 3 1 400 401
d runs 7 2 400 500
d ended 3 Done refused
d ended 7 Done accepted
e asks 500
e scheduled
e runs 8 1 500 500
e ended 8 Retry accepted
e runs 9 2 600 600
e ended 9 Done unknown
";

    #[test]
    fn a_good_history_passes() {
        let summary = judge(read(GOOD.as_bytes())).unwrap();
        assert_eq!(
            summary,
            Summary {
                acknowledged: 4,
                in_doubt: 1,
                cancelled: 1,
                failed: 1,
                runs: 6,
                stale: 1,
                cut: 1,
                dead: 0,
                lateness: vec![0, 1, 5],
            }
        );
    }

    #[test]
    fn each_broken_promise_is_seen() {
        let broken = [
            ("f asks 1\nf scheduled\n", "f: lost"),
            (
                "f asks 1\nf scheduled\nf runs 8 1 1 1\nf ended 8 Retry accepted\n\
                 f runs 9 2 1 1\nf ended 9 Done refused\n",
                "f: lost after an attempt that did not do it",
            ),
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
                "c runs 9 1 300 300\nc runs 10 2 300 300\nc ended 9 Done accepted\n",
                "c: the store took the stale token 9",
            ),
            (
                "c runs 9 1 300 300\nc ended 9 Done accepted\n\
                 c runs 8 1 300 300\nc ended 8 Done accepted\n",
                "c: the store took two ends as the last",
            ),
            (
                "c ended 9 Done accepted\n",
                "c: the attempt 9 ended, but did not run",
            ),
            ("a asks 100\n", "a: the history has this key twice"),
            ("a asks\n", "no event: a asks"),
        ];
        for (more, blame) in broken {
            let text = format!("{GOOD}{more}");
            let wrong = judge(read(text.as_bytes())).unwrap_err();
            assert!(
                wrong.iter().any(|wrong| wrong == blame),
                "{more}: {wrong:?}"
            );
        }
    }
}
