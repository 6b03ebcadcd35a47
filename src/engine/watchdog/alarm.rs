//! The alarms of workers on a clock that may be paused and resumed.
//!
//! A paused clock moves by hand, so no alarm is set in the kernel while it is paused, whatever the
//! words of the workers say. These functions are all that the watch needs beyond the protocol of
//! the shards: see "The alarm" in `crates/sched/PROTOCOLS.md`, and its model in
//! `loom_tests/tests/paused.rs`, which includes this file.

use tourbillon_shards::{Owner, Shard};

/// Sets an alarm. `kernel` returns the moment by the kernel's clock, or `None` while the clock is
/// paused. `set` makes the system call, which unsets the alarm for `None`.
pub(crate) fn set<M>(kernel: impl Fn() -> Option<M>, set: impl Fn(Option<M>)) {
    let mut moment = kernel();
    loop {
        let was_paused = moment.is_none();
        set(moment);
        // The clock may be paused or resumed meanwhile. A thread that resumed it may have set the
        // alarm before this one has unset it.
        let now = kernel();
        if now.is_none() == was_paused {
            return;
        }
        moment = now;
    }
}

/// Takes the alarm of `peer`, if it has gone off. Returns whether the caller has it, and has to set
/// it again. A thread that finds the clock paused leaves the alarm taken: the thread that resumes
/// the clock makes a new call.
pub(crate) fn take<O: Owner>(peer: &Shard<O>, now: u64, is_paused: impl FnOnce() -> bool) -> bool {
    peer.take_alarm(now) && !is_paused()
}

/// Resumes the clock by `resume`, and then calls a peer for each of `watched`. Their heartbeats
/// stopped with the clock.
pub(crate) fn restart<'a, O: Owner>(
    resume: impl FnOnce(),
    watched: impl IntoIterator<Item = &'a Shard<O>>,
) {
    resume();
    watched.into_iter().for_each(Shard::call);
}
