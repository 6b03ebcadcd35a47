//! The causes of each timer's lateness: a pure function of a snapshot.
//!
//! The lateness of a timer has two parts: from the deadline until the timer was taken from its
//! store, and from there until it ran. In both it waited for a worker, whose [`Timeline`] tells
//! what that worker did. What no event covers is unexplained in the first part. In the second one
//! the timer was in a queue, behind other jobs.

use std::{
    collections::{HashMap, HashSet},
    fmt,
    sync::{Arc, OnceLock},
    time::Duration,
};

use tourbillon::{
    flight::{Event, Snapshot, Thread},
    metrics::JobName,
};

use crate::{
    Cause, Found, LateTimer, NotTaken, Span,
    found::{Batch, Kind, Run},
    nanos,
    stalls::Stacks,
    timeline::{Timeline, What},
};

/// The recorded moment at which a timer was taken is rounded down to 1,024 ns, and so is that of a
/// late batch.
const ROUNDED: u64 = 2 * 1_024;

/// The analysis of a snapshot. It finds late timers quickly, and explains single ones.
///
/// [`late_timers`](crate::late_timers) explains all of them.
pub struct Analysis<'a> {
    snapshot: &'a Snapshot,
    timelines: HashMap<Thread, Timeline>,
    /// By the moment of taking.
    batches: Vec<Batch>,
    /// When jobs were stolen, from which worker, and the thief.
    stolen: Vec<(u64, usize, Thread)>,
    /// Made when it is asked for.
    stacks: OnceLock<Stacks>,
}

/// The spans of one timer, as they are found.
#[derive(Default)]
struct Spans(Vec<Span>);

impl Spans {
    fn push(&mut self, span: Span) {
        if span.length.is_zero() {
            return;
        }
        match self.0.last_mut() {
            Some(last) if last.cause == span.cause && last.worker == span.worker => {
                last.length += span.length;
                last.not_taken = last.not_taken.or(span.not_taken);
            }
            _ => self.0.push(span),
        }
    }
}

/// A part of a timer's lateness, and the thread whose events explain it.
#[derive(Clone, Copy)]
struct Part {
    from: u64,
    to: u64,
    thread: Thread,
    /// Until when the timer may be late.
    tolerated: u64,
    /// The cause of time that no event covers, and of time in short jobs.
    gap: Cause,
    short: Cause,
    /// Whether the timer was in a queue that peers steal from.
    in_queue: bool,
    /// The timer's own job, which it did not wait for: the turn in which it ran has no other end.
    own: Option<JobName>,
}

impl Part {
    /// Returns an empty part in the store of worker `home`.
    fn in_store(home: usize, tolerated: u64) -> Self {
        Self {
            from: 0,
            to: 0,
            thread: Thread::Worker(home),
            tolerated,
            gap: Cause::Unexplained,
            short: Cause::QueuedBehindOthers { last: None },
            in_queue: false,
            own: None,
        }
    }
}

impl<'a> Analysis<'a> {
    /// Reads the events of a snapshot.
    pub fn new(snapshot: &'a Snapshot) -> Self {
        let (mut batches, mut stolen) = (Vec::new(), Vec::new());
        let mut stuck: HashMap<usize, Vec<_>> = HashMap::new();
        for track in &snapshot.tracks {
            for &(at, event) in &track.events {
                match event {
                    Event::Taken {
                        late,
                        tolerance,
                        left,
                        rescue,
                        stuck_in,
                        ..
                    } => {
                        if let Some(rescue) = rescue {
                            let seen = stuck.entry(rescue.from).or_default();
                            seen.push((rescue.came, 0, stuck_in));
                        }
                        let by = track.thread;
                        let owner = rescue.map(|rescue| rescue.from);
                        let Some(home) = owner.or(by.number()) else {
                            continue;
                        };
                        batches.push(Batch {
                            at,
                            late,
                            tolerance,
                            home,
                            left,
                            rescue,
                            stuck_in,
                            by,
                        });
                    }
                    Event::Stole { from, .. } => stolen.push((at, from, track.thread)),
                    // Without a name it adds nothing to the events of the worker.
                    Event::Stalled {
                        worker,
                        elapsed,
                        job: Some(job),
                        ..
                    } => stuck
                        .entry(worker)
                        .or_default()
                        .push((at, elapsed, Some(job))),
                    _ => {}
                }
            }
        }
        batches.sort_by_key(|batch: &Batch| batch.at);
        stolen.sort_by_key(|stolen: &(u64, usize, Thread)| stolen.0);
        let timelines = snapshot.tracks.iter().map(|track| {
            let seen = track.thread.number().and_then(|worker| stuck.get(&worker));
            let seen = seen.map_or(&[][..], Vec::as_slice);
            (track.thread, Timeline::new(track, snapshot.at, seen))
        });
        Self {
            snapshot,
            timelines: timelines.collect(),
            batches,
            stolen,
            stacks: OnceLock::new(),
        }
    }

