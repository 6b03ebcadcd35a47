//! The timers for which an owner wakes up at once although it defers other wake-ups: those with a
//! tolerance that somebody has stated.

use super::inner::{Inner, is_tolerant};
use crate::{
    node::{NodeRef, claim::NEVER},
    owner::Owner,
    store::{AnyStore, Entry, Nowhere, Store, Tree, any::Seen},
};

/// So many stale entries are kept in any case.
const STALE: usize = 64;

/// [`Prompt::next`] forgets at most so many stale entries. The shard's lock is held meanwhile.
/// [`Prompt::note`] does not count: it looks at all entries, but only once many were noted.
const AT_ONCE: usize = 256;

/// The keys of prompt timers, with their slots, by key. An entry is stale if its timer has another
/// key by now, or is gone. While very many entries are stale, the owner may wake up for a timer for
/// which it defers that.
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

    /// Returns the smallest key of a prompt timer, or [`NEVER`]. Returns a smaller key if very many
    /// entries are stale.
    pub(super) fn next(&mut self, is_live: impl Fn(u64, u32) -> bool) -> u64 {
        for _ in 0..AT_ONCE {
            let Some(Entry { key, slot }) = self.0.first() else {
                return NEVER;
            };
            if is_live(key, slot) {
                return key;
            }
            self.0.pop(&mut Nowhere, |_| ());
        }
        self.0.first().map_or(NEVER, |entry| entry.key)
    }
}

impl<O: Owner> Inner<O> {
    /// Makes the shard keep the keys of prompt timers. It has no timers yet.
    pub(super) fn defer(&mut self) {
        self.prompt = Some(Prompt::default());
    }

    /// Returns the smallest key of a timer in the store for which an owner wakes up that defers
    /// wake-ups. `seen` is the state of the store.
    #[inline]
    pub(super) fn next_prompt(&mut self, seen: Seen) -> u64 {
        match &mut self.prompt {
            // A stale key may be smaller than all keys in the store. The owner would wake up, find
            // nothing to expire, and so not read the next entries.
            Some(prompt) if self.tolerant > 0 => prompt
                .next(is_prompt(&self.nodes, &self.store))
                .max(seen.first_key),
            _ => NEVER,
        }
    }

    /// Notes the key of the timer in `slot`, if the timer is prompt.
    #[inline]
    pub(super) fn note_prompt(&mut self, slot: u32) {
        if self.tolerant > 0 && self.prompt.is_some() {
            self.note_prompt_slow(slot);
        }
    }

    #[inline(never)]
    fn note_prompt_slow(&mut self, slot: u32) {
        let key = self.store.key(slot);
        let is_prompt = is_prompt(&self.nodes, &self.store);
        if let Some(prompt) = self.prompt.as_mut().filter(|_| is_prompt(key, slot)) {
            prompt.note(key, slot, self.tolerant, is_prompt);
        }
    }
}

/// Returns a function that tells whether the timer in a slot has this key, and is prompt.
fn is_prompt<'a, O: Owner>(
    nodes: &'a [Option<NodeRef<O>>],
    store: &'a AnyStore,
) -> impl Fn(u64, u32) -> bool + 'a {
    |key, slot| {
        let node = nodes.get(slot as usize).and_then(Option::as_ref);
        node.is_some_and(is_tolerant) && store.key(slot) == key
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
        while prompt.next(|_, _| false) != NEVER {}
        assert_eq!(prompt.0.len(), 0);
    }

    #[test]
    fn very_many_stale_entries_are_forgotten_in_several_steps() {
        let (mut prompt, timers) = (Prompt::default(), 4 * AT_ONCE);
        let live = timers as u64;
        for key in 0..=live {
            prompt.note(key, 0, timers, |_, _| true);
        }
        for step in 1..=4 {
            assert_eq!(prompt.next(|key, _| key == live), (step * AT_ONCE) as u64);
        }
        assert_eq!(prompt.next(|key, _| key == live), live);
    }
}
