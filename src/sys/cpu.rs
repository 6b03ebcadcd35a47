//! Which cores this process may use.

use std::sync::OnceLock;

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
    /// Mask and quota, as they were when this was first asked: before any worker was pinned, since a
    /// pinned thread's mask is one core, and its children inherit that.
    pub(crate) fn get() -> &'static Self {
        static CORES: OnceLock<Cores> = OnceLock::new();
        CORES.get_or_init(Self::read)
    }

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

    /// Whether a CPU quota gives fewer cores than the mask does.
    pub(crate) fn has_quota(&self) -> bool {
        self.parallelism < self.allowed.len()
    }
}

/// Pins the calling thread to a core; false if the system refuses.
pub(crate) fn pin(core: usize) -> bool {
    core_affinity::set_for_current(CoreId { id: core })
}
