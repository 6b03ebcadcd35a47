use std::{
    collections::HashSet,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
        mpsc,
    },
    thread,
};

use super::*;

fn give_all(blocks: impl IntoIterator<Item = usize>, size: usize) {
    for block in blocks {
        let block = std::ptr::with_exposed_provenance_mut(block);
        // SAFETY: the block is from `take`, and is given back once.
        unsafe { give(NonNull::new(block).unwrap(), size) };
    }
}

fn take_some(count: usize, size: usize) -> HashSet<usize> {
    (0..count)
        .map(|_| take(size).as_ptr().expose_provenance())
        .collect()
}

#[test]
fn blocks_have_their_size_and_do_not_overlap() {
    for size in 0..SIZES {
        let some = take_some(9 * MAGAZINE + 1, size);
        assert_eq!(some.len(), 9 * MAGAZINE + 1);
        let bytes = bytes_of(size);
        let aligned = if bytes % LINE == 0 { LINE } else { STEP };
        assert!(some.iter().all(|at| at % aligned == 0));
        let mut sorted: Vec<_> = some.iter().copied().collect();
        sorted.sort();
        let apart = |pair: &[usize]| pair[1] - pair[0] >= bytes;
        assert!(sorted.windows(2).all(apart), "blocks overlap");
        give_all(some, size);
    }
}

/// Frees many blocks, every seventh first, and takes them again: after the few unsorted lists,
/// blocks come in ascending order.
#[test]
fn blocks_freed_in_random_order_come_back_sorted() {
    (0..SIZES).for_each(check_sorted);
}

fn check_sorted(size: usize) {
    let depot = Mutex::new(Depot::of(size));
    let take_all = |lists: usize| -> Vec<usize> {
        let lists = std::iter::repeat_with(|| get(&depot)).take(lists);
        lists
            .flat_map(|mut list| std::iter::from_fn(move || list.pop()))
            .map(|block| block.as_ptr().expose_provenance())
            .collect()
    };
    // Some chunks. The first block of each is never handed out, and the last list is short.
    let mut all = take_all(6 * LISTS);
    for phase in 0..7 {
        for some in all.chunks(7 * MAGAZINE) {
            let mut list = List::EMPTY;
            for &block in some.iter().skip(phase).step_by(7) {
                let block = std::ptr::with_exposed_provenance_mut(block);
                // SAFETY: the block is from the depot, and is given back once.
                unsafe { list.push(NonNull::new(block).unwrap()) };
            }
            put(&depot, list);
        }
    }
    let _recent = take_all(LISTS);
    let rest = take_all(2 * LISTS);
    let ascending = rest.windows(2).filter(|pair| pair[0] < pair[1]).count();
    // Chunks of a test that runs at the same time may lie in between. And the windows come in the
    // order in which they were first used: there may be a break at the end of each.
    let bytes = bytes_of(size);
    let window = ordered::SPAN * (1 << bytes.trailing_zeros()).min(LINE);
    let breaks = rest.len() / 100 + rest.len() * bytes / window;
    assert!(
        ascending + breaks > rest.len(),
        "{ascending} of {}, and at most {breaks} breaks",
        rest.len()
    );
    all.sort();
    all.dedup();
    assert!(all.len() > rest.len());
    assert!(rest.iter().all(|block| all.binary_search(block).is_ok()));
}

/// Beyond some MB, chunks get larger. Each piece of them is prepared before its blocks are handed
/// out.
#[test]
fn large_chunks_are_prepared_before_their_blocks_are_handed_out() {
    let mut depot = Depot::of(1);
    let small = depot.carve();
    assert_eq!(small.unready, small.ready, "small chunks are not prepared");
    depot.left = 0;
    depot.total = CHUNK_SHARE * CHUNK_MOST;
    let (mut up_to, mut pieces, mut count) = (0, 0, 0);
    loop {
        let fresh = depot.carve();
        let (start, bytes) = (fresh.first.addr(), fresh.pages * PAGE);
        if fresh.unready < fresh.ready {
            assert!(up_to == 0 || fresh.unready == up_to, "no piece is left out");
            assert!(fresh.ready - fresh.unready <= READY);
            up_to = fresh.ready;
            pieces += 1;
        }
        assert!(start + bytes <= up_to);
        count += fresh.link().len;
        if depot.left == 0 {
            break;
        }
    }
    assert_eq!(up_to, depot.end);
    assert_eq!(pieces, CHUNK_MOST / READY);
    let pages = (CHUNK_MOST - CHUNK_MARGIN) / PAGE;
    assert_eq!(count, pages * (PAGE / bytes_of(1)) - 1);
}

