//! Lock-free slot for the waker of one waiting task.
//!
//! The algorithm is that of futures' `AtomicWaker`. The task that registers a waker holds the slot
//! for a moment. A thread that wakes meanwhile sets a bit, and the task then wakes itself. A waker
//! whose `clone` panics leaves the slot unchanged, as in tokio's `AtomicWaker`. See "The waker
//! slot" in `PROTOCOLS.md`.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    task::Waker,
};

use tourbillon_sync::{AtomicUsize, Ordering, UnsafeCell, foreign};

/// No thread holds the slot.
const WAITING: usize = 0;
/// The task writes the slot.
const REGISTERING: usize = 1;
/// Bit: a thread takes the waker, or wanted to.
const WAKING: usize = 2;

/// Slot for one waker.
pub(crate) struct WakerSlot {
    state: AtomicUsize,
    waker: UnsafeCell<Option<Waker>>,
}

// SAFETY: `state` gives the slot to one thread at a time, and a Waker is Send and Sync.
unsafe impl Sync for WakerSlot {}
// SAFETY: as above.
unsafe impl Send for WakerSlot {}

/// Guard of a task that writes the slot. Its drop gives the slot back, even if a waker panics;
/// otherwise no waker could ever be taken again.
struct Registering<'a>(&'a WakerSlot);

impl Drop for Registering<'_> {
    #[inline]
    fn drop(&mut self) {
        let slot = self.0;
        if slot
            .state
            .compare_exchange(REGISTERING, WAITING, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
        {
            return;
        }
        // Another thread came to wake meanwhile, and left that to this task.
        // SAFETY: the state is REGISTERING | WAKING, in which no other thread uses the slot.
        let waker = slot.waker.with_mut(|slot| unsafe { (*slot).take() });
        slot.state.swap(WAITING, Ordering::AcqRel);
        let Some(waker) = waker else { return };
        if !std::thread::panicking() {
            waker.wake();
        } else if let Err(panic) = catch_unwind(AssertUnwindSafe(|| waker.wake())) {
            // A second panic would abort the process. The first one goes on.
            foreign::forget(panic);
        }
    }
}

impl WakerSlot {
    /// Creates a slot.
    #[inline]
    pub(crate) fn new(waker: Option<Waker>) -> Self {
        Self {
            state: AtomicUsize::new(WAITING),
            waker: UnsafeCell::new(waker),
        }
    }

    /// Keeps `waker` to be woken, or wakes it at once if another thread is taking the former one.
    /// Only one task at a time may register.
    ///
    /// # Panics
    ///
    /// Panics if cloning `waker` does. The slot keeps the waker that it had.
    pub(crate) fn register(&self, waker: &Waker) {
        if self
            .state
            .compare_exchange(WAITING, REGISTERING, Ordering::Acquire, Ordering::Acquire)
            .is_err()
        {
            // A thread takes the waker at this moment: the event that the caller waits for has
            // happened.
            waker.wake_by_ref();
            return;
        }
        let registering = Registering(self);
        // SAFETY: REGISTERING gives this task the slot.
        let old = self.waker.with_mut(|slot| unsafe {
            match &*slot {
                // A waker of the same task need not be cloned.
                Some(old) if old.will_wake(waker) => None,
                _ => {
                    let waker = waker.clone();
                    (*slot).replace(waker)
                }
            }
        });
        // Give the slot back first: a wake-up by the guard and the destructor of the old waker are
        // user code.
        drop(registering);
        drop(old);
    }

    /// Takes the waker, if there is one and no other thread holds the slot.
    pub(crate) fn take(&self) -> Option<Waker> {
        if self.state.fetch_or(WAKING, Ordering::AcqRel) != WAITING {
            // A task that registers sees the bit, and wakes itself. A thread that takes already has
            // the waker.
            return None;
        }
        // SAFETY: this thread alone set WAKING in WAITING, which gives it the slot.
        let waker = self.waker.with_mut(|slot| unsafe { (*slot).take() });
        self.state.fetch_and(!WAKING, Ordering::Release);
        waker
    }

    /// Takes the waker for the last time: no waker can be registered or taken after this.
    pub(crate) fn take_last(&self) -> Option<Waker> {
        if self.state.fetch_or(WAKING, Ordering::AcqRel) != WAITING {
            return None;
        }
        // SAFETY: as in `take`; WAKING stays set, so no other thread gets the slot.
        self.waker.with_mut(|slot| unsafe { (*slot).take() })
    }

