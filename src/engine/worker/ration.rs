//! How a process spreads its CPU quota over time.
//!
//! The kernel lets a control group use up the quota of a period, of 100 ms, at once, and then stops
//! all its threads until the next one. A worker that computes with a quota of half a core is
//! stopped for 50 ms of each 100, and what comes due meanwhile waits. So the workers of a runtime
//! that follows its limits ration the quota themselves: when the process has used more than the
//! quota pays for, they nap for some ms between two jobs. They get nearly as much done, and what
//! comes due waits for a nap.
//!
//! It is a token bucket. It fills by the quota, and the processor time of the whole process empties
//! it. A worker naps no longer than makes up for what it used beyond its share itself: a thread
//! that computes beside the workers does not keep them from that. Then the kernel stops the process
//! as before, and so it does if two runtimes of the process compute. What other processes of the
//! group use is not known here.
//!
//! As many workers as the quota has whole cores hardly use it up, so they never nap.

use std::time::Duration;

use crate::{
    engine::{watchdog::seen::InLoop, worker::Worker},
    sys::{
        clock,
        sync::{
            Mutex,
            atomic::{AtomicU64, Ordering},
            thread,
        },
    },
    util::{lock::lock, nanos::nanos},
};

/// The part of the quota that the process uses. The kernel counts by its own moments, and would
/// stop a process that uses all of it for a moment of each period.
const PART: f64 = 0.97;
/// How often the processor time is read: it takes a system call.
const LOOK: Duration = Duration::from_micros(500);
/// How much the process may use ahead of its quota, before its workers nap until it is even.
const DEBT: Duration = Duration::from_millis(1);
/// The shortest nap and the longest one: what comes due meanwhile waits.
const NAPS: [Duration; 2] = [Duration::from_micros(500), Duration::from_millis(20)];
/// A process that used less than its quota may use what the quota pays for in this time at once. It
/// is the fifth part of the usual period, so the kernel seldom stops it.
const BURST: Duration = Duration::from_millis(20);
/// The usual period of a quota. What was used before is forgotten: the kernel has stopped the
/// process for it.
const PERIOD: Duration = Duration::from_millis(100);

/// The quota of the process, and how much of it is left.
#[derive(Default)]
pub(crate) struct Ration {
    /// The bits of the cores that may be used. Zero if no quota pays for less than the masks allow.
    cores: AtomicU64,
    bucket: Mutex<Bucket>,
}

#[derive(Default)]
struct Bucket {
    /// When the processor time was read last, in ns, and what it was. Zero: never for this quota.
    at: u64,
    used: u64,
    /// Processor time that may be used now, in ns. Less than zero is a debt.
    left: f64,
}

impl Ration {
    /// Sets the quota, in cores, if there is one that has to be rationed.
    pub(crate) fn set(&self, cores: Option<f64>) {
        let bits = cores.map_or(0, |cores| (cores * PART).to_bits());
        if self.cores.swap(bits, Ordering::Relaxed) != bits {
            *lock(&self.bucket) = Bucket::default();
        }
    }

    /// Returns whether a quota has to be rationed.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.cores.load(Ordering::Relaxed) != 0
    }

    /// Returns the cores that may be used.
    fn cores(&self) -> f64 {
        f64::from_bits(self.cores.load(Ordering::Relaxed))
    }

    /// Returns how long the process has to rest at `now`, in ns, until it has used no more than its
    /// ration. `None` if it need not, or if that was looked for a moment ago. `used` reads the
    /// processor time of the process.
    fn rest(&self, now: u64, used: impl FnOnce() -> u64) -> Option<u64> {
        // Another worker that has it is just looking.
        let mut bucket = self.bucket.try_lock().ok()?;
        let cores = self.cores();
        let passed = now.saturating_sub(bucket.at);
        if cores == 0.0 || passed < nanos(LOOK) {
            return None;
        }
        let used = used();
        let last = std::mem::replace(&mut bucket.used, used);
        if std::mem::replace(&mut bucket.at, now) == 0 {
            return None;
        }
        let paid = |time: Duration| cores * nanos(time) as f64;
        let left = bucket.left + cores * passed as f64 - used.saturating_sub(last) as f64;
        bucket.left = left.clamp(-paid(PERIOD), paid(BURST));
        let debt = -bucket.left;
        (debt >= nanos(DEBT) as f64).then_some((debt / cores) as u64)
    }
}

/// Returns how long a worker naps, in ns, if the process has to rest for so long, the worker has
/// used so much processor time since its last nap, and so many workers share so many cores.
fn nap(rest: u64, used: u64, cores: f64, workers: usize) -> Option<u64> {
    let share = cores / workers as f64;
    let [least, most] = NAPS.map(nanos);
    let beyond = ((1.0 / share - 1.0) * used as f64) as u64;
    let nap = rest.min(beyond).min(most);
    (share < PART && nap >= least).then_some(nap)
}

