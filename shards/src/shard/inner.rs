//! The data that the lock of a shard guards: the store, the nodes in it, and the backlog.
//!
//! The store knows keys and slots only. `nodes` has the node of each slot. Each change of a slot,
//! and of the location of a node in the store, happens under the lock: see "One holder" in
//! `PROTOCOLS.md`.

use std::mem;

use crate::{
    node::{
        NodeRef,
        claim::{Expiry, NEVER},
        location::Location,
        state::Claim,
        taken::Taken,
    },
    owner::Owner,
    shard::{inbox::Batch, prompt::Prompt},
    store::{
        Store,
        any::{AnyStore, Seen, StoreKind},
    },
};

/// The number of nodes for which a new store has room. A model has few timers; its first ones take
/// the fast path, and the next finds that the table has to grow.
const ROOM: usize = if cfg!(loom) { 2 } else { 0 };

/// Prefetch distance, in nodes, if all nodes are taken out.
const AHEAD: usize = 16;

/// A store with this many slots or fewer is never oversized. They take some 400 KB, which is not
/// worth a new store.
const MIN_OVERSIZED: usize = if cfg!(test) { 64 } else { 16 * 1024 };
/// A larger store is oversized if at most one of this many slots is held.
const SPARSE: usize = 8;
/// A store with more timers than this is kept. A shrink reads each timer cold under the shard's
/// lock, and timers that come due meanwhile are late by that time.
pub(crate) const MAX_MOVED: usize = if cfg!(test) { 64 } else { 1_024 };

/// What [`Inner::expire`] has left in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Left {
    /// No timer that is due.
    Nothing,
    /// One that is due, beyond the limit.
    Due,
    /// Perhaps some that are due, behind many that were moved or are over.
    Moved,
}

/// The data that the lock guards.
pub(crate) struct Inner<O: Owner> {
    pub(super) store: AnyStore,
    /// The node of each slot. A held slot has one, a free slot has none.
    pub(super) nodes: Vec<Option<NodeRef<O>>>,
    /// Updates that were taken from the inbox and are not read yet.
    pub(crate) backlog: Batch<O>,
    /// A lower bound of the deadlines in `backlog`.
    pub(crate) backlog_next: u64,
    /// The number of stored timers that have a tolerance, or are strict. Their keys may be later
    /// than their deadlines.
    pub(super) tolerant: usize,
    /// The keys of those timers, if the owner defers wake-ups. It wakes up for these.
    pub(super) prompt: Option<Prompt>,
    /// Whether the store was oversized when `shrink` was last called.
    was_oversized: bool,
    /// Whether the shard is closed: no node is inserted any more.
    pub(crate) closed: bool,
}

/// The arrays of an oversized store. The caller drops them after it has released the lock, because
/// freeing them takes the system some time.
pub(crate) struct Outgrown<O: Owner> {
    _store: AnyStore,
    _prompt: Option<Prompt>,
    _nodes: Vec<Option<NodeRef<O>>>,
}

impl<O: Owner> Inner<O> {
    pub(crate) fn new() -> Self {
        Self::with_store(StoreKind::default())
    }

    pub(crate) fn with_store(kind: StoreKind) -> Self {
        Self {
            store: AnyStore::new(kind),
            nodes: Vec::with_capacity(ROOM),
            backlog: Batch::empty(),
            backlog_next: NEVER,
            tolerant: 0,
            prompt: None,
            was_oversized: false,
            closed: false,
        }
    }

    /// Returns the state of the store that the shard publishes.
    #[inline]
    pub(crate) fn seen(&self) -> Seen {
        self.store.seen()
    }

    /// Returns the smallest key of the store and the backlog, and the earliest moment at which
    /// [`expire`](Inner::expire) may find a due timer. The second is the first timer's deadline,
    /// which is earlier than its key if that timer may be late.
    #[inline]
    pub(crate) fn next(&self, seen: Seen) -> (u64, u64) {
        let next = self.next_exact(seen);
        if self.tolerant == 0 {
            return (next, next);
        }
        (next, self.soonest(next))
    }

    /// Returns the smallest key of the store and the backlog. If no timer may be late, it is also
    /// the earliest moment at which a timer may come due.
    #[inline]
    pub(crate) fn next_exact(&self, seen: Seen) -> u64 {
        // An empty store has the key `u64::MAX`, and `backlog_next` is at most `NEVER`. So the
        // result is at most `NEVER`.
        seen.first_key.min(self.backlog_next)
    }

