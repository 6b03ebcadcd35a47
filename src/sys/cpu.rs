//! The cores that this process may use.

use std::{mem, sync::OnceLock};

use core_affinity::CoreId;

/// The cores that a runtime may use, as of the first call of [`Cores::get`].
#[derive(Clone, Debug)]
pub(crate) struct Cores {
    /// The affinity mask, in ascending order.
    pub(crate) allowed: Vec<usize>,
    /// The number of threads that can run at once: the size of the mask, or the CPU quota if that
    /// is less.
    pub(crate) parallelism: usize,
}

impl Cores {
    /// Returns the mask and the quota. The first call must precede the pinning of any worker: a
    /// pinned thread's mask is a single core, which its children inherit.
    pub(crate) fn get() -> &'static Self {
        static CORES: OnceLock<Cores> = OnceLock::new();
        CORES.get_or_init(Self::read)
    }

    /// Returns one processor, which the simulation has on every machine.
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
        // This considers the affinity mask and the cgroup's quota (v1 and v2).
        let parallelism = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            allowed,
            parallelism,
        }
    }

    /// Returns whether the CPU quota allows fewer cores than the mask.
    pub(crate) fn has_quota(&self) -> bool {
        self.parallelism < self.allowed.len()
    }
}

/// Lets the calling thread run on all allowed cores. A thread that a worker starts has inherited
/// the worker's core. Some sandboxes refuse this, which only costs speed.
pub(crate) fn unpin() {
    let cores = &Cores::get().allowed;
    if cores.is_empty() {
        return;
    }
    // SAFETY: all zeros is a valid, empty set.
    let mut set: libc::cpu_set_t = unsafe { mem::zeroed() };
    let bits = 8 * mem::size_of_val(&set);
    for &core in cores.iter().filter(|&&core| core < bits) {
        // SAFETY: the filter ensures that the core is within the set.
        unsafe { libc::CPU_SET(core, &mut set) };
    }
    // SAFETY: the set is valid, and its size is correct. 0 means the calling thread.
    unsafe { libc::sched_setaffinity(0, mem::size_of_val(&set), &set) };
}

/// Pins the calling thread to a core. Returns `false` if the system refuses.
pub(crate) fn pin(core: usize) -> bool {
    core_affinity::set_for_current(CoreId { id: core })
}
