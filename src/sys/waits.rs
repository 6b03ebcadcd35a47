//! The time in which the calling thread could have run and did not, by the kernel's own accounts.

use std::fs;

use super::{clock, quota};

/// Clock ticks per second in `/proc/stat`; Linux reports 100 on all machines.
const TICK_NS: u64 = 1_000_000_000 / 100;

/// A reading of the kernel's accounts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Waits {
    /// How long the thread has waited for a core while other threads had it, in ns. Zero if the
    /// kernel does not say.
    preempted: u64,
    /// How long the hypervisor has withheld the core that the thread runs on, in ns.
    stolen: u64,
    /// That core.
    core: usize,
    /// How long the kernel has withheld cores because of a CPU quota, in ns. `None`
    /// without a quota.
    throttled: Option<u64>,
    /// The processor time that this reading took, in ns. It grows with the number of cores. The
    /// look for a quota is not in it.
    cost: u64,
}

impl Waits {
    /// Reads the accounts. All is zero where the system hides them.
    pub(crate) fn now() -> Self {
        #[cfg(tourbillon_sim)]
        return Self::default();
        // The look for a quota is rare and dear. If it counted as the cost of a reading, readings
        // would seem too dear for a long time.
        #[cfg(not(tourbillon_sim))]
        Self::read(&quota::Groups::known())
    }

    #[cfg_attr(
        tourbillon_sim,
        expect(dead_code, reason = "a simulation has no /proc")
    )]
    fn read(quotas: &quota::Groups) -> Self {
        let begun = clock::thread_cpu();
        // SAFETY: the call has no arguments.
        let core = usize::try_from(unsafe { libc::sched_getcpu() }).unwrap_or(0);
        let waited = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
        let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
        Self {
            preempted: preempted(&waited).unwrap_or(0),
            stolen: stolen(&stat, core).unwrap_or(0),
            core,
            throttled: quotas.throttled().map(|it| it.ns),
            cost: clock::thread_cpu().saturating_sub(begun),
        }
    }

    /// Returns the processor time that the reading took, in ns.
    pub(crate) fn cost(self) -> u64 {
        self.cost
    }

    /// Returns how long other threads and the hypervisor had the core since `before`, and for how
    /// long a CPU quota was used up, in ns. Stolen time comes in steps of 10 ms. Throttled time is
    /// that of all cores.
    pub(crate) fn since(self, before: Self) -> [u64; 3] {
        let stolen = match self.core == before.core {
            true => self.stolen.saturating_sub(before.stolen),
            // The two counts belong to different cores.
            false => 0,
        };
        let preempted = self.preempted.saturating_sub(before.preempted);
        // If the quota was not there before, its account may be older than this process.
        let both = self.throttled.zip(before.throttled);
        let throttled = both.map_or(0, |(now, before)| now.saturating_sub(before));
        [preempted, stolen, throttled]
    }
}

/// Returns the second number of `schedstat`: the time that the thread waited on a run queue.
fn preempted(schedstat: &str) -> Option<u64> {
    schedstat.split_whitespace().nth(1)?.parse().ok()
}

/// Returns the stolen time in the line of a core in `/proc/stat`, in ns.
fn stolen(stat: &str, core: usize) -> Option<u64> {
    let name = format!("cpu{core}");
    let mut lines = stat.lines().map(str::split_whitespace);
    let mut fields =
        lines.find_map(|mut fields| (fields.next() == Some(&name)).then_some(fields))?;
    // user, nice, system, idle, iowait, irq, softirq, steal
    let ticks: u64 = fields.nth(7)?.parse().ok()?;
    Some(ticks * TICK_NS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_accounts_are_parsed() {
        assert_eq!(preempted("331035023 6041029 49\n"), Some(6_041_029));
        assert_eq!(preempted(""), None);
        let stat =
            "cpu  1 2 3 4 5 6 7 99 0 0\ncpu0 1 2 3 4 5 6 7 8 0 0\ncpu1 1 2 3 4 5 6 7 9 0 0\n";
        assert_eq!(stolen(stat, 1), Some(90_000_000));
        assert_eq!(stolen(stat, 10), None);
        assert_eq!(stolen("cpu0 1 2\n", 0), None, "an old kernel");
    }

    #[test]
    fn differences_of_one_core_count() {
        let waits = |preempted, stolen, core| Waits {
            preempted,
            stolen,
            core,
            throttled: None,
            cost: 0,
        };
        assert_eq!(waits(9, 30, 1).since(waits(4, 10, 1)), [5, 20, 0]);
        assert_eq!(waits(9, 30, 1).since(waits(4, 10, 0)), [5, 0, 0]);
        assert_eq!(waits(1, 1, 1).since(waits(4, 10, 1)), [0, 0, 0]);
        let throttled = |throttled| Waits {
            throttled,
            ..waits(0, 0, 0)
        };
        let (none, some) = (throttled(None), throttled(Some(7)));
        assert_eq!(throttled(Some(9)).since(some), [0, 0, 2]);
        assert_eq!(some.since(none), [0, 0, 0]);
        assert_eq!(none.since(some), [0, 0, 0]);
    }
}