    /// Returns the timers that ran at least this long after their deadlines and tolerances: those
    /// of [`late_timers`](crate::late_timers), in no order.
    pub fn find(&self, at_least: Duration) -> Vec<Found> {
        let at_least = nanos(at_least);
        let mut found = Vec::new();
        // By owner and deadline: a timer that ran is not listed again as one that was taken.
        let mut seen = HashSet::new();
        for track in &self.snapshot.tracks {
            let mut jumps = (0_u64, 0_u64, 0_u64);
            for &(at, event) in &track.events {
                match event {
                    Event::Suspended { length } => jumps = (at, length, 0),
                    Event::Stepped { by } => {
                        let suspended = if jumps.0 == at { jumps.1 } else { 0 };
                        jumps = (at, suspended, u64::try_from(by).unwrap_or(0));
                    }
                    Event::TimerRan {
                        late,
                        taken,
                        home,
                        tolerance,
                        timer,
                    } => {
                        let run = Run {
                            at,
                            late,
                            taken,
                            tolerance,
                            timer,
                            by: track.thread,
                        };
                        if let Some(home) = home {
                            seen.insert((home, run.deadline()));
                        }
                        if late.saturating_sub(tolerance) < at_least {
                            continue;
                        }
                        let kind = match home {
                            Some(home) => Kind::Ran { run, home },
                            None => {
                                let jumps = Some(jumps).filter(|it| it.0 == at);
                                let jumps = jumps.map_or((0, 0), |it| (it.1, it.2));
                                Kind::OtherClock { run, jumps }
                            }
                        };
                        found.push(Found::new(kind, self));
                    }
                    _ => {}
                }
            }
        }
        for &batch in &self.batches {
            let late_beyond = batch.late.saturating_sub(batch.tolerance);
            if late_beyond >= at_least && seen.insert((batch.home, batch.deadline())) {
                found.push(Found::new(Kind::Taken(batch), self));
            }
        }
        found
    }

    /// Divides the lateness of a timer by causes. This takes longer than [`find`](Self::find).
    pub fn explain(&self, found: &Found) -> LateTimer {
        match found.kind {
            Kind::Ran { run, home } => self.explain_run(run, home),
            Kind::OtherClock { run, jumps } => self.explain_other_clock(run, jumps),
            Kind::Taken(batch) => self.explain_batch(&batch),
        }
    }

    /// Returns the [stack](tourbillon::flight::Snapshot::stacks) of the job that a timer waited for,
    /// if there is one.
    pub fn stack(&self, late: &LateTimer) -> Option<Arc<str>> {
        if self.snapshot.stacks.is_empty() {
            return None;
        }
        let stacks = self.stacks.get_or_init(|| Stacks::new(self.snapshot));
        let place = stacks.places(late).into_iter().flatten().next()?;
        Some(stacks.rows[place].stack.clone())
    }

