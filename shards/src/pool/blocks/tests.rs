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
        // SAFETY: `take` gave it, and it is given back once.
        unsafe { give(NonNull::new(block).unwrap(), size) };
    }
}

fn take_some(count: usize, size: usize) -> HashSet<usize> {
    (0..count)
        .map(|_| take(size).as_ptr().expose_provenance())
        .collect()
}

#[test]
fn blocks_are_as_large_as_they_are_to_be_and_nobody_elses() {
    for size in 0..SIZES {
        let some = take_some(9 * MAGAZINE + 1, size);
        assert_eq!(some.len(), 9 * MAGAZINE + 1);
        let bytes = bytes_of(size);
        let aligned = if bytes % LINE == 0 { LINE } else { STEP };
        assert!(some.iter().all(|at| at % aligned == 0));
        let mut sorted: Vec<_> = some.iter().copied().collect();
        sorted.sort();
        let apart = |pair: &[usize]| pair[1] - pair[0] >= bytes;
        assert!(sorted.windows(2).all(apart), "none lies in another");
        give_all(some, size);
    }
}

/// Many blocks are freed by every seventh of them, and had again: but for a few lists each is behind the one before.
#[test]
fn what_was_freed_in_no_order_is_given_in_that_of_memory() {
    (0..SIZES).for_each(freed_in_no_order);
}

fn freed_in_no_order(size: usize) {
    let depot = Mutex::new(Depot::of(size));
    let take_all = |lists: usize| -> Vec<usize> {
        let lists = std::iter::repeat_with(|| get(&depot)).take(lists);
        lists
            .flat_map(|mut list| std::iter::from_fn(move || list.pop()))
            .map(|block| block.as_ptr().expose_provenance())
            .collect()
    };
    // Some chunks, of which each has a block less to give.
    let mut all = take_all(4 * LISTS);
    for phase in 0..7 {
        for some in all.chunks(7 * MAGAZINE) {
            let mut list = List::EMPTY;
            for &block in some.iter().skip(phase).step_by(7) {
                let block = std::ptr::with_exposed_provenance_mut(block);
                // SAFETY: the depot gave it, and it is given back once.
                unsafe { list.push(NonNull::new(block).unwrap()) };
            }
            put(&depot, list);
        }
    }
    let _recent = take_all(LISTS);
    let rest = take_all(2 * LISTS);
    let ascending = rest.windows(2).filter(|pair| pair[0] < pair[1]).count();
    // Memory is in pieces: that of a test that runs at the same time may lie in between. And windows are given in the order
    // in which they were met.
    assert!(
        ascending + rest.len() / 100 > rest.len(),
        "{ascending} of {}",
        rest.len()
    );
    all.sort();
    all.dedup();
    assert!(all.len() > rest.len());
    assert!(rest.iter().all(|block| all.binary_search(block).is_ok()));
}

/// From some MB on chunks get larger, and what is carved from those was made ready, a piece after the other.
#[test]
fn where_there_is_much_memory_is_made_ready_before_it_is_given() {
    let mut depot = Depot::of(1);
    let small = depot.carve();
    assert_eq!(small.unready, small.ready, "nobody is asked for so few");
    depot.left = 0;
    depot.total = CHUNK_SHARE * CHUNK_MOST;
    let (mut up_to, mut pieces, mut count) = (0, 0, 0);
    loop {
        let fresh = depot.carve();
        let (start, bytes) = (fresh.first.addr(), fresh.pages * PAGE);
        if fresh.unready < fresh.ready {
            assert!(up_to == 0 || fresh.unready == up_to, "none is left out");
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
fn a_layout_is_a_block_of_the_least_size_that_has_room_for_it() {
    let size =
        |size, align| super::super::size_of_block(Layout::from_size_align(size, align).unwrap());
    assert_eq!(size(48, 8), Some(0));
    assert_eq!(size(64, 64), Some(0));
    assert_eq!(size(65, 8), Some(1));
    assert_eq!(size(80, 16), Some(1));
    assert_eq!(size(81, 8), Some(2));
    assert_eq!(size(96, 32), Some(4), "whole lines, as it is aligned");
    assert_eq!(size(113, 8), Some(4));
    assert_eq!(size(128, 64), Some(4));
    assert_eq!(size(129, 8), None);
    assert_eq!(size(128, 128), None);
}

#[test]
fn what_another_thread_frees_comes_back() {
    let (sender, receiver) = mpsc::channel::<HashSet<usize>>();
    let freeing = thread::spawn(move || receiver.into_iter().for_each(|some| give_all(some, 0)));
    // Ten times as many blocks as there are alive at once, and what others hold meanwhile.
    let mut seen = HashSet::new();
    for _ in 0..100 {
        let some = take_some(MAGAZINE, 0);
        seen.extend(&some);
        sender.send(some).unwrap();
    }
    drop(sender);
    freeing.join().unwrap();
    let again = take_some(100 * MAGAZINE, 0);
    assert!(!again.is_disjoint(&seen), "the depot has what was freed");
    give_all(again, 0);
}

/// Frees a block as the thread ends, and counts how often that was after its lists were given up.
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
fn a_thread_that_ends_may_still_free() {
    thread_local! {
        static BEFORE: Cell<Option<Late>> = const { Cell::new(None) };
        static AFTER: Cell<Option<Late>> = const { Cell::new(None) };
    }
    let late = Arc::new(AtomicUsize::new(0));
    let thread = thread::spawn({
        let late = late.clone();
        move || {
            // Registered on both sides of the pool's own: they are destroyed in an order that nobody
            // promises, but one of them comes after it.
            BEFORE.set(None);
            let some = take_some(3 * MAGAZINE, 0);
            let mut some = some.into_iter();
            BEFORE.set(some.next().map(|block| Late(block, late.clone())));
            AFTER.set(some.next().map(|block| Late(block, late)));
            // So many that both lists have some.
            give_all(some, 0);
        }
    });
    thread.join().unwrap();
    assert!(late.load(Relaxed) >= 3, "none came after");
}
