//! Set of free blocks, sorted by address.
//!
//! It is a bitmap: one bit per line of memory, or per 16 bytes where blocks may begin anywhere on a
//! line. Windows of 1,024 bits hold it, so with their index it takes 0.3 % to 1.3 % of the memory
//! that it covers. Blocks that were freed in random order are handed out in ascending order, which
//! suits the processor's prefetcher. Sorting a list would do the same, but in one long pause;
//! setting a bit takes some ns.

use super::{MAGAZINE, PAGE, STEP};
use tourbillon_sync::prefetch;

/// Number of bits of a window, as a power of two, and number of words that hold them.
const BITS: u32 = 10;
const WORDS: usize = (1 << BITS) / 64;
/// Number of aligned addresses that a window covers.
#[cfg(test)]
pub(super) const SPAN: usize = 1 << BITS;

/// Place of the index: the number of a window, and the window's index in `windows`. A search reads
/// no window, because the window may not be in the cache.
#[derive(Clone, Copy)]
struct Place {
    number: usize,
    at: u32,
}

impl Place {
    const EMPTY: Self = Self {
        number: 0,
        at: NONE,
    };
}

/// Value of `at` in an empty place.
const NONE: u32 = u32::MAX;

/// Largest number of words that hold the bits of a page.
const PAGE_WORDS: usize = PAGE / STEP / 64;

/// Bitmap of a span of memory that is aligned to its own size.
struct Window {
    /// Address of the span, divided by its size.
    number: usize,
    /// Bits set where a free block begins.
    free: [u64; WORDS],
    /// Bits set for pages that the system got back. All blocks of such a page are free.
    returned: u16,
}

/// Page whose blocks are all free, and belong to a thread that gives the page to the system.
pub(super) struct Page {
    pub(super) address: usize,
    /// Window of the page, and number of the page in it.
    window: usize,
    number: usize,
    free: [u64; PAGE_WORDS],
}

/// Set of addresses of free blocks, which hands them out in ascending order within a window.
pub(super) struct Ordered {
    /// Alignment of the blocks, as a power of two.
    aligned: u32,
    /// Number of blocks per page. No block lies on two pages.
    per_page: u32,
    /// Number of blocks in the set.
    count: usize,
    /// Number of these blocks that lie on returned pages.
    returned: usize,
    /// Smallest `count` since the last call of [`Ordered::unused`].
    least: usize,
    windows: Vec<Window>,
    /// Open-addressing hash table from the number of a window to its index in `windows`. Its size
    /// is a power of two, and at least half of its places are empty.
    index: Vec<Place>,
    /// Bits set for windows that have a free block.
    occupied: Vec<u64>,
    /// All words of `occupied` before this one are zero.
    first: usize,
}

impl Ordered {
    /// Creates an empty set for blocks whose addresses are multiples of `aligned`, a power of two,
    /// with `per_page` blocks per page.
    pub(super) const fn new(aligned: usize, per_page: usize) -> Self {
        Self {
            aligned: aligned.trailing_zeros(),
            per_page: per_page as u32,
            count: 0,
            returned: 0,
            least: 0,
            windows: Vec::new(),
            index: Vec::new(),
            occupied: Vec::new(),
            first: 0,
        }
    }

    /// Adds blocks, which must not be in the set.
    pub(super) fn put(&mut self, addresses: &[usize]) {
        // The blocks were freed in any order, so most of their windows are not in the cache. The
        // first pass prefetches them, and so the cache misses of many blocks overlap.
        let mut windows = [0; MAGAZINE];
        for some in addresses.chunks(MAGAZINE) {
            for (at, address) in windows.iter_mut().zip(some) {
                let number = address >> self.aligned;
                *at = self.window(number >> BITS);
                prefetch(&self.windows[*at].free[number / 64 % WORDS], 1);
            }
            for (&at, address) in windows.iter().zip(some) {
                let number = address >> self.aligned;
                self.windows[at].free[number / 64 % WORDS] |= 1 << (number % 64);
                self.occupied[at / 64] |= 1 << (at % 64);
                self.first = self.first.min(at / 64);
            }
        }
        self.count += addresses.len();
    }