    /// Returns the deadline of the first timer, or `next`, if that is earlier.
    #[inline(never)]
    fn soonest(&self, next: u64) -> u64 {
        let Some((_, slot)) = self.store.first() else {
            return next;
        };
        let node = self.nodes[slot as usize].as_ref();
        let node = node.expect("a held slot has a node");
        node.claim
            .deadline()
            .map_or(next, |deadline| deadline.min(next))
    }

    /// Takes the timers that are due at `now` out of the store, until `due` has `limit` timers, or
    /// `others` entries came up whose timers were moved to later deadlines or are over. `taken` is
    /// the time that each timer records.
    pub(crate) fn expire<D: From<NodeRef<O>>>(
        &mut self,
        now: u64,
        taken: Taken,
        limit: usize,
        mut others: usize,
        due: &mut Vec<D>,
    ) -> Left {
        while let Some((key, slot)) = self.store.first() {
            if key > now && self.tolerant == 0 {
                break;
            }
            let node = self.nodes[slot as usize]
                .as_ref()
                .expect("a held slot has a node");
            // The claim is tried with the key, not with `now`. A timer that was moved to a later
            // deadline goes back even if it is due, and comes out in its turn. But the worker is
            // awake, so a timer that may be late comes out as soon as its deadline has passed. See
            // "Tolerance and conditions" in `PROTOCOLS.md`.
            let by = if key <= now {
                key
            } else if node.claim.load().deadline().is_some_and(|at| at <= now) {
                now
            } else {
                break;
            };
            if due.len() == limit {
                return Left::Due;
            }
            let mut expiry = node.claim.expire(by);
            let dead = || node.extras().is_some_and(|extras| extras.is_dead());
            if matches!(expiry, Expiry::Later(_)) && dead() {
                // Its condition is gone for good. It becomes due, and the thread that runs it ends
                // it.
                expiry = node.claim.expire(NEVER);
            }
            match expiry {
                Expiry::Later(at) => {
                    // It was moved to a later deadline. The key follows only when the old one comes
                    // up.
                    let key = node.key(at);
                    self.rekey(slot, key);
                }
                Expiry::Due => {
                    node.set_taken(taken);
                    due.push(self.take_first(key, slot).into());
                    continue;
                }
                Expiry::Over => {
                    // It is over, and its update is not read yet.
                    node.set_location(Location::None);
                    drop(self.take_first(key, slot));
                }
            }
            others -= 1;
            if others == 0 {
                return Left::Moved;
            }
        }
        Left::Nothing
    }

    /// Removes or moves the first entries until the first key is that of a timer that waits, and
    /// returns this key, or [`NEVER`] if no timer waits.
    pub(crate) fn settle(&mut self) -> u64 {
        while let Some((key, slot)) = self.store.first() {
            let node = self.nodes[slot as usize]
                .as_ref()
                .expect("a held slot has a node");
            match node.claim.load().deadline().map(|at| node.key(at)) {
                Some(next) if next <= key => return next,
                Some(next) => self.rekey(slot, next),
                None => {
                    node.set_location(Location::None);
                    drop(self.take(slot));
                }
            }
        }
        NEVER
    }

    /// Takes all timers out of the store for good, in no particular order, and appends them to
    /// `nodes`.
    pub(crate) fn empty(&mut self, nodes: &mut Vec<NodeRef<O>>) {
        let before = mem::replace(
            self,
            Self {
                closed: true,
                ..Self::new()
            },
        );
        let stored = before.nodes;
        nodes.reserve(before.store.len());
        for slot in 0..stored.len() {
            // Nodes that have waited are cold.
            if let Some(Some(node)) = stored.get(slot + AHEAD) {
                node.prefetch();
            }
            if let Some(node) = &stored[slot] {
                node.set_location(Location::None);
            }
        }
        nodes.extend(stored.into_iter().flatten());
    }