    /// Takes the waker without synchronization.
    ///
    /// # Safety
    ///
    /// The caller has the only reference to the slot, and no new one will be made. All uses by
    /// former references happen before this.
    #[inline]
    pub(crate) unsafe fn take_alone(&self) -> Option<Waker> {
        // SAFETY: by contract no other thread uses the slot.
        self.waker.with_mut(|slot| unsafe { (*slot).take() })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::{
        sync::{
            Arc,
            atomic::{AtomicUsize, Ordering::Relaxed},
        },
        task::{RawWaker, RawWakerVTable, Wake},
    };

    use super::*;

    #[derive(Default)]
    struct Counts(AtomicUsize);

    impl Wake for Counts {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Relaxed);
        }
    }

    /// Registers a waker whose clone calls `meanwhile` and then panics.
    fn register(slot: &WakerSlot, meanwhile: &dyn Fn()) {
        const TABLE: RawWakerVTable = RawWakerVTable::new(
            |data| {
                // SAFETY: `data` points to a value that outlives the waker.
                unsafe { (*data.cast::<&dyn Fn()>())() };
                panic!("this waker panics when it is cloned");
            },
            |_| (),
            |_| (),
            |_| (),
        );
        let data = (&raw const meanwhile).cast();
        // SAFETY: only `clone` does anything, and it does not return.
        let waker = unsafe { Waker::from_raw(RawWaker::new(data, &TABLE)) };
        let registered = catch_unwind(AssertUnwindSafe(|| slot.register(&waker)));
        assert!(
            registered.is_err(),
            "the panic of the waker must reach the caller"
        );
    }

    #[test]
    fn a_panic_of_a_clone_leaves_the_slot_usable() {
        let slot = WakerSlot::new(None);
        register(&slot, &|| ());
        let counts = Arc::new(Counts::default());
        slot.register(&counts.clone().into());
        register(&slot, &|| ());
        let waker = slot.take().expect("the slot keeps its former waker");
        waker.wake();
        assert_eq!(counts.0.load(Relaxed), 1);
        assert!(slot.take().is_none());
    }

    #[test]
    fn a_wake_up_during_a_panicking_clone_is_not_lost() {
        let counts = Arc::new(Counts::default());
        let slot = WakerSlot::new(Some(counts.clone().into()));
        register(&slot, &|| assert!(slot.take().is_none()));
        assert_eq!(counts.0.load(Relaxed), 1, "the former waker must be woken");
        // The slot is usable again.
        slot.register(&counts.into());
        assert!(slot.take().is_some());
    }

    #[test]
    fn a_slot_is_usable_until_its_waker_is_taken_for_the_last_time() {
        let counts = Arc::new(Counts::default());
        let waker = Waker::from(counts.clone());
        let slot = WakerSlot::new(None);
        for _ in 0..2 {
            slot.register(&waker);
            assert!(slot.take().is_some());
            assert!(slot.take().is_none());
        }
        slot.register(&waker);
        assert!(slot.take_last().is_some());
        assert_eq!(counts.0.load(Relaxed), 0);
        slot.register(&waker);
        assert_eq!(counts.0.load(Relaxed), 1, "it is too late to wait");
        assert!(slot.take_last().is_none());
    }

    /// No other panic is on its way, so this one is not hidden.
    #[test]
    fn a_panic_of_a_wake_up_reaches_the_task_that_registers() {
        const TABLE: RawWakerVTable = RawWakerVTable::new(
            |slot| {
                // SAFETY: `slot` points to a value that outlives the waker.
                assert!(unsafe { (*slot.cast::<WakerSlot>()).take() }.is_none());
                RawWaker::new(slot, &TABLE)
            },
            |_| panic!("this waker panics when it is woken"),
            |_| (),
            |_| (),
        );
        let slot = WakerSlot::new(None);
        let data = (&raw const slot).cast();
        // SAFETY: the functions of the table need no more than the slot.
        let waker = unsafe { Waker::from_raw(RawWaker::new(data, &TABLE)) };
        let registered = catch_unwind(AssertUnwindSafe(|| slot.register(&waker)));
        assert!(registered.is_err());
        slot.register(Waker::noop());
        assert!(slot.take().is_some(), "the slot is usable again");
    }
}
