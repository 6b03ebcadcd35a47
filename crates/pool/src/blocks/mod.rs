//! Blocks of the pool: the caches of each thread, the depot, and the chunks.

use std::{
    alloc::{Layout, handle_alloc_error},
    cell::Cell,
    ptr::{NonNull, null_mut},
    sync::{Mutex, OnceLock},
};

use self::ordered::Ordered;
use super::{LINE, SIZES, STEP, bytes_of};
use tourbillon_sync::lock;

mod ordered;
mod spare;

pub(super) use spare::{all_is_spare, has_spare, note_spare, return_spare, wake_by};

/// Number of blocks that a thread exchanges with the depot at once.
const MAGAZINE: usize = 128;
/// Number of lists that the depot keeps as it received them. Blocks that one thread allocates and
/// another frees move by these lists.
const LISTS: usize = 16;
/// Bytes of the first chunks, and of the largest ones. In between, a new chunk is a small share of
/// the memory that all chunks have.
const CHUNK: usize = 64 * 1024;
const CHUNK_MOST: usize = 1024 * 1024;
const CHUNK_SHARE: usize = 64;
/// Bytes that a chunk is smaller than its nominal size. The allocator needs them for its own data,
/// and would otherwise take one more page from the system.
const CHUNK_MARGIN: usize = 4 * LINE;
/// Bytes of a chunk that are [prepared](prepare_by) at once, which takes some tens of µs. The
/// first, small chunks are not prepared.
const READY: usize = 64 * 1024;
/// Size of the pages that the system takes back. Chunks consist of pages, and no block lies on two
/// of them. If the system's pages are larger, each is several of these.
const PAGE: usize = 4096;

/// Up to 128 free blocks, which its owner owns. The last one is taken first.
struct List {
    blocks: [*mut u8; MAGAZINE],
    len: usize,
}

impl List {
    const EMPTY: Self = Self {
        blocks: [null_mut(); MAGAZINE],
        len: 0,
    };

    /// Adds a block. The list has room.
    fn push(&mut self, block: *mut u8) {
        self.blocks[self.len] = block;
        self.len += 1;
    }

    fn as_slice(&self) -> &[*mut u8] {
        &self.blocks[..self.len]
    }
}

/// Blocks of one size that all threads share, under a mutex.
struct Depot {
    /// Bytes of a block.
    bytes: usize,
    /// Lists as the depot received them, and the smallest number of them since [`note_spare`] last
    /// read it.
    lists: Vec<List>,
    least: usize,
    /// All other free blocks, by address.
    ordered: Ordered,
    /// Unused rest of the last chunk, and its length in pages.
    rest: *mut u8,
    left: usize,
    /// Blocks at the beginning of `rest` that must not be handed out: the first block of a chunk.
    kept: usize,
    /// Budget of [`return_spare`] in blocks, and the window from which it goes on downwards.
    unused: usize,
    hand: usize,
    /// End of the prepared part of the last chunk, and end of the chunk. Both are equal if the
    /// chunk is not to be prepared.
    ready: usize,
    end: usize,
    /// Bytes of all chunks.
    total: usize,
    /// First block of the last chunk. It holds the address of the previous chunk, so that leak
    /// checkers reach all chunks.
    chunks: *mut u8,
}

// SAFETY: it owns all that it points to.
unsafe impl Send for Depot {}

static DEPOTS: [Mutex<Depot>; SIZES] = {
    let mut depots = [const { Mutex::new(Depot::of(0)) }; SIZES];
    let mut size = 0;
    while size < SIZES {
        // A destructor cannot run here. An empty depot needs none.
        std::mem::forget(std::mem::replace(
            &mut depots[size],
            Mutex::new(Depot::of(size)),
        ));
        size += 1;
    }
    depots
};

