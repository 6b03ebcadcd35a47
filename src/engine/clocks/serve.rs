//! Which timers of a clock are due, and what the timerfd is set to.

use std::{io, os::fd::AsRawFd, sync::Arc};

use tourbillon_shards::NEVER;

use crate::{
    clock::other::OtherClock,
    engine::{
        clocks::owner::{ClockShard, SKIP_ON_STEP, Served},
        core::{Core, TimerOwner},
        job::Job,
        telemetry::lateness,
    },
    metrics::histogram::Recorded,
    reactor::CLOCK_TOKENS,
    util::lock::lock,
};

/// Has the thread of `core` called, or another of those that are, when one of the clocks is to be served.
pub(crate) fn answer(core: &Core, clocks: &[Arc<ClockShard>]) -> io::Result<()> {
    for (clock, token) in clocks.iter().zip(CLOCK_TOKENS) {
        let fd = clock.owner().timerfd.as_raw_fd();
        core.reactor.epoll().add_shared(fd, token)?;
    }
    Ok(())
}

/// Takes what is due on a clock, and sets its timerfd. For any worker, when that is readable, which notes in `late`
/// how late that is.
pub(crate) fn serve(shard: &ClockShard, late: &Recorded) -> Vec<Job> {
    let core = shard.owner();
    let mut served = lock(&core.served);
    let mut stepped = false;
    shard.resume();
    let mut jobs = Vec::new();
    loop {
        take(shard, &mut served, &mut jobs, Some(late), || {
            // For good: this may be the second round after one step.
            stepped |= core.take_step();
            stepped
        });
        let next = shard.next_deadline();
        let set = core.set_timer(next);
        stepped |= set;
        match shard.sleep_until() {
            // The clock may have been set, or put forward, before that was announced.
            Some(NEVER) if !set => return jobs,
            Some(until) if until >= next && !set && core.now() < until => return jobs,
            Some(_) => shard.resume(),
            None => {}
        }
    }
}

/// Sets a clock by `set`, and answers what is due then. Which timers that jumps over is found out here,
/// and not when somebody comes to serve: one that is armed in between has not been jumped over.
pub(crate) fn step(shard: &ClockShard, set: impl FnOnce()) -> Vec<Job> {
    let mut served = lock(&shard.owner().served);
    let mut jobs = Vec::new();
    // The timerfd is left alone: who is woken by it finds it readable.
    take(shard, &mut served, &mut jobs, None, || false);
    set();
    take(shard, &mut served, &mut jobs, None, || true);
    jobs
}

/// Takes all that is due. If the clock was `stepped` since it was served, which is asked after it was
/// read, those whose moment that jumped over may have to be skipped.
fn take(
    shard: &ClockShard,
    served: &mut Served,
    jobs: &mut Vec<Job>,
    late: Option<&Recorded>,
    mut stepped: impl FnMut() -> bool,
) {
    let core = shard.owner();
    let mut due = Vec::new();
    loop {
        let (now, boot) = (core.now(), core.shared.clock.other(OtherClock::Boot));
        // After the reading: what it shows was not set without this saying so.
        let stepped = stepped();
        // Where the clock would be if nobody had set it.
        let natural = served
            .clock
            .saturating_add(boot.saturating_sub(served.boot));
        let jumped = |at| stepped && natural < at && at < now;
        let more = shard.expire(now, usize::MAX, &mut due).more;
        // What a step jumps over is not late by that.
        if let Some(late) = late.filter(|_| !stepped) {
            lateness::note(&core.shared, &due, now, late);
        }
        jobs.extend(due.drain(..).map(|due| {
            if due.tag() == SKIP_ON_STEP && due.deadline().is_some_and(jumped) {
                Job::Skipped(due)
            } else {
                Job::ClockTimer(due)
            }
        }));
        if !more {
            *served = Served { clock: now, boot };
            return;
        }
        crate::sys::sync::thread::yield_now();
    }
}
