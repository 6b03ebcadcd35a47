//! The blocks of the pool: what a thread keeps, the depot, and the chunks.

use std::{
    alloc::{Layout, handle_alloc_error},
    cell::Cell,
    ptr::{NonNull, null_mut},
    sync::{Mutex, OnceLock},
};

use self::ordered::Ordered;
use super::{LINE, SIZES, STEP, bytes_of};
use crate::{prefetch::prefetch, sync::lock};

mod ordered;
mod spare;

pub(super) use spare::{all_is_spare, has_spare, note_spare, return_spare, wake_by};

/// So many blocks are exchanged with the depot at once.
const MAGAZINE: usize = 128;
/// So many lists the depot has as they were given: what one thread allocates and another frees goes to and fro
/// by these.
const LISTS: usize = 16;
/// So many bytes are asked of the allocator at once: at first, and at most. In between it is a small part of what there is.
const CHUNK: usize = 64 * 1024;
const CHUNK_MOST: usize = 1024 * 1024;
const CHUNK_SHARE: usize = 64;
/// So many bytes less, which the allocator needs for itself: or what it has of the system would be a page more.
const CHUNK_MARGIN: usize = 4 * LINE;
/// So many bytes of a chunk that is larger than the first ones are [made ready](prepare_by) at once, some tens of µs.
const READY: usize = 64 * 1024;
/// What the system takes back: chunks are pages, and no block is on two of them. (Where the system
/// has larger ones, it takes several of these.)
const PAGE: usize = 4096;

/// The beginning of a free block.
#[repr(C, align(16))]
struct Block {
    /// The next of its list.
    next: *mut Block,
    /// In the first block of a list in the depot: the next list, and how many blocks this one has.
    list: *mut Block,
    len: usize,
}

const _: () = assert!(size_of::<Block>() <= LINE && align_of::<Block>() == STEP);

/// Free blocks, linked: the owner of this owns them.
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

    /// # Safety
    ///
    /// The block is free, and the caller's.
    #[inline]
    unsafe fn push(&mut self, block: NonNull<Block>) {
        // SAFETY: by contract we may write it.
        unsafe { (&raw mut (*block.as_ptr()).next).write(self.first) };
        self.first = block.as_ptr();
        self.len += 1;
    }

    #[inline]
    fn pop(&mut self) -> Option<NonNull<Block>> {
        let block = NonNull::new(self.first)?;
        // SAFETY: the list owns its blocks, and `push` wrote this.
        self.first = unsafe { (*block.as_ptr()).next };
        self.len -= 1;
        // The next that is taken is read for what follows it, and written then. It may have been freed long ago.
        prefetch(self.first, size_of::<Block>());
        Some(block)
    }
}

/// What all threads share of the blocks of one size.
struct Depot {
    /// How many bytes a block has.
    bytes: usize,
    /// The first block of the first list.
    lists: *mut Block,
    /// How many lists there are, and how many there were at the least since that was last looked
    /// at.
    count: usize,
    least: usize,
    /// All other blocks.
    ordered: Ordered,
    /// What is left of the last chunk, in pages.
    rest: *mut Block,
    left: usize,
    /// How many of the blocks of `rest` are not to be given: the first of a chunk.
    kept: usize,
    /// How many blocks are to be looked at for what the system may have, and in which window that
    /// goes on.
    unused: usize,
    hand: usize,
    /// Up to which address it has been made ready, and its end; the same where that is nobody's wish.
    ready: usize,
    end: usize,
    /// How many bytes all chunks have.
    total: usize,
    /// The first block of the last chunk, which has the address of the one before: so that who looks for
    /// leaks finds the chunks.
    chunks: *mut Block,
}

// SAFETY: it owns all that it points to.
unsafe impl Send for Depot {}

static DEPOTS: [Mutex<Depot>; SIZES] = [
    Mutex::new(Depot::of(0)),
    Mutex::new(Depot::of(1)),
    Mutex::new(Depot::of(2)),
    Mutex::new(Depot::of(3)),
    Mutex::new(Depot::of(4)),
];

