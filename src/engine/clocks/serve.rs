//! Serving a clock: takes its due timers, and sets its timerfd.

use std::{io, mem, os::fd::AsRawFd, sync::Arc};

use tourbillon_shards::{Due, NEVER};
use tourbillon_sync::Patience;

use crate::{
    clock::other::OtherClock,
    engine::{
        clocks::shard::{ClockShard, Readings, SKIP_ON_STEP, Served},
        core::Core,
        job::Job,
        recorder::{NOTED, words},
        telemetry::lateness,
    },
    metrics::{activity::JobRef, histogram::Recorded},
    reactor::CLOCK_TOKENS,
    util::lock::lock,
};

/// How many times a thread looks at a clock that it serves. While other threads arm or cancel
/// timers of the clock all the time, each look finds something. The thread has other work, so after
/// this many looks it leaves the clock to the next thread.
const LOOKS: usize = 8;

/// Adds the clocks' timerfds to the epoll instance of `core`. For each event one of the threads
/// that watch it is woken.
pub(crate) fn watch(core: &Core, clocks: &[Arc<ClockShard>]) -> io::Result<()> {
    let epoll = core.reactor.open()?;
    for (clock, token) in clocks.iter().zip(CLOCK_TOKENS) {
        epoll.add_shared(clock.timerfd()?.as_raw_fd(), token)?;
    }
    Ok(())
}

/// Takes the due timers of a clock, and sets its timerfd. Any worker calls it when the timerfd is
/// readable. Records in `late` how late these timers are.
pub(crate) fn serve(clock: &ClockShard, late: &Recorded) -> Vec<Job> {
    let shard = &clock.shard;
    // One worker serves at a time. `resume` ends the announced sleep, so that no thread claims the
    // word meanwhile.
    let mut served = lock(&clock.served);
    let mut stepped = false;
    shard.resume();
    served.begin(clock);
    let (mut jobs, mut patience) = (Vec::new(), Patience::default());
    for _ in 0..LOOKS {
        let more = take(clock, &mut served, &mut jobs, Some(late), || {
            // Keep the answer: a second round still belongs to the same step.
            stepped |= clock.take_step();
            stepped
        });
        if more {
            patience.wait();
            continue;
        }
        // The timerfd before the announcement: see the head of `clocks/mod.rs`.
        let next = shard.next_deadline();
        let set = clock.set_timer(next);
        stepped |= set;
        // A timerfd that was made just now tells no step from before: compare the clocks again.
        let again = set || clock.is_watched() != served.is_watched;
        match shard.sleep_until() {
            // The clock may have been set or advanced before the sleep was announced. Then the
            // announcement is outdated: serve again.
            Some(NEVER) if !again => {
                served.is_idle = true;
                return jobs;
            }
            Some(until) if until >= next && !again && shard.owner().now() < until => return jobs,
            Some(_) => shard.resume(),
            None => {}
        }
    }
    // The word says that the clock is being served, so no thread that arms a timer makes the
    // timerfd readable. This thread does.
    clock.serve_again(stepped);
    jobs
}

/// Sets a clock by calling `set`, and returns the due timers.
///
/// This finds the timers that the step jumps over itself, and does not leave it to the serving
/// worker: a timer that is armed after the step has not been jumped over.
pub(crate) fn step(clock: &ClockShard, set: impl FnOnce()) -> Vec<Job> {
    let mut served = lock(&clock.served);
    served.begin(clock);
    let mut jobs = Vec::new();
    // Leave the timerfd alone: the worker that it wakes finds it readable.
    let mut take_all = |stepped| {
        let mut patience = Patience::default();
        while take(clock, &mut served, &mut jobs, None, || stepped) {
            patience.wait();
        }
    };
    take_all(false);
    set();
    take_all(true);
    jobs
}

impl Served {
    /// Begins to serve. If the clock was idle, its timers wait since the call: no step from before
    /// jumped over them.
    fn begin(&mut self, clock: &ClockShard) {
        let called = clock.take_call();
        if !mem::take(&mut self.is_idle) {
            return;
        }
        // The timerfd was not set when the call was made. Without a call no timer waits, or the
        // thread that has just armed one has yet to call.
        self.is_watched = false;
        self.last = called.unwrap_or_else(|| clock.readings());
    }
}