#[test]
fn a_layout_gets_the_smallest_block_that_fits() {
    let size =
        |size, align| super::super::size_of_block(Layout::from_size_align(size, align).unwrap());
    assert_eq!(size(48, 8), Some(0));
    assert_eq!(size(64, 64), Some(0));
    assert_eq!(size(65, 8), Some(1));
    assert_eq!(size(80, 16), Some(1));
    assert_eq!(size(81, 8), Some(2));
    assert_eq!(size(96, 32), Some(4), "aligned to whole lines");
    assert_eq!(size(113, 8), Some(4));
    assert_eq!(size(128, 64), Some(4));
    assert_eq!(size(129, 8), Some(5));
    assert_eq!(size(129, 64), Some(8));
    assert_eq!(size(256, 8), Some(12));
    assert_eq!(size(257, 8), Some(13));
    assert_eq!(size(320, 64), Some(13));
    assert_eq!(size(512, 8), Some(SIZES - 1));
    assert_eq!(size(513, 8), None);
    assert_eq!(size(128, 128), None);
    for bytes in 1..=512 {
        let size = size(bytes, 8).unwrap();
        assert!(bytes_of(size) >= bytes);
        assert!(size == 0 || bytes_of(size - 1) < bytes, "{bytes}");
    }
}

#[test]
fn blocks_freed_by_another_thread_are_used_again() {
    let (sender, receiver) = mpsc::channel::<HashSet<usize>>();
    let freeing = thread::spawn(move || receiver.into_iter().for_each(|some| give_all(some, 0)));
    // Far more blocks in total than are in use at once, including what other tests hold.
    let mut seen = HashSet::new();
    for _ in 0..100 {
        let some = take_some(MAGAZINE, 0);
        seen.extend(&some);
        sender.send(some).unwrap();
    }
    drop(sender);
    freeing.join().unwrap();
    let again = take_some(100 * MAGAZINE, 0);
    assert!(!again.is_disjoint(&seen), "the depot has the freed blocks");
    give_all(again, 0);
}

/// Frees a block in a thread-local destructor, and counts how often that was after the thread's
/// lists were given up.
struct Late(usize, Arc<AtomicUsize>);

impl Late {
    fn look(&self) {
        CACHES.with(|[cache, ..]| {
            let keeps = cache.room.get() > 0;
            let has = [&cache.loaded, &cache.spare].map(|list| list.get().len > 0);
            assert_eq!(keeps, has != [false; 2], "{has:?}");
            self.1.fetch_add(usize::from(!keeps), Relaxed);
        });
    }
}

impl Drop for Late {
    fn drop(&mut self) {
        self.look();
        give_all([self.0], 0);
        self.look();
        let other = take_some(1, 0);
        give_all(other, 0);
        self.look();
    }
}

#[test]
fn a_thread_may_still_free_blocks_while_it_ends() {
    thread_local! {
        static BEFORE: Cell<Option<Late>> = const { Cell::new(None) };
        static AFTER: Cell<Option<Late>> = const { Cell::new(None) };
    }
    let late = Arc::new(AtomicUsize::new(0));
    let thread = thread::spawn({
        let late = late.clone();
        move || {
            // One is registered before the pool's own thread-local and one after it. The order of
            // destructors is not specified, but one of the two runs after the pool's.
            BEFORE.set(None);
            let some = take_some(3 * MAGAZINE, 0);
            let mut some = some.into_iter();
            BEFORE.set(some.next().map(|block| Late(block, late.clone())));
            AFTER.set(some.next().map(|block| Late(block, late)));
            // Enough blocks that both lists of the thread have some.
            give_all(some, 0);
        }
    });
    thread.join().unwrap();
    assert!(late.load(Relaxed) >= 3, "none ran after the pool's");
}

/// Few chunks for many blocks, and little memory for few.
#[test]
fn chunks_grow_with_the_memory_in_use() {
    const KIB: usize = 1024;
    // A page of each chunk is lost to the margin.
    for (total, pages) in [
        (0, 15),
        (64 * 64 * KIB, 15),
        (64 * 64 * KIB + 64, 31),
        (64 * 300 * KIB, 127),
        (64 * 1024 * KIB, 255),
        (64 * 9_000 * KIB, 255),
    ] {
        let mut depot = Depot::of(0);
        depot.total = total;
        depot.add_chunk();
        assert_eq!((depot.left, depot.kept), (pages, 1), "after {total} bytes");
        assert_eq!(depot.total, total + (pages + 1) * PAGE - CHUNK_MARGIN);
        assert_eq!(depot.end, depot.rest.addr() + pages * PAGE);
        // Small chunks count as prepared.
        let ready = if pages == 15 {
            depot.end
        } else {
            depot.rest.addr()
        };
        assert_eq!(depot.ready, ready);
    }
}

#[test]
fn new_blocks_come_by_the_list() {
    // The size of a block, and the pages of a list.
    for (size, pages) in [(0, 2), (1, 2), (4, 4), (SIZES - 1, 15)] {
        let mut depot = Depot::of(size);
        let blocks = pages * (PAGE / bytes_of(size));
        let lists = [depot.carve(), depot.carve()];
        assert_eq!(lists.each_ref().map(|fresh| fresh.pages), [pages; 2]);
        let lens = lists.map(|fresh| fresh.link().len);
        // The first block of a chunk is kept. A list of the largest blocks takes a whole chunk.
        let second = if pages == 15 { blocks - 1 } else { blocks };
        assert_eq!(lens, [blocks - 1, second]);
    }
}