impl Depot {
    const fn of(size: usize) -> Self {
        let bytes = bytes_of(size);
        // Chunks begin where a line does.
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

    /// Keeps a list, which is not empty; or gives it back, if there are enough.
    fn put(&mut self, list: List) -> Result<(), List> {
        if self.count == LISTS {
            return Err(list);
        }
        // SAFETY: the list, which is ours now, owns its first block, which is not linked by these.
        unsafe {
            (&raw mut (*list.first).list).write(self.lists);
            (&raw mut (*list.first).len).write(list.len);
        }
        self.lists = list.first;
        self.count += 1;
        Ok(())
    }

    /// The last list, if there are any.
    fn get(&mut self) -> Option<List> {
        let first = NonNull::new(self.lists)?.as_ptr();
        // SAFETY: `put` wrote these.
        let (next, len) = unsafe { ((*first).list, (*first).len) };
        self.lists = next;
        self.count -= 1;
        self.least = self.least.min(self.count);
        Some(List { first, len })
    }

    /// Blocks from a chunk: whole pages, of which one at least is not empty.
    fn carve(&mut self) -> Fresh {
        if self.left == 0 {
            self.add_chunk();
        }
        let per_page = PAGE / self.bytes;
        let (first, pages) = (self.rest, self.left.min(MAGAZINE / per_page));
        // SAFETY: at most one behind the chunk's end, as there are so many left.
        self.rest = unsafe { first.byte_add(pages * PAGE) };
        self.left -= pages;
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

    fn add_chunk(&mut self) {
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
        // SAFETY: it has room for a block, and for more.
        unsafe { (&raw mut (*chunk).next).write(self.chunks) };
        self.chunks = chunk;
        self.rest = chunk;
        self.left = bytes / PAGE;
        // The block that has just been written.
        self.kept = 1;
        self.total += bytes;
        self.end = chunk.addr() + self.left * PAGE;
        // Who has few needs no more memory than that.
        let large = share > CHUNK;
        self.ready = if large { chunk.addr() } else { self.end };
    }
}

/// Blocks that nobody had before, one behind the other: the owner of this owns them.
struct Fresh {
    /// The first page.
    first: *mut Block,
    pages: usize,
    /// So many blocks of the first page are not to be given.
    kept: usize,
    /// How many bytes each block has.
    bytes: usize,
    /// What is to be made ready, which begins before them or among them, and goes on for the next who come.
    unready: usize,
    ready: usize,
}

impl Fresh {
    /// Not under the lock: the system has to find memory for this.
    fn link(self) -> List {
        if self.unready < self.ready {
            if let Some(prepare) = PREPARE.get() {
                let at = self.first.with_addr(self.unready).cast();
                prepare(at, self.ready - self.unready);
            }
        }
        let mut list = List::EMPTY;
        let per_page = PAGE / self.bytes;
        for page in (0..self.pages).rev() {
            let kept = if page == 0 { self.kept } else { 0 };
            for at in (kept..per_page).rev() {
                let offset = page * PAGE + at * self.bytes;
                // SAFETY: there are so many pages, which have room for so many blocks each, and
                // they are ours.
                unsafe { list.push(NonNull::new_unchecked(self.first.byte_add(offset))) };
            }
        }
        list
    }
}

/// See [`prepare_by`].
static PREPARE: OnceLock<fn(*mut u8, usize)> = OnceLock::new();

/// See [`prepare_memory_by`](super::prepare_memory_by).
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

/// Gives a list to the depot, which keeps its blocks by their addresses.
fn put_in_order(depot: &Mutex<Depot>, mut list: List) {
    // Which takes some time, as its blocks may be in other caches by now: not under the lock.
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
    let resident = depot.ordered.resident() * depot.bytes;
    drop(depot);
    if spare::freed(resident) {
        spare::wake();
    }
}

/// A list of the depot's that is not empty.
fn get(depot: &Mutex<Depot>) -> List {
    let mut addresses = [0; MAGAZINE];
    let count = {
        let mut depot = lock(depot);
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
    // The last one first, so that they are taken in their order. They are cold, but nobody waits for what is written.
    for &address in addresses[..count].iter().rev() {
        let block = NonNull::new(std::ptr::with_exposed_provenance_mut(address));
        // SAFETY: `put` was given these, and exposed them; they are ours since they were taken.
        unsafe { list.push(block.expect("a block's address is not zero")) };
    }
    list
}

/// What a thread has of one size. Without a destructor, so that it is there to the thread's very end.
struct Cache {
    /// What it takes from, and gives to.
    loaded: Cell<List>,
    /// Full, or empty: who goes to and fro between an empty and a full list does not go to the depot.
    spare: Cell<List>,
    /// How many blocks `loaded` may have: none before the thread has its `Flush`, and after that.
    room: Cell<usize>,
}

impl Cache {
    #[expect(
        clippy::declare_interior_mutable_const,
        reason = "it is what each begins as"
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

/// Gives to the depot what the thread has when it ends.
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

/// Whether the thread may keep blocks: it does not end yet.
fn keeps(cache: &Cache) -> bool {
    if cache.room.get() == 0 && FLUSH.try_with(|_| ()).is_ok() {
        cache.room.set(MAGAZINE);
    }
    cache.room.get() > 0
}

/// A block of this size that is nobody else's.
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

#[cold]
#[inline(never)]
fn refill(cache: &Cache, depot: &Mutex<Depot>) -> NonNull<Block> {
    let keeps = keeps(cache);
    let mut list = cache.spare.replace(List::EMPTY);
    if list.len == 0 {
        list = get(depot);
    }
    let block = list.pop().expect("the depot gives no empty list");
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
/// It is from [`take`] of this size, and nobody uses it.
#[inline]
pub(super) unsafe fn give(block: NonNull<u8>, size: usize) {
    let block = block.cast();
    CACHES.with(|caches| {
        let cache = &caches[size];
        let mut loaded = cache.loaded.get();
        if loaded.len < cache.room.get() {
            // SAFETY: by contract.
            unsafe { loaded.push(block) };
            cache.loaded.set(loaded);
        } else {
            // SAFETY: by contract.
            unsafe { give_to_full(cache, &DEPOTS[size], block) };
        }
    });
}

/// The same where there is no room.
///
/// # Safety
///
/// The block is free, and the caller's.
#[cold]
#[inline(never)]
unsafe fn give_to_full(cache: &Cache, depot: &Mutex<Depot>, block: NonNull<Block>) {
    let mut loaded = make_room(cache, depot);
    // SAFETY: by contract.
    unsafe { loaded.push(block) };
    cache.loaded.set(loaded);
    if cache.room.get() == 0 {
        put(depot, cache.loaded.replace(List::EMPTY));
    }
}

/// A list of the thread that is not full, in place of the one that is.
fn make_room(cache: &Cache, depot: &Mutex<Depot>) -> List {
    let full = cache.loaded.get();
    // At the beginning, and at the end, of a thread it is empty.
    if keeps(cache) && full.len == MAGAZINE {
        let spare = cache.spare.replace(full);
        put(depot, spare);
        return List::EMPTY;
    }
    full
}

#[cfg(test)]
mod tests;
