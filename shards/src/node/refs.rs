//! The word of a node that counts its references and says how late its timer may run.

use tourbillon_sync::{AtomicU32, Life, Ordering};

use crate::tolerance::Tolerance;

/// One reference. The bits below it are the code of the tolerance.
const ONE: u32 = 1 << u8::BITS;

/// A reference count of 24 bits, above the tolerance.
///
/// The tolerance is below the count, so that it costs the count nothing: each comparison is one of
/// the whole word with a constant.
pub(crate) struct Refs {
    word: AtomicU32,
    /// In loom, a relaxed load may return each former value. So a model keeps the tolerance apart,
    /// which does not change while another thread knows the node.
    #[cfg(loom)]
    tolerance: std::sync::atomic::AtomicU8,
    life: Life,
}

impl Refs {
    /// Returns a count of `count` references, which is small, of an exact timer.
    #[inline]
    pub(crate) fn new(count: u32) -> Self {
        Self {
            word: AtomicU32::new(count * ONE),
            #[cfg(loom)]
            tolerance: std::sync::atomic::AtomicU8::new(0),
            life: Life::new(),
        }
    }

    /// Sets how late the timer may run, for a thread that alone knows the node. The timer was exact
    /// until now.
    pub(crate) fn set_tolerance(&self, tolerance: Tolerance) {
        #[cfg(loom)]
        return self.tolerance.store(tolerance.code(), Ordering::Relaxed);
        #[cfg(not(loom))]
        self.word.store(
            self.word.load(Ordering::Relaxed) + u32::from(tolerance.code()),
            Ordering::Relaxed,
        );
    }

    /// Returns how late the timer may run.
    #[inline]
    pub(crate) fn tolerance(&self) -> Tolerance {
        #[cfg(loom)]
        return Tolerance::from_code(self.tolerance.load(Ordering::Relaxed));
        #[cfg(not(loom))]
        Tolerance::from_code((self.word.load(Ordering::Relaxed) % ONE) as u8)
    }

    /// Counts one more reference.
    #[inline]
    pub(crate) fn add(&self) {
        // Relaxed: the new reference is made from one that keeps the node alive. An overflow would
        // need millions of futures of `Timer::ended` for one timer. As in `Arc`, it aborts the
        // process halfway, which leaves room for all threads that may be here at the same time.
        if self.word.fetch_add(ONE, Ordering::Relaxed) > u32::MAX / 2 {
            std::process::abort();
        }
    }

    /// Gives up one reference. Returns `true` if it was the last one.
    #[inline]
    pub(crate) fn sub(&self) -> bool {
        self.life.used();
        self.word.fetch_sub(ONE, Ordering::AcqRel) < 2 * ONE
    }

    /// Returns whether there is one reference. A caller that has one is alone if so, and all that
    /// former holders did happens before the return.
    #[inline]
    pub(crate) fn is_one(&self) -> bool {
        self.word.load(Ordering::Acquire) < 2 * ONE
    }

    /// Gives up one of two references, for a caller that has both. If there is a third one, does
    /// nothing and returns `false`.
    #[inline]
    pub(crate) fn unite(&self) -> bool {
        let word = self.word.load(Ordering::Acquire);
        let alone = word < 3 * ONE;
        if alone {
            self.word.store(word - ONE, Ordering::Relaxed);
        }
        alone
    }

    #[cfg(all(test, not(loom)))]
    pub(crate) fn count(&self) -> u32 {
        self.word.load(Ordering::Relaxed) / ONE
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_tolerance_does_not_change_the_count() {
        for tolerance in [
            Tolerance::EXACT,
            Tolerance::new(1_000),
            Tolerance::new(u64::MAX),
        ] {
            let refs = Refs::new(2);
            refs.set_tolerance(tolerance);
            assert!(!refs.is_one());
            refs.add();
            assert!(!refs.unite(), "there is a third one");
            assert!(!refs.sub());
            assert_eq!(refs.count(), 2);
            assert!(refs.unite());
            assert_eq!((refs.count(), refs.is_one()), (1, true));
            refs.add();
            assert!(!refs.sub());
            assert_eq!(refs.tolerance(), tolerance);
            assert!(refs.sub(), "it was the last one");
        }
    }
}
