//! Advice to the system about memory that is about to be used, or that is no longer needed.

use std::{io, sync::OnceLock};

use crate::sys::sync::atomic::{AtomicBool, Ordering};

/// Populates whole pages of memory before their first use. This takes three quarters of the time of
/// page faults.
///
/// Pages that were written before keep their content. If the system lacks the call or has no
/// memory, nothing happens.
///
/// `at` and the `bytes` after it must be mapped memory that stays mapped during the call.
pub(crate) fn populate(at: *mut u8, bytes: usize) {
    static REFUSED: AtomicBool = AtomicBool::new(false);
    if REFUSED.load(Ordering::Relaxed) {
        return;
    }
    let page = page();
    let down = at.addr() % page;
    let bytes = (bytes + down) / page * page;
    let start = at.wrapping_sub(down).cast();
    // SAFETY: by the contract, all of it stays mapped. The call changes no content: pages that were
    // never written are zero.
    let failed = unsafe { libc::madvise(start, bytes, libc::MADV_POPULATE_WRITE) } != 0;
    // A lack of memory may pass. Otherwise the kernel is older than 5.14, or a sandbox refuses: do
    // not try again.
    if failed && io::Error::last_os_error().kind() != io::ErrorKind::OutOfMemory {
        REFUSED.store(true, Ordering::Relaxed);
    }
}

/// Returns whole pages of memory to the system. A later read finds zeros or the old content.
///
/// If the system refuses, as for locked memory (`mlockall`), nothing changes.
///
/// # Safety
///
/// `at` and the `bytes` after it are mapped memory that stays mapped. Nothing uses this memory
/// during the call, and its content is not needed.
pub(crate) unsafe fn give_back(at: *mut u8, bytes: usize) {
    let page = page();
    let up = at.addr().wrapping_neg() % page;
    let bytes = bytes.saturating_sub(up) / page * page;
    if bytes > 0 {
        let start = at.wrapping_add(up).cast();
        // SAFETY: by the contract, all of it stays mapped and its content is not needed. An error
        // can be ignored, because the call only saves memory.
        let _refused = unsafe { libc::madvise(start, bytes, libc::MADV_DONTNEED) };
    }
}

/// Returns the size of a page in bytes.
fn page() -> usize {
    static PAGE: OnceLock<usize> = OnceLock::new();
    // SAFETY: `sysconf` has no preconditions.
    *PAGE.get_or_init(|| unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_pages_are_given_back_and_no_byte_beside_them() {
        let page = page();
        let mut memory = vec![1_u8; 4 * page];
        let at = memory.as_mut_ptr();
        let first = at.addr().wrapping_neg() % page;
        // SAFETY: the range is within the vector, which nothing else uses.
        unsafe { give_back(at.wrapping_add(first + 1), 2 * page) };
        let zeros = |range: std::ops::Range<usize>| memory[range].iter().all(|&byte| byte == 0);
        assert!(memory[..first + page].iter().all(|&byte| byte == 1));
        assert!(zeros(first + page..first + 2 * page));
        assert!(memory[first + 2 * page..].iter().all(|&byte| byte == 1));
    }
}
