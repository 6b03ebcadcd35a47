//! What the lock of a shard guards: the store, and the nodes in it.

use std::mem;

use crate::{
    claim::{Claim, Expiry, NEVER},
    due::Due,
    inbox::Batch,
    node::{Location, NodeRef},
    owner::Owner,
    store::{AnyStore, Seen, Store, StoreKind},
    taken::Taken,
};

/// How far ahead the nodes are fetched where all are taken.
const AHEAD: usize = 16;

/// So many slots take no memory that would be worth another store: some 400 KB.
const ROOMY: usize = if cfg!(test) { 64 } else { 16 * 1024 };
/// A store is too large if one slot in so many is held, or fewer are.
const SPARSE: usize = 8;
/// A store with more timers than this is kept. Each is read cold under the shard's lock when it
/// moves, and all timers that come due meanwhile are late by that.
pub(crate) const MOST_MOVED: usize = if cfg!(test) { 64 } else { 1_024 };

/// What the lock guards.
pub(crate) struct Inner<O: Owner> {
    store: AnyStore,
    /// The carried node of each slot.
    nodes: Vec<Option<NodeRef<O>>>,
    /// What was taken from the inbox and not read yet.
    pub(crate) backlog: Batch<O>,
    /// A lower bound of the deadlines in `backlog`.
    pub(crate) backlog_next: u64,
    /// How many of the stored timers may be late, and wait for more than their deadline.
    tolerant: usize,
    /// Whether the store was too large when that was last looked at.
    roomy: bool,
    pub(crate) closed: bool,
}

/// The arrays of a store that was too large. To be dropped outside of the lock, as that takes the
/// system its time.
pub(crate) struct Outgrown<O: Owner> {
    _store: AnyStore,
    _nodes: Vec<Option<NodeRef<O>>>,
}

impl<O: Owner> Inner<O> {
    pub(crate) fn new() -> Self {
        Self::with_store(StoreKind::default())
    }

    pub(crate) fn with_store(kind: StoreKind) -> Self {
        Self {
            store: AnyStore::new(kind),
            nodes: Vec::new(),
            backlog: Batch::empty(),
            backlog_next: NEVER,
            tolerant: 0,
            roomy: false,
            closed: false,
        }
    }

    /// What the store says of itself.
    #[inline]
    pub(crate) fn seen(&self) -> Seen {
        self.store.seen()
    }

    /// The earliest key of the store, or what may stand in the backlog, if that is earlier; and the
    /// earliest moment at which [`expire`](Inner::expire) may find something: the first timer's
    /// deadline, if that may be late.
    #[inline]
    pub(crate) fn next(&self, seen: Seen) -> (u64, u64) {
        let next = self.next_exact(seen);
        if self.tolerant == 0 {
            return (next, next);
        }
        (next, self.soonest(next))
    }

    /// The same where no timer may be late: then both are one.
    #[inline]
    pub(crate) fn next_exact(&self, seen: Seen) -> u64 {
        // Which is `NEVER` at most, whatever the store says where it is empty.
        seen.first_key.min(self.backlog_next)
    }

    /// The deadline of the first timer, or `next`, if that is earlier.
    #[cold]
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

    /// Takes what is due at `now` out of the store, until there are `limit` in `due`; true if there
    /// may be more. `taken` says when that was.
    pub(crate) fn expire(
        &mut self,
        now: u64,
        taken: Taken,
        limit: usize,
        due: &mut Vec<Due<O>>,
    ) -> bool {
        while let Some((key, slot)) = self.store.first() {
            if key > now && self.tolerant == 0 {
                break;
            }
            let node = self.nodes[slot as usize]
                .as_ref()
                .expect("a held slot has a node");
            // By the key, not by the time: what was moved later goes back even if it is due,
            // and comes out in its turn. But since the worker is awake, what may be late need
            // not be.
            let by = if key <= now {
                key
            } else if node.claim.load().deadline().is_some_and(|at| at <= now) {
                now
            } else {
                break;
            };
            if due.len() == limit {
                return true;
            }
            let mut expiry = node.claim.expire(by);
            let dead = || node.extras().is_some_and(|extras| extras.is_dead());
            if matches!(expiry, Expiry::Later(_)) && dead() {
                // It will not run, whenever that is: it may end now.
                expiry = node.claim.expire(NEVER);
            }
            match expiry {
                Expiry::Later(at) => {
                    self.store.rekey(slot, node.key(at));
                    continue;
                }
                Expiry::Due => {
                    node.set_taken(taken);
                    due.push(Due::new(self.take_first(key, slot)));
                }
                Expiry::Over => {
                    node.set_location(Location::None);
                    drop(self.take_first(key, slot));
                }
            }
        }
        false
    }