    /// Explains a timer of worker `home` that ran.
    fn explain_run(&self, run: Run, home: usize) -> LateTimer {
        let deadline = run.deadline();
        let batch = self.batch_of(run.taken, home);
        let mut spans = Spans::default();
        let tolerated = deadline.saturating_add(run.tolerance);
        let store = Part {
            from: deadline,
            to: run.taken,
            own: run.timer,
            ..Part::in_store(home, tolerated)
        };
        self.explain_store(&mut spans, store, home, batch);
        // It was queued on the worker that took it, until another one stole it.
        let queue = batch.map_or(Thread::Worker(home), |batch| batch.by);
        let from = self.stolen.partition_point(|it| it.0 < run.taken);
        let stolen = self.stolen[from..].iter().take_while(|it| it.0 <= run.at);
        let is_this = |it: &&(u64, usize, Thread)| queue == Thread::Worker(it.1) && it.2 == run.by;
        let moved = match run.by == queue {
            true => None,
            false => stolen.filter(is_this).last().map(|it| it.0),
        };
        let moved = moved.unwrap_or(run.at);
        for (from, to, thread) in [(run.taken, moved, queue), (moved, run.at, run.by)] {
            let part = Part {
                from,
                to,
                thread,
                tolerated,
                gap: Cause::QueuedBehindOthers { last: None },
                short: Cause::QueuedBehindOthers { last: None },
                in_queue: true,
                own: run.timer,
            };
            self.explain_part(&mut spans, part);
        }
        late_timer(run.timer, Some(home), deadline, run.late, true, spans)
    }

    /// Explains the first timer of a batch, which was not seen to run.
    fn explain_batch(&self, batch: &Batch) -> LateTimer {
        let deadline = batch.deadline();
        let mut spans = Spans::default();
        let store = Part {
            from: deadline,
            to: batch.at,
            ..Part::in_store(batch.home, deadline.saturating_add(batch.tolerance))
        };
        self.explain_store(&mut spans, store, batch.home, Some(batch));
        late_timer(None, Some(batch.home), deadline, batch.late, false, spans)
    }

    /// Explains a timer of the wall clock or the boot-time clock. The machine was suspended, and
    /// the clock was set, by `jumps`.
    fn explain_other_clock(&self, run: Run, (suspended, stepped): (u64, u64)) -> LateTimer {
        let mut spans = Spans::default();
        let suspended = suspended.min(run.late);
        spans.push(Span::new(Cause::Suspended, suspended, None));
        let stepped = stepped.min(run.late - suspended);
        spans.push(Span::new(Cause::ClockStep, stepped, None));
        let rest = run.late - suspended - stepped;
        // Any worker serves these clocks: the one that did tells what it was at.
        let from = run.at.saturating_sub(rest);
        let part = Part {
            from,
            to: run.at,
            thread: run.by,
            tolerated: from.saturating_add(run.tolerance),
            gap: Cause::Unexplained,
            short: Cause::QueuedBehindOthers { last: None },
            in_queue: false,
            own: None,
        };
        self.explain_part(&mut spans, part);
        // Before the runtime began there is nothing to tell.
        spans.push(Span::new(Cause::Unexplained, rest - (run.at - from), None));
        late_timer(run.timer, None, run.deadline(), run.late, true, spans)
    }

    /// Explains the time that a timer of worker `home` stayed in its store after its deadline.
    fn explain_store(&self, spans: &mut Spans, part: Part, home: usize, batch: Option<&Batch>) {
        let (from, to) = (part.from, part.to);
        let Some(batch) = batch else {
            return self.explain_part(spans, part);
        };
        if let Some(rescue) = batch.rescue {
            // Until the peer came, the worker was stuck.
            let came = rescue.came.clamp(from, to);
            let stuck = Cause::StuckInJob(batch.stuck_in);
            let part = Part {
                to: came,
                gap: stuck,
                short: stuck,
                ..part
            };
            self.explain_part(spans, part);
            return spans.push(Span::new(Cause::Rescue, to - came, Some(home)));
        }
        // While each batch left due timers behind, it waited for its turn.
        let left = batch.left.unwrap_or(to).clamp(from, to);
        self.explain_part(spans, Part { to: left, ..part });
        let waits = Part {
            from: left,
            gap: Cause::Batch,
            short: Cause::Batch,
            ..part
        };
        self.explain_part(spans, waits);
    }

