//! Memory for nodes: free blocks of one cache line to two, kept by the thread that frees or needs them.
//!
//! Bonwick's magazines. A thread takes from a list of its own, and gives back to it, without a lock or an
//! atomic operation; when that is empty, or full, it exchanges a whole list with the depot, which all share.
//! So what one thread allocates and another frees flows back, at the price of a mutex for each
//! 128 blocks. Blocks are carved from chunks, whose addresses stay. Pages of which all blocks are
//! free for long are given back to the system, if the owner of the threads sees to it
//! ([`return_spare_memory`]).
//!
//! The depot has some lists as they were given, the last ones first. All that is more it keeps by address (`ordered`):
//! who has many timers end in no order, and arms as many, has their nodes in the order of memory.
//!
//! An allocator knows neither that a node is a cache line (glibc's blocks of 64 bytes take 80, and straddle
//! two), nor that so many of one size come and go.
//!
//! In loom's build there is no pool, nor in miri's, nor in a simulation, nor with `--cfg tourbillon_no_pool`: whoever looks for leaks, or for
//! what is used after it was freed, sees each node by itself. (Of the pool they see chunks, which are in use for ever.)

use std::{alloc::Layout, ptr::NonNull};

/// A line of the cache: the size of the smallest blocks, which are aligned to it, and half of the largest.
pub(crate) const LINE: usize = 64;
/// How much larger each size is than the one before. New memory is what many timers in a row cost most, a page fault for
/// each 4 KB: so two lines for what needs one and a bit would be dear. Blocks that are no whole lines begin anywhere
/// on one.
#[cfg(not(any(loom, miri, tourbillon_no_pool, tourbillon_sim)))]
const STEP: usize = 16;
/// How many sizes there are: one line for a sleep and for a callback that captures up to 16 bytes, two for one that
/// captures up to 80, and those between.
#[cfg(not(any(loom, miri, tourbillon_no_pool, tourbillon_sim)))]
const SIZES: usize = LINE / STEP + 1;

/// Has memory that is about to be written for the first time made ready by `prepare`, which is called with its address and its
/// bytes, and may do nothing: for an owner who knows how the system does that for many pages at once, which is cheaper than
/// a page fault for each. All shards of a process share the memory of their timers' nodes; where there is little of
/// it nobody is asked. Whoever comes first stays, and others have no effect.
///
/// `prepare` is called by who arms a timer, and may not arm any. What it is called with may be in use by other threads
/// meanwhile, whatever they do with it; it is not freed.
pub fn prepare_memory_by(prepare: fn(*mut u8, usize)) {
    #[cfg(not(any(loom, miri, tourbillon_no_pool, tourbillon_sim)))]
    blocks::prepare_by(prepare);
    #[cfg(any(loom, miri, tourbillon_no_pool, tourbillon_sim))]
    let _ = prepare;
}

/// Has `wake` called when [`has_spare_memory`] becomes true because a thread freed timers: for an
/// owner whose threads sleep, of which one is to [look](note_spare_memory) at that memory. That
/// thread looks at [`has_spare_memory`] once more after it announced its sleep and before it sleeps.
/// The first caller's `wake` stays, and others have no effect.
///
/// `wake` is called at most once for each call of [`note_spare_memory`] or [`all_memory_is_spare`].
/// The thread that frees calls it, perhaps while it holds a shard's lock, or ends. So `wake` may
/// call [`Shard::wake`](crate::Shard::wake); it may neither arm or drop timers nor lock a shard.
pub fn wake_for_spare_memory_by(wake: fn()) {
    #[cfg(not(any(loom, miri, tourbillon_no_pool, tourbillon_sim)))]
    blocks::wake_by(wake);
    #[cfg(any(loom, miri, tourbillon_no_pool, tourbillon_sim))]
    let _ = wake;
}

