//! The causes of lateness.

use std::{cmp::Reverse, collections::BTreeMap, fmt, time::Duration};

use tourbillon::metrics::JobName;

use crate::{LateTimer, Span};

/// Why a timer was late, or waited for a part of its lateness.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cause {
    /// The worker slept, and the kernel woke it after the moment it had asked for, or after another
    /// thread had called it. The worker was not waiting for a core, as far as the kernel says.
    KernelWokeLate,
    /// The worker was ready to run, and other threads had the core: the kernel's `schedstat` of the
    /// thread.
    Preempted,
    /// The hypervisor ran another machine on the core: the stolen time in `/proc/stat`, which comes
    /// in steps of 10 ms.
    Stolen,
    /// The process had used up its CPU quota, and the kernel stopped its threads until the next
    /// period of the quota: `throttled_time` or `throttled_usec` in the `cpu.stat` of its cgroup.
    Throttled,
    /// The worker was in one job for 200 µs or longer: a callback, or one poll of a task.
    StuckInJob(Option<JobName>),
    /// The timer waited for other jobs of its worker, none of which is known to have taken 200 µs.
    QueuedBehindOthers {
        /// The last of them, if it is known.
        last: Option<JobName>,
    },
    /// The wall clock was set past the deadline.
    ClockStep,
    /// The timer may be late by its tolerance, and its worker slept.
    Tolerance,
    /// The worker meant to sleep past the deadline: its
    /// [budget](tourbillon::runtime::Builder::timer_budget) did not pay for an earlier wake-up, or
    /// it napped since the process had spent its
    /// [CPU quota](tourbillon::runtime::Builder::follow_limits).
    Budget,
    /// The timer was due and stayed in its store: the worker takes a limited number at a time.
    Batch,
    /// A peer had come to a stuck worker, and had not yet taken this timer over.
    Rescue,
    /// The machine was suspended, for a timer of a clock that goes on meanwhile.
    Suspended,
    /// No recorded event covers this time: it was shorter than what is recorded, or its event was
    /// overwritten.
    Unexplained,
}

/// Why no other worker ran a timer meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NotTaken {
    /// The runtime has only one worker.
    OnlyWorker,
    /// [`rescue_latency`](tourbillon::runtime::Builder::rescue_latency) is `Duration::MAX`.
    RescueIsOff,
    /// All other workers were in jobs, too.
    PeersBusy,
}

impl Cause {
    /// Returns the name of the cause, without the job: `stuck-in-job` and others.
    pub fn name(&self) -> &'static str {
        match self {
            Cause::KernelWokeLate => "kernel-woke-late",
            Cause::Preempted => "preempted",
            Cause::Stolen => "stolen",
            Cause::Throttled => "throttled",
            Cause::StuckInJob(_) => "stuck-in-job",
            Cause::QueuedBehindOthers { .. } => "queued-behind-others",
            Cause::ClockStep => "clock-step",
            Cause::Tolerance => "tolerance",
            Cause::Budget => "budget",
            Cause::Batch => "batch",
            Cause::Rescue => "rescue",
            Cause::Suspended => "suspended",
            Cause::Unexplained => "unexplained",
        }
    }
}

impl fmt::Display for NotTaken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NotTaken::OnlyWorker => "there is no other worker",
            NotTaken::RescueIsOff => "rescue is off",
            NotTaken::PeersBusy => "all others were busy",
        })
    }
}

/// The share of one cause in the lateness of several timers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CauseTotal {
    /// The [name](Cause::name) of the cause.
    pub cause: &'static str,
    /// How many timers it made late.
    pub timers: usize,
    /// The longest time for which it made one of them late.
    pub worst: Duration,
    /// The sum of all these times.
    pub sum: Duration,
}

/// The share of one job in the lateness of several timers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct JobTotal {
    /// The job.
    pub job: JobName,
    /// How many timers it made late.
    pub timers: usize,
    /// The longest time for which it made one of them late.
    pub worst: Duration,
    /// The sum of all these times.
    pub sum: Duration,
}

/// Returns the sums over these late timers by cause, the greatest sum first.
pub fn causes(late: &[LateTimer]) -> Vec<CauseTotal> {
    let sums = sums(late, |span| Some((span.cause.name(), ())));
    let total = |(cause, (), sum): (_, _, Sum)| CauseTotal {
        cause,
        timers: sum.timers,
        worst: sum.worst,
        sum: sum.sum,
    };
    sums.into_iter().map(total).collect()
}

/// Returns the sums over these late timers by the job in which their worker was
/// [stuck](Cause::StuckInJob), the greatest sum first.
pub fn jobs(late: &[LateTimer]) -> Vec<JobTotal> {
    let sums = sums(late, |span| match span.cause {
        Cause::StuckInJob(Some(job)) => Some(((job.label, job.name, job.group, job.spawned), job)),
        _ => None,
    });
    let total = |(_, job, sum): (_, _, Sum)| JobTotal {
        job,
        timers: sum.timers,
        worst: sum.worst,
        sum: sum.sum,
    };
    sums.into_iter().map(total).collect()
}

#[derive(Clone, Copy, Default)]
struct Sum {
    timers: usize,
    worst: Duration,
    sum: Duration,
}

/// Returns the sums over the spans of these timers for which `key` returns one, by that key, with a
/// value of the last such span. The greatest sum comes first.
fn sums<K: Ord + Copy, V: Copy>(
    late: &[LateTimer],
    key: impl Fn(&Span) -> Option<(K, V)>,
) -> Vec<(K, V, Sum)> {
    let mut sums: BTreeMap<K, (V, Sum)> = BTreeMap::new();
    for timer in late {
        // Several spans of a timer may have one key.
        let mut own: BTreeMap<K, (V, Duration)> = BTreeMap::new();
        for span in &timer.spans {
            if let Some((key, value)) = key(span) {
                own.entry(key).or_insert((value, Duration::ZERO)).1 += span.length;
            }
        }
        for (key, (value, length)) in own {
            let (_, sum) = sums.entry(key).or_insert((value, Sum::default()));
            sum.timers += 1;
            sum.worst = sum.worst.max(length);
            sum.sum += length;
        }
    }
    let mut sums: Vec<_> = sums
        .into_iter()
        .map(|(key, (value, sum))| (key, value, sum))
        .collect();
    sums.sort_by_key(|(_, _, sum)| Reverse(sum.sum));
    sums
}
