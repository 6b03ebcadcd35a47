//! The timer of a sleep, or the state of a sleep without one, in one word: each task that sleeps
//! has it.

use std::mem::ManuallyDrop;

use tourbillon_shards as shards;

use crate::engine::core::Core;

/// The state of a sleep that has no timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Idle {
    /// Not polled.
    Unpolled,
    /// Not polled, and not over when it was made. If its deadline has passed since, its timer is
    /// due as soon as it is armed.
    Fresh,
    /// Not polled. The time counts from the first poll.
    Adrift,
    /// The deadline was moved to a moment that had passed, and the sleep was not polled since.
    Passed,
    /// The deadline had passed when it was polled.
    Elapsed,
    /// The runtime had been shut down when it was polled.
    Shutdown,
}

impl Idle {
    /// All states, each at the place that is its number.
    const ALL: [Self; 6] = [
        Self::Unpolled,
        Self::Fresh,
        Self::Adrift,
        Self::Passed,
        Self::Elapsed,
        Self::Shutdown,
    ];
}

/// A timer, which waits or is over, or a state without a timer. `Result` would take two words.
pub(super) struct Armed(Word);

union Word {
    /// The number of an [`Idle`], or the address of the timer's node.
    number: usize,
    timer: ManuallyDrop<shards::Sleep<Core>>,
}

// `shards::Sleep` is transparent, down to the address of a node. A node has words of 8 bytes, so no
// address of one is the number of a state.
const _: () = assert!(size_of::<shards::Sleep<Core>>() == size_of::<usize>());
const _: () = assert!(Idle::ALL.len() <= 8);

impl Armed {
    #[inline]
    pub(super) const fn not(idle: Idle) -> Self {
        Self(Word {
            number: idle as usize,
        })
    }

    #[inline]
    pub(super) fn with(timer: shards::Sleep<Core>) -> Self {
        Self(Word {
            timer: ManuallyDrop::new(timer),
        })
    }

    /// Returns the state, if there is no timer.
    #[inline]
    fn idle(&self) -> Option<Idle> {
        // SAFETY: both fields are a word that is initialized, and any word is a number.
        let number = unsafe { self.0.number };
        Idle::ALL.get(number).copied()
    }

    /// Returns the timer, or the state without one.
    #[inline]
    pub(super) fn get(&self) -> Result<&shards::Sleep<Core>, Idle> {
        match self.idle() {
            // SAFETY: the word is no state, so `with` has written it.
            None => Ok(unsafe { &self.0.timer }),
            Some(idle) => Err(idle),
        }
    }

    /// Returns the timer, or the state without one.
    #[inline]
    pub(super) fn get_mut(&mut self) -> Result<&mut shards::Sleep<Core>, Idle> {
        match self.idle() {
            // SAFETY: as in `get`.
            None => Ok(unsafe { &mut self.0.timer }),
            Some(idle) => Err(idle),
        }
    }
}

impl Drop for Armed {
    #[inline]
    fn drop(&mut self) {
        if self.idle().is_none() {
            // SAFETY: as in `get`. Nothing uses the word after this.
            unsafe { ManuallyDrop::drop(&mut self.0.timer) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_read_as_it_was_written() {
        for idle in Idle::ALL {
            assert_eq!(Armed::not(idle).get().err(), Some(idle));
        }
    }
}
