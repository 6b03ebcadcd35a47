//! A late timer, and the words that tell why.

use std::{fmt, time::Duration};

use tourbillon::metrics::JobName;

use crate::{Cause, NotTaken};

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
    pub(crate) fn new(cause: Cause, length: u64, worker: Option<usize>) -> Self {
        Self {
            cause,
            length: Duration::from_nanos(length),
            worker,
            not_taken: None,
        }
    }
}

/// The most spans that one line names.
const NAMED: usize = 4;

impl LateTimer {
    /// Displays what the timer waited for: the line of `Display` behind its colon.
    pub fn why(&self) -> impl fmt::Display {
        Why(self)
    }

    /// Returns the spans that one line names. If there are too many, spans with one cause on one
    /// worker are added up, and the longest sums come first.
    fn told(&self) -> Vec<Span> {
        if self.spans.len() <= NAMED {
            return self.spans.clone();
        }
        let mut sums: Vec<Span> = Vec::new();
        for span in &self.spans {
            let sum = sums.iter_mut().find(|sum| sum.has_cause_of(span));
            match sum {
                Some(sum) => sum.add(span),
                None => sums.push(*span),
            }
        }
        sums.sort_by_key(|sum| std::cmp::Reverse(sum.length));
        sums
    }
}

impl Span {
    /// Returns whether the other span has the cause of this one, on the same worker.
    fn has_cause_of(&self, other: &Self) -> bool {
        use Cause::QueuedBehindOthers;
        let behind_others = |span: &Self| matches!(span.cause, QueuedBehindOthers { .. });
        let alike = self.cause == other.cause || behind_others(self) && behind_others(other);
        alike && self.worker == other.worker
    }

    /// Adds the length of a span with the same cause. What the two do not share is left out.
    fn add(&mut self, other: &Self) {
        self.length += other.length;
        if self.cause != other.cause {
            self.cause = Cause::QueuedBehindOthers { last: None };
        }
        if self.not_taken != other.not_taken {
            self.not_taken = None;
        }
    }
}

/// Writes one line: `callback shop::expire was 34.0ms late: 31.0ms behind callback shop::parse on
/// worker 1, and there is no other worker; 3.0ms without a core (stolen)`. More than four spans are
/// added up by cause, and the line has the four longest sums.
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
        match self.spans.is_empty() {
            true => Ok(()),
            false => write!(f, ": {}", self.why()),
        }
    }
}

/// Displays what a timer waited for.
struct Why<'a>(&'a LateTimer);

impl fmt::Display for Why<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let told = self.0.told();
        for (i, span) in told.iter().take(NAMED).enumerate() {
            f.write_str(if i == 0 { "" } else { "; " })?;
            span.fmt(f)?;
        }
        let rest: Duration = told.iter().skip(NAMED).map(|span| span.length).sum();
        match rest.is_zero() {
            true => Ok(()),
            false => write!(f, "; {rest:.1?} for other causes"),
        }
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
            Cause::Throttled => f.write_str("without a core (throttled by the CPU quota)"),
            Cause::StuckInJob(Some(job)) => write!(f, "behind {job} on {worker}"),
            Cause::StuckInJob(None) => write!(f, "behind one job on {worker}"),
            Cause::QueuedBehindOthers { last: None } => write!(f, "behind other jobs on {worker}"),
            Cause::QueuedBehindOthers { last: Some(job) } => {
                write!(f, "behind jobs on {worker}, the last of them {job}")
            }
            Cause::ClockStep => f.write_str("because the clock was set"),
            Cause::Tolerance => f.write_str("within its tolerance"),
            Cause::Budget => {
                f.write_str("its worker had spent its budget for wake-ups, or the CPU quota")
            }
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
        let job = JobName::new("shop::parse", None);
        let spans = vec![
            Span {
                not_taken: Some(NotTaken::OnlyWorker),
                ..Span::new(Cause::StuckInJob(Some(job)), 31_000_000, Some(1))
            },
            Span::new(Cause::Stolen, 3_000_000, Some(1)),
        ];
        let late = LateTimer {
            timer: Some(JobName::new("shop::expire", None)),
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

    #[test]
    fn many_spans_are_added_up_by_cause() {
        let job = |name| Some(JobName::new(name, None));
        let queued = |last| Cause::QueuedBehindOthers { last: job(last) };
        let mut spans = vec![
            Span::new(Cause::KernelWokeLate, 500_000, Some(0)),
            Span::new(Cause::Stolen, 400_000, Some(0)),
            Span::new(Cause::Rescue, 300_000, Some(0)),
            Span::new(Cause::Unexplained, 200_000, None),
        ];
        for last in ["a", "b", "c"] {
            spans.push(Span::new(queued(last), 1_000_000, Some(0)));
        }
        let late = LateTimer {
            timer: None,
            worker: Some(0),
            deadline: Duration::ZERO,
            late: spans.iter().map(|span| span.length).sum(),
            has_run: true,
            spans,
        };
        let text = "a timer was 4.4ms late: 3.0ms behind other jobs on worker 0; 500.0µs until \
                    the kernel woke worker 0; 400.0µs without a core (stolen); 300.0µs until a \
                    peer had taken it over from worker 0; 200.0µs for other causes";
        assert_eq!(late.to_string(), text);
    }
}
