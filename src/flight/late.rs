//! A late timer, and the words that tell why.

use std::{fmt, time::Duration};

use crate::{
    flight::{Cause, NotTaken},
    metrics::JobName,
};

/// A timer that was late, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LateTimer {
    /// The callback, or the task that slept. `None` if it is not known.
    pub timer: Option<JobName>,
    /// The worker that owns the timer. `None` for timers of the wall clock and the boot-time clock.
    pub worker: Option<usize>,
    /// The deadline, as the time since the runtime was built.
    pub deadline: Duration,
    /// How long after its deadline the timer ran.
    pub late: Duration,
    /// Whether it was seen to run. If not, it was only seen to be taken from its store.
    pub has_run: bool,
    /// What it waited for, in order of time. The lengths add up to `late`.
    pub spans: Vec<Span>,
}

/// A part of a timer's lateness, with its cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Span {
    /// What the timer waited for.
    pub cause: Cause,
    /// For how long.
    pub length: Duration,
    /// The worker that the timer waited for.
    pub worker: Option<usize>,
    /// Why no other worker ran the timer meanwhile, if that is known.
    pub not_taken: Option<NotTaken>,
}

impl Span {
    pub(super) fn new(cause: Cause, length: u64, worker: Option<usize>) -> Self {
        Self {
            cause,
            length: Duration::from_nanos(length),
            worker,
            not_taken: None,
        }
    }
}

/// Writes one line: `callback shop::expire was 34.0ms late: 31.0ms behind callback shop::parse on
/// worker 1, and there is no other worker; 3.0ms without a core (stolen)`.
impl fmt::Display for LateTimer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.timer {
            Some(job) if job.spawned.is_some() => write!(f, "a sleep of {job}")?,
            Some(job) => write!(f, "{job}")?,
            None => f.write_str("a timer")?,
        }
        let late = self.late;
        match self.has_run {
            true => write!(f, " was {late:.1?} late")?,
            false => write!(f, " was taken {late:.1?} late")?,
        }
        for (i, span) in self.spans.iter().enumerate() {
            f.write_str(if i == 0 { ": " } else { "; " })?;
            span.fmt(f)?;
        }
        Ok(())
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.1?} ", self.length)?;
        let worker = self.worker.map(|it| format!("worker {it}"));
        let worker = worker.as_deref().unwrap_or("the worker");
        match &self.cause {
            Cause::KernelWokeLate => write!(f, "until the kernel woke {worker}"),
            Cause::Preempted => write!(f, "without a core ({worker} was preempted)"),
            Cause::Stolen => f.write_str("without a core (stolen)"),
            Cause::StuckInJob(Some(job)) => write!(f, "behind {job} on {worker}"),
            Cause::StuckInJob(None) => write!(f, "behind one job on {worker}"),
            Cause::QueuedBehindOthers { last: None } => write!(f, "behind other jobs on {worker}"),
            Cause::QueuedBehindOthers { last: Some(job) } => {
                write!(f, "behind jobs on {worker}, the last of them {job}")
            }
            Cause::ClockStep => f.write_str("because the clock was set"),
            Cause::Tolerance => f.write_str("within its tolerance"),
            Cause::Batch => write!(f, "until {worker} took its next batch"),
            Cause::Rescue => write!(f, "until a peer had taken it over from {worker}"),
            Cause::Suspended => f.write_str("while the machine was suspended"),
            Cause::Unexplained => f.write_str("without a recorded cause"),
        }?;
        match self.not_taken {
            Some(why) => write!(f, ", and {why}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_timer_is_put_into_words() {
        let job = JobName {
            name: "shop::parse",
            spawned: None,
        };
        let spans = vec![
            Span {
                not_taken: Some(NotTaken::OnlyWorker),
                ..Span::new(Cause::StuckInJob(Some(job)), 31_000_000, Some(1))
            },
            Span::new(Cause::Stolen, 3_000_000, Some(1)),
        ];
        let late = LateTimer {
            timer: Some(JobName {
                name: "shop::expire",
                spawned: None,
            }),
            worker: Some(1),
            deadline: Duration::ZERO,
            late: Duration::from_millis(34),
            has_run: true,
            spans,
        };
        let text = "callback shop::expire was 34.0ms late: 31.0ms behind callback shop::parse on \
                    worker 1, and there is no other worker; 3.0ms without a core (stolen)";
        assert_eq!(late.to_string(), text);
    }
}