    /// Returns the number of timers that the store has room for.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn room(&self) -> usize {
        self.nodes.capacity()
    }

    /// Moves the timers to a store of their size, if the store is found oversized for the second
    /// time in a row. At most [`MAX_MOVED`] timers move. Returns whether the caller should call
    /// again, and the old arrays.
    pub(crate) fn shrink(&mut self) -> (bool, Option<Outgrown<O>>) {
        let (len, room) = (self.store.len(), self.nodes.capacity());
        let is_oversized = room > MIN_OVERSIZED && len <= (room / SPARSE).min(MAX_MOVED);
        // Only at the second call in a row: timers may come in waves, and a store that shrinks
        // between two waves has to grow again.
        if !is_oversized || !std::mem::replace(&mut self.was_oversized, is_oversized) {
            self.was_oversized = is_oversized;
            return (is_oversized, None);
        }
        self.was_oversized = false;
        let kind = self.store.kind();
        let before = mem::replace(&mut self.store, AnyStore::new(kind));
        let empty = self.prompt.as_ref().map(|_| Prompt::default());
        let prompt = mem::replace(&mut self.prompt, empty);
        let mut nodes = mem::replace(&mut self.nodes, Vec::with_capacity(2 * len));
        for (slot, place) in (0..).zip(&mut nodes) {
            if let Some(node) = place.take() {
                // The timer gets a new slot. The lock is held, so no thread reads a location
                // meanwhile.
                let slot = self.store.insert(before.key(slot));
                self.put(slot, node);
            }
            if self.nodes.len() == len {
                break;
            }
        }
        let outgrown = Outgrown {
            _store: before,
            _prompt: prompt,
            _nodes: nodes,
        };
        (false, Some(outgrown))
    }

    /// Inserts a node from the inbox, or a new one. Gives it back if it is over.
    #[inline]
    pub(crate) fn insert(&mut self, node: NodeRef<O>) -> Option<NodeRef<O>> {
        // The word is read under the lock. An update that was drained earlier may have found the
        // node in a deque, and done nothing.
        let Claim::Pending(deadline) = node.claim.load() else {
            return Some(node);
        };
        if !node.tolerance().is_exact() {
            self.insert_slow(node, deadline);
        } else if let Err(node) = self.try_insert_new(node, deadline) {
            self.insert_slow(node, deadline);
        }
        None
    }

    /// Inserts a node that waits for `deadline`. The store grows if it has to, and the timer may
    /// have a tolerance.
    #[inline(never)]
    pub(crate) fn insert_slow(&mut self, node: NodeRef<O>, deadline: u64) {
        let slot = self.store.insert(node.key(deadline));
        self.tolerant += usize::from(is_tolerant(&node));
        self.put(slot, node);
    }

    /// Fast path of [`insert_slow`](Inner::insert_slow) for an exact timer, if the store has room
    /// and no stored timer has a tolerance: some loads and stores, no call and no panic. Returns
    /// the state to publish, or gives the node back.
    // Always inlined: it has two callers, and the owner's path needs no stack.
    #[inline(always)]
    pub(crate) fn try_insert_new(
        &mut self,
        node: NodeRef<O>,
        deadline: u64,
    ) -> Result<Seen, NodeRef<O>> {
        let has_room = self.nodes.len() < self.nodes.capacity();
        if self.closed || self.tolerant > 0 || !has_room {
            return Err(node);
        }
        let Some((slot, seen)) = self.store.try_insert(deadline) else {
            return Err(node);
        };
        node.set_location(Location::Slot(slot));
        match self.nodes.get_mut(slot as usize) {
            // The slot was free, so there is no node to drop. `forget` spares the call of a
            // destructor.
            Some(place) => mem::forget(place.replace(node)),
            // The store hands out new slots in order, so this one is the next index.
            None => self.nodes.push(Some(node)),
        }
        Ok(seen)
    }

    /// Sets the node of a slot that the store has handed out.
    #[inline]
    fn put(&mut self, slot: u32, node: NodeRef<O>) {
        node.set_location(Location::Slot(slot));
        let index = slot as usize;
        if index == self.nodes.len() {
            self.nodes.push(Some(node));
            // `try_insert_new` needs room for one more.
            if self.nodes.len() == self.nodes.capacity() {
                self.nodes.reserve(1);
            }
        } else {
            let none = self.nodes[index].replace(node);
            debug_assert!(none.is_none(), "a free slot has no node");
            // Spares the call of a destructor.
            mem::forget(none);
        }
        self.note_prompt(slot);
    }

    /// Gives the timer in `slot` another key.
    fn rekey(&mut self, slot: u32, key: u64) {
        self.store.rekey(slot, key);
        self.note_prompt(slot);
    }

    /// Takes a node out of the store. The caller sets its location.
    #[inline]
    fn take(&mut self, slot: u32) -> NodeRef<O> {
        self.store.remove(slot);
        self.release(slot)
    }

    /// Takes the first node out of the store, and prefetches nodes that come due soon. The caller
    /// sets its location.
    fn take_first(&mut self, key: u64, slot: u32) -> NodeRef<O> {
        let nodes = &self.nodes;
        let popped = self.store.pop_due(key, |soon| {
            // Nodes are cold when their time comes, and a cache miss costs more than all other
            // steps here.
            if let Some(Some(node)) = nodes.get(soon as usize) {
                node.prefetch();
            }
        });
        debug_assert_eq!(popped, Some((key, slot)));
        self.release(slot)
    }

    /// Takes a node that is over out of the store. It is in this slot.
    #[inline]
    pub(crate) fn take_over(&mut self, node: &NodeRef<O>, slot: u32) -> NodeRef<O> {
        node.set_location(Location::None);
        self.take(slot)
    }

    /// Fast path of [`take_over`](Inner::take_over): some loads and stores. Returns the node and
    /// the state to publish, or `None` if nothing was done.
    #[inline]
    pub(crate) fn try_take_over(
        &mut self,
        node: &NodeRef<O>,
        slot: u32,
    ) -> Option<(NodeRef<O>, Seen)> {
        let place = self.nodes.get_mut(slot as usize)?;
        if self.tolerant > 0 || place.is_none() {
            return None;
        }
        let seen = self.store.try_remove(slot)?;
        node.set_location(Location::None);
        Some((place.take()?, seen))
    }

    /// Takes the node of a slot that the store has freed.
    #[inline]
    fn release(&mut self, slot: u32) -> NodeRef<O> {
        let node = self.nodes[slot as usize]
            .take()
            .expect("a held slot has a node");
        if self.tolerant > 0 {
            self.tolerant -= usize::from(is_tolerant(&node));
        }
        node
    }

    /// Makes the store agree with the claim word of a node. Returns the node if this took it out.
    /// If another thread holds the node, this does nothing.
    pub(crate) fn apply(&mut self, node: &NodeRef<O>) -> Option<NodeRef<O>> {
        let Location::Slot(slot) = node.location() else {
            return None;
        };
        match node.claim.load() {
            Claim::Pending(deadline) => {
                // A later deadline waits until the old key comes up ("Pending updates" in
                // `PROTOCOLS.md`).
                let (key, before) = (node.key(deadline), self.store.key(slot));
                self.store.lower(slot, key);
                if key < before {
                    self.note_prompt(slot);
                }
                None
            }
            _ => Some(self.take_over(node, slot)),
        }
    }

    /// Makes the store agree with a node that the owner has moved to an earlier deadline. Returns
    /// `None` if the node may be in the inbox: then the caller has to push the update. The caller
    /// drops a returned node after it has released the lock.
    #[inline]
    pub(crate) fn apply_move(&mut self, node: &NodeRef<O>) -> Option<Option<NodeRef<O>>> {
        match node.location() {
            Location::Slot(_) => Some(self.apply(node)),
            Location::Deque => Some(None),
            Location::None => None,
        }
    }

    /// Returns whether the store takes [notes](Inner::try_note) of moves to earlier deadlines.
    #[inline]
    pub(crate) fn takes_notes(&self) -> bool {
        self.store.takes_notes()
    }

    /// Leaves a note that the node in `slot` was moved, and has this key now. The note counts if
    /// the deadline is `earlier` than before; no branch depends on it. Returns `false` if the store
    /// took no note.
    #[inline]
    pub(crate) fn try_note(&mut self, slot: u32, key: u64, earlier: bool) -> bool {
        self.store.try_note(slot, key, earlier)
    }

    /// Reads one node from the inbox, which is new or has an update. Returns the node if the store
    /// does not hold it after that.
    #[inline]
    pub(crate) fn read(&mut self, node: NodeRef<O>) -> Option<NodeRef<O>> {
        match node.location() {
            // If it is not pending, it is over, or another thread holds it as due. That thread is
            // putting it back at this moment, and will read the word.
            Location::None => self.insert(node),
            Location::Slot(_) => self.apply(&node),
            // The thread that takes it from the deque reads the claim word.
            Location::Deque => Some(node),
        }
    }
}

/// Returns whether a timer's key may be later than its deadline, or the timer is strict.
#[inline]
pub(super) fn is_tolerant<O: Owner>(node: &NodeRef<O>) -> bool {
    !node.tolerance().is_exact()
}
