use std::{
    collections::HashSet,
    ptr::with_exposed_provenance_mut,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
        mpsc,
    },
    thread,
};

use super::{
    spare::{SLICE, WINDOWS, return_some},
    *,
};

fn give_all(blocks: impl IntoIterator<Item = usize>, size: usize) {
    for block in blocks {
        let block = with_exposed_provenance_mut(block);
        // SAFETY: the block is from `take`, and is given back once.
        unsafe { give(NonNull::new(block).unwrap(), size) };
    }
}

fn take_some(count: usize, size: usize) -> HashSet<usize> {
    (0..count)
        .map(|_| take(size).as_ptr().expose_provenance())
        .collect()
}

/// Returns the addresses of a list's blocks in the order in which they are taken.
fn in_turn(list: &List) -> Vec<usize> {
    let blocks = list.as_slice().iter().rev();
    blocks.map(|block| block.expose_provenance()).collect()
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
        lists.flat_map(|list| in_turn(&list)).collect()
    };
    // Some chunks. The first block of each is never handed out, and the last list is short.
    let mut all = take_all(6 * LISTS);
    for phase in 0..7 {
        for some in all.chunks(7 * MAGAZINE) {
            let some = some.iter().skip(phase).step_by(7);
            let some: Vec<_> = some.map(|&at| with_exposed_provenance_mut(at)).collect();
            put(&depot, &some);
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
            assert!(fresh.unready < start + bytes, "it is not prepared early");
            assert!(fresh.ready - fresh.unready <= READY);
            up_to = fresh.ready;
            pieces += 1;
        }
        assert!(start + bytes <= up_to);
        count += fresh.list().len;
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
            // As long as there is a cache, it has some of the thread's many blocks.
            let keeps = cache.get().is_some();
            assert!(cache.get().is_none_or(|cache| cache.len.get() > 0));
            self.1.fetch_add(usize::from(!keeps), Relaxed);
        });
    }
}

impl Drop for Late {
    fn drop(&mut self) {
        self.look();
        // The depot has whole lists now: the thread must not keep the rest of one.
        let other = take_some(1, 0);
        self.look();
        give_all(other, 0);
        self.look();
        give_all([self.0], 0);
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
    assert_eq!(
        late.load(Relaxed),
        4,
        "one ran after the pool's, and one before"
    );
}

/// A thread exchanges half of what it keeps with the depot: the blocks that it freed first.
#[test]
fn a_thread_keeps_up_to_two_lists() {
    let thread = thread::spawn(|| {
        let kept = || CACHES.with(|[cache, ..]| cache.get().unwrap().len.get());
        let some: Vec<_> = take_some(4 * MAGAZINE, 0).into_iter().collect();
        let free = 2 * MAGAZINE - kept();
        give_all(some[..free].iter().copied(), 0);
        assert_eq!(kept(), 2 * MAGAZINE, "there is room for two lists");
        let (last, rest) = some[free..].split_first().unwrap();
        give_all([*last], 0);
        assert_eq!(kept(), MAGAZINE + 1);
        // What was freed last is taken first.
        let recent = some[free - MAGAZINE..=free].iter().rev();
        assert!(recent.eq(&in_turn_of(MAGAZINE + 1)));
        assert_eq!(kept(), 0);
        give_all(rest.iter().copied(), 0);
    });
    thread.join().unwrap();
}

/// Takes blocks of the first size one by one.
fn in_turn_of(count: usize) -> Vec<usize> {
    let blocks = (0..count).map(|_| take(0).as_ptr().expose_provenance());
    blocks.collect()
}

/// The depot keeps some lists as they are, and gives the last one first.
#[test]
fn lists_come_back_as_they_were() {
    let mut depot = Depot::of(0);
    for round in 0..3 {
        let mut lists = Vec::new();
        for len in 1..=LISTS {
            let list = depot.carve().list();
            let part = list.as_slice()[..len].to_vec();
            assert!(depot.keep(&part), "in round {round}");
            lists.push(part);
        }
        assert!(!depot.keep(&lists[0]), "the depot has enough lists");
        assert_eq!((depot.lists.len(), depot.least), (LISTS, 0));
        depot.least = LISTS;
        for part in lists.iter().rev() {
            assert_eq!(depot.get().unwrap().as_slice(), part);
            let left = depot.lists.len();
            assert_eq!((left, depot.least), (part.len() - 1, left));
        }
        assert!(depot.get().is_none());
    }
}

/// Blocks of each size lie in pages, and each page whose blocks are all free is returned.
#[test]
fn pages_of_each_size_are_returned() {
    for size in 0..SIZES {
        let depot = Mutex::new(Depot::of(size));
        let per_page = PAGE / bytes_of(size);
        let lists: Vec<_> = (0..2).map(|_| get(&depot)).collect();
        let blocks: usize = lists.iter().map(|list| list.len).sum();
        (lists.iter()).for_each(|list| put_in_order(&depot, list.as_slice()));
        {
            let mut depot = lock(&depot);
            (depot.unused, depot.hand) = (usize::MAX, depot.ordered.windows());
        }
        let mut pages = Vec::new();
        while return_some(&depot, &mut pages, |_, bytes| assert_eq!(bytes % PAGE, 0)) {}
        // The page of a chunk's first block stays.
        let resident = lock(&depot).ordered.resident();
        let firsts = blocks.next_multiple_of(per_page) - blocks;
        assert!(firsts == 1 || firsts == 2, "{firsts} chunks");
        assert_eq!(resident, firsts * (per_page - 1), "of size {size}");
        let mut again = [0; MAGAZINE];
        let mut count = 0;
        loop {
            let taken = lock(&depot).ordered.take(&mut again);
            if taken == 0 {
                break;
            }
            count += taken;
        }
        assert_eq!(count, blocks);
        assert_eq!(lock(&depot).ordered.resident(), 0);
    }
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
        let lens = lists.map(|fresh| fresh.list().len);
        // The first block of a chunk is kept. A list of the largest blocks takes a whole chunk.
        let second = if pages == 15 { blocks - 1 } else { blocks };
        assert_eq!(lens, [blocks - 1, second]);
    }
}