impl Worker<'_> {
    /// Naps if the process has used more than its CPU quota pays for. Returns whether it has: then
    /// work may have come.
    #[inline]
    pub(super) fn keeps_to_ration(&mut self) -> bool {
        self.shared.limits.ration.is_on() && self.keep_to_ration()
    }

    #[cold]
    #[inline(never)]
    fn keep_to_ration(&mut self) -> bool {
        let (shared, core) = (self.shared, self.core);
        // A helper runs what is late already. On a clock that was ever paused, all must depend on
        // the program.
        if core.is_helper || shared.clock.was_paused() || shared.is_stopping() {
            return false;
        }
        self.back_in_loop();
        let (now, ration) = (self.in_loop.at, &shared.limits.ration);
        let Some(rest) = ration.rest(now, clock::process_cpu) else {
            return false;
        };
        let used = clock::thread_cpu();
        let own = used.saturating_sub(self.rationed_at);
        let workers = shared.limit.get().min(shared.recorders.len());
        let Some(nap) = nap(rest, own, ration.cores(), workers) else {
            return false;
        };
        self.rationed_at = used;
        // While a worker counts as a searcher, no other one is woken for new work.
        if self.search.is_on {
            self.found();
        }
        let until = now + nap;
        // No peer is called for a worker that naps.
        self.beat(until);
        self.notes.parks(core, now, until);
        thread::sleep(Duration::from_nanos(nap));
        let now = shared.clock.real();
        self.in_loop = InLoop::at(now, self.tick);
        shared.clock.note_look(now);
        core.recorder.own.quota_naps.add_alone(1);
        self.note_woken(now);
        self.beat(now);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// A process that always computes: it is to rest for as long as it has worked.
    #[test]
    fn half_a_core_is_used_half_of_the_time() {
        let ration = Ration::default();
        ration.set(Some(0.5 / PART));
        let (mut now, mut used) = (5_000 * MS, 70 * MS);
        let mut rested = 0;
        while now < 15_000 * MS {
            now += MS;
            used += MS;
            if let Some(rest) = ration.rest(now, || used) {
                assert!((2 * MS..5 * MS).contains(&rest), "{rest}");
                rested += rest;
                now += rest;
            }
        }
        let part = rested as f64 / 10_000e6;
        assert!((0.49..0.51).contains(&part), "{part}");
    }

    #[test]
    fn a_process_that_rested_may_use_what_20_ms_pay_for_at_once() {
        let ration = Ration::default();
        ration.set(Some(0.5 / PART));
        assert_eq!(ration.rest(1_000 * MS, || 0), None);
        assert_eq!(ration.rest(9_000 * MS, || 0), None);
        // It uses 10 ms more than is paid for meanwhile, and then 1 ms more.
        assert_eq!(ration.rest(9_020 * MS, || 20 * MS), None);
        assert_eq!(ration.rest(9_021 * MS, || 21 * MS), None);
        assert_eq!(ration.rest(9_022 * MS, || 22 * MS), Some(2 * MS));
        // Too soon to look again. A long time ago is forgotten.
        assert_eq!(ration.rest(9_022 * MS + 1, || 29 * MS), None);
        assert_eq!(ration.rest(9_030 * MS, || 900 * MS), Some(100 * MS));
    }

    #[test]
    fn without_a_quota_nobody_rests() {
        let ration = Ration::default();
        ration.set(Some(0.5));
        assert_eq!(ration.rest(1_000 * MS, || 0), None);
        ration.set(None);
        assert!(!ration.is_on());
        assert_eq!(ration.rest(2_000 * MS, || 9_000 * MS), None);
        // A new quota begins with what is used from then on.
        ration.set(Some(0.5));
        assert_eq!(ration.rest(3_000 * MS, || 99_000 * MS), None);
    }

    /// The rest may be due to a thread that is no worker.
    #[test]
    fn a_worker_naps_for_what_it_used_itself() {
        assert_eq!(nap(10 * MS, 4 * MS, 0.5, 1), Some(4 * MS));
        assert_eq!(nap(3 * MS, 4 * MS, 0.5, 1), Some(3 * MS));
        assert_eq!(nap(100 * MS, 100 * MS, 0.5, 1), Some(20 * MS));
        assert_eq!(nap(100 * MS, 4 * MS, 1.6, 2), Some(MS));
        assert_eq!(nap(100 * MS, MS, 1.6, 2), None, "too short");
        // Two workers hardly use up two cores.
        assert_eq!(nap(100 * MS, 1_000 * MS, 2.0 * PART, 2), None);
        assert_eq!(nap(100 * MS, 1_000 * MS, 3.0 * PART, 2), None);
    }
}
