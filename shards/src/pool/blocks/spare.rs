//! Memory that the pool gives back to the system.
//!
//! | a page is | its blocks are | changed by |
//! |---|---|---|
//! | in use | nodes, or in the list of a thread or of the depot; some may be in [`Ordered`](super::Ordered) | threads that arm and free |
//! | free | all in `Ordered` | the thread that puts the last one there |
//! | being returned | all in a [`Page`] of one thread, and nowhere else | that thread, which takes them out of `Ordered` |
//! | returned | all in `Ordered`, marked; their memory is none, or zeros | that thread, which puts them back |
//!
//! Each change is made under the depot's lock, but nothing is held while the system is at it: the
//! blocks are the returning thread's alone, so a thread that arms meanwhile finds others, or a new
//! chunk. A block that is had from a returned page is written as any: the system finds memory for
//! the page then.
//!
//! What is returned is what nobody wanted for a period, in the manner of Bonwick's depot: the
//! smallest number of free blocks that there was since the last look, less those of returned pages.
//! Chunks stay as addresses, and are used again.

use std::sync::{
    Mutex, OnceLock,
    atomic::{AtomicBool, Ordering::Relaxed},
};

use super::{CACHES, DEPOTS, Depot, List, PAGE, ordered::Page, put, put_in_order};
use crate::{pool::Returned, sync::lock};

/// So much free memory of a size of block is not worth a look.
const WORTH: usize = 256 * 1024;
/// So many pages are given to the system at a time, which takes it some tens of µs.
const SLICE: usize = 64;
/// So many windows are looked at under one hold of the lock.
const WINDOWS: usize = 16;

/// Whether there may be free memory that is worth a look.
static SPARE: AtomicBool = AtomicBool::new(false);

/// See [`wake_by`].
static WAKE: OnceLock<fn()> = OnceLock::new();

/// See [`wake_for_spare_memory_by`](crate::wake_for_spare_memory_by).
pub(in crate::pool) fn wake_by(wake: fn()) {
    // The first one stays.
    let _ = WAKE.set(wake);
}

/// Notes that so many bytes of a depot are free and not with the system. Returns whether they are
/// the first that are worth a look.
#[inline]
pub(super) fn freed(bytes: usize) -> bool {
    // One of several threads is the first. The load spares the others the exchange.
    bytes >= WORTH && !SPARE.load(Relaxed) && !SPARE.swap(true, Relaxed)
}

/// Wakes a thread that looks at free memory. The caller holds no lock of the pool.
#[cold]
pub(super) fn wake() {
    if let Some(wake) = WAKE.get() {
        wake();
    }
}

/// See [`has_spare_memory`](crate::has_spare_memory).
#[inline]
pub(in crate::pool) fn has_spare() -> bool {
    SPARE.load(Relaxed)
}

/// See [`note_spare_memory`](crate::note_spare_memory).
pub(in crate::pool) fn note_spare() {
    flush();
    for depot in &DEPOTS {
        // Lists that nobody wanted are kept in order like all other blocks.
        let lists = lock(depot).least;
        let moved = put_lists_in_order(depot, lists);
        let mut depot = lock(depot);
        depot.least = depot.count;
        depot.unused = depot.ordered.unused() + moved;
        depot.hand = depot.ordered.windows();
    }
    // Before the next look at what is free: if more is freed behind that, it is noted again.
    SPARE.store(false, Relaxed);
    for depot in &DEPOTS {
        let mut depot = lock(depot);
        // The others were wanted in this period. Whether they are in the next is to be seen.
        let later = depot.ordered.resident().saturating_sub(depot.unused);
        // Nobody is to be woken: the calling thread sees it.
        freed(later * depot.bytes);
        // Another thread may have called `all_is_spare` since the first loop: then it is the most
        // that there is.
        if depot.unused.saturating_mul(depot.bytes) < WORTH {
            depot.unused = 0;
        }
    }
}

/// See [`all_memory_is_spare`](crate::all_memory_is_spare).
pub(in crate::pool) fn all_is_spare() {
    flush();
    for depot in &DEPOTS {
        put_lists_in_order(depot, usize::MAX);
        let mut depot = lock(depot);
        (depot.unused, depot.hand) = (usize::MAX, depot.ordered.windows());
    }
    SPARE.store(false, Relaxed);
}

/// Has up to so many lists of the depot kept in order like all other blocks, and answers how many
/// blocks that were.
fn put_lists_in_order(depot: &Mutex<Depot>, count: usize) -> usize {
    let mut blocks = 0;
    for _ in 0..count {
        let Some(list) = lock(depot).get() else {
            break;
        };
        blocks += list.len;
        put_in_order(depot, list);
    }
    blocks
}

/// Gives the depots what the calling thread keeps for the next nodes.
fn flush() {
    CACHES.with(|caches| {
        for (cache, depot) in caches.iter().zip(&DEPOTS) {
            put(depot, cache.loaded.replace(List::EMPTY));
            put(depot, cache.spare.replace(List::EMPTY));
        }
    });
}

/// See [`return_spare_memory`](crate::return_spare_memory).
pub(in crate::pool) fn return_spare(give: fn(*mut u8, usize)) -> Returned {
    let mut pages = Vec::with_capacity(SLICE);
    for depot in &DEPOTS {
        if return_some(depot, &mut pages, give) {
            return Returned::Some;
        }
    }
    Returned::All
}

/// Gives some pages of this depot to the system; false if there were none to be given.
fn return_some(depot: &Mutex<Depot>, pages: &mut Vec<Page>, give: fn(*mut u8, usize)) -> bool {
    {
        let mut depot = lock(depot);
        let depot = &mut *depot;
        if depot.unused == 0 {
            return false;
        }
        // From the last one: blocks are given from the first on, which therefore are in use most.
        let mut looks = 0;
        while depot.unused > 0 && looks < WINDOWS && pages.len() < SLICE {
            let Some(hand) = depot.hand.checked_sub(1) else {
                depot.unused = 0;
                break;
            };
            depot.hand = hand;
            looks += 1;
            let blocks = depot.ordered.take_pages(hand, pages);
            depot.unused = depot.unused.saturating_sub(blocks);
        }
    }
    for run in pages.chunk_by(|one, next| one.address + PAGE == next.address) {
        // The blocks' addresses were exposed as they were put there.
        let at = std::ptr::with_exposed_provenance_mut(run[0].address);
        give(at, run.len() * PAGE);
    }
    let mut depot = lock(depot);
    for page in pages.drain(..) {
        depot.ordered.put_returned(&page);
    }
    true
}
