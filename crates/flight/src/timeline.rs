//! What a worker did when, as far as its events tell.

use tourbillon::{
    flight::{Event, LIGHT_THRESHOLD, Lost, Track},
    metrics::JobName,
};

use crate::nanos;

/// The stretches of time of one worker, in order, without overlaps. In light mode there are gaps.
#[derive(Clone, Debug, Default)]
pub(crate) struct Timeline {
    pub(crate) stretches: Vec<Stretch>,
}

/// From when to when a worker did something, in ns.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stretch {
    pub(crate) from: u64,
    pub(crate) to: u64,
    pub(crate) what: What,
    /// The part of it in which the worker was ready to run and had no core.
    pub(crate) lost: Lost,
}

/// What a worker did.
#[derive(Clone, Copy, Debug)]
pub(crate) enum What {
    Sleep {
        /// Until when it meant to sleep.
        until: Option<u64>,
    },
    /// It was in its loop, without a job.
    Loop,
    /// One job.
    Job(Option<JobName>),
    /// Several jobs, of unknown lengths.
    Jobs { last: Option<JobName> },
}

impl Timeline {
    /// Returns what the worker of `track` did until `now`, when the ring was copied. `stuck` tells
    /// what peers saw: when, for how long they had seen it, and the job.
    pub(crate) fn new(track: &Track, now: u64, stuck: &[(u64, u64, Option<JobName>)]) -> Self {
        let mut timeline = Self::default();
        // The jobs that began and have no end yet.
        let mut begun: Vec<(u64, Option<JobName>)> = Vec::new();
        let mut parked = None;
        for &(at, event) in &track.events {
            match event {
                Event::JobBegan { job, .. } => begun.push((at, job)),
                Event::Parked { .. } => parked = Some(at),
                Event::Resumed { lost, until, .. } => {
                    let from = parked.take().unwrap_or(0);
                    timeline.push(from, at, What::Sleep { until }, lost);
                }
                Event::Looped { took, lost } => {
                    timeline.push(at.saturating_sub(took), at, What::Loop, lost);
                }
                Event::Turn {
                    took,
                    jobs,
                    last,
                    lost,
                } => {
                    let from = at.saturating_sub(took);
                    timeline.push_turn(from, at, &begun, (jobs, last), lost);
                    begun.clear();
                }
                _ => {}
            }
        }
        // The present job, which is not over.
        if let Some((last, rest)) = begun.split_last() {
            let next = |i: usize| rest.get(i + 1).map_or(last.0, |next| next.0);
            for (i, &(from, job)) in rest.iter().enumerate() {
                timeline.push(from, next(i), What::Job(job), Lost::default());
            }
            timeline.push(last.0, now, What::Job(last.1), Lost::default());
        }
        for &(at, elapsed, job) in stuck {
            timeline.name(at, elapsed, job);
        }
        timeline
    }

    /// Adds a turn, by its jobs if their beginnings are known.
    fn push_turn(
        &mut self,
        from: u64,
        to: u64,
        begun: &[(u64, Option<JobName>)],
        (jobs, last): (u64, Option<JobName>),
        lost: Lost,
    ) {
        let begun: Vec<_> = begun.iter().filter(|(at, _)| *at >= from).collect();
        if begun.is_empty() {
            let what = match jobs {
                1 => What::Job(last),
                _ => What::Jobs { last },
            };
            return self.push(from, to, what, lost);
        }
        let end = |i: usize| begun.get(i + 1).map_or(to, |next| next.0);
        // Time without a core is most likely in the longest job.
        let longest = (0..begun.len()).max_by_key(|&i| end(i) - begun[i].0);
        for (i, &&(at, job)) in begun.iter().enumerate() {
            let lost = if Some(i) == longest {
                lost
            } else {
                Lost::default()
            };
            self.push(at, end(i), What::Job(job), lost);
        }
    }

    /// Adds a stretch behind the others.
    fn push(&mut self, from: u64, to: u64, what: What, lost: Lost) {
        let from = from.max(self.stretches.last().map_or(0, |last| last.to));
        if from < to {
            self.stretches.push(Stretch {
                from,
                to,
                what,
                lost,
            });
        }
    }

    /// Adds what a peer saw: that `job` ran at `at`, and had run for `elapsed` then.
    fn name(&mut self, at: u64, elapsed: u64, job: Option<JobName>) {
        let from = at.saturating_sub(elapsed);
        // One of these jobs took most of the time.
        let covers = |stretch: &Stretch| stretch.from < at && stretch.to > from;
        if let Some(i) = self.stretches.iter().position(covers) {
            if let What::Jobs { .. } = self.stretches[i].what {
                self.stretches[i].what = What::Job(job);
            }
        } else if self.stretches.last().is_none_or(|last| last.to <= from) {
            // The job had not ended when the ring was copied.
            self.push(from, at, What::Job(job), Lost::default());
        }
    }

    /// Returns the stretches that overlap this time.
    pub(crate) fn within(&self, from: u64, to: u64) -> impl Iterator<Item = &Stretch> {
        let first = self.stretches.partition_point(|it| it.to <= from);
        let rest = self.stretches[first..].iter();
        rest.take_while(move |it| it.from < to)
    }

    /// Returns for how long the worker was in jobs in this time.
    pub(crate) fn busy(&self, from: u64, to: u64) -> u64 {
        let jobs = self
            .within(from, to)
            .filter(|it| !matches!(it.what, What::Sleep { .. } | What::Loop));
        jobs.map(|it| it.to.min(to) - it.from.max(from)).sum()
    }
}

impl Stretch {
    /// Returns the lost time in a part of this length, as if it were spread evenly.
    pub(crate) fn share_of_lost(&self, part: u64) -> Lost {
        let all = u128::from(self.to - self.from);
        // The part is not longer than the whole, so the share fits.
        let share = |ns: u64| (u128::from(ns) * u128::from(part) / all) as u64;
        let mut lost = Lost::default();
        lost.preempted = share(self.lost.preempted);
        lost.stolen = share(self.lost.stolen);
        lost.throttled = share(self.lost.throttled);
        lost
    }

    /// Returns whether this is one job that took long.
    pub(crate) fn is_long_job(&self) -> bool {
        matches!(self.what, What::Job(_)) && self.to - self.from >= nanos(LIGHT_THRESHOLD)
    }
}
