//! Having memory brought into the cache before it is used.

/// Has some `bytes` of memory from `at` on brought into the cache, if this kind of processor knows how, and does not
/// wait for them: the line of `at`, and as many more as so many bytes are. `at` need not be an address of anything.
///
/// For who comes to many things that are cold one after the other, and knows of some before: the
/// misses overlap then, where otherwise each waits for the one before.
#[inline]
pub fn prefetch<T: ?Sized>(at: *const T, bytes: usize) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let at = at.cast::<i8>();
        let mut offset = 0;
        loop {
            // SAFETY: every x86_64 has SSE. A prefetch reads nothing that the program would see, and faults
            // at no address.
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

/// The bytes of a line of the cache.
#[cfg(all(target_arch = "x86_64", not(miri)))]
const LINE: usize = 64;
