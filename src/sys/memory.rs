//! Memory that is about to be written for the first time.

use std::sync::OnceLock;

use crate::sys::sync::atomic::{AtomicBool, Ordering};

/// Has the system find memory for all whole pages of these: that takes three quarters of the time of a page fault for
/// each. Of memory that was written before nothing changes. Where the system does not know how, or has no memory, it does nothing.
///
/// `at` is in memory of the process that is not unmapped meanwhile, and so is all that is up to `bytes` behind it.
pub(crate) fn populate(at: *mut u8, bytes: usize) {
    static REFUSED: AtomicBool = AtomicBool::new(false);
    static PAGE: OnceLock<usize> = OnceLock::new();
    if REFUSED.load(Ordering::Relaxed) {
        return;
    }
    // SAFETY: it has no conditions.
    let page = *PAGE.get_or_init(|| unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize);
    let down = at.addr() % page;
    let bytes = (bytes + down) / page * page;
    let start = at.wrapping_sub(down).cast();
    // SAFETY: by contract all of it is mapped, and stays so. What is written there is as it was: zeros where nobody wrote before.
    let refused = unsafe { libc::madvise(start, bytes, libc::MADV_POPULATE_WRITE) } != 0;
    if refused {
        // As a rule by a kernel before 5.14, or by a sandbox.
        REFUSED.store(true, Ordering::Relaxed);
    }
}
