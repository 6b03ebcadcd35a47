//! Blocks of the pool: the free lists of each thread, the depot, and the chunks.

use std::{
    alloc::{Layout, handle_alloc_error},
    cell::Cell,
    ptr::{NonNull, null_mut},
    sync::{Mutex, OnceLock},
};

use self::ordered::Ordered;
use super::{LINE, SIZES, STEP, bytes_of};
use tourbillon_sync::{lock, prefetch};

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

/// Header of a free block.
#[repr(C, align(16))]
struct Block {
    /// Next block of the same list.
    next: *mut Block,
    /// In the first block of a list in the depot: the first block of the next list, and the number
    /// of blocks in this one.
    list: *mut Block,
    len: usize,
}

const _: () = assert!(size_of::<Block>() <= LINE && align_of::<Block>() == STEP);

/// Linked list of free blocks, which its owner owns.
#[derive(Clone, Copy)]
struct List {
    first: *mut Block,
    len: usize,
}

impl List {
    const EMPTY: Self = Self {
        first: null_mut(),
        len: 0,
    };

    /// Adds a block at the front.
    ///
    /// # Safety
    ///
    /// The block is free, and belongs to the caller.
    #[inline]
    unsafe fn push(&mut self, block: NonNull<Block>) {
        // SAFETY: by contract the caller may write it.
        unsafe { (&raw mut (*block.as_ptr()).next).write(self.first) };
        self.first = block.as_ptr();
        self.len += 1;
    }

    /// Removes the first block.
    #[inline]
    fn pop(&mut self) -> Option<NonNull<Block>> {
        let block = NonNull::new(self.first)?;
        // SAFETY: the list owns its blocks, and `push` wrote this.
        self.first = unsafe { (*block.as_ptr()).next };
        self.len -= 1;
        // The next call reads the next block, and its caller writes it. It may have been freed long
        // ago and not be in the cache.
        prefetch(self.first, size_of::<Block>());
        Some(block)
    }
}

/// Blocks of one size that all threads share, under a mutex.
struct Depot {
    /// Bytes of a block.
    bytes: usize,
    /// First block of the first list.
    lists: *mut Block,
    /// Number of lists, and the smallest number there was since [`note_spare`] last read it.
    count: usize,
    least: usize,
    /// All other free blocks, by address.
    ordered: Ordered,
    /// Unused rest of the last chunk, and its length in pages.
    rest: *mut Block,
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
    chunks: *mut Block,
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
            lists: null_mut(),
            count: 0,
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

    /// Keeps a list, which must not be empty. Returns it if the depot has enough lists already.
    fn put(&mut self, list: List) -> Result<(), List> {
        if self.count == LISTS {
            return Err(list);
        }
        // SAFETY: the depot owns the list from here on, and so its first block. `List` does not use
        // these two fields.
        unsafe {
            (&raw mut (*list.first).list).write(self.lists);
            (&raw mut (*list.first).len).write(list.len);
        }
        self.lists = list.first;
        self.count += 1;
        Ok(())
    }

    /// Takes the list that was added last, if there is one.
    fn get(&mut self) -> Option<List> {
        let first = NonNull::new(self.lists)?.as_ptr();
        // SAFETY: `put` wrote these.
        let (next, len) = unsafe { ((*first).list, (*first).len) };
        self.lists = next;
        self.count -= 1;
        self.least = self.least.min(self.count);
        Some(List { first, len })
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
        self.rest = unsafe { first.byte_add(pages * PAGE) };
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
        let chunk = unsafe { std::alloc::alloc(layout) }.cast::<Block>();
        if chunk.is_null() {
            handle_alloc_error(layout);
        }
        // SAFETY: a chunk has room for more than one block.
        unsafe { (&raw mut (*chunk).next).write(self.chunks) };
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
    first: *mut Block,
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
    /// Prepares the memory, and links the blocks into a list in the order of their addresses.
    /// Called without the lock, because the first write to each page is a page fault.
    fn link(self) -> List {
        if self.unready < self.ready {
            if let Some(prepare) = PREPARE.get() {
                let at = self.first.with_addr(self.unready).cast();
                prepare(at, self.ready - self.unready);
            }
        }
        // From the last block to the first, because `push` adds at the front.
        let mut list = List::EMPTY;
        let per_page = PAGE / self.bytes;
        for page in (0..self.pages).rev() {
            let kept = if page == 0 { self.kept } else { 0 };
            for at in (kept..per_page).rev() {
                let offset = page * PAGE + at * self.bytes;
                // SAFETY: each of these pages has room for `per_page` blocks, and they belong to
                // `self`.
                unsafe { list.push(NonNull::new_unchecked(self.first.byte_add(offset))) };
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

/// Gives a list to the depot.
fn put(depot: &Mutex<Depot>, list: List) {
    if list.len == 0 {
        return;
    }
    let Err(given_back) = lock(depot).put(list) else {
        return;
    };
    put_in_order(depot, given_back);
}

/// Gives the blocks of a list to the depot, which sorts them by address.
fn put_in_order(depot: &Mutex<Depot>, mut list: List) {
    // Reading the list takes time, because its blocks may be in another core's cache. So this is
    // done before the depot is locked.
    let mut addresses = [0; MAGAZINE];
    let count = list.len;
    for address in &mut addresses[..count] {
        let block = list.pop().expect("the list has so many");
        *address = block.as_ptr().expose_provenance();
    }
    let mut depot = lock(depot);
    for &address in &addresses[..count] {
        depot.ordered.put(address);
    }
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
                return fresh.link();
            }
            count => count,
        }
    };
    let mut list = List::EMPTY;
    // From the last address to the first, so that blocks are taken in ascending order. They are not
    // in the cache, but the writes do not stall this thread.
    for &address in addresses[..count].iter().rev() {
        let block = NonNull::new(std::ptr::with_exposed_provenance_mut(address));
        // SAFETY: `put_in_order` had these blocks and exposed their addresses. They belong to this
        // thread since they were taken out.
        unsafe { list.push(block.expect("a block's address is not zero")) };
    }
    list
}

/// Free blocks of one size that a thread keeps. It has no destructor, so it exists until the very
/// end of the thread.
struct Cache {
    /// List from which the thread takes, and to which it gives.
    loaded: Cell<List>,
    /// Full or empty. A thread that alternates between an empty and a full list swaps the two, and
    /// does not need the depot.
    spare: Cell<List>,
    /// Largest number of blocks in `loaded`. Zero before the thread has registered its [`Flush`],
    /// and after that has run.
    room: Cell<usize>,
}

impl Cache {
    #[expect(
        clippy::declare_interior_mutable_const,
        reason = "used only as the initial value"
    )]
    const EMPTY: Self = Self {
        loaded: Cell::new(List::EMPTY),
        spare: Cell::new(List::EMPTY),
        room: Cell::new(0),
    };
}

