//! The checker: reads a history and judges whether the promises were kept.

use std::{collections::HashMap, time::Duration};

use tourbillon_jobs::{Time, job::Token};

use crate::{
    history::{Event, Kind},
    load::BACKOFF,
};

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
    /// Jobs that died because their last attempt did not end.
    pub given_up: usize,
    /// The lateness of the first attempts, in microseconds, in order.
    pub lateness: Vec<u64>,
}

/// What is known of an attempt.
struct Attempt {
    token: Token,
    /// Its number. Zero: it only ended the job, as the last attempt had not ended.
    number: u32,
    /// When it was to begin.
    at: Time,
    /// Whether the store had not acknowledged the job yet.
    is_before_answer: bool,
    /// How it ended, and whether the store took the end. `None` if the process was killed before.
    end: Option<(Kind, Option<bool>)>,
}

impl Attempt {
    /// Returns whether the job is certainly still in the store after this attempt.
    fn leaves_the_job(&self) -> bool {
        matches!(self.end, Some((Kind::Retry, Some(true)) | (_, Some(false))))
    }

    /// Returns whether it may have done the job, so that the key was free again.
    fn may_have_done_it(&self) -> bool {
        matches!(self.end, None | Some((Kind::Done, None | Some(true))))
    }

    fn did_it(&self) -> bool {
        matches!(self.end, Some((Kind::Done, Some(true))))
    }

    fn is_cut(&self) -> bool {
        !matches!(self.end, Some((_, Some(_))))
    }
}

#[derive(Default)]
struct Job {
    is_acknowledged: bool,
    /// How many requests for it failed. Each may have made it, and it was done before the next one
    /// made it anew: it has one life more then.
    failed: u32,
    /// Whether the job may have been cancelled.
    may_be_cancelled: bool,
    is_cancelled: bool,
    /// How often a client asked to move it. With each move its attempts count anew.
    moves: u32,
    /// Times at which it may be due.
    times: Vec<Time>,
    attempts: Vec<Attempt>,
    /// The token of the attempt that did the job.
    done: Option<Token>,
    is_dead: bool,
    /// Whether the store has it among the dead in the end.
    is_buried: bool,
}

