//! The timers for which an owner wakes up at once although it defers other wake-ups: those with a
//! tolerance that somebody has stated.

use crate::{
    node::claim::NEVER,
    store::{Entry, Nowhere, Tree},
};

/// So many stale entries are kept in any case.
const STALE: usize = 64;

/// The keys of prompt timers, with their slots, by key. An entry is stale if its timer has another
/// key by now, or is gone. A stale entry that looks live costs one wake-up.
#[derive(Debug, Default)]
pub(super) struct Prompt(Tree);

impl Prompt {
    /// Notes that the prompt timer in `slot` has this key, and there are `timers` of them. Forgets
    /// stale and equal entries once there are more of these than of others.
    pub(super) fn note(
        &mut self,
        key: u64,
        slot: u32,
        timers: usize,
        is_live: impl Fn(u64, u32) -> bool,
    ) {
        if self.0.len() > 2 * timers + STALE {
            self.0.compact(|entry| is_live(entry.key, entry.slot));
        }
        self.0.push(Entry { key, slot }, &mut Nowhere);
    }

    /// Returns the smallest key of a prompt timer, or [`NEVER`].
    pub(super) fn next(&mut self, is_live: impl Fn(u64, u32) -> bool) -> u64 {
        while let Some(Entry { key, slot }) = self.0.first() {
            if is_live(key, slot) {
                return key;
            }
            self.0.pop(&mut Nowhere, |_| ());
        }
        NEVER
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn few_entries_are_kept_however_often_timers_move() {
        let mut prompt = Prompt::default();
        let rounds = if cfg!(miri) { 300 } else { 10_000 };
        for round in 0..rounds {
            // Two timers: one returns to the same key again and again, one has a new key each time.
            let is_live = |key, slot| (key, slot) == (7, 0) || (key, slot) == (round, 1);
            prompt.note(7, 0, 2, is_live);
            prompt.note(round, 1, 2, is_live);
            assert!(prompt.0.len() <= 2 * 2 + STALE + 1);
            assert_eq!(prompt.next(is_live), round.min(7));
        }
        assert_eq!(prompt.next(|_, _| false), NEVER);
    }
}