/// Takes the due timers, and returns whether there may be more. If `stepped` returns `true`, the
/// clock was set since it was last served, and timers that may be skipped are skipped if the step
/// jumped over their deadline. So they are if no timerfd would have told a step, and the clock has
/// gone on by more than the boot-time clock.
fn take(
    clock: &ClockShard,
    served: &mut Served,
    jobs: &mut Vec<Job>,
    late: Option<&Recorded>,
    stepped: impl FnOnce() -> bool,
) -> bool {
    let shared = clock.shared();
    let mut due = Vec::new();
    let boot = || shared.clock.other(OtherClock::Boot);
    // Before the readings: they may then be what later steps are found from.
    let is_watched = clock.is_watched();
    let (before, now, after) = (boot(), clock.shard.owner().now(), boot());
    let own = shared.clock.now();
    // Ask after reading the clock: a reading from after a step then always comes with the notice.
    let stepped = stepped();
    // The time that the clock would show if it had not been set, and at most that much more as the
    // readings took: a thread may lose its core between two of them.
    let last = &served.last;
    let natural = last.clock.saturating_add(after.saturating_sub(last.boot));
    let stepped = stepped || (!served.is_watched && natural < now);
    let jumped = |at| stepped && natural < at && at < now;
    let more = clock.shard.expire(now, usize::MAX, &mut due).more;
    if shared.flight.is_on() {
        let jumps = Jumps {
            stepped: now as i64 - natural as i64,
            suspended: after.saturating_sub(last.boot) as i64 - own.saturating_sub(last.own) as i64,
        };
        jumps.record(clock, own, now, &due);
    }
    // Do not count the step itself as lateness.
    if let Some(late) = late.filter(|_| !stepped) {
        lateness::note(shared, &due, now, late);
    }
    jobs.extend(due.drain(..).map(|due| {
        if due.tag() & SKIP_ON_STEP != 0 && due.deadline().is_some_and(jumped) {
            Job::Skipped(due)
        } else {
            Job::ClockTimer(due)
        }
    }));
    // Remember when the clock was served: the next step is found from here.
    if !more {
        served.last = Readings {
            boot: before,
            clock: now,
            own,
        };
        served.is_watched = is_watched;
    }
    more
}

/// By how much a clock went on in a way that the runtime's clock did not, since it was last served,
/// in ns.
#[derive(Clone, Copy, Debug)]
struct Jumps {
    /// The clock was set.
    stepped: i64,
    /// The machine was suspended.
    suspended: i64,
}

