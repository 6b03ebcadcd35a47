//! Where a task was spawned, and its name.

use std::{
    collections::HashMap,
    fmt,
    panic::Location,
    ptr::{self, NonNull},
    sync::{PoisonError, RwLock},
};

/// The place where a task was spawned, and the task's name if it has one, in one pointer to data
/// that is never freed. So a remote thread may read it at any time.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Spawned(
    /// A `Location`; with the lowest bit set, a `Named`.
    NonNull<()>,
);

// SAFETY: it stands for a `&'static Location` or a `&'static Named`, and both are Send and Sync.
unsafe impl Send for Spawned {}
// SAFETY: see above.
unsafe impl Sync for Spawned {}

/// A place where tasks of one name are spawned, or a [label](crate::metrics::label::Label).
pub(crate) struct Named {
    pub(crate) place: &'static Location<'static>,
    pub(crate) name: &'static str,
}

/// The bit that says that the pointer is one to a `Named`. The addresses of both types leave it
/// zero.
const NAMED: usize = 1;
const _: () = assert!(align_of::<Location<'static>>() > NAMED && align_of::<Named>() > NAMED);

/// The names of all tasks of this process. None is ever removed.
static NAMES: RwLock<Option<Names>> = RwLock::new(None);

struct Names {
    /// By the address of the place, and the name.
    known: HashMap<(usize, &'static str), &'static Named>,
    /// How many bytes further names may take.
    left: usize,
}

/// How many bytes all names may take. A program that makes up a name for each task would otherwise
/// use up the memory.
const MOST: usize = 1 << 20;

/// How many bytes a name takes beside its own length, about.
const EACH: usize = 128;

impl Spawned {
    /// Returns the place of the caller, without a name.
    #[inline]
    #[track_caller]
    pub(crate) fn here() -> Self {
        Self::at(Location::caller())
    }

    #[inline]
    pub(crate) fn at(place: &'static Location<'static>) -> Self {
        Self(NonNull::from(place).cast())
    }

    /// Returns the place of the caller with a name. If there are too many names, the name is left
    /// out.
    #[track_caller]
    pub(crate) fn named(name: &str) -> Self {
        let place = Location::caller();
        match Named::find(place, name) {
            Some(named) => Self(NonNull::from(named).cast().map_addr(|it| it | NAMED)),
            None => Self::at(place),
        }
    }

    /// Returns the pointer, from which [`from_ptr`](Self::from_ptr) makes this value again.
    #[inline]
    pub(crate) fn as_ptr(self) -> *mut () {
        self.0.as_ptr()
    }

    /// # Safety
    ///
    /// `it` is null or comes from [`as_ptr`](Self::as_ptr).
    #[inline]
    pub(crate) unsafe fn from_ptr(it: *mut ()) -> Option<Self> {
        NonNull::new(it).map(Self)
    }

    /// Returns where the task was spawned.
    pub(crate) fn place(self) -> &'static Location<'static> {
        match self.with_name() {
            Some(named) => named.place,
            // SAFETY: without the bit, the pointer was made of a `&'static Location`.
            None => unsafe { self.0.cast().as_ref() },
        }
    }

    /// Returns the name that the user gave to the task.
    pub(crate) fn name(self) -> Option<&'static str> {
        self.with_name().map(|it| it.name)
    }

    fn with_name(self) -> Option<&'static Named> {
        let is_named = self.0.addr().get() & NAMED != 0;
        let it = self.0.as_ptr().map_addr(|it| it & !NAMED).cast::<Named>();
        // SAFETY: with the bit, the pointer without it was made of a `&'static Named`.
        is_named.then(|| unsafe { &*it })
    }
}

impl fmt::Debug for Spawned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Spawned")
            .field("place", &self.place())
            .field("name", &self.name())
            .finish()
    }
}

impl Named {
    /// Returns the one `Named` of a place and a name. `None` if there are too many names.
    pub(crate) fn find(place: &'static Location<'static>, name: &str) -> Option<&'static Self> {
        // Most names are known, and threads that only read do not wait for each other.
        let known = NAMES.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(names) = &*known {
            let found = names.get(place, name);
            if found.is_some() || names.left < EACH {
                return found;
            }
        }
        drop(known);
        let mut names = NAMES.write().unwrap_or_else(PoisonError::into_inner);
        names.get_or_insert_with(Names::new).add(place, name)
    }
}

impl Names {
    fn new() -> Self {
        Self {
            known: HashMap::new(),
            left: MOST,
        }
    }

    fn get(&self, place: &'static Location<'static>, name: &str) -> Option<&'static Named> {
        self.known
            .get(&(ptr::from_ref(place).addr(), name))
            .copied()
    }

    /// Adds a name unless it is known. Returns `None` if there is no room for it.
    fn add(&mut self, place: &'static Location<'static>, name: &str) -> Option<&'static Named> {
        let known = self.get(place, name);
        if known.is_some() {
            return known;
        }
        self.left = self.left.checked_sub(name.len() + EACH)?;
        let name = &*Box::leak(Box::<str>::from(name));
        let named = &*Box::leak(Box::new(Named { place, name }));
        self.known
            .insert((ptr::from_ref(place).addr(), name), named);
        Some(named)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn it_is_a_place_with_or_without_a_name() {
        let (plain, named) = (Spawned::here(), Spawned::named("idle reaper"));
        assert_eq!(plain.name(), None);
        assert_eq!(named.name(), Some("idle reaper"));
        assert_eq!(plain.place().line(), named.place().line());
        assert_eq!(plain.place().file(), file!());
        for spawned in [plain, named] {
            // SAFETY: the pointer is that of a `Spawned`.
            let same = unsafe { Spawned::from_ptr(spawned.as_ptr()) }.unwrap();
            assert_eq!(same, spawned);
        }
        // SAFETY: null is allowed.
        assert_eq!(unsafe { Spawned::from_ptr(ptr::null_mut()) }, None);
    }

    #[test]
    fn a_name_is_kept_once_for_each_place() {
        let here = |name| Spawned::named(name);
        let one = here("one");
        let others: Vec<_> = thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(|| here("one"))).collect();
            threads.into_iter().map(|it| it.join().unwrap()).collect()
        });
        assert!(others.iter().all(|other| *other == one));
        assert_ne!(here("two"), one);
        assert_ne!(Spawned::named("one"), one);
    }

    #[test]
    fn there_is_room_for_a_mebibyte_of_names() {
        let (mut names, here) = (Names::new(), Location::caller());
        let first = names.add(here, "0").unwrap();
        let large = "x".repeat(MOST);
        assert!(names.add(here, &large).is_none());
        let more =
            (1..).take_while(|number: &usize| names.add(here, &number.to_string()).is_some());
        let count = more.count();
        assert!((7_000..MOST / EACH).contains(&count), "{count}");
        assert!(ptr::eq(names.add(here, "0").unwrap(), first));
        assert!(names.add(here, "another").is_none());
    }
}
