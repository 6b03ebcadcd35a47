//! The checker: reads a history and judges whether the promises were kept.

mod jobs;

use std::collections::HashMap;

use tourbillon_jobs::Time;

use self::jobs::{Attempt, Job, Key};
use crate::history::{Event, Kind, Place};

/// The counts of a history.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Jobs that the store acknowledged.
    pub acknowledged: usize,
    /// Jobs that a client asked for and that the store never acknowledged. The store may have them.
    pub in_doubt: usize,
    /// Jobs that were cancelled before an attempt.
    pub cancelled: usize,
    /// Jobs that took the place of others, as the store acknowledged.
    pub replaced: usize,
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

/// Judges a history that is over: the store had no live job left.
///
/// Returns each broken promise, with the job's key.
pub fn judge(
    events: impl Iterator<Item = Result<(String, Event), String>>,
) -> Result<Summary, Vec<String>> {
    let mut jobs: HashMap<Box<str>, Key> = HashMap::new();
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
            jobs.insert(key.as_str().into(), Key::default());
        }
        let both = jobs.get_mut(key.as_str()).expect("it is there by now");
        let job = &mut both.first;
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
            Event::Replaces { at } => {
                if both.other.is_some() {
                    blame("the history has replaced this key twice".into());
                }
                // Until the store answers, the first job may be there, or not.
                job.may_be_cancelled = true;
                both.other = Some(Job {
                    times: vec![at],
                    ..Job::default()
                });
            }
            Event::Replaced { place } => {
                job.place = Some(place);
                // If it was not there any more, an attempt has done it.
                job.may_be_cancelled = place != Place::Free;
                if let Some(other) = &mut both.other {
                    other.is_acknowledged = true;
                }
            }
            Event::Buried { is_other } => match both.job(is_other) {
                Some(job) => job.is_buried = true,
                None => blame("a job is dead that nobody scheduled".into()),
            },
            Event::Runs {
                token,
                number,
                at,
                now,
                is_other,
            } => {
                summary.runs += 1;
                if is_new {
                    blame("a handler got a job that nobody scheduled".into());
                }
                if both.all().any(|job| job.has(token)) {
                    blame(format!("two attempts have token {token}"));
                }
                let Some(job) = both.job(is_other) else {
                    blame("a handler got a job that nobody scheduled".into());
                    continue;
                };
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
                // The one that ran may be the last to write that it runs.
                let most = u32::from(job.place == Some(Place::Running));
                job.begun_since += u32::from(job.place.is_some());
                if job.place.is_some_and(|place| place != Place::Free) && job.begun_since > most {
                    blame("an attempt began after it was replaced".into());
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
                let job = both.ended(token);
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
    for (key, both) in &mut jobs {
        let is_replaced = both.first.place.is_some();
        summary.acknowledged += usize::from(both.first.is_acknowledged);
        summary.replaced += usize::from(is_replaced);
        wrong.extend(both.disorder().map(|text| format!("{key}: {text}")));
        for job in both.all() {
            summary.in_doubt += usize::from(!job.is_acknowledged);
            summary.cancelled += usize::from(job.is_cancelled && job.attempts.is_empty());
            summary.dead += usize::from(job.is_dead);
            summary.cut += job.attempts.iter().filter(|one| one.is_cut()).count();
            wrong.extend(job.loss().map(|loss| format!("{key}: {loss}")));
            wrong.extend(job.excess().map(|excess| format!("{key}: {excess}")));
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
pub(crate) mod tests {
    use super::*;
    use crate::history::read;

    pub(crate) const GOOD: &str = "\
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
k asks 300
k scheduled
k runs 16 1 300 300
k ended 16 Retry accepted
k replaces 400
k replaced Idle
k runs 18 1 400 402 other
k ended 18 Done accepted
l asks 300
l scheduled
l replaces 100
l replaced Running
l runs 19 1 300 300
l runs 20 1 100 301 other
l ended 20 Done accepted
l ended 19 Retry refused
m asks 300
m scheduled
m runs 21 1 300 300
m ended 21 Done accepted
m replaces 900
m replaced Free
m runs 22 5 900 900 other
m ended 23 Dead accepted
m buried other
n asks 300
n scheduled
n replaces 900
n runs 24 1 300 300
n ended 24 Done accepted
";

    #[test]
    fn a_good_history_passes() {
        let summary = judge(read(GOOD.as_bytes())).unwrap();
        assert_eq!(
            summary,
            Summary {
                acknowledged: 11,
                in_doubt: 2,
                cancelled: 1,
                replaced: 3,
                failed: 2,
                runs: 18,
                stale: 2,
                cut: 4,
                dead: 2,
                given_up: 2,
                lateness: vec![0, 0, 0, 0, 0, 0, 0, 1, 2, 5, 201],
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
                "f asks 1\nf scheduled\nf runs 8 1 1 1\n\
                 f runs 9 2 90000 90000\nf ended 9 Retry accepted\n",
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
            (
                "k runs 17 2 300 403\n",
                "k: an attempt began after it was replaced",
            ),
            (
                "l runs 17 2 300 403\n",
                "l: an attempt began after it was replaced",
            ),
            (
                "l runs 25 2 300 403\n",
                "l: the token of a replaced job is not stale",
            ),
            (
                "l runs 19 2 100 403 other\n",
                "l: two attempts have token 19",
            ),
            ("m runs 25 5 900 899 other\n", "m: early by 1µs"),
            (
                "m buried\n",
                "m: among the dead, although another job took its place",
            ),
            (
                "x asks 1\nx scheduled\nx runs 25 1 1 1 other\n",
                "x: a handler got a job that nobody scheduled",
            ),
            (
                "x asks 1\nx scheduled\nx buried other\n",
                "x: a job is dead that nobody scheduled",
            ),
            (
                "f asks 1\nf scheduled\nf replaces 1\nf replaced Idle\n",
                "f: lost",
            ),
            (
                "f asks 1\nf scheduled\nf replaces 1\nf replaced Free\n\
                 f runs 9 1 1 1 other\nf ended 9 Done accepted\n",
                "f: lost",
            ),
            (
                "f asks 1\nf scheduled\nf replaces 1\n",
                "f: lost, or the job that took its place",
            ),
            (
                "f asks 1\nf scheduled\nf replaces 1\nf replaced Running\n\
                 f runs 9 1 1 1\nf ended 9 Done accepted\n\
                 f runs 10 1 1 1 other\nf ended 10 Done accepted\n",
                "f: replaced, although an attempt had done it",
            ),
            (
                "k replaces 1\n",
                "k: the history has replaced this key twice",
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
