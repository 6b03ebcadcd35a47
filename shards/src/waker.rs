//! A slot for the waker of one waiting task, set and taken without a lock.
//!
//! The algorithm is that of futures' `AtomicWaker`: the task that registers holds the slot for a
//! moment. A thread that wakes meanwhile leaves a mark, by which the task does the waking itself. A
//! waker whose `clone` panics leaves the slot as it was, as in tokio's `AtomicWaker`.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    task::Waker,
};

use crate::{
    foreign,
    sync::{AtomicUsize, Ordering, UnsafeCell},
};

const WAITING: usize = 0;
/// Somebody writes the slot.
const REGISTERING: usize = 1;
/// Somebody takes the waker, or wants to.
const WAKING: usize = 2;

pub(crate) struct WakerSlot {
    state: AtomicUsize,
    waker: UnsafeCell<Option<Waker>>,
}

// SAFETY: `state` gives the slot to one thread at a time, and a Waker is Send and Sync.
unsafe impl Sync for WakerSlot {}
// SAFETY: as above.
unsafe impl Send for WakerSlot {}

/// The slot is the holder's to write until this is dropped: also by a panic, or no waker would ever
/// be taken again.
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
        // Another thread came to wake, and left it to us.
        // SAFETY: the state is REGISTERING | WAKING, in which the slot is ours alone.
        let waker = slot.waker.with_mut(|slot| unsafe { (*slot).take() });
        slot.state.swap(WAITING, Ordering::AcqRel);
        let Some(waker) = waker else { return };
        if !std::thread::panicking() {
            waker.wake();
        } else if let Err(panic) = catch_unwind(AssertUnwindSafe(|| waker.wake())) {
            // A second panic would end the process. The first one goes on.
            foreign::forget(panic);
        }
    }
}

impl WakerSlot {
    /// A slot with a waker in it.
    #[inline]
    pub(crate) fn new(waker: Option<Waker>) -> Self {
        Self {
            state: AtomicUsize::new(WAITING),
            waker: UnsafeCell::new(waker),
        }
    }

    /// Keeps `waker` to be woken. One task at a time registers; it is woken from here if the timer
    /// ends meanwhile.
    ///
    /// # Panics
    ///
    /// As `waker` does where it is cloned. The slot keeps the waker that it had.
    pub(crate) fn register(&self, waker: &Waker) {
        if self
            .state
            .compare_exchange(WAITING, REGISTERING, Ordering::Acquire, Ordering::Acquire)
            .is_err()
        {
            // It is being woken this moment: the news that the caller waits for is there.
            waker.wake_by_ref();
            return;
        }
        let registering = Registering(self);
        // SAFETY: REGISTERING gives us the slot.
        let old = self.waker.with_mut(|slot| unsafe {
            match &*slot {
                Some(old) if old.will_wake(waker) => None,
                _ => {
                    let waker = waker.clone();
                    (*slot).replace(waker)
                }
            }
        });
        // Both call foreign code, which must find the slot given back.
        drop(registering);
        drop(old);
    }

    /// Takes the waker, if there is one and nobody else is at it.
    pub(crate) fn take(&self) -> Option<Waker> {
        if self.state.fetch_or(WAKING, Ordering::AcqRel) != WAITING {
            // Who registers will see the bit; who takes already has it.
            return None;
        }
        // SAFETY: WAKING, set by us alone, gives us the slot.
        let waker = self.waker.with_mut(|slot| unsafe { (*slot).take() });
        self.state.fetch_and(!WAKING, Ordering::Release);
        waker
    }

    /// The same for who registers no more: from now on there is nothing to take.
    pub(crate) fn take_last(&self) -> Option<Waker> {
        if self.state.fetch_or(WAKING, Ordering::AcqRel) != WAITING {
            return None;
        }
        // SAFETY: as in `take`; and it stays ours.
        self.waker.with_mut(|slot| unsafe { (*slot).take() })
    }

    /// The same where nobody else is.
    ///
    /// # Safety
    ///
    /// Nobody else refers to the slot, nor will; and what was done by those who did comes before this.
    #[inline]
    pub(crate) unsafe fn take_alone(&self) -> Option<Waker> {
        // SAFETY: by contract.
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

    /// Registers a waker whose clone calls `meanwhile`, and panics.
    fn register(slot: &WakerSlot, meanwhile: &dyn Fn()) {
        const TABLE: RawWakerVTable = RawWakerVTable::new(
            |data| {
                // SAFETY: `data` points to what outlives the waker.
                unsafe { (*data.cast::<&dyn Fn()>())() };
                panic!("this waker panics as it is cloned");
            },
            |_| (),
            |_| (),
            |_| (),
        );
        let data = (&raw const meanwhile).cast();
        // SAFETY: none of the functions but `clone` does anything, and that one does not return.
        let waker = unsafe { Waker::from_raw(RawWaker::new(data, &TABLE)) };
        let registered = catch_unwind(AssertUnwindSafe(|| slot.register(&waker)));
        assert!(registered.is_err(), "the waker's panic is not swallowed");
    }

    #[test]
    fn a_waker_that_panics_as_it_is_cloned_leaves_the_slot_to_others() {
        let slot = WakerSlot::new(None);
        register(&slot, &|| ());
        let counts = Arc::new(Counts::default());
        slot.register(&counts.clone().into());
        register(&slot, &|| ());
        let waker = slot.take().expect("the slot keeps the waker that it had");
        waker.wake();
        assert_eq!(counts.0.load(Relaxed), 1);
        assert!(slot.take().is_none());
    }

    #[test]
    fn a_thread_that_came_to_wake_as_a_clone_panicked_is_heeded() {
        let counts = Arc::new(Counts::default());
        let slot = WakerSlot::new(Some(counts.clone().into()));
        register(&slot, &|| assert!(slot.take().is_none()));
        assert_eq!(counts.0.load(Relaxed), 1, "the waker that it had is woken");
        // The slot is free again.
        slot.register(&counts.into());
        assert!(slot.take().is_some());
    }
}
