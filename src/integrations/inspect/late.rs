//! The answer to `/late.json`: the slowest timers of a cell of the heat map, and why.

use serde::Serialize;

use crate::{
    engine::handle::Handle,
    integrations::inspect::{
        query::{number, text},
        slowest::{Cell, Slowest, Which},
        snapshot::{Inspection, Job, nanos, rounded},
    },
};

/// The most timers in an answer.
const SHOWN: usize = 10;

/// By how much the moments of a snapshot may be later than its counters, in ms.
const BLUR_MS: f64 = 1.0;

/// A question for the timers of a cell. Moments are in ms since the start of the inspector, as in
/// snapshots.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Question {
    stage: Which,
    worker: Option<usize>,
    bucket: usize,
    from_ms: f64,
    to_ms: f64,
}

#[derive(Debug, Serialize)]
pub(crate) struct Answer {
    recording: String,
    /// Since when timers are kept.
    since_ms: Option<f64>,
    timers: Vec<Timer>,
    /// How many others are kept.
    more: usize,
}

#[derive(Debug, Serialize)]
struct Timer {
    /// When the stage ended.
    at_ms: f64,
    /// How late it was in this stage, and in all.
    late_ns: u64,
    all_ns: u64,
    has_run: bool,
    timer: Option<Job>,
    why: Box<str>,
}

impl Question {
    /// Parses the query of a URL: `worker=0&stage=wake&bucket=72&from_ms=100&to_ms=350`. The
    /// helpers together are the worker `helpers`.
    ///
    /// # Errors
    ///
    /// Returns what is missing or wrong.
    pub(crate) fn parse(query: &str) -> Result<Self, String> {
        let stage = match text(query, "stage")? {
            "wake" => Which::Wake,
            "queue" => Which::Queue,
            "rescued" => Which::Rescued,
            other => return Err(format!("stage is wake, queue or rescued, not {other}\n")),
        };
        let worker = match text(query, "worker")? {
            "helpers" => None,
            _ => Some(number(query, "worker")?),
        };
        Ok(Self {
            stage,
            worker,
            bucket: number(query, "bucket")?,
            from_ms: number(query, "from_ms")?,
            to_ms: number(query, "to_ms")?,
        })
    }

    /// Answers from what is kept.
    pub(crate) fn answer(
        self,
        slowest: &Slowest,
        handle: &Handle,
        inspection: &Inspection,
    ) -> Answer {
        // Both clocks go at the same rate, so a distance from now is the same in both.
        let (now, now_ms) = (nanos(handle.uptime()), inspection.now_ms());
        let ns = |ms: f64| now.saturating_sub(((now_ms - ms) * 1e6) as u64);
        let ms = |ns: u64| rounded(now_ms - now.saturating_sub(ns) as f64 / 1e6);
        let found = slowest.of(Cell {
            stage: self.stage,
            worker: self.worker,
            bucket: self.bucket,
            from: ns(self.from_ms - BLUR_MS),
            to: ns(self.to_ms),
        });
        let more = found.timers.len().saturating_sub(SHOWN);
        let timers = found.timers.into_iter().take(SHOWN);
        Answer {
            recording: handle.flight_recorder().recording().to_string(),
            since_ms: found.since.map(ms),
            timers: timers
                .map(|(stage, kept)| Timer {
                    at_ms: ms(stage.at),
                    late_ns: stage.late,
                    all_ns: kept.late,
                    has_run: kept.has_run(),
                    timer: kept.timer.map(Job::from),
                    why: kept.why,
                })
                .collect(),
            more,
        }
    }
}

impl Answer {
    pub(crate) fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_has_all_its_parts() {
        let question = "worker=3&stage=queue&bucket=72&from_ms=100.25&to_ms=350";
        let parsed = Question {
            stage: Which::Queue,
            worker: Some(3),
            bucket: 72,
            from_ms: 100.25,
            to_ms: 350.0,
        };
        assert_eq!(Question::parse(question), Ok(parsed));
        let helpers = question.replace("worker=3", "worker=helpers");
        assert_eq!(Question::parse(&helpers).unwrap().worker, None);
        for (part, without) in [
            ("worker=3", ""),
            ("worker=3", "worker=-3"),
            ("queue", "late"),
            ("&bucket=72", ""),
            ("100.25", "now"),
            ("&to_ms=350", "&to_ms="),
        ] {
            let wrong = Question::parse(&question.replace(part, without));
            assert!(wrong.is_err(), "{part} {without}");
        }
    }
}