impl Depot {
    const fn of(size: usize) -> Self {
        let bytes = bytes_of(size);
        // Chunks begin at a page, so blocks of whole lines begin at a line.
        let aligned = if bytes % LINE == 0 {
            LINE
        } else {
            1 << bytes.trailing_zeros()
        };
        Self {
            bytes,
            lists: Vec::new(),
            least: 0,
            ordered: Ordered::new(aligned, PAGE / bytes),
            rest: null_mut(),
            left: 0,
            kept: 0,
            unused: 0,
            hand: 0,
            ready: 0,
            end: 0,
            total: 0,
            chunks: null_mut(),
        }
    }

    /// Keeps these blocks as a list, of at least one and at most 128. Returns false if the depot has
    /// enough lists already.
    fn keep(&mut self, blocks: &[*mut u8]) -> bool {
        if self.lists.len() == LISTS {
            return false;
        }
        let mut list = List::EMPTY;
        list.blocks[..blocks.len()].copy_from_slice(blocks);
        list.len = blocks.len();
        self.lists.push(list);
        true
    }

    /// Takes the list that was added last, if there is one.
    fn get(&mut self) -> Option<List> {
        let list = self.lists.pop()?;
        self.least = self.least.min(self.lists.len());
        Some(list)
    }

    /// Takes whole pages of new blocks from a chunk, with at least one block. Adds a chunk if the
    /// last one is used up.
    fn carve(&mut self) -> Fresh {
        if self.left == 0 {
            self.add_chunk();
        }
        let per_page = PAGE / self.bytes;
        let (first, pages) = (self.rest, self.left.min(MAGAZINE / per_page));
        // SAFETY: the chunk has `left` more pages, so this is at most the address behind its end.
        self.rest = unsafe { first.add(pages * PAGE) };
        self.left -= pages;
        // Large chunks are prepared piece by piece: if these pages reach beyond the prepared part,
        // the caller prepares the next piece.
        let unready = self.ready;
        if unready < self.end && unready < self.rest.addr() {
            self.ready = self.end.min(unready + READY);
        }
        Fresh {
            first,
            pages,
            kept: std::mem::take(&mut self.kept),
            bytes: self.bytes,
            unready,
            ready: self.ready,
        }
    }

    /// Allocates a chunk, from which `carve` takes pages.
    fn add_chunk(&mut self) {
        // Chunks grow with the memory in use: few chunks for many blocks, little memory for few.
        let share = (self.total / CHUNK_SHARE).next_power_of_two();
        let share = share.clamp(CHUNK, CHUNK_MOST);
        let bytes = share - CHUNK_MARGIN;
        let layout =
            Layout::from_size_align(bytes, PAGE).expect("a power of two, and not too much");
        // SAFETY: the size is not zero.
        let chunk = unsafe { std::alloc::alloc(layout) };
        if chunk.is_null() {
            handle_alloc_error(layout);
        }
        // SAFETY: a chunk has room for a pointer, and a page is aligned for one.
        unsafe { chunk.cast::<*mut u8>().write(self.chunks) };
        self.chunks = chunk;
        self.rest = chunk;
        self.left = bytes / PAGE;
        // The first block links the chunks, so it is never handed out.
        self.kept = 1;
        self.total += bytes;
        self.end = chunk.addr() + self.left * PAGE;
        // A process with few blocks needs no more memory than the first chunks, so they are not
        // prepared.
        let large = share > CHUNK;
        self.ready = if large { chunk.addr() } else { self.end };
    }
}

/// New blocks, which have never been used and lie one behind the other. The owner of this owns
/// them.
struct Fresh {
    /// First page.
    first: *mut u8,
    pages: usize,
    /// Blocks at the beginning of the first page that must not be handed out.
    kept: usize,
    /// Bytes of a block.
    bytes: usize,
    /// Range of addresses to prepare. It may begin before these blocks, and may reach beyond them,
    /// to blocks that later callers get.
    unready: usize,
    ready: usize,
}

