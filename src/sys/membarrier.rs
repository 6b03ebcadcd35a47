//! A fence for all threads of the process, at the price of one of them.

use std::sync::OnceLock;

// <linux/membarrier.h>
const PRIVATE_EXPEDITED: libc::c_int = 1 << 3;
const REGISTER_PRIVATE_EXPEDITED: libc::c_int = 1 << 4;

fn membarrier(command: libc::c_int) -> bool {
    // SAFETY: it takes numbers, and touches no memory of ours.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
}

/// Whether there is such a fence. The first call registers the process, which may take the kernel some
/// milliseconds: not for workers.
pub(crate) fn is_there() -> bool {
    static IS_THERE: OnceLock<bool> = OnceLock::new();
    *IS_THERE.get_or_init(|| membarrier(REGISTER_PRIVATE_EXPEDITED))
}

/// Each thread of the process passes a full fence between the begin and the end of this. False if there
/// is no such fence.
pub(crate) fn fence_all() -> bool {
    is_there() && membarrier(PRIVATE_EXPEDITED)
}
