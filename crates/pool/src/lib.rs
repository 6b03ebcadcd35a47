//! Memory pool for nodes and for tasks: blocks of one to eight cache lines, with a free list per
//! thread.
//!
//! The design is Bonwick's magazines. Each thread allocates from a free list of its own and frees
//! into it, without a lock or an atomic operation. When that list is empty or full, the thread
//! exchanges a whole list with the depot, which all threads share. So blocks that one thread
//! allocates and another frees flow back, for one lock of a mutex per 128 blocks. Blocks are carved
//! from chunks, which are never freed. Pages whose blocks have all been free for long are given
//! back to the system, if the runtime asks for it ([`return_spare_memory`]).
//!
//! The depot keeps some lists as it received them, and hands out the last one first. It sorts all
//! other blocks by address (see `blocks/ordered.rs`). So a thread whose many timers end in
//! random order, and which then arms as many, gets nodes that lie one behind the other in memory.
//!
//! A general allocator does not know that a node fits a cache line: glibc's blocks of 64 bytes take
//! 80, and lie across two lines. Nor does it know that many blocks of one size come and go. When
//! many have been freed, glibc unites them under a lock, for up to 200 ms with a million of them,
//! and other threads that allocate or free wait meanwhile.
//!
//! There is no pool under loom, under miri, in a simulation, or with `--cfg tourbillon_no_pool`.
//! Tools that look for leaks and for uses after free see each node and task as its own allocation
//! there. In the pool they would see only chunks, which stay in use for ever.

use std::{alloc::Layout, ptr::NonNull};

/// Size of a cache line. The smallest blocks have this size and alignment, the largest have two.
pub(crate) const LINE: usize = 64;
/// Difference between two block sizes, in bytes. When many timers are armed in a row, most of the
/// time goes into page faults, one for each new 4 KB. So a node that needs a little more than one
/// line does not get two. Blocks that are no whole number of lines may begin anywhere on a line.
#[cfg(not(any(loom, miri, tourbillon_no_pool, tourbillon_sim)))]
const STEP: usize = 16;
/// Size of the blocks above which the next size is one line larger.
#[cfg(not(any(loom, miri, tourbillon_no_pool, tourbillon_sim)))]
const FINE: usize = 4 * LINE;
/// Size of the largest blocks. The smallest have one line, for a sleep and for a callback that
/// captures up to 16 bytes.
#[cfg(not(any(loom, miri, tourbillon_no_pool, tourbillon_sim)))]
const LARGEST: usize = 8 * LINE;
/// Number of block sizes.
#[cfg(not(any(loom, miri, tourbillon_no_pool, tourbillon_sim)))]
const SIZES: usize = (FINE - LINE) / STEP + (LARGEST - FINE) / LINE + 1;

/// Installs a function that prepares new memory before its first use.
///
/// `prepare` is called with the address and the length in bytes of memory that is about to be
/// written for the first time. It may do nothing. It is meant for a system call that maps many
/// pages at once, which is cheaper than a page fault for each. It is not called as long as nodes
/// take little memory. All shards of a process share this memory, so the first caller's `prepare`
/// stays, and later calls have no effect.
///
/// A thread that arms a timer calls `prepare`, so `prepare` must not arm timers. Other threads may
/// use the memory during the call. The memory is never freed.
pub fn prepare_memory_by(prepare: fn(*mut u8, usize)) {
    #[cfg(not(any(loom, miri, tourbillon_no_pool, tourbillon_sim)))]
    blocks::prepare_by(prepare);
    #[cfg(any(loom, miri, tourbillon_no_pool, tourbillon_sim))]
    let _ = prepare;
}

/// Installs a function that is called when freed timers make [`has_spare_memory`] true.
///
/// It is meant for a runtime whose threads sleep, and should wake a thread that then calls
/// [`note_spare_memory`]. Such a thread must check [`has_spare_memory`] once more after it has
/// announced its sleep and before it sleeps. The first caller's `wake` stays, and later calls have
/// no effect.
///
/// `wake` is called at most once for each call of [`note_spare_memory`] or [`all_memory_is_spare`].
/// The thread that frees a timer calls it, possibly with a shard's lock held, or while the thread
/// ends. So `wake` may call [`Shard::wake`](crate::Shard::wake), but must neither arm or drop
/// timers nor lock a shard.
pub fn wake_for_spare_memory_by(wake: fn()) {
    #[cfg(not(any(loom, miri, tourbillon_no_pool, tourbillon_sim)))]
    blocks::wake_by(wake);
    #[cfg(any(loom, miri, tourbillon_no_pool, tourbillon_sim))]
    let _ = wake;
}

