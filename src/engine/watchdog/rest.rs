//! Whether a worker that goes to sleep sets its alarm.

use crate::engine::core::WorkerShard;

/// The least score with which a worker leaves its alarm as it is when it goes to sleep.
const LEAVES: u32 = 16;
/// The highest score.
const MOST: u32 = 2 * LEAVES;
/// By how much a sleep that outlasts the alarm lowers the score. To leave the alarm then would wake
/// a peer for nothing, which costs about as much as two sleeps whose alarms were set.
const OUTLASTS: u32 = 4;

/// Decides whether a worker that goes to sleep sets its alarm.
///
/// To set it takes two system calls: one before the sleep, and one after it. A worker whose sleeps
/// are over before its alarm goes off need not set it. So the worker keeps a *score*, which rises
/// with each sleep of that kind, and falls with each other one, whether or not it set the alarm.
#[derive(Debug, Default)]
pub(crate) struct Rest {
    /// When the alarm goes off if the worker leaves it as it is, in ns.
    alarm: u64,
    score: u32,
}

impl Rest {
    /// Sets the alarm of a worker that goes to sleep until `until`, in ns, unless it is likely to
    /// be back before its alarm goes off.
    pub(crate) fn begin(&mut self, shard: &WorkerShard, until: u64) {
        if self.sets(shard.alarm()) {
            shard.rest(until);
        }
    }

    /// Returns whether a worker whose alarm goes off at `alarm`, in ns, sets it before it sleeps.
    fn sets(&mut self, alarm: u64) -> bool {
        self.alarm = alarm;
        self.score < LEAVES
    }

    /// Records that the worker returns from a sleep at `now`, in ns.
    pub(crate) fn end(&mut self, now: u64) {
        self.score = if now < self.alarm {
            (self.score + 1).min(MOST)
        } else {
            self.score.saturating_sub(OUTLASTS)
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Records a sleep that is over before the alarm goes off, or after that. Returns whether the
    /// worker set its alarm before it.
    fn sleep(rest: &mut Rest, is_short: bool) -> bool {
        let sets = rest.sets(1_000);
        rest.end(if is_short { 999 } else { 1_000 });
        sets
    }

    #[test]
    fn a_worker_whose_sleeps_are_short_leaves_its_alarm() {
        let mut rest = Rest::default();
        let first = (0..LEAVES).map(|_| sleep(&mut rest, true));
        assert_eq!(first.filter(|&sets| sets).count() as u32, LEAVES);
        for round in 1..100 {
            assert!(!sleep(&mut rest, round % 10 != 0), "one in ten is long");
        }
    }

    #[test]
    fn a_worker_whose_sleeps_are_often_long_sets_its_alarm() {
        let mut rest = Rest::default();
        (0..1_000).for_each(|_| _ = sleep(&mut rest, true));
        let left = (0..100).filter(|_| !sleep(&mut rest, false));
        assert_eq!(left.count() as u32, (MOST - LEAVES) / OUTLASTS + 1);
        let left = (0..100).filter(|round| !sleep(&mut rest, round % 3 != 0));
        assert_eq!(left.count(), 0);
    }
}
