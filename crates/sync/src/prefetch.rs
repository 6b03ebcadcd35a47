//! Cache prefetching.

/// Prefetches `bytes` bytes from `at` on into the cache, at least one cache line. Returns at once.
///
/// `at` may be any address, even one that is not mapped. On processors other than x86_64 this does
/// nothing.
///
/// A thread that works through many values that are not in the cache can prefetch some of them
/// ahead of their turn. Then the cache misses overlap, instead of each one waiting for the one
/// before.
#[inline]
pub fn prefetch<T: ?Sized>(at: *const T, bytes: usize) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        /// Bytes of a cache line.
        const LINE: usize = 64;
        let at = at.cast::<i8>();
        let mut offset = 0;
        loop {
            // SAFETY: every x86_64 has SSE. A prefetch changes no value that a program can read,
            // and faults at no address.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(at.wrapping_add(offset)) };
            offset += LINE;
            if offset >= bytes {
                break;
            }
        }
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = (at, bytes);
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn prefetch_accepts_any_address() {
        for address in [0, 1, 8, usize::MAX, 0x7fff_ffff_fff8, 0x8000_0000_0000] {
            prefetch(std::ptr::without_provenance::<u8>(address), 256);
        }
    }
}