impl Job {
    /// Returns what is wrong if the job was lost: it is not in the store any more, and no attempt
    /// did it.
    fn loss(&self) -> Option<&'static str> {
        if self.is_buried {
            let is_done = self.done.is_some() && self.failed == 0;
            return is_done.then_some("dead, although an attempt did it");
        }
        if !self.is_acknowledged || self.may_be_cancelled {
            return None;
        }
        if self.is_dead && self.moves == 0 {
            return Some("lost after its death");
        }
        if self.attempts.is_empty() {
            return Some("lost");
        }
        let is_left = self.attempts.iter().all(Attempt::leaves_the_job);
        is_left.then_some("lost after an attempt that did not do it")
    }

    /// Divides the attempts, which are in the order of their tokens, into those of each life. A
    /// life ends with an attempt that may have done the job before the store answered the request.
    fn lives(&self) -> impl Iterator<Item = &[Attempt]> {
        let mut more = self.failed;
        self.attempts.chunk_by(move |one, two| {
            let is_last = more > 0
                && one.is_before_answer
                && (one.did_it() || one.may_have_done_it() && two.number <= one.number);
            more -= u32::from(is_last);
            !is_last
        })
    }

    /// Returns what is wrong with the numbers of the attempts, and with the waits between them.
    fn excess(&mut self) -> Option<String> {
        self.attempts.retain(|attempt| attempt.number > 0);
        self.attempts.sort_by_key(|attempt| attempt.token);
        let most = BACKOFF.attempts * (1 + self.moves);
        let mut lives = self.lives();
        if let Some(life) = lives.find(|life| life.len() > most as usize) {
            return Some(format!("{} attempts", life.len()));
        }
        let has_one_more = |life: &[Attempt]| life.iter().rev().skip(1).any(Attempt::did_it);
        if self.failed > 0 && self.lives().any(has_one_more) {
            return Some("an attempt follows the one that did it".into());
        }
        let highest = self.attempts.iter().map(|attempt| attempt.number).max();
        if let Some(number) = highest.filter(|&number| number > BACKOFF.attempts) {
            return Some(format!("an attempt has the number {number}"));
        }
        if self.moves > 0 {
            return None;
        }
        let mut pairs = self.lives().flat_map(|life| life.windows(2));
        pairs.find_map(|pair| {
            let [one, two] = pair else { return None };
            // The wait is at least half of this, less what was rounded.
            let doubled = 2_u32.saturating_pow(one.number - 1);
            let wait = (BACKOFF.first * doubled).min(BACKOFF.longest) / 2;
            if two.number <= one.number {
                Some(format!("the attempt {} was not counted", one.token))
            } else if two.at.since(one.at) + Duration::from_micros(1) < wait {
                Some(format!("the attempt {} did not wait", two.token))
            } else {
                None
            }
        })
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
            Event::Failed => {
                summary.failed += 1;
                job.failed += 1;
            }
            Event::Scheduled => job.is_acknowledged = true,
            // Until the store answers, the job may also be due at the old time.
            Event::Moves { at } => {
                job.moves += 1;
                job.times.push(at);
            }
            Event::Moved { at } => job.times = vec![at],
            Event::Cancels => job.may_be_cancelled = true,
            Event::Cancelled => job.is_cancelled = true,
            Event::TooLate => {}
            Event::Buried => job.is_buried = true,
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
                if job.failed == 0 && job.done.is_some_and(|done| token > done) {
                    blame("an attempt has a newer token than the one that did it".into());
                }
                if job.is_dead && job.moves == 0 {
                    blame("an attempt began after it was dead".into());
                }
                job.attempts.push(Attempt {
                    token,
                    number,
                    at,
                    is_before_answer: !job.is_acknowledged,
                    end: None,
                });
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
                    None if kind == Kind::Dead => {
                        summary.given_up += 1;
                        job.attempts.push(Attempt {
                            token,
                            number: 0,
                            at: Time::from_micros(0),
                            is_before_answer: false,
                            end: Some((kind, accepted)),
                        });
                    }
                    _ => blame(format!("the attempt {token} ended, but did not run")),
                }
                summary.stale += usize::from(accepted == Some(false));
                if accepted != Some(true) {
                    continue;
                }
                if kind == Kind::Done {
                    if job.failed == 0 && job.done.is_some() {
                        blame("the store took two ends as the last".into());
                    }
                    let mut others = job.attempts.iter();
                    if job.failed == 0 && others.any(|other| other.token > token) {
                        blame(format!("the store took the stale token {token}"));
                    }
                    job.done = Some(token);
                }
                job.is_dead |= kind == Kind::Dead;
            }
        }
    }
    for (key, job) in &mut jobs {
        summary.acknowledged += usize::from(job.is_acknowledged);
        summary.in_doubt += usize::from(!job.is_acknowledged);
        summary.cancelled += usize::from(job.is_cancelled && job.attempts.is_empty());
        summary.dead += usize::from(job.is_dead);
        summary.cut += job.attempts.iter().filter(|one| one.is_cut()).count();
        if let Some(loss) = job.loss() {
            wrong.push(format!("{key}: {loss}"));
        }
        if let Some(excess) = job.excess() {
            wrong.push(format!("{key}: {excess}"));
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
a runs 2 2 20100 20100
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
e runs 9 2 20500 20500
e ended 9 Done unknown
g asks 500
g scheduled
g runs 10 4 500 500
g runs 11 5 200000 200000
g ended 12 Dead accepted
g buried
h asks 500
h scheduled
h runs 13 1 500 500
h ended 13 Retry accepted
h buried
i asks 300
i runs 14 1 300 300
i failed
i ended 14 Done accepted
i runs 15 1 300 300
i ended 15 Done accepted
i scheduled
";

    #[test]
    fn a_good_history_passes() {
        let summary = judge(read(GOOD.as_bytes())).unwrap();
        assert_eq!(
            summary,
            Summary {
                acknowledged: 7,
                in_doubt: 1,
                cancelled: 1,
                failed: 2,
                runs: 11,
                stale: 1,
                cut: 3,
                dead: 1,
                given_up: 1,
                lateness: vec![0, 0, 0, 1, 5],
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
                "f asks 300\nf scheduled\n\
                 f runs 9 1 300 300\nf runs 10 2 300 300\nf ended 9 Done accepted\n",
                "f: the store took the stale token 9",
            ),
            (
                "f asks 300\nf scheduled\nf runs 9 1 300 300\nf ended 9 Done accepted\n\
                 f runs 8 1 300 300\nf ended 8 Done accepted\n",
                "f: the store took two ends as the last",
            ),
            (
                "c ended 9 Done accepted\n",
                "c: the attempt 9 ended, but did not run",
            ),
            (
                "g runs 13 6 900000 900000\n",
                "g: an attempt began after it was dead",
            ),
            ("c runs 9 6 300 300\n", "c: an attempt has the number 6"),
            (
                "f asks 300\nf scheduled\nf runs 9 1 300 300\nf runs 10 1 20300 20300\n",
                "f: the attempt 9 was not counted",
            ),
            (
                "i runs 16 1 300 300\n",
                "i: an attempt follows the one that did it",
            ),
            (
                "f asks 300\nf failed\nf scheduled\nf runs 9 1 300 300\n\
                 f ended 9 Done accepted\nf runs 10 1 300 300\n",
                "f: an attempt follows the one that did it",
            ),
            (
                "c runs 9 2 300 300\nc runs 10 3 40298 40298\n",
                "c: the attempt 10 did not wait",
            ),
            (
                "d runs 8 1 400 401\nd runs 9 2 400 401\nd runs 10 2 400 401\n\
                 d runs 11 3 400 401\nd runs 12 3 400 401\nd runs 13 4 400 401\n\
                 d runs 14 4 400 401\nd runs 15 5 400 401\nd runs 16 5 400 401\n",
                "d: 11 attempts",
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