    /// Takes blocks until `out` is full or the set is empty, and returns how many. Blocks of one
    /// window ascend.
    pub(super) fn take(&mut self, out: &mut [usize]) -> usize {
        let mut count = 0;
        while count < out.len() {
            // Find the first window that has a block.
            let Some(occupied) = self.occupied.get_mut(self.first) else {
                break;
            };
            if *occupied == 0 {
                self.first += 1;
                continue;
            }
            let at = self.first * 64 + occupied.trailing_zeros() as usize;
            let page_words = (PAGE >> self.aligned) / 64;
            let window = &mut self.windows[at];
            let start = window.number << BITS;
            for (word, free) in window.free.iter_mut().enumerate() {
                if *free != 0 && count < out.len() && window.returned != 0 {
                    // Its blocks are about to be written, so the system will map the page again.
                    let page = 1 << (word / page_words);
                    if window.returned & page != 0 {
                        window.returned &= !page;
                        self.returned -= self.per_page as usize;
                    }
                }
                // Take the blocks of this word, from the lowest bit up.
                while *free != 0 && count < out.len() {
                    let number = start + word * 64 + free.trailing_zeros() as usize;
                    out[count] = number << self.aligned;
                    *free &= *free - 1;
                    count += 1;
                }
            }
            // The loop may have emptied the window. The last word is the cheapest test.
            if window.free[WORDS - 1] == 0 && window.free.iter().all(|&free| free == 0) {
                *occupied &= *occupied - 1;
            }
        }
        self.count -= count;
        self.least = self.least.min(self.count);
        count
    }

    /// Returns how many blocks of the set take memory.
    pub(super) fn resident(&self) -> usize {
        self.count - self.returned
    }

    /// Returns how many blocks that take memory were in the set all the time since the last call.
    /// Blocks on returned pages take no memory and are not counted.
    pub(super) fn unused(&mut self) -> usize {
        std::mem::replace(&mut self.least, self.count).saturating_sub(self.returned)
    }

    /// Returns the number of windows.
    pub(super) fn windows(&self) -> usize {
        self.windows.len()
    }

    /// Takes all blocks out of the wholly free pages of this window, and adds these pages to `out`.
    /// Pages that were returned already are left alone.
    ///
    /// Returns how many blocks of the window took memory before: those that were taken, and those
    /// on pages that are partly in use.
    pub(super) fn take_pages(&mut self, window: usize, out: &mut Vec<Page>) -> usize {
        let page_words = (PAGE >> self.aligned) / 64;
        let before = out.len();
        let Window {
            number,
            free,
            returned,
        } = &mut self.windows[window];
        let mut blocks = 0;
        for (page, words) in free.chunks_mut(page_words).enumerate() {
            // The budget of the caller counts only blocks that take memory.
            if *returned & 1 << page != 0 {
                continue;
            }
            let count: u32 = words.iter().map(|word| word.count_ones()).sum();
            blocks += count as usize;
            if count < self.per_page {
                continue;
            }
            // All blocks of the page are free: move its bits to a `Page`.
            let mut taken = [0; PAGE_WORDS];
            taken[..page_words].copy_from_slice(words);
            words.fill(0);
            out.push(Page {
                address: (*number << BITS << self.aligned) + page * PAGE,
                window,
                number: page,
                free: taken,
            });
        }
        self.count -= (out.len() - before) * self.per_page as usize;
        blocks
    }

    /// Puts the blocks of a page back after the system got the page.
    pub(super) fn put_returned(&mut self, page: &Page) {
        let page_words = (PAGE >> self.aligned) / 64;
        let window = &mut self.windows[page.window];
        let words = window.free.chunks_mut(page_words).nth(page.number);
        words
            .expect("a window has its pages")
            .copy_from_slice(&page.free[..page_words]);
        window.returned |= 1 << page.number;
        self.count += self.per_page as usize;
        self.returned += self.per_page as usize;
        let at = page.window;
        self.occupied[at / 64] |= 1 << (at % 64);
        self.first = self.first.min(at / 64);
    }

    /// Returns the index of the window with this number, and adds it if there is none.
    fn window(&mut self, number: usize) -> usize {
        if self.windows.len() * 2 >= self.index.len() {
            self.grow();
        }
        let mut place = place_of(number, self.index.len());
        loop {
            let Place { number: found, at } = self.index[place];
            if at == NONE {
                break;
            }
            if found == number {
                return at as usize;
            }
            place = place_of(place + 1, self.index.len());
        }
        // The place is empty, so the window is new.
        let at = self.windows.len();
        self.index[place] = Place {
            number,
            at: u32::try_from(at).expect("no memory has so many windows"),
        };
        self.windows.push(Window {
            number,
            free: [0; WORDS],
            returned: 0,
        });
        if at % 64 == 0 {
            self.occupied.push(0);
        }
        at
    }

