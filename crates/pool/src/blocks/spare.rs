//! Return of free pages of the pool to the system.
//!
//! | a page is | its blocks are | changed by |
//! |---|---|---|
//! | in use | allocated, or in a list, or in `Ordered` | threads that allocate and free |
//! | free | all in `Ordered` | the thread that puts the last one there |
//! | being returned | all in a [`Page`] of one thread | that thread, which takes the page |
//! | returned | all in `Ordered`, marked; no memory, or zeros | that thread, which puts them back |
//!
//! Each change happens under the depot's lock, but no lock is held during the system call. Only the
//! returning thread has these blocks then, so a thread that allocates meanwhile takes other
//! blocks, or a new chunk. A block on a returned page is used like any other: the first write lets
//! the system map memory for the page again.
//!
//! The thread returns memory that no thread needed for a period, as Bonwick's depot does: the
//! smallest number of free blocks since the last check, less those on returned pages. Chunks keep
//! their addresses, and are used again.

use std::sync::{
    Mutex, OnceLock,
    atomic::{AtomicBool, Ordering::Relaxed},
};

use tourbillon_sync::lock;

use super::{CACHES, DEPOTS, Depot, PAGE, ordered::Page, put_in_order};
use crate::Returned;

/// Free memory of one block size, in bytes, below which none is returned.
const WORTH: usize = 256 * 1024;
/// Number of pages that are returned at once, which takes the system some tens of µs.
pub(super) const SLICE: usize = 64;
/// Number of windows that are searched in one critical section.
pub(super) const WINDOWS: usize = 16;

/// Whether there may be enough free memory to be worth a call of [`note_spare`].
static SPARE: AtomicBool = AtomicBool::new(false);

/// Function that [`wake_by`] installed.
static WAKE: OnceLock<fn()> = OnceLock::new();

/// Implements [`wake_by`](crate::wake_by).
pub(crate) fn wake_by(wake: fn()) {
    // The first one stays.
    let _ = WAKE.set(wake);
}

/// Notes that a depot has `bytes` bytes of free memory that the system has not got back. Returns
/// whether the caller is the first that found enough of it, and so has to [`wake`] a thread.
#[inline]
pub(super) fn freed(bytes: usize) -> bool {
    // The swap selects one of several threads. The load spares the others the swap.
    bytes >= WORTH && !SPARE.load(Relaxed) && !SPARE.swap(true, Relaxed)
}

/// Wakes a thread that returns memory. The caller holds no lock of the pool.
#[cold]
pub(super) fn wake() {
    if let Some(wake) = WAKE.get() {
        wake();
    }
}

/// Implements [`has_spare`](crate::has_spare).
#[inline]
pub(crate) fn has_spare() -> bool {
    SPARE.load(Relaxed)
}

/// Implements [`note_spare`](crate::note_spare).
pub(crate) fn note_spare() {
    flush();
    for depot in &DEPOTS {
        // Lists that no thread took in this period are sorted by address like all other blocks, so
        // that their pages can be returned.
        let lists = lock(depot).least;
        let moved = put_lists_in_order(depot, lists);
        let mut depot = lock(depot);
        depot.least = depot.lists.len();
        depot.unused = depot.ordered.unused() + moved;
        depot.hand = depot.ordered.windows();
    }
    // Clear the flag before reading the amounts of free memory: a thread that frees more after that
    // reading sets the flag again.
    SPARE.store(false, Relaxed);
    for depot in &DEPOTS {
        let mut depot = lock(depot);
        // The blocks beyond the budget were used in this period, and may be spare after the next
        // one.
        let later = depot.ordered.resident().saturating_sub(depot.unused);
        // No thread has to be woken, because the calling thread checks the flag itself.
        freed(later * depot.bytes);
        // Too little to be worth the system calls. The product saturates, because another thread
        // may have called `all_is_spare` since the first loop, which sets the budget to the
        // maximum.
        if depot.unused.saturating_mul(depot.bytes) < WORTH {
            depot.unused = 0;
        }
    }
}

/// Implements [`all_is_spare`](crate::all_is_spare).
pub(crate) fn all_is_spare() {
    flush();
    for depot in &DEPOTS {
        put_lists_in_order(depot, usize::MAX);
    }
    // Clear the flag before the depots are read, as in `note_spare`.
    SPARE.store(false, Relaxed);
    for depot in &DEPOTS {
        let mut depot = lock(depot);
        (depot.unused, depot.hand) = (usize::MAX, depot.ordered.windows());
    }
}

/// Sorts up to `count` lists of the depot by address, and returns how many blocks that were.
fn put_lists_in_order(depot: &Mutex<Depot>, count: usize) -> usize {
    let mut blocks = 0;
    for _ in 0..count {
        let Some(list) = lock(depot).get() else {
            break;
        };
        blocks += list.len;
        put_in_order(depot, list.as_slice());
    }
    blocks
}

/// Gives the free blocks of the calling thread to the depots.
fn flush() {
    CACHES.with(|caches| {
        for (cache, depot) in caches.iter().zip(&DEPOTS) {
            if let Some(cache) = cache.get() {
                cache.flush(depot);
            }
        }
    });
}

/// Implements [`return_spare`](crate::return_spare).
pub(crate) fn return_spare(give: fn(*mut u8, usize)) -> Returned {
    // Grows once, by the first depot that has pages to give.
    let mut pages = Vec::new();
    for depot in &DEPOTS {
        if return_some(depot, &mut pages, give) {
            return Returned::More;
        }
    }
    Returned::Done
}

/// Gives some pages of this depot to the system. Returns false if there was none to give.
pub(super) fn return_some(
    depot: &Mutex<Depot>,
    pages: &mut Vec<Page>,
    give: fn(*mut u8, usize),
) -> bool {
    {
        let mut depot = lock(depot);
        let depot = &mut *depot;
        if depot.unused == 0 {
            return false;
        }
        pages.reserve(SLICE);
        // From the last window down: blocks are handed out from the first window up, so the last
        // ones are the most likely to be free.
        let mut searched = 0;
        while depot.unused > 0 && searched < WINDOWS && pages.len() < SLICE {
            let Some(hand) = depot.hand.checked_sub(1) else {
                depot.unused = 0;
                break;
            };
            depot.hand = hand;
            searched += 1;
            let blocks = depot.ordered.take_pages(hand, pages);
            depot.unused = depot.unused.saturating_sub(blocks);
        }
    }
    // No lock is held during the system calls. Adjacent pages go in one call.
    for run in pages.chunk_by(|one, next| one.address + PAGE == next.address) {
        // The addresses of the blocks were exposed when the depot got them.
        let at = std::ptr::with_exposed_provenance_mut(run[0].address);
        give(at, run.len() * PAGE);
    }
    let mut depot = lock(depot);
    for page in pages.drain(..) {
        depot.ordered.put_returned(&page);
    }
    true
}
