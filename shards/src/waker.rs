//! A slot for the waker of one waiting task, set and taken without a lock.
//!
//! The algorithm is that of futures' `AtomicWaker`: who registers holds the slot for a moment, and
//! who wakes meanwhile leaves word of it, so that the one that registers does the waking.

use std::task::Waker;

use crate::sync::{AtomicUsize, Ordering, UnsafeCell};

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

impl WakerSlot {
    /// A slot with a waker in it.
    #[inline]
    pub(crate) fn new(waker: Option<Waker>) -> Self {
        Self {
            state: AtomicUsize::new(WAITING),
            waker: UnsafeCell::new(waker),
        }
    }

    /// Keeps `waker` to be woken. One task at a time registers; who is woken meanwhile is woken
    /// from here.
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
        // SAFETY: REGISTERING gives us the slot.
        let old = self.waker.with_mut(|slot| unsafe {
            match &*slot {
                Some(old) if old.will_wake(waker) => None,
                _ => (*slot).replace(waker.clone()),
            }
        });
        if self
            .state
            .compare_exchange(REGISTERING, WAITING, Ordering::AcqRel, Ordering::Acquire)
            .is_err()
        {
            // Somebody came to wake and left it to us.
            // SAFETY: the state is REGISTERING | WAKING, in which the slot is ours alone.
            let waker = self.waker.with_mut(|slot| unsafe { (*slot).take() });
            self.state.swap(WAITING, Ordering::AcqRel);
            if let Some(waker) = waker {
                waker.wake();
            }
        }
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