thread_local! {
    static CACHES: [Cache; SIZES] = const { [Cache::EMPTY; SIZES] };
    static FLUSH: Flush = const { Flush };
}

/// Thread-local whose destructor gives the free blocks of an ending thread to the depot.
struct Flush;

impl Drop for Flush {
    fn drop(&mut self) {
        CACHES.with(|caches| {
            for (cache, depot) in caches.iter().zip(&DEPOTS) {
                cache.room.set(0);
                put(depot, cache.loaded.replace(List::EMPTY));
                put(depot, cache.spare.replace(List::EMPTY));
            }
        });
    }
}

/// Returns whether the thread may keep blocks, that is, has not begun to end.
fn keeps(cache: &Cache) -> bool {
    if cache.room.get() == 0 && FLUSH.try_with(|_| ()).is_ok() {
        cache.room.set(MAGAZINE);
    }
    cache.room.get() > 0
}

/// Takes a block of this size. It belongs to the caller.
#[inline]
pub(super) fn take(size: usize) -> NonNull<u8> {
    CACHES.with(|caches| {
        let cache = &caches[size];
        let mut loaded = cache.loaded.get();
        match loaded.pop() {
            Some(block) => {
                cache.loaded.set(loaded);
                block.cast()
            }
            None => refill(cache, &DEPOTS[size]).cast(),
        }
    })
}

/// Slow path of [`take`]: the list of the thread is empty.
#[cold]
#[inline(never)]
fn refill(cache: &Cache, depot: &Mutex<Depot>) -> NonNull<Block> {
    let keeps = keeps(cache);
    // The second list of the thread first, which needs no lock.
    let mut list = cache.spare.replace(List::EMPTY);
    if list.len == 0 {
        list = get(depot);
    }
    let block = list.pop().expect("the depot gives no empty list");
    // A thread that ends must not keep blocks, since no destructor would give them back.
    if keeps {
        cache.loaded.set(list);
    } else {
        put(depot, list);
    }
    block
}

/// Gives back a block.
///
/// # Safety
///
/// `block` is from [`take`] of this size, and is not used any more.
#[inline]
pub(super) unsafe fn give(block: NonNull<u8>, size: usize) {
    let block = block.cast();
    CACHES.with(|caches| {
        let cache = &caches[size];
        let mut loaded = cache.loaded.get();
        if loaded.len < cache.room.get() {
            // SAFETY: by contract the block is free, and belongs to this thread.
            unsafe { loaded.push(block) };
            cache.loaded.set(loaded);
        } else {
            // SAFETY: as above.
            unsafe { give_to_full(cache, &DEPOTS[size], block) };
        }
    });
}

/// Slow path of [`give`]: the list of the thread has no room.
///
/// # Safety
///
/// The block is free, and belongs to the caller.
#[cold]
#[inline(never)]
unsafe fn give_to_full(cache: &Cache, depot: &Mutex<Depot>, block: NonNull<Block>) {
    let mut loaded = make_room(cache, depot);
    // SAFETY: by contract the block is free, and belongs to this thread.
    unsafe { loaded.push(block) };
    cache.loaded.set(loaded);
    // The thread ends: it keeps nothing.
    if cache.room.get() == 0 {
        put(depot, cache.loaded.replace(List::EMPTY));
    }
}

/// Returns a list that has room, to replace `loaded`.
fn make_room(cache: &Cache, depot: &Mutex<Depot>) -> List {
    let full = cache.loaded.get();
    // At the beginning and at the end of a thread the room is zero, but the list is empty, so it
    // can be used.
    if keeps(cache) && full.len == MAGAZINE {
        let spare = cache.spare.replace(full);
        put(depot, spare);
        return List::EMPTY;
    }
    full
}

#[cfg(test)]
mod tests;