    /// Doubles the index, so that at least half of it is empty.
    #[cold]
    fn grow(&mut self) {
        let places = (self.index.len() * 2).max(64);
        self.index.clear();
        self.index.resize(places, Place::EMPTY);
        for (at, window) in (0..).zip(&self.windows) {
            let mut place = place_of(window.number, places);
            while self.index[place].at != NONE {
                place = place_of(place + 1, places);
            }
            self.index[place] = Place {
                number: window.number,
                at,
            };
        }
    }
}

/// Returns where the search for a number begins, in an index of `places` places. Adjacent windows
/// get adjacent places, so they do not collide.
#[inline]
fn place_of(number: usize, places: usize) -> usize {
    number & (places - 1)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const LINE: usize = 64;
    const WIDTH: u32 = LINE.trailing_zeros() + BITS;

    fn random(seed: u64) -> impl FnMut(usize) -> usize {
        let mut seed = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        move |below| {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            (seed >> 11) as usize % below
        }
    }

    /// Compares the set with a `BTreeSet`. Blocks of random chunks come and go in random order.
    #[test]
    fn each_block_is_handed_out_once() {
        let mut random = random(3);
        let mut ordered = Ordered::new(LINE, PAGE / LINE);
        let mut model = BTreeSet::new();
        let mut out = Vec::new();
        for chunk in 0..100 {
            // Chunks do not begin at a window, and have more windows than the first index has
            // places.
            let start = (random(1 << 40) + 1) * 4_096 + chunk * LINE;
            out.extend((0..400).map(|block| start + block * LINE));
        }
        out.sort();
        out.dedup();
        let total = out.len();
        for _ in 0..30 {
            while !out.is_empty() && random(50) > 0 {
                for _ in 0..random(2_000).min(out.len()) {
                    let block = out.swap_remove(random(out.len()));
                    ordered.put(&[block]);
                    assert!(model.insert(block));
                }
            }
            let mut some = vec![0; random(20_000)];
            let count = ordered.take(&mut some);
            assert_eq!(count, some.len().min(model.len()));
            assert!(some[..count].iter().all(|block| model.remove(block)));
            let pairs = some[..count].windows(2);
            let together = pairs.filter(|it| it[0] >> WIDTH == it[1] >> WIDTH);
            assert!(together.into_iter().all(|it| it[0] < it[1]));
            out.extend_from_slice(&some[..count]);
        }
        assert_eq!(out.len() + model.len(), total);
    }

    #[test]
    fn the_lowest_addresses_come_first() {
        let mut ordered = Ordered::new(LINE, PAGE / LINE);
        assert_eq!(ordered.take(&mut [0; 4]), 0);
        // The last line of a window, and a line in its middle.
        for last in [1_023, 700] {
            for line in [9, 3, last, 0, 500] {
                ordered.put(&[(7 << WIDTH) + line * LINE]);
            }
            let mut some = [0; 2];
            let given: Vec<_> = (0..3)
                .flat_map(|_| {
                    let count = ordered.take(&mut some);
                    some[..count].to_vec()
                })
                .collect();
            let lines = [0, 3, 9, 500, last].map(|line| (7 << WIDTH) + line * LINE);
            assert_eq!(given, lines);
            assert_eq!(ordered.take(&mut some), 0);
        }
    }

    /// A set that was emptied finds what is put into any of its windows, also if the search for all
    /// of them begins at one place.
    #[test]
    fn each_window_is_found_again() {
        const COUNT: usize = 200;
        for apart in [0, 20] {
            let mut ordered = Ordered::new(LINE, PAGE / LINE);
            let block = |window: usize| (window << apart << WIDTH) + LINE * (window + 1);
            let mut out = [0; COUNT + 1];
            (0..COUNT).for_each(|window| ordered.put(&[block(window)]));
            assert_eq!(ordered.take(&mut out), COUNT);
            for window in 0..COUNT {
                ordered.put(&[block(window)]);
                assert_eq!(ordered.take(&mut out), 1);
                assert_eq!(out[0], block(window));
                assert_eq!(ordered.take(&mut out), 0);
            }
            assert_eq!(ordered.windows(), COUNT);
            assert_eq!(ordered.index.len(), 512, "at least half of it is empty");
            assert_eq!(ordered.occupied.len(), COUNT.div_ceil(64));
        }
    }

    /// A page that is returned is found again, whichever its window is.
    #[test]
    fn each_returned_page_is_found_again() {
        const WINDOWS: usize = 130;
        let per_page = PAGE / LINE;
        let mut ordered = Ordered::new(LINE, per_page);
        let start = |window: usize| window << WIDTH;
        for window in 0..WINDOWS {
            (0..per_page).for_each(|block| ordered.put(&[start(window) + block * LINE]));
        }
        let mut pages = Vec::new();
        (0..WINDOWS).for_each(|window| _ = ordered.take_pages(window, &mut pages));
        let mut out = vec![0; per_page + 1];
        assert_eq!(ordered.take(&mut out), 0);
        for (window, page) in pages.iter().enumerate().rev() {
            ordered.put_returned(page);
            assert_eq!(ordered.take(&mut out), per_page, "of window {window}");
            assert_eq!(out[0], start(window));
        }
    }

    /// A page is taken if all its blocks are free, and only once. After it is put back, its blocks
    /// are handed out like all others.
    #[test]
    fn only_free_pages_are_returned_and_only_once() {
        // Blocks of one line, of five quarters of a line, and of two lines.
        for (aligned, bytes) in [(64, 64), (16, 80), (64, 128)] {
            let per_page = PAGE / bytes;
            let mut ordered = Ordered::new(aligned, per_page);
            let start = 77 << (BITS + aligned.trailing_zeros());
            let block = |page: usize, at: usize| start + page * PAGE + at * bytes;
            let mut all = BTreeSet::new();
            for page in 0..40 {
                // One block of every fourth page is in use.
                let free = (0..per_page).filter(|at| page % 4 != 1 || *at != page % per_page);
                for at in free {
                    ordered.put(&[block(page, at)]);
                    all.insert(block(page, at));
                }
            }
            let mut pages = Vec::new();
            let seen = |ordered: &mut Ordered, pages: &mut Vec<Page>| -> usize {
                let windows = 0..ordered.windows();
                windows.map(|at| ordered.take_pages(at, pages)).sum()
            };
            assert_eq!(seen(&mut ordered, &mut pages), all.len());
            let mut taken: Vec<_> = pages.iter().map(|it| (it.address - start) / PAGE).collect();
            taken.sort();
            assert!(taken.into_iter().eq((0..40).filter(|page| page % 4 != 1)));
            // Blocks that the system is about to get are not handed out.
            let mut out = vec![0; all.len()];
            let count = ordered.take(&mut out);
            assert_eq!(count, 10 * (per_page - 1));
            for &address in &out[..count] {
                assert_eq!((address - start) / PAGE % 4, 1);
                ordered.put(&[address]);
            }
            pages.drain(..).for_each(|page| ordered.put_returned(&page));
            assert_eq!(ordered.resident(), 10 * (per_page - 1));
            assert_eq!(seen(&mut ordered, &mut pages), 10 * (per_page - 1));
            assert!(pages.is_empty(), "they have been returned");
            // A part of the first page is handed out, so the page takes memory again.
            assert_eq!(ordered.unused(), 0);
            let count = ordered.take(&mut out[..per_page / 2]);
            assert_eq!(count, per_page / 2);
            assert_eq!(ordered.resident(), 11 * per_page - 10 - count);
            out[..count].iter().for_each(|&it| ordered.put(&[it]));
            seen(&mut ordered, &mut pages);
            assert_eq!(pages.len(), 1);
            assert_eq!(pages[0].address, start);
            pages.drain(..).for_each(|page| ordered.put_returned(&page));
            assert_eq!(
                ordered.unused(),
                all.len() - count - 30 * per_page,
                "blocks that were in the set all the time and take memory"
            );
            let mut out = vec![0; all.len() + 1];
            assert_eq!(ordered.take(&mut out), all.len());
            assert!(out[..all.len()].iter().all(|it| all.remove(it)));
            assert_eq!(ordered.resident(), 0);
        }
    }
}
