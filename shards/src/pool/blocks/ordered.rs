//! Free blocks in the order of their addresses.
//!
//! A bit for each line of memory, or for less where blocks begin anywhere on one, by windows of 1,024 bits: 0.2 % of what
//! they cover, or up to 0.8. So many blocks that were freed in no
//! order are given again in theirs, one behind the other, as the processor reads ahead. Sorting would do that
//! as well, but all at once, and a pause is nobody's wish; a bit takes some ns.

use super::{PAGE, STEP};

/// The bits of a window, by their exponent, and the words that they are in.
const BITS: u32 = 10;
const WORDS: usize = (1 << BITS) / 64;

/// What stands in the index for none.
const NONE: u32 = u32::MAX;

/// In so many words there are at most the bits of a page.
const PAGE_WORDS: usize = PAGE / STEP / 64;

/// Aligned bytes of memory, of which some lines are free blocks.
struct Window {
    /// Where it begins, by its own width.
    number: usize,
    /// Where a free block begins.
    free: [u64; WORDS],
    /// Which pages have been given to the system, a bit for each. All blocks of such a page are
    /// free.
    returned: u16,
}

/// A page whose blocks were all free, and are the owner's of this: who gives the page to the
/// system.
pub(super) struct Page {
    pub(super) address: usize,
    /// Its window, and its number there.
    window: usize,
    number: usize,
    free: [u64; PAGE_WORDS],
}

/// Addresses of free blocks.
pub(super) struct Ordered {
    /// What they are multiples of, by its exponent.
    aligned: u32,
    /// How many blocks a page has, of which none is on two pages.
    per_page: u32,
    /// How many there are.
    count: usize,
    /// How many of them are on pages that were given to the system.
    returned: usize,
    /// How many there were at the least since the last [look](Ordered::unused).
    least: usize,
    windows: Vec<Window>,
    /// Where in `windows` the one of a number is, from the place on that a hash tells; a power of two of places, of
    /// which a half is none at least.
    index: Vec<u32>,
    /// In which windows there is something, a bit for each.
    occupied: Vec<u64>,
    /// Before this word of `occupied` there is nothing.
    first: usize,
    /// The window that was met last.
    last: usize,
}

impl Ordered {
    /// For blocks whose addresses are multiples of this power of two, and of which a page has so
    /// many.
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
            last: 0,
        }
    }

    /// Keeps a block, which is not here.
    pub(super) fn put(&mut self, address: usize) {
        let number = address >> self.aligned;
        let at = self.window(number >> BITS);
        self.windows[at].free[number / 64 % WORDS] |= 1 << (number % 64);
        self.count += 1;
        self.occupied[at / 64] |= 1 << (at % 64);
        self.first = self.first.min(at / 64);
    }

    /// Takes as many blocks as there is room for in `out`, or there are, and answers how many. Those of one window
    /// ascend.
    pub(super) fn take(&mut self, out: &mut [usize]) -> usize {
        let mut count = 0;
        while count < out.len() {
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
                    // It is written again from now on.
                    let page = 1 << (word / page_words);
                    if window.returned & page != 0 {
                        window.returned &= !page;
                        self.returned -= self.per_page as usize;
                    }
                }
                while *free != 0 && count < out.len() {
                    let number = start + word * 64 + free.trailing_zeros() as usize;
                    out[count] = number << self.aligned;
                    *free &= *free - 1;
                    count += 1;
                }
            }
            if window.free[WORDS - 1] == 0 && window.free.iter().all(|&free| free == 0) {
                *occupied &= *occupied - 1;
            }
        }
        self.count -= count;
        self.least = self.least.min(self.count);
        count
    }

    /// How many blocks are here that take memory.
    pub(super) fn resident(&self) -> usize {
        self.count - self.returned
    }

    /// Returns how many blocks that take memory nobody wanted since the last call: so many were
    /// here all the time. The blocks of returned pages take no memory, and need no second look.
    pub(super) fn unused(&mut self) -> usize {
        std::mem::replace(&mut self.least, self.count).saturating_sub(self.returned)
    }

    /// How many windows there are.
    pub(super) fn windows(&self) -> usize {
        self.windows.len()
    }

    /// Takes all blocks out that are on wholly free pages of this window, but for returned pages.
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
            // The caller's budget is for blocks that take memory.
            if *returned & 1 << page != 0 {
                continue;
            }
            let count: u32 = words.iter().map(|word| word.count_ones()).sum();
            blocks += count as usize;
            if count < self.per_page {
                continue;
            }
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

    /// Keeps the blocks of a page again, which was given to the system.
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

    /// The window of this number.
    #[inline]
    fn window(&mut self, number: usize) -> usize {
        // What was allocated together is freed together, more often than not.
        let same = |window: &Window| window.number == number;
        if !self.windows.get(self.last).is_some_and(same) {
            self.last = self.find(number);
        }
        self.last
    }

    fn find(&mut self, number: usize) -> usize {
        if self.windows.len() * 2 >= self.index.len() {
            self.grow();
        }
        let mut place = place_of(number, self.index.len());
        loop {
            match self.index[place] {
                NONE => break,
                at if self.windows[at as usize].number == number => return at as usize,
                _ => place = place_of(place + 1, self.index.len()),
            }
        }
        let at = self.windows.len();
        self.index[place] = u32::try_from(at).expect("no memory has so many windows");
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

    #[cold]
    fn grow(&mut self) {
        let places = (self.index.len() * 2).max(64);
        self.index.clear();
        self.index.resize(places, NONE);
        for (at, window) in (0..).zip(&self.windows) {
            let mut place = place_of(window.number, places);
            while self.index[place] != NONE {
                place = place_of(place + 1, places);
            }
            self.index[place] = at;
        }
    }
}

