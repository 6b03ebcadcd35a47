//! Having memory brought into the cache before it is used.

use std::ptr::NonNull;

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

/// Has what the word at `at` is the address of brought into the cache, if it looks like one.
///
/// # Safety
///
/// So many bytes at `at`, which is aligned, may be read, though they need not be initialized, and are not written meanwhile.
#[inline]
pub(crate) unsafe fn prefetch_through(at: NonNull<usize>) {
    #[cfg(all(target_arch = "x86_64", not(any(miri, loom))))]
    {
        // Where nothing is mapped the processor would search for it in vain. Linux has what is on the heap and in libraries
        // from here on, and numbers are there by chance.
        const FIRST: usize = 0x5000_0000_0000;
        const END: usize = 0x8000_0000_0000;
        // By the processor's instructions, for which memory that is not initialized, as between the fields of a closure, holds
        // some value. And without a branch on that, which memcheck would report: what looks like no address is
        // replaced by `at`. (A word that is not aligned is a large one, rotated.)
        // SAFETY: by contract it may be read; a prefetch reads nothing that the program would see, and faults at no address.
        unsafe {
            std::arch::asm!(
                "mov {word}, qword ptr [{at}]",
                "mov {turned}, {word}",
                "ror {turned}, 3",
                "sub {turned}, {first}",
                "cmp {turned}, {count}",
                "cmovae {word}, {at}",
                "prefetcht0 byte ptr [{word}]",
                at = in(reg) at.as_ptr(),
                first = in(reg) FIRST >> 3,
                count = in(reg) (END - FIRST) >> 3,
                word = out(reg) _,
                turned = out(reg) _,
                options(readonly, nostack),
            );
        }
    }
    #[cfg(not(all(target_arch = "x86_64", not(any(miri, loom)))))]
    let _ = at;
}

/// The bytes of a line of the cache.
const LINE: usize = 64;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn any_word_may_be_no_address() {
        let line = Box::new(0_u64);
        let address = std::ptr::from_ref(&*line).expose_provenance();
        for word in [
            0,
            1,
            8,
            usize::MAX,
            0x7fff_ffff_fff8,
            0x8000_0000_0000,
            address,
        ] {
            // SAFETY: it is ours.
            unsafe { prefetch_through(NonNull::from(&word)) };
            prefetch(std::ptr::without_provenance::<u8>(word), 256);
        }
    }
}
