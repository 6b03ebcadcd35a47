#![doc = include_str!("../README.md")]
//!
//! # Design
//!
//! It is Bonwick's magazines. Each thread has an array of free blocks, from which it takes and to
//! which it gives, without a lock or an atomic operation. When that array is empty or full, the
//! thread exchanges 128 blocks with the depot, which all threads share. So blocks that one thread
//! allocates and another frees flow back, for one lock of a mutex per 128 blocks. Blocks are carved
//! from chunks, which are never freed. Pages whose blocks have all been free for long are given
//! back to the system, if the program asks for it ([`return_spare`]).
//!
//! The depot keeps some lists as it received them, and hands out the last one first. It sorts all
//! other blocks by address (see `blocks/ordered.rs`). So a thread that frees many blocks in
//! random order, and then allocates as many, gets blocks that lie one behind the other in memory.
//!
//! A general allocator does not know that a value fits a cache line: glibc's blocks of 64 bytes
//! take 80, and lie across two lines. Nor does it know that many blocks of one size come and go.
//! When many have been freed, glibc unites them under a lock, for up to 200 ms with a million of
//! them, and other threads that allocate or free wait meanwhile.
//!
//! There is no pool under loom, under miri, in a simulation, or with `--cfg tourbillon_no_pool`.
//! Tools that look for leaks and for uses after free see each block as its own allocation there. In
//! the pool they would see only chunks, which stay in use for ever.

// These atomics are the standard library's also under loom and in simulations: they order nothing.
use std::{
    alloc::Layout,
    ptr::NonNull,
    sync::atomic::{AtomicU64, Ordering},
};

/// Size of a cache line. The smallest blocks have this size and alignment.
pub const LINE: usize = 64;
/// Difference between two block sizes, in bytes. When many blocks are allocated in a row, most
/// of the time goes into page faults, one for each new 4 KB. So a value that needs a little more
/// than one line does not get two. Blocks that are no whole number of lines may begin anywhere on a
/// line.
#[cfg(not(any(loom, miri, tourbillon_no_pool, tourbillon_sim)))]
const STEP: usize = 16;
/// Size of the blocks above which the next size is one line larger.
#[cfg(not(any(loom, miri, tourbillon_no_pool, tourbillon_sim)))]
const FINE: usize = 4 * LINE;
/// Size of the largest blocks. The smallest have one line.
#[cfg(not(any(loom, miri, tourbillon_no_pool, tourbillon_sim)))]
const LARGEST: usize = 8 * LINE;
/// Number of block sizes.
#[cfg(not(any(loom, miri, tourbillon_no_pool, tourbillon_sim)))]
const SIZES: usize = (FINE - LINE) / STEP + (LARGEST - FINE) / LINE + 1;

/// Installs a function that prepares new memory before its first use.
///
/// `prepare` is called with the address and the length in bytes of memory that is about to be
/// written for the first time. It may do nothing. It is meant for a system call that maps many
/// pages at once, which is cheaper than a page fault for each. It is not called as long as blocks
/// take little memory. All of a process share this memory, so the first caller's `prepare` stays,
/// and later calls have no effect.
///
/// A thread that allocates calls `prepare`, so `prepare` must not allocate blocks. Other threads
/// may use the memory during the call. The memory is never freed.
pub fn prepare_by(prepare: fn(*mut u8, usize)) {
    #[cfg(not(any(loom, miri, tourbillon_no_pool, tourbillon_sim)))]
    blocks::prepare_by(prepare);
    #[cfg(any(loom, miri, tourbillon_no_pool, tourbillon_sim))]
    let _ = prepare;
}

/// Installs a function that is called when freed blocks make [`has_spare`] true.
///
/// It is meant for a program whose threads sleep, and should wake a thread that then calls
/// [`note_spare`]. Such a thread must check [`has_spare`] once more after it has announced its
/// sleep and before it sleeps. The first caller's `wake` stays, and later calls have no effect.
///
/// `wake` is called at most once for each call of [`note_spare`] or [`all_is_spare`]. The thread
/// that frees a block calls it, possibly while it holds locks of its own, or while the thread ends.
/// So `wake` must neither allocate nor free blocks, and must take no lock that a thread holds while
/// it frees one.
pub fn wake_by(wake: fn()) {
    #[cfg(not(any(loom, miri, tourbillon_no_pool, tourbillon_sim)))]
    blocks::wake_by(wake);
    #[cfg(any(loom, miri, tourbillon_no_pool, tourbillon_sim))]
    let _ = wake;
}

/// Result of [`return_spare`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Returned {
    /// Some memory was looked at, and its spare pages were given back. There may be more.
    More,
    /// No spare memory is left until the next [`note_spare`].
    Done,
}

/// Returns whether there may be enough free memory to be worth a call of [`note_spare`].
///
/// This is a hint, and costs one load.
#[inline]
pub fn has_spare() -> bool {
    #[cfg(not(any(loom, miri, tourbillon_no_pool, tourbillon_sim)))]
    return blocks::has_spare();
    #[cfg(any(loom, miri, tourbillon_no_pool, tourbillon_sim))]
    false
}

/// Ends a period: memory that was free all the time since the last call becomes spare.
///
/// [`return_spare`] then gives it back. One thread of the process should call this every few
/// seconds while [`has_spare`] is true: see [`Period`].
///
/// A call takes some µs. The calling thread gives up its own free blocks. Of each size, up to 256
/// free blocks of each other thread are not counted.
pub fn note_spare() {
    #[cfg(not(any(loom, miri, tourbillon_no_pool, tourbillon_sim)))]
    blocks::note_spare();
}