/// Where a number is looked for first, of so many places, a power of two. Neighbours are not in each other's way.
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

    /// Beside a sorted set: chunks here and there, of which blocks come and go in no order.
    #[test]
    fn what_is_kept_is_given_once() {
        let mut random = random(3);
        let mut ordered = Ordered::new(LINE, PAGE / LINE);
        let mut model = BTreeSet::new();
        let mut out = Vec::new();
        for chunk in 0..100 {
            // Not where a window begins, and more of them than one index has places for.
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
                    ordered.put(block);
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
    fn the_lowest_are_given_first() {
        let mut ordered = Ordered::new(LINE, PAGE / LINE);
        assert_eq!(ordered.take(&mut [0; 4]), 0);
        for line in [9, 3, 1_023, 0, 500] {
            ordered.put((7 << WIDTH) + line * LINE);
        }
        let mut some = [0; 2];
        let given: Vec<_> = (0..3)
            .flat_map(|_| {
                let count = ordered.take(&mut some);
                some[..count].to_vec()
            })
            .collect();
        let lines = [0, 3, 9, 500, 1_023].map(|line| (7 << WIDTH) + line * LINE);
        assert_eq!(given, lines);
        assert_eq!(ordered.take(&mut some), 0);
    }

    /// Pages are taken if all their blocks are there, once, and their blocks are given as all
    /// others when they are back.
    #[test]
    fn pages_are_returned_if_they_are_free_and_once() {
        // Blocks of a line, of five quarters of one, and of two.
        for (aligned, bytes) in [(64, 64), (16, 80), (64, 128)] {
            let per_page = PAGE / bytes;
            let mut ordered = Ordered::new(aligned, per_page);
            let start = 77 << (BITS + aligned.trailing_zeros());
            let block = |page: usize, at: usize| start + page * PAGE + at * bytes;
            let mut all = BTreeSet::new();
            for page in 0..40 {
                // Of every fourth page one block is in use.
                let free = (0..per_page).filter(|at| page % 4 != 1 || *at != page % per_page);
                for at in free {
                    ordered.put(block(page, at));
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
            // Nobody else is given what the system is about to have.
            let mut out = vec![0; all.len()];
            let count = ordered.take(&mut out);
            assert_eq!(count, 10 * (per_page - 1));
            for &address in &out[..count] {
                assert_eq!((address - start) / PAGE % 4, 1);
                ordered.put(address);
            }
            pages.drain(..).for_each(|page| ordered.put_returned(&page));
            assert_eq!(ordered.resident(), 10 * (per_page - 1));
            assert_eq!(seen(&mut ordered, &mut pages), 10 * (per_page - 1));
            assert!(pages.is_empty(), "the system has them");
            // A part of the first page is given, which is written again.
            assert_eq!(ordered.unused(), 0);
            let count = ordered.take(&mut out[..per_page / 2]);
            assert_eq!(count, per_page / 2);
            assert_eq!(ordered.resident(), 11 * per_page - 10 - count);
            out[..count].iter().for_each(|&it| ordered.put(it));
            seen(&mut ordered, &mut pages);
            assert_eq!(pages.len(), 1);
            assert_eq!(pages[0].address, start);
            pages.drain(..).for_each(|page| ordered.put_returned(&page));
            assert_eq!(
                ordered.unused(),
                all.len() - count - 30 * per_page,
                "so many were there all the time, and take memory"
            );
            let mut out = vec![0; all.len() + 1];
            assert_eq!(ordered.take(&mut out), all.len());
            assert!(out[..all.len()].iter().all(|it| all.remove(it)));
            assert_eq!(ordered.resident(), 0);
        }
    }
}