/// What is left after [`return_spare_memory`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Returned {
    /// Some memory was given back, and there may be more.
    Some,
    /// There is none to be given back until the next look.
    All,
}

/// Whether nodes' memory may be free that is worth [a look](note_spare_memory). A hint, for the
/// price of a load.
#[inline]
pub fn has_spare_memory() -> bool {
    #[cfg(not(any(loom, miri, tourbillon_no_pool, tourbillon_sim)))]
    return blocks::has_spare();
    #[cfg(any(loom, miri, tourbillon_no_pool, tourbillon_sim))]
    false
}

/// Ends a period: memory that has been free since the last call without a pause is spare from now
/// on, and [`return_spare_memory`] gives it back. To be called once in some seconds while there is
/// [some](has_spare_memory), by one thread of the process.
///
/// It takes some µs. The calling thread gives up what it keeps for its next nodes; up to 256 of
/// each size that another thread keeps are not looked at.
pub fn note_spare_memory() {
    #[cfg(not(any(loom, miri, tourbillon_no_pool, tourbillon_sim)))]
    blocks::note_spare();
}

/// Makes all memory spare that is free, as [`note_spare_memory`] does, without waiting for the end
/// of a period.
pub fn all_memory_is_spare() {
    #[cfg(not(any(loom, miri, tourbillon_no_pool, tourbillon_sim)))]
    blocks::all_is_spare();
}

/// Gives a part of the [spare memory](note_spare_memory) back: calls `give` with the addresses and
/// bytes of pages, of 4 KiB and aligned to that, whose content nobody needs. Afterwards they have
/// any content, as by `MADV_DONTNEED`. `give` may touch these pages only during the call: afterwards
/// other threads arm timers there.
///
/// It takes some tens of µs, so that a worker may look at its timers before it calls this again.
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

/// Memory of this layout, which is not empty.
///
/// # Safety
///
/// As [`std::alloc::alloc`]. Does not return if there is none.
#[inline]
pub(crate) unsafe fn alloc(layout: Layout) -> NonNull<u8> {
    #[cfg(not(any(loom, miri, tourbillon_no_pool, tourbillon_sim)))]
    if let Some(size) = size_of_block(layout) {
        return blocks::take(size);
    }
    // SAFETY: as our own.
    let memory = unsafe { crate::sync::alloc(layout) };
    NonNull::new(memory).unwrap_or_else(|| std::alloc::handle_alloc_error(layout))
}

/// Frees memory.
///
/// # Safety
///
/// It is from [`alloc`] with the same layout, and nobody uses it.
#[inline]
pub(crate) unsafe fn dealloc(memory: NonNull<u8>, layout: Layout) {
    #[cfg(not(any(loom, miri, tourbillon_no_pool, tourbillon_sim)))]
    if let Some(size) = size_of_block(layout) {
        // SAFETY: by our contract `alloc` took it from there.
        return unsafe { blocks::give(memory, size) };
    }
    // SAFETY: as our own.
    unsafe { crate::sync::dealloc(memory.as_ptr(), layout) }
}

/// As a block of which [size](bytes_of) it is allocated, if it is. What is much smaller is not ours: all nodes are larger.
#[cfg(not(any(loom, miri, tourbillon_no_pool, tourbillon_sim)))]
#[inline(always)]
const fn size_of_block(layout: Layout) -> Option<usize> {
    let unit = if layout.align() <= STEP { STEP } else { LINE };
    if layout.align() > LINE || layout.size() > 2 * LINE {
        return None;
    }
    let bytes = layout.size().next_multiple_of(unit);
    Some(bytes.saturating_sub(LINE) / STEP)
}

/// How many bytes a block of this size has.
#[cfg(not(any(loom, miri, tourbillon_no_pool, tourbillon_sim)))]
const fn bytes_of(size: usize) -> usize {
    LINE + size * STEP
}

#[cfg(not(any(loom, miri, tourbillon_no_pool, tourbillon_sim)))]
mod blocks;
