//! [`AnyStore`], a store whose kind is chosen at run time.

use super::{heap::Heap, interface::Store, wheel::Wheel};

/// Selects the store of a shard.
///
/// Each store has a maximum number of timers, far beyond what fits the memory of most machines. The
/// thread that inserts one more panics: the caller that arms the timer, or the owner that reads it
/// from the inbox. That timer is lost. Its callback is not called, for no outcome. The shard goes
/// on with the others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StoreKind {
    /// [`Heap`]: no operation takes much longer than another. Up to 2^31 timers.
    Heap,
    /// [`Wheel`]: fast for every workload, and the fastest for very many timers. Up to 2^29 timers.
    #[default]
    Wheel,
}

impl StoreKind {
    /// All kinds of stores.
    pub const ALL: [StoreKind; 2] = [StoreKind::Heap, StoreKind::Wheel];
}

/// A store of either kind. Each operation is one branch, which is predicted well.
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
// `repr(u32)` gives the enum a tag of its own. A tag in the niche of a field costs some
// instructions for each operation.
#[derive(Debug)]
#[repr(u32)]
pub enum AnyStore {
    /// See [`StoreKind::Heap`].
    Heap(Heap),
    /// See [`StoreKind::Wheel`].
    Wheel(Box<Wheel>),
}

/// Calls a method of the store, of either kind.
macro_rules! each {
    ($self:ident, $store:ident => $call:expr) => {
        match $self {
            AnyStore::Heap($store) => $call,
            AnyStore::Wheel($store) => $call,
        }
    };
}

impl AnyStore {
    /// Creates an empty store of this kind.
    pub fn new(kind: StoreKind) -> Self {
        match kind {
            StoreKind::Heap => AnyStore::Heap(Heap::new()),
            StoreKind::Wheel => AnyStore::Wheel(Box::default()),
        }
    }
}

/// The state of a store that the shard publishes after each change.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    /// The smallest key.
    pub(crate) first_key: u64,
    /// The number of entries.
    pub(crate) len: usize,
}

impl Seen {
    /// Reads the state of a store.
    #[inline]
    fn of(store: &impl Store) -> Self {
        Self {
            first_key: store.first_key(),
            len: store.len(),
        }
    }
}

impl AnyStore {
    /// Returns the kind of the store.
    pub(crate) fn kind(&self) -> StoreKind {
        match self {
            AnyStore::Heap(_) => StoreKind::Heap,
            AnyStore::Wheel(_) => StoreKind::Wheel,
        }
    }

    /// Returns the state to publish.
    #[inline]
    pub(crate) fn seen(&self) -> Seen {
        match self {
            AnyStore::Heap(heap) => Seen::of(heap),
            AnyStore::Wheel(wheel) => Seen::of(&**wheel),
        }
    }

    /// Fast path of [`Store::insert`]: inserts if that takes only a few loads and stores, and
    /// returns the slot and the state to publish.
    #[inline(always)]
    pub(crate) fn try_insert(&mut self, key: u64) -> Option<(u32, Seen)> {
        let AnyStore::Wheel(wheel) = self else {
            return None;
        };
        let slot = match wheel.try_insert(key) {
            Some(slot) => slot,
            // A model has few timers, so the store's fast path seldom applies. The caller's fast
            // path has the protocol, and the models run it all the same.
            None if cfg!(loom) => wheel.insert(key),
            None => return None,
        };
        Some((slot, Seen::of(&**wheel)))
    }

    /// Fast path of [`Store::remove`]: removes if that takes only a few loads and stores, and
    /// returns the state to publish.
    #[inline]
    pub(crate) fn try_remove(&mut self, slot: u32) -> Option<Seen> {
        let AnyStore::Wheel(wheel) = self else {
            return None;
        };
        if !wheel.try_remove(slot) {
            // As in `try_insert`.
            if !cfg!(loom) {
                return None;
            }
            wheel.remove(slot);
        }
        Some(Seen::of(&**wheel))
    }

    /// Returns whether [`try_note`](AnyStore::try_note) may take notes.
    #[inline]
    pub(crate) fn takes_notes(&self) -> bool {
        match self {
            AnyStore::Wheel(wheel) => wheel.takes_notes(),
            AnyStore::Heap(_) => false,
        }
    }

    /// Fast path of [`Store::lower`] for a held slot: notes the move, to be made later, if
    /// `earlier` is true. Returns `false` if the store takes no note. The published state does not
    /// change.
    #[inline]
    pub(crate) fn try_note(&mut self, slot: u32, key: u64, earlier: bool) -> bool {
        match self {
            AnyStore::Wheel(wheel) => wheel.try_note(slot, key, earlier),
            AnyStore::Heap(_) => false,
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A shard loses only speed if its store never takes a fast path, so no other test would
    /// notice.
    #[test]
    fn a_large_wheel_takes_the_fast_paths_and_a_heap_has_none() {
        for kind in StoreKind::ALL {
            let mut store = AnyStore::new(kind);
            assert_eq!(store.kind(), kind);
            assert!(!store.takes_notes());
            assert!(store.try_insert(7).is_none(), "there are no buckets");
            // So many that the wheel has buckets, and a key in each of them.
            for key in 1_000_000..1_000_020 {
                store.insert(key);
            }
            assert_eq!(store.first_key(), 1_000_000);
            let is_wheel = kind == StoreKind::Wheel;
            let inserted = store.try_insert(1_000_005);
            assert_eq!(inserted.is_some(), is_wheel);
            assert_eq!(store.len(), 20 + usize::from(is_wheel));
            let slot = match inserted {
                Some((slot, seen)) => {
                    assert_eq!((seen.first_key, seen.len), (1_000_000, 21));
                    slot
                }
                None => store.insert(1_000_005),
            };
            assert_eq!(store.takes_notes(), is_wheel);
            assert_eq!(store.try_note(slot, 1_000_003, true), is_wheel);
            assert_eq!(store.key(slot), 1_000_005 - 2 * u64::from(is_wheel));
            // Makes the moves that were noted: until then nothing is removed quickly.
            assert!(store.try_remove(slot).is_none());
            store.rekey(slot, 1_000_006);
            let removed = store.try_remove(slot);
            let removed = removed.map(|seen| (seen.first_key, seen.len));
            assert_eq!(removed, is_wheel.then_some((1_000_000, 20)));
            assert_eq!(store.len(), 21 - usize::from(is_wheel));
        }
    }
}