impl Jumps {
    /// Records the jumps for the flight recorder, and which timers are late by them. `own` is the
    /// time of the runtime's clock, and `now` that of the clock that was served.
    fn record(self, clock: &ClockShard, own: u64, now: u64, due: &[Due<Core>]) {
        let is_noted = |ns: i64| ns.unsigned_abs() >= NOTED;
        let mut events = Vec::new();
        if is_noted(self.suspended) {
            events.push(words::suspended(own, self.suspended.unsigned_abs()));
        }
        if clock.kind == OtherClock::Wall && is_noted(self.stepped) {
            events.push(words::stepped(own, self.stepped));
        }
        for timer in due {
            let late = timer.deadline().map(|at| now.saturating_sub(at));
            let Some(late) = late.filter(|&late| late >= NOTED) else {
                continue;
            };
            let name = timer.type_name();
            events.extend([
                words::ran(own, late),
                words::from_clock(own, timer.tolerance().ns()),
                words::job(JobRef::new(name, None)),
            ]);
        }
        if !events.is_empty() {
            clock.shared().record(events);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        future::poll_fn,
        ops::ControlFlow,
        task::Poll,
        time::{Duration, Instant},
    };

    use tourbillon_shards::{Options, Timer};

    use super::*;
    use crate::{
        Runtime,
        engine::core::WorkerShard,
        runtime::Builder,
        timer::{OnStep, WallTimer},
        util::nanos::nanos,
    };

    const HOUR: Duration = Duration::from_secs(3_600);

    /// Returns a runtime that has no timerfd, as its clock is paused.
    fn paused() -> Runtime {
        let mut builder = Builder::new_current_thread();
        builder.start_paused(true);
        builder.build().unwrap()
    }

    /// Returns a timer that a step over its deadline skips.
    fn skips(runtime: &Runtime, after: Duration) -> WallTimer {
        let _entered = runtime.enter();
        let at = crate::time::wall_clock() + after;
        let timer = crate::Timer::at_wall(at).on_step(OnStep::Skip);
        timer.start(|| ())
    }

    /// Sets the wall clock by `by`, as the system does it: the runtime is not told.
    fn set_forward(runtime: &Runtime, by: Duration) {
        let clock = &runtime.handle().shared().clock;
        let shows = clock.other(OtherClock::Wall);
        clock.set_other(OtherClock::Wall, shows + nanos(by));
    }

    /// Serves the wall clock, and ends the jobs. Returns for each whether it is skipped.
    fn serve_wall(runtime: &Runtime) -> Vec<bool> {
        let shared = runtime.handle().shared();
        let wall = shared.clocks.get(OtherClock::Wall).unwrap();
        let worker = shared.workers.load()[0].clone();
        let jobs = serve(&wall, &worker.owner().recorder.late.wake);
        let is_skipped = |job: Job| {
            let is_skipped = matches!(job, Job::Skipped(_));
            job.end();
            is_skipped
        };
        jobs.into_iter().map(is_skipped).collect()
    }

    #[test]
    fn a_step_before_there_is_a_timerfd_skips_what_it_jumps_over() {
        let runtime = paused();
        // Before the clock is served for the first time, and later.
        let first = skips(&runtime, HOUR);
        set_forward(&runtime, 2 * HOUR);
        assert_eq!(serve_wall(&runtime), [true]);
        let waits = skips(&runtime, 4 * HOUR);
        let second = skips(&runtime, HOUR);
        assert!(serve_wall(&runtime).is_empty());
        set_forward(&runtime, 2 * HOUR);
        assert_eq!(serve_wall(&runtime), [true]);
        // A timer that comes due without a step is not skipped.
        runtime.handle().shared().clock.advance(2 * HOUR);
        assert_eq!(serve_wall(&runtime), [false]);
        drop((first, waits, second));
    }

    #[test]
    fn a_step_does_not_skip_timers_that_are_armed_after_it() {
        let runtime = paused();
        // There is a shard, and no timer.
        skips(&runtime, HOUR).cancel();
        assert!(serve_wall(&runtime).is_empty());
        set_forward(&runtime, 2 * HOUR);
        let _timer = skips(&runtime, HOUR);
        // The worker comes late.
        runtime.handle().shared().clock.advance(2 * HOUR);
        assert_eq!(serve_wall(&runtime), [false]);
    }

    #[test]
    fn a_step_does_not_skip_timers_that_are_armed_after_it_where_there_is_a_timerfd() {
        let runtime = paused();
        let shared = runtime.handle().shared();
        let wall = shared.clocks.home(shared, OtherClock::Wall).unwrap();
        wall.timerfd().unwrap();
        // Before the clock is served for the first time, and later.
        for _ in 0..2 {
            set_forward(&runtime, 2 * HOUR);
            let _timer = skips(&runtime, Duration::from_secs(1));
            shared.clock.advance(HOUR);
            assert_eq!(serve_wall(&runtime), [false]);
        }
        // A step that comes after it counts.
        let _timer = skips(&runtime, HOUR);
        set_forward(&runtime, 2 * HOUR);
        assert_eq!(serve_wall(&runtime), [true]);
    }

    #[test]
    fn a_timer_is_not_skipped_by_a_step_that_was_made_before_it_and_not_yet_served() {
        let runtime = paused();
        skips(&runtime, HOUR).cancel();
        assert!(serve_wall(&runtime).is_empty());
        let _waits = skips(&runtime, 4 * HOUR);
        let shared = runtime.handle().shared();
        let shown = shared.clock.other(OtherClock::Wall) + nanos(2 * HOUR);
        assert!(shared.quiescence.set_wall(shared, shown));
        let _entered = runtime.enter();
        let at = crate::time::wall_clock() - HOUR;
        let _passed = crate::Timer::at_wall(at).on_step(OnStep::Skip).start(|| ());
        assert_eq!(serve_wall(&runtime), [false]);
    }

    /// Leaves an update of a clock when it is dropped, which has another one. These are the threads
    /// that arm and cancel timers of the clock all the time.
    struct Again(Arc<WorkerShard>, usize);

    impl Drop for Again {
        fn drop(&mut self) {
            if let Some(left) = self.1.checked_sub(1) {
                let again = Self(self.0.clone(), left);
                let options = Options {
                    deadline: Some(NEVER - 1),
                    condition: Some(Box::new(move || again.1 == left && again.0.stored() == 0)),
                    ..Options::default()
                };
                let timer = Timer::build(&self.0, 1, options, |_| ControlFlow::Continue(()));
                timer.start(0);
                timer.cancel();
            }
        }
    }

    #[test]
    fn a_worker_leaves_a_clock_that_others_use_all_the_time() {
        // The worker of this runtime runs in `block_on` alone.
        let runtime = Builder::new_current_thread().build().unwrap();
        let shared = runtime.handle().shared();
        let clock = shared.clocks.home(shared, OtherClock::Wall).unwrap();
        drop(Again(clock.shard.clone(), 3 * LOOKS));
        let worker = shared.workers.load()[0].clone();
        let mut calls = 0;
        while clock.shard.has_updates() && calls < 100 {
            assert!(serve(&clock, &worker.owner().recorder.late.wake).is_empty());
            calls += 1;
        }
        assert!(calls > 2, "{calls} calls have read all updates");
        // A thread that stops looks makes the timerfd readable. So the worker serves the clock.
        drop(Again(clock.shard.clone(), 3 * LOOKS));
        let begin = Instant::now();
        runtime.block_on(poll_fn(|cx| {
            cx.waker().wake_by_ref();
            if clock.shard.has_updates() && begin.elapsed() < Duration::from_secs(300) {
                return Poll::Pending;
            }
            Poll::Ready(())
        }));
        assert!(!clock.shard.has_updates(), "no thread serves the clock");
    }
}
