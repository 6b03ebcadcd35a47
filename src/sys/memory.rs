//! Memory that is about to be written for the first time, and memory that is needed no more.

use std::sync::OnceLock;

use crate::sys::sync::atomic::{AtomicBool, Ordering};

/// Has the system find memory for all whole pages of these: that takes three quarters of the time
/// of a page fault for each. Of memory that was written before nothing changes. Where the system
/// does not know how, or has no memory, it does nothing.
///
/// `at` is in memory of the process that is not unmapped meanwhile, and so is all that is up to
/// `bytes` behind it.
pub(crate) fn populate(at: *mut u8, bytes: usize) {
    static REFUSED: AtomicBool = AtomicBool::new(false);
    if REFUSED.load(Ordering::Relaxed) {
        return;
    }
    let page = page();
    let down = at.addr() % page;
    let bytes = (bytes + down) / page * page;
    let start = at.wrapping_sub(down).cast();
    // SAFETY: by contract all of it is mapped, and stays so. What is written there is as it was:
    // zeros where nobody wrote before.
    let refused = unsafe { libc::madvise(start, bytes, libc::MADV_POPULATE_WRITE) } != 0;
    if refused {
        // As a rule by a kernel before 5.14, or by a sandbox.
        REFUSED.store(true, Ordering::Relaxed);
    }
}

/// Gives all whole pages of these back to the system. Whoever reads them next finds zeros, or what
/// was there before.
///
/// Where the system refuses, as it does for locked memory (`mlockall`), all stays as it is.
///
/// # Safety
///
/// `at` is in memory of the process that stays mapped, and so is all that is up to `bytes` behind
/// it; nobody uses it meanwhile, nor needs what is there.
pub(crate) unsafe fn give_back(at: *mut u8, bytes: usize) {
    let page = page();
    let up = at.addr().wrapping_neg() % page;
    let bytes = bytes.saturating_sub(up) / page * page;
    if bytes > 0 {
        let start = at.wrapping_add(up).cast();
        // SAFETY: by contract all of it is mapped, and its content is nobody's. There is nothing to
        // be done about an error.
        let _refused = unsafe { libc::madvise(start, bytes, libc::MADV_DONTNEED) };
    }
}

/// Returns how many bytes a page of the system has.
fn page() -> usize {
    static PAGE: OnceLock<usize> = OnceLock::new();
    // SAFETY: it has no conditions.
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
        // SAFETY: it is all in the vector, which nobody uses meanwhile.
        unsafe { give_back(at.wrapping_add(first + 1), 2 * page) };
        let zeros = |range: std::ops::Range<usize>| memory[range].iter().all(|&byte| byte == 0);
        assert!(memory[..first + page].iter().all(|&byte| byte == 1));
        assert!(zeros(first + page..first + 2 * page));
        assert!(memory[first + 2 * page..].iter().all(|&byte| byte == 1));
    }
}
