//! Which cores this process may use.

use std::{mem, sync::OnceLock};

use core_affinity::CoreId;

/// The cores that a runtime may have, as the process had them when it was asked.
#[derive(Clone, Debug)]
pub(crate) struct Cores {
    /// The affinity mask, in the order of the cores' numbers.
    pub(crate) allowed: Vec<usize>,
    /// How many threads can run at once: the mask, or the CPU quota if that is less.
    pub(crate) parallelism: usize,
}

impl Cores {
    /// Mask and quota, as they were when this was first asked: before any worker was pinned, since
    /// a pinned thread's mask is one core, and its children inherit that.
    pub(crate) fn get() -> &'static Self {
        static CORES: OnceLock<Cores> = OnceLock::new();
        CORES.get_or_init(Self::read)
    }

    /// The simulated world has one processor, on every machine.
    #[cfg(tourbillon_sim)]
    fn read() -> Self {
        Self {
            allowed: Vec::new(),
            parallelism: 1,
        }
    }

    #[cfg(not(tourbillon_sim))]
    fn read() -> Self {
        let mut allowed: Vec<_> = core_affinity::get_core_ids()
            .unwrap_or_default()
            .iter()
            .map(|core| core.id)
            .collect();
        allowed.sort_unstable();
        // Reads the affinity mask and the cgroup's quota (v1 and v2).
        let parallelism = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            allowed,
            parallelism,
        }
    }

    /// Returns whether a CPU quota gives fewer cores than the mask does.
    pub(crate) fn has_quota(&self) -> bool {
        self.parallelism < self.allowed.len()
    }
}

/// Lets the calling thread run wherever the process may: a thread that a worker starts has
/// inherited its core. Refused by some sandboxes, which costs speed alone.
pub(crate) fn unpin() {
    let cores = &Cores::get().allowed;
    if cores.is_empty() {
        return;
    }
    // SAFETY: all zeros is a set, the empty one.
    let mut set: libc::cpu_set_t = unsafe { mem::zeroed() };
    let bits = 8 * mem::size_of_val(&set);
    for &core in cores.iter().filter(|&&core| core < bits) {
        // SAFETY: the core is within the set.
        unsafe { libc::CPU_SET(core, &mut set) };
    }
    // SAFETY: the set is valid to read from, and its size is given. 0 is the calling thread.
    unsafe { libc::sched_setaffinity(0, mem::size_of_val(&set), &set) };
}

/// Pins the calling thread to a core; false if the system refuses.
pub(crate) fn pin(core: usize) -> bool {
    core_affinity::set_for_current(CoreId { id: core })
}