/// Makes all free memory spare at once, without waiting for the end of a period as [`note_spare`]
/// does.
pub fn all_is_spare() {
    #[cfg(not(any(loom, miri, tourbillon_no_pool, tourbillon_sim)))]
    blocks::all_is_spare();
}

/// Gives a part of the [spare memory](note_spare) back to the system.
///
/// Calls `give` with the address and the length in bytes of spans of whole, aligned pages of 4 KiB.
/// Their content is not needed, and is undefined afterwards, as after `MADV_DONTNEED`. `give` may
/// touch these pages only during the call: afterwards other threads allocate there.
///
/// A call takes some tens of µs, so that a thread can look at other things before it calls this
/// again.
///
/// ```
/// use tourbillon_pool::{Returned, all_is_spare, return_spare};
///
/// all_is_spare();
/// while return_spare(|_at, _bytes| ()) == Returned::More {}
/// ```
pub fn return_spare(give: fn(*mut u8, usize)) -> Returned {
    #[cfg(not(any(loom, miri, tourbillon_no_pool, tourbillon_sim)))]
    return blocks::return_spare(give);
    #[cfg(any(loom, miri, tourbillon_no_pool, tourbillon_sim))]
    {
        let _ = give;
        Returned::Done
    }
}

/// When a period last began, for threads of which one ends each period.
///
/// ```
/// use tourbillon_pool::Period;
///
/// let period = Period::new();
/// assert!(period.try_begin(5_000, 2_000), "the first one");
/// assert!(!period.try_begin(6_999, 2_000), "it has begun 1,999 ns ago");
/// assert!(period.try_begin(7_000, 2_000));
/// ```
#[derive(Debug)]
pub struct Period(AtomicU64);

/// The period of the process, which ends by [`note_spare`]. Each thread that may call it asks this
/// first.
pub static PERIOD: Period = Period::new();

impl Period {
    /// Creates a period that has begun at moment zero.
    #[allow(
        clippy::new_without_default,
        reason = "a period is shared; none is made by default"
    )]
    pub const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Begins a period at `now`, unless the last one began less than `least` ago. Both are in ns,
    /// by a clock that all threads share. Of several threads that call this at the same time, one
    /// begins it, and gets `true`.
    pub fn try_begin(&self, now: u64, least: u64) -> bool {
        let begun = self.0.load(Ordering::Relaxed);
        now.saturating_sub(begun) >= least
            && (self.0)
                .compare_exchange(begun, now, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
    }
}

/// Allocates memory of this layout. A layout of more than 512 bytes, or with an alignment of more
/// than 64, gets memory from the global allocator.
///
/// Like [`handle_alloc_error`](std::alloc::handle_alloc_error), it does not return if there is no
/// memory.
///
/// # Safety
///
/// As for [`std::alloc::alloc`]: the size of the layout is not zero.
#[inline]
pub unsafe fn alloc(layout: Layout) -> NonNull<u8> {
    #[cfg(not(any(loom, miri, tourbillon_no_pool, tourbillon_sim)))]
    if let Some(size) = size_of_block(layout) {
        return blocks::take(size);
    }
    // SAFETY: the caller keeps the same contract.
    let memory = unsafe { tourbillon_sync::alloc(layout) };
    NonNull::new(memory).unwrap_or_else(|| std::alloc::handle_alloc_error(layout))
}

/// Frees memory that [`alloc`] returned. Any thread may do so.
///
/// # Safety
///
/// `memory` is from [`alloc`] with the same layout, and is not used any more.
#[inline]
pub unsafe fn dealloc(memory: NonNull<u8>, layout: Layout) {
    #[cfg(not(any(loom, miri, tourbillon_no_pool, tourbillon_sim)))]
    if let Some(size) = size_of_block(layout) {
        // SAFETY: by contract `alloc` took it from there.
        return unsafe { blocks::give(memory, size) };
    }
    // SAFETY: the caller keeps the same contract.
    unsafe { tourbillon_sync::dealloc(memory.as_ptr(), layout) }
}

/// Returns the block size for this layout, as an index for [`bytes_of`], or `None` if the general
/// allocator has to serve it.
#[cfg(not(any(loom, miri, tourbillon_no_pool, tourbillon_sim)))]
#[inline(always)]
const fn size_of_block(layout: Layout) -> Option<usize> {
    if layout.align() > LINE || layout.size() > LARGEST {
        return None;
    }
    let unit = if layout.align() <= STEP && layout.size() <= FINE {
        STEP
    } else {
        LINE
    };
    let bytes = layout.size().next_multiple_of(unit);
    Some(if bytes <= FINE {
        bytes.saturating_sub(LINE) / STEP
    } else {
        (FINE - LINE) / STEP + (bytes - FINE) / LINE
    })
}

/// Returns how many bytes a block of this size has.
#[cfg(not(any(loom, miri, tourbillon_no_pool, tourbillon_sim)))]
const fn bytes_of(size: usize) -> usize {
    let fine = (FINE - LINE) / STEP;
    if size <= fine {
        LINE + size * STEP
    } else {
        FINE + (size - fine) * LINE
    }
}

#[cfg(not(any(loom, miri, tourbillon_no_pool, tourbillon_sim)))]
mod blocks;
