//! Memory for nodes: free blocks of one cache line to two, kept by the thread that frees or needs them.
//!
//! Bonwick's magazines. A thread takes from a list of its own, and gives back to it, without a lock or an
//! atomic operation; when that is empty, or full, it exchanges a whole list with the depot, which all share.
//! So what one thread allocates and another frees flows back, at the price of a mutex for each
//! 128 blocks. Blocks are carved from chunks, which stay: the pool is as large as it ever was.
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
