//! A sleep, or what its owner has to say of one that is not armed.

use std::{fmt, mem::ManuallyDrop};

use crate::{owner::Owner, sleep::Sleep};

/// A [`Sleep`], or a small number in its place, in the memory of a sleep alone.
///
/// For futures that arm a sleep when they are polled first, and would have a word beside it to say that they did not.
pub struct SleepOr<O: Owner>(Word<O>);

/// A node's address, which is even, or an odd number.
union Word<O: Owner> {
    number: usize,
    sleep: ManuallyDrop<Sleep<O>>,
}

impl<O: Owner> SleepOr<O> {
    // All that is looked at is one word, which a sleep has to be.
    const ONE_WORD: () = assert!(size_of::<Sleep<O>>() == size_of::<usize>());

    /// No sleep, but a number.
    #[inline]
    pub const fn number(number: u8) -> Self {
        const { Self::ONE_WORD };
        Self(Word {
            number: (number as usize) << 1 | 1,
        })
    }

    #[inline]
    fn word(&self) -> usize {
        // SAFETY: whatever it is, it is a word without padding: an integer, or the one pointer that a sleep is, whose
        // address is all that is read of it.
        unsafe { self.0.number }
    }

    #[inline]
    fn is_sleep(&self) -> bool {
        self.word() & 1 == 0
    }

    /// The sleep, or the number.
    #[inline]
    pub fn get(&self) -> Result<&Sleep<O>, u8> {
        if self.is_sleep() {
            // SAFETY: numbers are odd, and a node is at an even address: its first word is an atomic one.
            return Ok(unsafe { &self.0.sleep });
        }
        // It was made of a byte.
        Err((self.word() >> 1) as u8)
    }

    /// The same, to move the sleep.
    #[inline]
    pub fn get_mut(&mut self) -> Result<&mut Sleep<O>, u8> {
        if self.is_sleep() {
            // SAFETY: as in `get`.
            return Ok(unsafe { &mut self.0.sleep });
        }
        Err((self.word() >> 1) as u8)
    }
}

impl<O: Owner> From<Sleep<O>> for SleepOr<O> {
    #[inline]
    fn from(sleep: Sleep<O>) -> Self {
        const { Self::ONE_WORD };
        Self(Word {
            sleep: ManuallyDrop::new(sleep),
        })
    }
}

impl<O: Owner> Drop for SleepOr<O> {
    #[inline]
    fn drop(&mut self) {
        if self.is_sleep() {
            // SAFETY: it is a sleep, and nobody sees it after this.
            unsafe { ManuallyDrop::drop(&mut self.0.sleep) };
        }
    }
}

impl<O: Owner> fmt::Debug for SleepOr<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.get() {
            Ok(sleep) => sleep.fmt(f),
            Err(number) => number.fmt(f),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::{Outcome, shard::Shard, sync::Arc};

    struct Nobody;

    impl Owner for Nobody {
        fn wake(&self) {}
        fn is_current(&self) -> bool {
            true
        }
    }

    #[test]
    fn it_is_a_number_until_it_is_a_sleep_which_is_dropped_once() {
        let shard = Arc::new(Shard::new(Nobody));
        assert_eq!(size_of::<SleepOr<Nobody>>(), size_of::<usize>());
        for number in [0, 1, 77, u8::MAX] {
            let mut word = SleepOr::<Nobody>::number(number);
            assert_eq!(word.get().err(), Some(number));
            assert_eq!(word.get_mut().err(), Some(number));
            word = Sleep::new(&shard, 100).into();
            assert_eq!(word.get().unwrap().deadline(), Some(100));
            word.get_mut().unwrap().reset(200);
            assert_eq!(word.get().unwrap().deadline(), Some(200));
            assert_eq!(shard.references(), 1);
            // Cancelled, and swept out by what follows.
            word = SleepOr::number(number);
            assert_eq!(word.get().err(), Some(number));
            shard.expire(1, usize::MAX, &mut Vec::new());
        }
        let word = SleepOr::from(Sleep::new(&shard, 300));
        shard.close();
        assert_eq!(word.get().unwrap().outcome(), Some(Outcome::Shutdown));
        drop(word);
        assert_eq!(shard.references(), 0);
    }
}
