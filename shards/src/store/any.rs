//! The store that was chosen at run time.

use super::{Heap, Lanes, Store, Wheel};

/// Which store a shard has.
///
/// Each holds a number of timers that is bounded, far beyond what fits the memory of most machines. With one
/// more, whoever brings it to the store panics: that is who arms it, or the owner who reads it from the inbox. It
/// is lost then, neither run nor told; the shard goes on with the others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StoreKind {
    /// [`Heap`]: no operation takes much longer than another, and none pays for others. Up to 2^31 timers.
    Heap,
    /// [`Wheel`]: good at everything, the best at very many timers. Up to 2^29.
    #[default]
    Wheel,
    /// [`Lanes`]: for many timers that wait for one of a few durations. Up to 2^29.
    Lanes,
}

impl StoreKind {
    /// All there are.
    pub const ALL: [StoreKind; 3] = [StoreKind::Heap, StoreKind::Wheel, StoreKind::Lanes];
}

/// Any of the stores, by a branch that always goes the same way.
///
/// ```
/// use tourbillon_shards::store::{AnyStore, Store, StoreKind};
///
/// for kind in StoreKind::ALL {
///     let mut store = AnyStore::new(kind);
///     let slot = store.insert(10);
///     assert_eq!(store.pop_due(9, |_| ()), None);
///     assert_eq!(store.pop_due(10, |_| ()), Some((10, slot)));
/// }
/// ```
// With a tag of its own: one that hides in a field of a store takes some instructions to find, for each look.
#[derive(Debug)]
#[repr(u32)]
pub enum AnyStore {
    /// See [`StoreKind::Heap`].
    Heap(Heap),
    /// See [`StoreKind::Wheel`].
    Wheel(Box<Wheel>),
    /// See [`StoreKind::Lanes`].
    Lanes(Box<Lanes>),
}

/// The same call to the store that there is.
macro_rules! each {
    ($self:ident, $store:ident => $call:expr) => {
        match $self {
            AnyStore::Heap($store) => $call,
            AnyStore::Wheel($store) => $call,
            AnyStore::Lanes($store) => $call,
        }
    };
}

impl AnyStore {
    /// An empty store of this kind.
    pub fn new(kind: StoreKind) -> Self {
        match kind {
            StoreKind::Heap => AnyStore::Heap(Heap::new()),
            StoreKind::Wheel => AnyStore::Wheel(Box::default()),
            StoreKind::Lanes => AnyStore::Lanes(Box::default()),
        }
    }
}

/// What is published of a store after each change.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    /// The smallest key.
    pub(crate) first_key: u64,
    pub(crate) len: usize,
}

impl Seen {
    #[inline]
    fn of(store: &impl Store) -> Self {
        Self {
            first_key: store.first_key(),
            len: store.len(),
        }
    }
}

impl AnyStore {
    pub(crate) fn kind(&self) -> StoreKind {
        match self {
            AnyStore::Heap(_) => StoreKind::Heap,
            AnyStore::Wheel(_) => StoreKind::Wheel,
            AnyStore::Lanes(_) => StoreKind::Lanes,
        }
    }

    #[inline]
    pub(crate) fn seen(&self) -> Seen {
        match self {
            AnyStore::Heap(heap) => Seen::of(heap),
            AnyStore::Wheel(wheel) => Seen::of(&**wheel),
            AnyStore::Lanes(lanes) => Seen::of(&**lanes),
        }
    }

    /// See [`Store::insert`]: where that is no more than some loads and stores, and by the way what is to be published then.
    #[inline(always)]
    pub(crate) fn insert_quickly(&mut self, key: u64) -> Option<(u32, Seen)> {
        if cfg!(loom) {
            // Where there are few, as in the models, it never is. They are to meet this way all the same.
            return Some((self.insert(key), self.seen()));
        }
        let AnyStore::Wheel(wheel) = self else {
            return None;
        };
        let slot = wheel.insert_quickly(key)?;
        Some((slot, Seen::of(&**wheel)))
    }

    /// See [`Store::remove`]: likewise.
    #[inline]
    pub(crate) fn remove_quickly(&mut self, slot: u32) -> Option<Seen> {
        if cfg!(loom) {
            self.remove(slot);
            return Some(self.seen());
        }
        let AnyStore::Wheel(wheel) = self else {
            return None;
        };
        wheel.remove_quickly(slot).then(|| Seen::of(&**wheel))
    }

    /// Whether notes may be left [quickly](AnyStore::note_quickly).
    #[inline]
    pub(crate) fn puts_off(&self) -> bool {
        match self {
            AnyStore::Wheel(wheel) => wheel.puts_off(),
            AnyStore::Heap(_) | AnyStore::Lanes(_) => false,
        }
    }

    /// See [`Store::lower`]: of a slot that is held, where all there is to do is to leave a note of it, if `earlier` says so.
    /// What the store says of itself stays as it is.
    #[inline]
    pub(crate) fn note_quickly(&mut self, slot: u32, key: u64, earlier: bool) -> bool {
        match self {
            AnyStore::Wheel(wheel) => wheel.note_quickly(slot, key, earlier),
            AnyStore::Heap(_) | AnyStore::Lanes(_) => false,
        }
    }
}

impl Store for AnyStore {
    #[inline]
    fn insert(&mut self, key: u64) -> u32 {
        each!(self, store => store.insert(key))
    }

    #[inline]
    fn remove(&mut self, slot: u32) -> u64 {
        each!(self, store => store.remove(slot))
    }

    #[inline]
    fn rekey(&mut self, slot: u32, key: u64) {
        each!(self, store => store.rekey(slot, key));
    }

    #[inline]
    fn lower(&mut self, slot: u32, key: u64) {
        each!(self, store => store.lower(slot, key));
    }

    #[inline]
    fn key(&self, slot: u32) -> u64 {
        each!(self, store => store.key(slot))
    }

    #[inline]
    fn first(&self) -> Option<(u64, u32)> {
        each!(self, store => store.first())
    }

    #[inline]
    fn first_key(&self) -> u64 {
        each!(self, store => store.first_key())
    }

    #[inline]
    fn pop_due(&mut self, now: u64, soon: impl FnMut(u32)) -> Option<(u64, u32)> {
        each!(self, store => store.pop_due(now, soon))
    }

    #[inline]
    fn len(&self) -> usize {
        each!(self, store => store.len())
    }
}