/// Result of [`return_spare_memory`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Returned {
    /// Some memory was looked at, and its spare pages were given back. There may be more.
    Some,
    /// No spare memory is left until the next [`note_spare_memory`].
    All,
}

/// Returns whether there may be enough free node memory to be worth a call of
/// [`note_spare_memory`].
///
/// This is a hint, and costs one load.
#[inline]
pub fn has_spare_memory() -> bool {
    #[cfg(not(any(loom, miri, tourbillon_no_pool, tourbillon_sim)))]
    return blocks::has_spare();
    #[cfg(any(loom, miri, tourbillon_no_pool, tourbillon_sim))]
    false
}

/// Ends a period: memory that was free all the time since the last call becomes spare.
///
/// [`return_spare_memory`] then gives it back. One thread of the process should call this every few
/// seconds while [`has_spare_memory`] is true.
///
/// A call takes some µs. The calling thread gives up its own free blocks. Of each size, up to 256
/// free blocks of each other thread are not counted.
pub fn note_spare_memory() {
    #[cfg(not(any(loom, miri, tourbillon_no_pool, tourbillon_sim)))]
    blocks::note_spare();
}

/// Makes all free memory spare at once, without waiting for the end of a period as
/// [`note_spare_memory`] does.
pub fn all_memory_is_spare() {
    #[cfg(not(any(loom, miri, tourbillon_no_pool, tourbillon_sim)))]
    blocks::all_is_spare();
}

/// Gives a part of the [spare memory](note_spare_memory) back to the system.
///
/// Calls `give` with the address and the length in bytes of spans of whole, aligned pages of 4 KiB.
/// Their content is not needed, and is undefined afterwards, as after `MADV_DONTNEED`. `give` may
/// touch these pages only during the call: afterwards other threads arm timers there.
///
/// A call takes some tens of µs, so that a worker can look at its timers before it calls this
/// again.
///
/// ```
/// use tourbillon_shards::{Returned, all_memory_is_spare, return_spare_memory};
///
/// all_memory_is_spare();
/// while return_spare_memory(|_at, _bytes| ()) == Returned::Some {}
/// ```
pub fn return_spare_memory(give: fn(*mut u8, usize)) -> Returned {
    #[cfg(not(any(loom, miri, tourbillon_no_pool, tourbillon_sim)))]
    return blocks::return_spare(give);
    #[cfg(any(loom, miri, tourbillon_no_pool, tourbillon_sim))]
    {
        let _ = give;
        Returned::All
    }
}

/// Allocates memory of this layout from the pool that timers come from. A layout of more than 512
/// bytes, or with an alignment of more than 64, gets memory from the global allocator.
///
/// It is meant for the tasks of a runtime, which many threads allocate and free as often as timers.
/// Like [`handle_alloc_error`](std::alloc::handle_alloc_error), it does not return if there is no
/// memory.
///
/// # Safety
///
/// As for [`std::alloc::alloc`]: the size of the layout is not zero.
///
/// ```
/// use std::alloc::Layout;
/// use tourbillon_shards::{alloc_block, dealloc_block};
///
/// let layout = Layout::new::<[u64; 20]>();
/// // SAFETY: the size is not zero, and the block is freed once, with its layout.
/// unsafe {
///     let block = alloc_block(layout);
///     block.cast::<[u64; 20]>().write([7; 20]);
///     dealloc_block(block, layout);
/// }
/// ```
#[inline]
pub unsafe fn alloc_block(layout: Layout) -> NonNull<u8> {
    #[cfg(not(any(loom, miri, tourbillon_no_pool, tourbillon_sim)))]
    if let Some(size) = size_of_block(layout) {
        return blocks::take(size);
    }
    // SAFETY: the caller keeps the same contract.
    let memory = unsafe { tourbillon_sync::alloc(layout) };
    NonNull::new(memory).unwrap_or_else(|| std::alloc::handle_alloc_error(layout))
}

/// Frees memory that [`alloc_block`] returned. Any thread may do so.
///
/// # Safety
///
/// `memory` is from [`alloc_block`] with the same layout, and is not used any more.
#[inline]
pub unsafe fn dealloc_block(memory: NonNull<u8>, layout: Layout) {
    #[cfg(not(any(loom, miri, tourbillon_no_pool, tourbillon_sim)))]
    if let Some(size) = size_of_block(layout) {
        // SAFETY: by contract `alloc` took it from there.
        return unsafe { blocks::give(memory, size) };
    }
    // SAFETY: the caller keeps the same contract.
    unsafe { tourbillon_sync::dealloc(memory.as_ptr(), layout) }
}

/// Returns the block size for this layout, as an index for [`bytes_of`], or `None` if the general
/// allocator has to serve it. No node is much smaller than the smallest block, so small layouts
/// need no case of their own.
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