thread_local! {
    /// The spans that were given to the system: their address and their length in pages.
    static GIVEN: Cell<Vec<(usize, usize)>> = const { Cell::new(Vec::new()) };
}

/// Lets the depot return some pages, at most those of `budget` blocks. Returns their spans.
fn return_from(depot: &Mutex<Depot>, budget: usize) -> Vec<(usize, usize)> {
    lock(depot).unused = budget;
    let returns = return_some(depot, &mut Vec::new(), |at, bytes| {
        let mut given = GIVEN.take();
        assert_eq!(bytes % PAGE, 0);
        given.push((at.addr(), bytes / PAGE));
        GIVEN.set(given);
    });
    assert!(returns);
    GIVEN.take()
}

/// A call gives a slice of the spare pages, from the last window down. Pages that lie one behind
/// the other go in one call of the system.
#[test]
fn spare_pages_are_returned_slice_by_slice() {
    let depot = Mutex::new(Depot::of(0));
    // A part of a chunk of 1 MiB: 15 windows or so, each with 16 pages of 64 blocks.
    lock(&depot).total = CHUNK_SHARE * CHUNK_MOST;
    let lists: Vec<_> = (0..120).map(|_| get(&depot)).collect();
    let all: usize = lists.iter().map(|list| list.len).sum();
    (lists.iter()).for_each(|list| put_in_order(&depot, list.as_slice()));
    let windows = lock(&depot).ordered.windows();
    assert!((15..=16).contains(&windows));
    let per_window = ordered::SPAN;
    // The last window may have a part only, so begin below it.
    let hand = windows - 1;
    lock(&depot).hand = hand;
    // The budget ends within the third window.
    let given = return_from(&depot, 2 * per_window + 1);
    assert_eq!(given.iter().map(|span| span.1).collect::<Vec<_>>(), [16; 3]);
    assert!(
        given
            .windows(2)
            .all(|pair| pair[0].0 == pair[1].0 + 16 * PAGE)
    );
    assert_eq!(lock(&depot).hand, hand - 3);
    assert_eq!(lock(&depot).unused, 0);
    assert!(!return_some(&depot, &mut Vec::new(), |_, _| panic!(
        "the budget is used up"
    )));
    // A slice is four windows.
    let given = return_from(&depot, usize::MAX);
    assert_eq!(given.iter().map(|span| span.1).sum::<usize>(), SLICE);
    assert_eq!(lock(&depot).hand, hand - 7);
    assert_eq!(lock(&depot).ordered.resident(), all - 7 * per_window);
    // All of these blocks can be taken.
    let mut taken = vec![0; all + 1];
    assert_eq!(lock(&depot).ordered.take(&mut taken), all);
}

/// A call ends after some windows even if none has a spare page.
#[test]
fn a_search_for_spare_pages_ends_after_some_windows() {
    let depot = Mutex::new(Depot::of(0));
    lock(&depot).total = CHUNK_SHARE * CHUNK_MOST;
    let windows = 3 * WINDOWS;
    let mut blocks = Vec::new();
    while blocks.len() < (windows + 1) * ordered::SPAN {
        blocks.extend_from_slice(get(&depot).as_slice());
    }
    // Every second block is in use.
    for some in blocks.chunks(2 * MAGAZINE) {
        let some: Vec<_> = some.iter().step_by(2).copied().collect();
        put_in_order(&depot, &some);
    }
    lock(&depot).hand = windows;
    for round in 1..=3 {
        assert_eq!(return_from(&depot, usize::MAX), []);
        assert_eq!(lock(&depot).hand, windows - round * WINDOWS);
    }
    assert_eq!(return_from(&depot, usize::MAX), []);
    assert_eq!(lock(&depot).unused, 0, "the search is at its end");
}
