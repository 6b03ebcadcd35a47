//! What a task is and where it comes from, in four bytes.
//!
//! The type of its future and the place where it was spawned are two addresses, which would take sixteen bytes of each
//! task. A program has few such pairs: no more than it has calls that spawn something. So a task has the number of its
//! pair, which is its place in a table of the process.
//!
//! The table is hashed, and only ever grows. Who spawns a task finds the pair by two comparisons, mostly, with no lock, in
//! lines that are written once and then read by all cores; who asks for the pair has the number, and reads it there. What is
//! not found within a few places is looked for in the next part, which is twice as large, and a part is allocated when a
//! pair finds no room in those before. Pairs are added under a lock. The parts never move, and no place is emptied, so
//! the table takes as much as the program has pairs; a library that was unloaded, and what it spawned with it, leaves its
//! pairs behind.
//!
//! # Memory orders
//!
//! The two words of a place are written once, and where either is not yet seen the pair is just not found, and looked for
//! again under the lock. A number comes from a thread that has seen both, and gets to others by what publishes the
//! task: they see both as well, since nobody who happens after a read reads anything older from the same word. What the
//! words lead to was there before whoever spawned the task had the references. So all accesses are relaxed; only the
//! parts that are allocated come with an acquire, which is `OnceLock`'s.

// Not those of the simulated world: what is done here has no order that a schedule could change.
use std::{
    panic::Location,
    ptr,
    sync::{
        Mutex, OnceLock, PoisonError,
        atomic::{AtomicPtr, Ordering::Relaxed},
    },
};

use tourbillon_shards::TypeName;

/// How many places the first part has, as a power of two: 4 KB, of which only what is used is touched.
const FIRST_BITS: u32 = 8;
const FIRST: usize = 1 << FIRST_BITS;
/// How many parts come after it: there is room for more pairs than a program may have places to spawn at.
const MORE: usize = 15;
/// How many places of a part a pair may stand at: those of two lines.
const WINDOW: usize = 8;
/// The number of a pair that found no room.
const NONE: u32 = u32::MAX;

static TABLE: Table = Table::new();

/// What a task is and where it was spawned: the number of that pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Origin(u32);

impl Origin {
    /// The number of a future's type and the place where it is spawned.
    #[inline]
    pub(crate) fn of(future: &'static TypeName, spawned: &'static Location<'static>) -> Self {
        Self(TABLE.number(future, spawned))
    }

    /// The type of the future, and where it was spawned.
    #[inline]
    pub(crate) fn get(self) -> (&'static TypeName, &'static Location<'static>) {
        TABLE.pair(self.0)
    }
}

/// A pair, or room for one.
struct Slot {
    /// Null as long as there is none.
    future: AtomicPtr<TypeName>,
    spawned: AtomicPtr<Location<'static>>,
}

impl Slot {
    const fn new() -> Self {
        Self {
            future: AtomicPtr::new(ptr::null_mut()),
            spawned: AtomicPtr::new(ptr::null_mut()),
        }
    }

    #[inline]
    fn is(&self, future: &'static TypeName, spawned: &'static Location<'static>) -> bool {
        ptr::eq(self.future.load(Relaxed), future) && ptr::eq(self.spawned.load(Relaxed), spawned)
    }

    /// For who holds the lock.
    fn is_free(&self) -> bool {
        self.future.load(Relaxed).is_null()
    }

    /// For who holds the lock, once.
    fn fill(&self, future: &'static TypeName, spawned: &'static Location<'static>) {
        self.future.store(ptr::from_ref(future).cast_mut(), Relaxed);
        self.spawned
            .store(ptr::from_ref(spawned).cast_mut(), Relaxed);
    }

    #[inline]
    fn get(&self) -> Option<(&'static TypeName, &'static Location<'static>)> {
        let (future, spawned) = (self.future.load(Relaxed), self.spawned.load(Relaxed));
        // SAFETY: null, or from `fill`, which was given references that are good for ever.
        unsafe { Some((future.as_ref()?, spawned.as_ref()?)) }
    }
}

