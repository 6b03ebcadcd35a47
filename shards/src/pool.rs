//! Memory for nodes: free blocks of one cache line, kept by the thread that frees or needs them.
//!
//! Bonwick's magazines. A thread takes from a list of its own, and gives back to it, without a lock or an
//! atomic operation; when that is empty, or full, it exchanges a whole list with the depot, which all share.
//! So what one thread allocates and another frees flows back, at the price of a mutex for each
//! [`MAGAZINE`] blocks. Blocks are carved from chunks, which stay: the pool is as large as it ever was.
//!
//! An allocator knows neither that a node is a cache line (glibc's blocks of 64 bytes take 80, and straddle
//! two), nor that so many of one size come and go.
//!
//! In loom's build there is no pool, so that loom sees what leaks.

use std::{alloc::Layout, ptr::NonNull};

/// The size of a block, and its alignment.
#[cfg(not(loom))]
const BLOCK: usize = 64;

/// Memory of this layout, which is not empty.
///
/// # Safety
///
/// As [`std::alloc::alloc`]. Does not return if there is none.
#[inline]
pub(crate) unsafe fn alloc(layout: Layout) -> NonNull<u8> {
    #[cfg(not(loom))]
    if fits(layout) {
        return blocks::take();
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
    #[cfg(not(loom))]
    if fits(layout) {
        // SAFETY: by our contract `alloc` took it from there.
        return unsafe { blocks::give(memory) };
    }
    // SAFETY: as our own.
    unsafe { crate::sync::dealloc(memory.as_ptr(), layout) }
}

/// Whether it is allocated as a block. What is much smaller is not ours: all nodes are larger.
#[cfg(not(loom))]
#[inline(always)]
const fn fits(layout: Layout) -> bool {
    layout.size() <= BLOCK && layout.align() <= BLOCK
}

#[cfg(not(loom))]
mod blocks {
    use std::{
        alloc::{Layout, handle_alloc_error},
        cell::Cell,
        ptr::{NonNull, null_mut},
        sync::Mutex,
    };

    use super::BLOCK;
    use crate::sync::lock;

    /// So many blocks are exchanged with the depot at once.
    const MAGAZINE: usize = 128;
    /// So many bytes are asked of the allocator at once.
    const CHUNK: usize = 64 * 1024;

    /// A free block.
    #[repr(C, align(64))]
    struct Block {
        /// The next of its list.
        next: *mut Block,
        /// In the first block of a list in the depot: the next list, and how many blocks this one has.
        list: *mut Block,
        len: usize,
    }

    const _: () = assert!(size_of::<Block>() == BLOCK && align_of::<Block>() == BLOCK);

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
            Some(block)
        }
    }

    /// What all threads share.
    struct Depot {
        /// The first block of the first list.
        lists: *mut Block,
        /// What is left of the last chunk.
        rest: *mut Block,
        left: usize,
        /// The first block of the last chunk, which has the address of the one before: so that who looks for
        /// leaks finds the chunks.
        chunks: *mut Block,
    }

    // SAFETY: it owns all that it points to.
    unsafe impl Send for Depot {}

    static DEPOT: Mutex<Depot> = Mutex::new(Depot {
        lists: null_mut(),
        rest: null_mut(),
        left: 0,
        chunks: null_mut(),
    });

    impl Depot {
        /// Keeps a list.
        fn put(&mut self, list: List) {
            if list.len > 0 {
                // SAFETY: the list, which is ours now, owns its first block, which is not linked by these.
                unsafe {
                    (&raw mut (*list.first).list).write(self.lists);
                    (&raw mut (*list.first).len).write(list.len);
                }
                self.lists = list.first;
            }
        }

        /// A list that is not empty.
        fn get(&mut self) -> List {
            if let Some(first) = NonNull::new(self.lists) {
                let first = first.as_ptr();
                // SAFETY: `put` wrote these.
                let (next, len) = unsafe { ((*first).list, (*first).len) };
                self.lists = next;
                return List { first, len };
            }
            self.carve()
        }

        /// A list from a chunk.
        fn carve(&mut self) -> List {
            if self.left == 0 {
                let layout = Layout::from_size_align(CHUNK, BLOCK).expect("both are powers of two");
                // SAFETY: the size is not zero.
                let chunk = unsafe { std::alloc::alloc(layout) }.cast::<Block>();
                if chunk.is_null() {
                    handle_alloc_error(layout);
                }
                // SAFETY: it has room for a block, and for more.
                unsafe {
                    (&raw mut (*chunk).next).write(self.chunks);
                    self.rest = chunk.add(1);
                }
                self.chunks = chunk;
                self.left = CHUNK / BLOCK - 1;
            }
            let mut list = List::EMPTY;
            let len = self.left.min(MAGAZINE);
            for at in (0..len).rev() {
                // SAFETY: there are as many blocks in the chunk as are left, and they are nobody's.
                unsafe { list.push(NonNull::new_unchecked(self.rest.add(at))) };
            }
            // SAFETY: at most one behind the chunk's end.
            self.rest = unsafe { self.rest.add(len) };
            self.left -= len;
            list
        }
    }

    /// What a thread has. Without a destructor, so that it is there to the thread's very end.
    struct Cache {
        /// What it takes from, and gives to.
        loaded: Cell<List>,
        /// Full, or empty: who goes to and fro between an empty and a full list does not go to the depot.
        spare: Cell<List>,
        /// How many blocks `loaded` may have: none before the thread has its `Flush`, and after that.
        room: Cell<usize>,
    }

    thread_local! {
        static CACHE: Cache = const {
            Cache {
                loaded: Cell::new(List::EMPTY),
                spare: Cell::new(List::EMPTY),
                room: Cell::new(0),
            }
        };
        static FLUSH: Flush = const { Flush };
    }

    /// Gives to the depot what the thread has when it ends.
    struct Flush;

    impl Drop for Flush {
        fn drop(&mut self) {
            CACHE.with(|cache| {
                cache.room.set(0);
                let mut depot = lock(&DEPOT);
                depot.put(cache.loaded.replace(List::EMPTY));
                depot.put(cache.spare.replace(List::EMPTY));
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

    /// A block that is nobody else's.
    #[inline]
    pub(super) fn take() -> NonNull<u8> {
        CACHE.with(|cache| {
            let mut loaded = cache.loaded.get();
            match loaded.pop() {
                Some(block) => {
                    cache.loaded.set(loaded);
                    block.cast()
                }
                None => refill(cache).cast(),
            }
        })
    }

    #[cold]
    #[inline(never)]
    fn refill(cache: &Cache) -> NonNull<Block> {
        let keeps = keeps(cache);
        let mut list = cache.spare.replace(List::EMPTY);
        if list.len == 0 {
            list = lock(&DEPOT).get();
        }
        let block = list.pop().expect("the depot gives no empty list");
        if keeps {
            cache.loaded.set(list);
        } else {
            lock(&DEPOT).put(list);
        }
        block
    }

    /// Gives back a block.
    ///
    /// # Safety
    ///
    /// It is from [`take`], and nobody uses it.
    #[inline]
    pub(super) unsafe fn give(block: NonNull<u8>) {
        let block = block.cast();
        CACHE.with(|cache| {
            let mut loaded = cache.loaded.get();
            if loaded.len >= cache.room.get() {
                loaded = make_room(cache);
            }
            // SAFETY: by contract.
            unsafe { loaded.push(block) };
            cache.loaded.set(loaded);
            if cache.room.get() == 0 {
                lock(&DEPOT).put(cache.loaded.replace(List::EMPTY));
            }
        });
    }

    /// A list of the thread that is not full, in place of the one that is.
    #[cold]
    #[inline(never)]
    fn make_room(cache: &Cache) -> List {
        let full = cache.loaded.get();
        // At the beginning, and at the end, of a thread it is empty.
        if keeps(cache) && full.len == MAGAZINE {
            let spare = cache.spare.replace(full);
            lock(&DEPOT).put(spare);
            return List::EMPTY;
        }
        full
    }

    #[cfg(test)]
    mod tests {
        use std::{collections::HashSet, sync::mpsc, thread};

        use super::*;

        fn give_all(blocks: impl IntoIterator<Item = usize>) {
            for block in blocks {
                let block = std::ptr::with_exposed_provenance_mut(block);
                // SAFETY: `take` gave it, and it is given back once.
                unsafe { give(NonNull::new(block).unwrap()) };
            }
        }

        fn take_some(count: usize) -> HashSet<usize> {
            (0..count)
                .map(|_| take().as_ptr().expose_provenance())
                .collect()
        }

        #[test]
        fn blocks_are_lines_and_nobody_elses() {
            let some = take_some(3 * MAGAZINE + 1);
            assert_eq!(some.len(), 3 * MAGAZINE + 1);
            assert!(some.iter().all(|at| at % BLOCK == 0));
            give_all(some);
        }

        #[test]
        fn what_another_thread_frees_comes_back() {
            let (sender, receiver) = mpsc::channel::<HashSet<usize>>();
            let freeing = thread::spawn(move || receiver.into_iter().for_each(give_all));
            // Ten times as many blocks as there are alive at once, and what others hold meanwhile.
            let mut seen = HashSet::new();
            for _ in 0..100 {
                let some = take_some(MAGAZINE);
                seen.extend(&some);
                sender.send(some).unwrap();
            }
            drop(sender);
            freeing.join().unwrap();
            let again = take_some(100 * MAGAZINE);
            assert!(!again.is_disjoint(&seen), "the depot has what was freed");
            give_all(again);
        }

        /// Frees a block after the thread's list was given up.
        struct Late(usize);

        impl Drop for Late {
            fn drop(&mut self) {
                give_all([self.0]);
                let other = take_some(1);
                give_all(other);
                CACHE.with(|cache| assert!(cache.room.get() == 0 || cache.loaded.get().len > 0));
            }
        }

        #[test]
        fn a_thread_that_ends_may_still_free() {
            thread_local!(static LATE: Cell<Option<Late>> = const { Cell::new(None) });
            thread::spawn(|| {
                // Registered before the pool's own: destroyed in an order that nobody promises.
                LATE.set(Some(Late(0)));
                let block = take_some(1).into_iter().next().unwrap();
                LATE.with(|late| std::mem::forget(late.replace(Some(Late(block)))));
            })
            .join()
            .unwrap();
        }
    }
}