    /// Explains a part by what its worker did.
    fn explain_part(&self, spans: &mut Spans, part: Part) {
        let worker = part.thread.number();
        let empty = Timeline::default();
        let timeline = self.timelines.get(&part.thread).unwrap_or(&empty);
        let mut at = part.from;
        for stretch in timeline.within(part.from, part.to) {
            let (from, to) = (stretch.from.max(at), stretch.to.min(part.to));
            spans.push(Span::new(part.gap, from - at, worker));
            at = to;
            // The tolerance excuses a sleep, and no job.
            let (is_sleep, until) = match stretch.what {
                What::Sleep { until } => (true, until),
                _ => (false, None),
            };
            let tolerated = if is_sleep {
                part.tolerated.clamp(from, to) - from
            } else {
                0
            };
            spans.push(Span::new(Cause::Tolerance, tolerated, None));
            // A sleep that another thread ended was not meant to last until its end.
            let meant = until.filter(|&until| until <= stretch.to).unwrap_or(0);
            let deferred = meant.clamp(from + tolerated, to) - from - tolerated;
            spans.push(Span::new(Cause::Budget, deferred, worker));
            let lost = match is_sleep {
                // It was lost at the end of the sleep.
                true => stretch.lost,
                false => stretch.share_of_lost(to - from),
            };
            let rest = to - from - tolerated - deferred;
            let throttled = lost.throttled.min(rest);
            let stolen = lost.stolen.min(rest - throttled);
            let preempted = lost.preempted.min(rest - throttled - stolen);
            spans.push(Span::new(Cause::Throttled, throttled, worker));
            spans.push(Span::new(Cause::Stolen, stolen, worker));
            spans.push(Span::new(Cause::Preempted, preempted, worker));
            let cause = match stretch.what {
                What::Sleep { .. } => Cause::KernelWokeLate,
                What::Loop => part.gap,
                What::Job(job) if stretch.is_long_job() && !is_same(job, part.own) => {
                    Cause::StuckInJob(job)
                }
                What::Jobs { last } if matches!(part.short, Cause::QueuedBehindOthers { .. }) => {
                    Cause::QueuedBehindOthers { last }
                }
                What::Job(_) | What::Jobs { .. } => part.short,
            };
            let mut span = Span::new(cause, rest - throttled - stolen - preempted, worker);
            if let Cause::StuckInJob(_) | Cause::QueuedBehindOthers { .. } = cause {
                span.not_taken = self.not_taken(part, from, to);
            }
            spans.push(span);
        }
        spans.push(Span::new(part.gap, part.to.saturating_sub(at), worker));
    }

    /// Returns why no other worker ran a timer while its own was in jobs.
    fn not_taken(&self, part: Part, from: u64, to: u64) -> Option<NotTaken> {
        let peers = self
            .timelines
            .iter()
            .filter(|(thread, _)| **thread != part.thread && thread.number().is_some());
        let peers: Vec<_> = peers.map(|(_, timeline)| timeline).collect();
        if peers.is_empty() {
            return Some(NotTaken::OnlyWorker);
        }
        if !self.snapshot.rescues && !part.in_queue {
            return Some(NotTaken::RescueIsOff);
        }
        let is_busy = |timeline: &&Timeline| timeline.busy(from, to) > (to - from) / 2;
        peers.iter().all(is_busy).then_some(NotTaken::PeersBusy)
    }

    /// Returns the batch in which a timer of worker `home` was taken at about `taken`.
    pub(crate) fn batch_of(&self, taken: u64, home: usize) -> Option<&Batch> {
        let from = taken.saturating_sub(ROUNDED);
        let first = self.batches.partition_point(|batch| batch.at < from);
        let near = self.batches[first..].iter();
        near.take_while(|batch| batch.at <= taken + ROUNDED)
            .filter(|batch| batch.home == home)
            .min_by_key(|batch| batch.at.abs_diff(taken))
    }
}

/// Returns whether both are one job, which may have labelled itself only after one of them was
/// recorded.
fn is_same(job: Option<JobName>, other: Option<JobName>) -> bool {
    let place = |job: JobName| (job.name, job.spawned);
    job.is_some() && job.map(place) == other.map(place)
}

fn late_timer(
    timer: Option<JobName>,
    worker: Option<usize>,
    deadline: u64,
    late: u64,
    has_run: bool,
    spans: Spans,
) -> LateTimer {
    LateTimer {
        timer,
        worker,
        deadline: Duration::from_nanos(deadline),
        late: Duration::from_nanos(late),
        has_run,
        spans: spans.0,
    }
}

impl fmt::Debug for Analysis<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Analysis").finish_non_exhaustive()
    }
}

#[cfg(test)]
#[path = "analysis_tests.rs"]
mod tests;