impl Fresh {
    /// Prepares the memory, and returns the blocks as a list, from which they are taken in the order
    /// of their addresses. Called without the lock, because a system call may prepare the memory.
    fn list(self) -> List {
        if self.unready < self.ready {
            if let Some(prepare) = PREPARE.get() {
                let at = self.first.with_addr(self.unready);
                prepare(at, self.ready - self.unready);
            }
        }
        let mut list = List::EMPTY;
        let per_page = PAGE / self.bytes;
        for page in (0..self.pages).rev() {
            let kept = if page == 0 { self.kept } else { 0 };
            for at in (kept..per_page).rev() {
                list.push(self.first.wrapping_add(page * PAGE + at * self.bytes));
            }
        }
        list
    }
}

/// Function that [`prepare_by`] installed.
static PREPARE: OnceLock<fn(*mut u8, usize)> = OnceLock::new();

/// Implements [`prepare_by`](super::prepare_by).
pub(super) fn prepare_by(prepare: fn(*mut u8, usize)) {
    // The first one stays.
    let _ = PREPARE.set(prepare);
}

/// Gives blocks to the depot, at most 128.
fn put(depot: &Mutex<Depot>, blocks: &[*mut u8]) {
    if !blocks.is_empty() && !lock(depot).keep(blocks) {
        put_in_order(depot, blocks);
    }
}

/// Gives blocks to the depot, at most 128, which sorts them by address.
fn put_in_order(depot: &Mutex<Depot>, blocks: &[*mut u8]) {
    let mut addresses = [0; MAGAZINE];
    for (address, block) in addresses.iter_mut().zip(blocks) {
        *address = block.expose_provenance();
    }
    let mut depot = lock(depot);
    depot.ordered.put(&addresses[..blocks.len()]);
    // Free memory beyond a threshold is worth giving back. `wake` is called without the lock.
    let resident = depot.ordered.resident() * depot.bytes;
    drop(depot);
    if spare::freed(resident) {
        spare::wake();
    }
}

/// Takes a list of free blocks from the depot. The list is not empty.
fn get(depot: &Mutex<Depot>) -> List {
    let mut addresses = [0; MAGAZINE];
    let count = {
        let mut depot = lock(depot);
        // First a recently freed list, then sorted blocks, then new memory.
        if let Some(list) = depot.get() {
            return list;
        }
        match depot.ordered.take(&mut addresses) {
            0 => {
                let fresh = depot.carve();
                drop(depot);
                return fresh.list();
            }
            count => count,
        }
    };
    let mut list = List::EMPTY;
    // From the last address to the first, so that blocks are taken in ascending order. They belong
    // to this thread since they were taken out, and `put_in_order` exposed their addresses.
    for &address in addresses[..count].iter().rev() {
        list.push(std::ptr::with_exposed_provenance_mut(address));
    }
    list
}

/// Free blocks of one size that a thread keeps. The last one is taken first.
struct Cache {
    len: Cell<usize>,
    /// Room for two lists. A thread that alternates between taking and freeing exchanges one with
    /// the depot when all of this is full or empty, so at most once in 128 blocks.
    blocks: [Cell<*mut u8>; 2 * MAGAZINE],
}

impl Cache {
    /// Takes a block.
    #[inline]
    fn pop(&self) -> Option<NonNull<u8>> {
        // If there is none, this is an index that no array has.
        let len = self.len.get().wrapping_sub(1);
        let block = self.blocks.get(len)?;
        self.len.set(len);
        NonNull::new(block.get())
    }

    /// Adds a block. Returns false if there is no room.
    #[inline]
    fn push(&self, block: NonNull<u8>) -> bool {
        let len = self.len.get();
        let Some(place) = self.blocks.get(len) else {
            return false;
        };
        place.set(block.as_ptr());
        self.len.set(len + 1);
        true
    }