    /// The earliest key, once those that have been moved, or are gone, are where they belong.
    pub(crate) fn settle(&mut self) -> u64 {
        while let Some((key, slot)) = self.store.first() {
            let node = self.nodes[slot as usize]
                .as_ref()
                .expect("a held slot has a node");
            match node.claim.load().deadline().map(|at| node.key(at)) {
                Some(next) if next <= key => return next,
                Some(next) => self.store.rekey(slot, next),
                None => {
                    node.set_location(Location::None);
                    drop(self.take(slot));
                }
            }
        }
        NEVER
    }

    /// Takes all timers out of the store, for good, in no order that would mean anything.
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
            // Each is cold, having waited.
            if let Some(Some(node)) = stored.get(slot + AHEAD) {
                node.prefetch();
            }
            if let Some(node) = &stored[slot] {
                node.set_location(Location::None);
            }
        }
        nodes.extend(stored.into_iter().flatten());
    }

    /// For how many timers there is room.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn room(&self) -> usize {
        self.nodes.capacity()
    }

    /// Moves the timers to a store of their size, if it is found a second time that the present one
    /// is too large. The first answer is whether this is to be called again. At most [`MOST_MOVED`]
    /// timers move.
    pub(crate) fn shrink(&mut self) -> (bool, Option<Outgrown<O>>) {
        let (len, room) = (self.store.len(), self.nodes.capacity());
        let is_roomy = room > ROOMY && len <= (room / SPARSE).min(MOST_MOVED);
        // Of a program whose timers come in waves the store would shrink in between, for nothing.
        if !is_roomy || !std::mem::replace(&mut self.roomy, is_roomy) {
            self.roomy = is_roomy;
            return (is_roomy, None);
        }
        self.roomy = false;
        let kind = self.store.kind();
        let before = mem::replace(&mut self.store, AnyStore::new(kind));
        let mut nodes = mem::replace(&mut self.nodes, Vec::with_capacity(2 * len));
        for (slot, place) in (0..).zip(&mut nodes) {
            if let Some(node) = place.take() {
                // Under the lock, as all that is said of slots.
                let slot = self.store.insert(before.key(slot));
                self.put(slot, node);
            }
            if self.nodes.len() == len {
                break;
            }
        }
        let outgrown = Outgrown {
            _store: before,
            _nodes: nodes,
        };
        (false, Some(outgrown))
    }

    /// Puts an arriving node into the store, or gives it back if it is over.
    #[inline]
    fn insert(&mut self, node: NodeRef<O>) -> Option<NodeRef<O>> {
        // The word is read under the lock: news that was drained before found the node elsewhere.
        let Claim::Pending(deadline) = node.claim.load() else {
            return Some(node);
        };
        if node.extras().is_some() {
            self.insert_slow(node, deadline);
        } else if let Err(node) = self.try_insert_new(node, deadline) {
            self.insert_slow(node, deadline);
        }
        None
    }

    /// Slow path of [`insert`](Inner::insert): the store has to grow, or a timer has a tolerance.
    #[inline(never)]
    fn insert_slow(&mut self, node: NodeRef<O>, deadline: u64) {
        let slot = self.store.insert(node.key(deadline));
        self.tolerant += usize::from(is_tolerant(&node));
        self.put(slot, node);
    }

    /// Puts a node into the store that is new, waits for `deadline` and has no options. No other
    /// thread knows it.
    #[inline]
    pub(crate) fn insert_new(&mut self, node: NodeRef<O>, deadline: u64) {
        let slot = self.store.insert(deadline);
        self.put(slot, node);
    }

    /// Does what [`insert_new`](Inner::insert_new) does, if the store has room: some loads and
    /// stores, no call and no panic. Returns what the store then says, or gives the node back.
    // Always inlined: it has two callers, and the owner's path needs no stack.
    #[inline(always)]
    pub(crate) fn try_insert_new(
        &mut self,
        node: NodeRef<O>,
        deadline: u64,
    ) -> Result<Seen, NodeRef<O>> {
        let has_room = cfg!(loom) || self.nodes.len() < self.nodes.capacity();
        if self.closed || self.tolerant > 0 || !has_room {
            return Err(node);
        }
        let Some((slot, seen)) = self.store.insert_quickly(deadline) else {
            return Err(node);
        };
        node.set_location(Location::Slot(slot));
        match self.nodes.get_mut(slot as usize) {
            // It was free: there is nothing to be dropped.
            Some(place) => mem::forget(place.replace(node)),
            // The store gives out new slots one after the other.
            None => self.nodes.push(Some(node)),
        }
        Ok(seen)
    }

    /// Sets the node of a slot that the store has given out.
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
            // So that no destructor is called for it.
            mem::forget(none);
        }
    }

    /// Takes a node out of the store. The caller sets its location.
    #[inline]
    fn take(&mut self, slot: u32) -> NodeRef<O> {
        self.store.remove(slot);
        self.release(slot)
    }

    /// The same for the first one, while others are on their way out behind it.
    fn take_first(&mut self, key: u64, slot: u32) -> NodeRef<O> {
        let nodes = &self.nodes;
        let popped = self.store.pop_due(key, |soon| {
            // Nodes are cold when their time comes, and a miss costs more than all else here.
            if let Some(Some(node)) = nodes.get(soon as usize) {
                node.prefetch();
            }
        });
        debug_assert_eq!(popped, Some((key, slot)));
        self.release(slot)
    }

    /// Takes the node that is over out of the store, where it is in this slot.
    #[inline]
    pub(crate) fn take_over(&mut self, node: &NodeRef<O>, slot: u32) -> NodeRef<O> {
        node.set_location(Location::None);
        self.take(slot)
    }

    /// Does what [`take_over`](Inner::take_over) does, if that is some loads and stores, and
    /// returns what the store then says. Otherwise does nothing.
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
        let seen = self.store.remove_quickly(slot)?;
        node.set_location(Location::None);
        Some((place.take()?, seen))
    }

    /// The node of a slot that was given back to the store.
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

    /// Makes the store agree with the claim word of a node; gives back the node if that took it
    /// out. For nodes that are carried elsewhere it does nothing.
    pub(crate) fn apply(&mut self, node: &NodeRef<O>) -> Option<NodeRef<O>> {
        let Location::Slot(slot) = node.location() else {
            return None;
        };
        match node.claim.load() {
            Claim::Pending(deadline) => {
                // A later one can wait until the old one comes up.
                self.store.lower(slot, node.key(deadline));
                None
            }
            _ => Some(self.take_over(node, slot)),
        }
    }

    /// The owner has moved a node to an earlier deadline: makes the store agree. The caller drops
    /// the node that is given back outside of the lock. Returns `None` if the node may stand in the
    /// inbox: then the update has to go there.
    #[inline]
    pub(crate) fn hear(&mut self, node: &NodeRef<O>) -> Option<Option<NodeRef<O>>> {
        match node.location() {
            Location::Slot(_) => Some(self.apply(node)),
            Location::Deque => Some(None),
            Location::None => None,
        }
    }

    /// Returns whether the store takes [notes](Inner::try_note) of moves to earlier deadlines.
    #[inline]
    pub(crate) fn puts_off(&self) -> bool {
        self.store.puts_off()
    }

    /// Leaves a note that the node in `slot`, which has no options, was moved to `deadline`. The
    /// note counts if that is `earlier` than before; no branch depends on it. Returns `false` if
    /// the store took no note.
    #[inline]
    pub(crate) fn try_note(&mut self, slot: u32, deadline: u64, earlier: bool) -> bool {
        self.store.note_quickly(slot, deadline, earlier)
    }

    /// Reads one entry of the inbox, an arrival or news; gives back what is not carried here after
    /// it.
    #[inline]
    pub(crate) fn read(&mut self, node: NodeRef<O>) -> Option<NodeRef<O>> {
        match node.location() {
            // If it is not pending it is over, or due in the hands of somebody who is putting it
            // back this moment, and will find that out.
            Location::None => self.insert(node),
            Location::Slot(_) => self.apply(&node),
            // Whoever takes it from the deque looks at the word.
            Location::Deque => Some(node),
        }
    }
}

/// Whether a timer's key may be later than its deadline.
#[inline]
fn is_tolerant<O: Owner>(node: &NodeRef<O>) -> bool {
    node.extras().is_some_and(|extras| extras.tolerance > 0)
}
