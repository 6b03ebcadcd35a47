//! Free blocks in the order of their addresses.
//!
//! A bit for each line of memory, or for less where blocks begin anywhere on one, by windows of 1,024 bits: 0.2 % of what
//! they cover, or up to 0.8. So many blocks that were freed in no
//! order are given again in theirs, one behind the other, as the processor reads ahead. Sorting would do that
//! as well, but all at once, and a pause is nobody's wish; a bit takes some ns.

/// The bits of a window, by their exponent, and the words that they are in.
const BITS: u32 = 10;
const WORDS: usize = (1 << BITS) / 64;

/// What stands in the index for none.
const NONE: u32 = u32::MAX;

/// Aligned bytes of memory, of which some lines are free blocks.
struct Window {
    /// Where it begins, by its own width.
    number: usize,
    /// Where a free block begins.
    free: [u64; WORDS],
}

/// Addresses of free blocks.
pub(super) struct Ordered {
    /// What they are multiples of, by its exponent.
    aligned: u32,
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
    /// For blocks whose addresses are multiples of this power of two.
    pub(super) const fn new(aligned: usize) -> Self {
        Self {
            aligned: aligned.trailing_zeros(),
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
            let window = &mut self.windows[at];
            let start = window.number << BITS;
            for (word, free) in window.free.iter_mut().enumerate() {
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
        count
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
        let mut ordered = Ordered::new(LINE);
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
        let mut ordered = Ordered::new(LINE);
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
}