    /// Gives the first `count` blocks, which were added first, to the depot. At most 128.
    fn give(&self, count: usize, depot: &Mutex<Depot>) {
        let mut list = List::EMPTY;
        for block in &self.blocks[..count] {
            list.push(block.get());
        }
        let len = self.len.get();
        for at in count..len {
            self.blocks[at - count].set(self.blocks[at].get());
        }
        self.len.set(len - count);
        put(depot, list.as_slice());
    }

    /// Gives all blocks to the depot.
    fn flush(&self, depot: &Mutex<Depot>) {
        while self.len.get() > 0 {
            self.give(self.len.get().min(MAGAZINE), depot);
        }
    }
}

thread_local! {
    /// The caches of the thread, by size. One is allocated at the first use of its size.
    /// [`Flush`] frees them, and there are none from then on to the very end of the thread.
    static CACHES: [Cell<Option<&'static Cache>>; SIZES] =
        const { [const { Cell::new(None) }; SIZES] };
    static FLUSH: Flush = const { Flush };
}

/// Thread-local whose destructor gives the free blocks of an ending thread to the depot.
struct Flush;

impl Drop for Flush {
    fn drop(&mut self) {
        CACHES.with(|caches| {
            for (cache, depot) in caches.iter().zip(&DEPOTS) {
                if let Some(cache) = cache.take() {
                    cache.flush(depot);
                    // SAFETY: `cache_of` leaked this box. Only this thread has had the reference,
                    // and no function returns it or keeps it.
                    drop(unsafe { Box::from_raw(std::ptr::from_ref(cache).cast_mut()) });
                }
            }
        });
    }
}

/// Returns the thread's cache for this size, or `None` if the thread ends: no destructor would give
/// its blocks back.
#[cold]
fn cache_of(size: usize) -> Option<&'static Cache> {
    CACHES.with(|caches| {
        if caches[size].get().is_none() && FLUSH.try_with(|_| ()).is_ok() {
            caches[size].set(Some(Box::leak(Box::new(Cache {
                len: Cell::new(0),
                blocks: [const { Cell::new(null_mut()) }; 2 * MAGAZINE],
            }))));
        }
        caches[size].get()
    })
}

/// Takes a block of this size. It belongs to the caller.
#[inline]
pub(super) fn take(size: usize) -> NonNull<u8> {
    let cache = CACHES.with(|caches| caches[size].get());
    match cache.and_then(Cache::pop) {
        Some(block) => block,
        None => refill(size),
    }
}

/// Slow path of [`take`]: the thread has no block of this size.
#[cold]
#[inline(never)]
fn refill(size: usize) -> NonNull<u8> {
    let depot = &DEPOTS[size];
    let list = get(depot);
    let (&block, rest) = (list.as_slice().split_last()).expect("the depot gives no empty list");
    // A thread that ends must not keep blocks.
    match cache_of(size) {
        Some(cache) => {
            (cache.blocks.iter().zip(rest)).for_each(|(place, &block)| place.set(block));
            cache.len.set(rest.len());
        }
        None => put(depot, rest),
    }
    NonNull::new(block).expect("a block's address is not zero")
}

/// Gives back a block.
///
/// # Safety
///
/// `block` is from [`take`] of this size, and is not used any more.
#[inline]
pub(super) unsafe fn give(block: NonNull<u8>, size: usize) {
    let cache = CACHES.with(|caches| caches[size].get());
    if !cache.is_some_and(|cache| cache.push(block)) {
        give_to_full(block, size);
    }
}

/// Slow path of [`give`]: the thread has no room.
#[cold]
#[inline(never)]
fn give_to_full(block: NonNull<u8>, size: usize) {
    let depot = &DEPOTS[size];
    let Some(cache) = cache_of(size) else {
        // The thread ends.
        return put(depot, &[block.as_ptr()]);
    };
    if !cache.push(block) {
        cache.give(MAGAZINE, depot);
        cache.push(block);
    }
}

#[cfg(test)]
mod tests;