/// All pairs there are.
struct Table {
    first: [Slot; FIRST],
    /// Each has twice as many places as the one before.
    more: [OnceLock<Box<[Slot]>>; MORE],
    adding: Mutex<()>,
}

/// The number of the first place of a part. The first part is 0.
const fn base(part: u32) -> u32 {
    ((1 << part) - 1) << FIRST_BITS
}

/// The part in which the place of this number is.
fn part_of(number: u32) -> u32 {
    ((number >> FIRST_BITS) + 1).ilog2()
}

/// By what a pair is found. Its upper bits are the place.
#[inline]
fn hash(future: &'static TypeName, spawned: &'static Location<'static>) -> u64 {
    let future = ptr::from_ref(future).addr() as u64;
    let spawned = ptr::from_ref(spawned).addr() as u64;
    // Both are in the same few megabytes, so one of them is turned.
    (future ^ spawned.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// The places of a part at which a pair may stand, the likeliest first.
#[inline]
fn window(hash: u64, part: u32) -> impl Iterator<Item = usize> {
    let place = (hash >> (u64::BITS - FIRST_BITS - part)) as usize;
    (0..WINDOW).map(move |i| place ^ i)
}

impl Table {
    const fn new() -> Self {
        Self {
            first: [const { Slot::new() }; FIRST],
            more: [const { OnceLock::new() }; MORE],
            adding: Mutex::new(()),
        }
    }

    /// The number of a pair, which is added if it is new.
    #[inline]
    fn number(&self, future: &'static TypeName, spawned: &'static Location<'static>) -> u32 {
        let place = (hash(future, spawned) >> (u64::BITS - FIRST_BITS)) as usize;
        if self.first[place].is(future, spawned) {
            return place as u32;
        }
        self.number_elsewhere(future, spawned)
    }

    /// The number of a pair that does not stand at its first place.
    #[cold]
    #[inline(never)]
    fn number_elsewhere(
        &self,
        future: &'static TypeName,
        spawned: &'static Location<'static>,
    ) -> u32 {
        let hash = hash(future, spawned);
        let find = || self.find(hash, |slot| slot.is(future, spawned));
        if let Some((number, _)) = find() {
            return number;
        }
        let _adding = self.adding.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((number, _)) = find() {
            // Another thread has added it meanwhile.
            return number;
        }
        let free = || self.find(hash, Slot::is_free);
        let Some((number, slot)) = free().or_else(|| self.extend().and_then(|()| free())) else {
            return NONE;
        };
        slot.fill(future, spawned);
        number
    }

    /// The first place for this hash that `is` what is looked for.
    fn find(&self, hash: u64, is: impl Fn(&Slot) -> bool) -> Option<(u32, &Slot)> {
        for part in 0..=MORE as u32 {
            let slots = self.part(part)?;
            for place in window(hash, part) {
                if is(&slots[place]) {
                    return Some((base(part) + place as u32, &slots[place]));
                }
            }
        }
        None
    }

    /// The places of a part, if it has been allocated.
    fn part(&self, part: u32) -> Option<&[Slot]> {
        match part.checked_sub(1) {
            None => Some(&self.first),
            Some(more) => self.more.get(more as usize)?.get().map(|slots| &**slots),
        }
    }

    /// Allocates the next part, if there is to be one more. For who holds the lock.
    fn extend(&self) -> Option<()> {
        let next = self.more.iter().position(|part| part.get().is_none())?;
        self.more[next].get_or_init(|| (0..FIRST << (next + 1)).map(|_| Slot::new()).collect());
        Some(())
    }

    /// The pair of a number that this table has given.
    #[inline]
    fn pair(&self, number: u32) -> (&'static TypeName, &'static Location<'static>) {
        let slot = self.first.get(number as usize);
        let pair = slot.and_then(Slot::get);
        pair.unwrap_or_else(|| self.pair_elsewhere(number))
    }

    /// The pair of a number beyond the first part.
    #[cold]
    #[inline(never)]
    fn pair_elsewhere(&self, number: u32) -> (&'static TypeName, &'static Location<'static>) {
        let part = part_of(number);
        let slots = self.part(part);
        let slot = slots.and_then(|slots| slots.get((number - base(part)) as usize));
        slot.and_then(Slot::get)
            .unwrap_or_else(|| (TypeName::of::<Unknown>(), Location::caller()))
    }
}

/// What is told of a task for whose pair there was no room.
struct Unknown;

#[cfg(test)]
mod tests {
    use std::{collections::HashSet, thread};

    use super::*;

    /// Another place, as far as addresses go.
    fn place() -> &'static Location<'static> {
        Box::leak(Box::new(*Location::caller()))
    }

    fn is(
        (future, spawned): (&'static TypeName, &'static Location<'static>),
        expected: (&'static TypeName, &'static Location<'static>),
    ) -> bool {
        ptr::eq(future, expected.0) && ptr::eq(spawned, expected.1)
    }

    #[test]
    fn a_pair_has_one_number_and_the_number_has_the_pair() {
        let (future, spawned) = (TypeName::of::<u8>(), Location::caller());
        let origin = Origin::of(future, spawned);
        assert_eq!(Origin::of(future, spawned), origin);
        assert!(is(origin.get(), (future, spawned)));
        let other = Origin::of(TypeName::of::<u16>(), spawned);
        assert_ne!(other, origin);
        assert!(is(other.get(), (TypeName::of::<u16>(), spawned)));
        let other = Origin::of(future, place());
        assert_ne!(other, origin);
        assert!(is(origin.get(), (future, spawned)));
    }

    #[test]
    fn numbers_of_the_parts_follow_each_other() {
        assert_eq!((base(0), base(1), base(2)), (0, 256, 768));
        for part in 0..=MORE as u32 {
            assert_eq!(part_of(base(part)), part);
            assert_eq!(part_of(base(part + 1) - 1), part);
        }
        assert!(base(MORE as u32 + 1) < NONE);
    }

    #[test]
    fn as_many_as_come_have_room_and_keep_their_numbers() {
        let table = Table::new();
        let future = TypeName::of::<u8>();
        let pairs: Vec<_> = (0..if cfg!(miri) { 600 } else { 20_000 })
            .map(|_| (future, place()))
            .collect();
        let number = |&(future, spawned)| table.number(future, spawned);
        let numbers: Vec<_> = pairs.iter().map(number).collect();
        let different: HashSet<_> = numbers.iter().collect();
        assert_eq!(different.len(), pairs.len());
        assert!(!different.contains(&NONE));
        assert!(table.part(1).is_some(), "no more than the first is used");
        for (pair, &of_it) in pairs.iter().zip(&numbers) {
            assert_eq!(number(pair), of_it);
            assert!(is(table.pair(of_it), *pair));
        }
        let parts = (0..).map_while(|part| table.part(part));
        let room: usize = parts.map(<[_]>::len).sum();
        assert!(room < 16 * pairs.len() + FIRST, "{room} places");
    }

    #[test]
    fn a_pair_without_room_is_unknown() {
        let table = Table::new();
        let (future, spawned) = table.pair(NONE);
        assert!(future.get().ends_with("Unknown"));
        assert_eq!(spawned.file(), file!());
    }

    #[test]
    fn threads_agree_on_the_number_of_a_pair_that_is_new_to_all() {
        let table: &Table = Box::leak(Box::new(Table::new()));
        let pairs: Vec<_> = (0..if cfg!(miri) { 40 } else { 2_000 })
            .map(|_| (TypeName::of::<u8>(), place()))
            .collect();
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let pairs = pairs.clone();
                thread::spawn(move || {
                    let number = |&(future, spawned): &(_, _)| {
                        let number = table.number(future, spawned);
                        assert!(is(table.pair(number), (future, spawned)));
                        number
                    };
                    pairs.iter().map(number).collect::<Vec<_>>()
                })
            })
            .collect();
        let mut numbers = threads.into_iter().map(|thread| thread.join().unwrap());
        let first = numbers.next().unwrap();
        assert!(numbers.all(|numbers| numbers == first));
        assert_eq!(first.iter().collect::<HashSet<_>>().len(), pairs.len());
    }
}
