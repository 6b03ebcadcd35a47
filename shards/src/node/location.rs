//! The word that says where a node is held, and when it was taken from its store.

use crate::node::taken::Taken;

/// Place where a node is held. See "One holder" in `PROTOCOLS.md`.
///
/// Packed into 32 bits. If the highest bit is clear, the word is a slot. Otherwise one bit says
/// whether the node is in a deque, and 30 bits hold the time at which it was [taken](Taken) from
/// its store. That time stays there after the node has left the deque.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Location {
    /// In no store and no deque: in an inbox on the way to its shard, not started, or over.
    None,
    /// In a deque, or held by the thread that took it from there.
    Deque,
    /// In this slot of its owning shard's store.
    Slot(u32),
}

impl Location {
    /// Set if the node is in no slot.
    pub(super) const NONE: u32 = 1 << 31;
    /// Set in addition if the node is in a deque.
    pub(super) const IN_DEQUE: u32 = 1 << Taken::BITS;
    /// Set if the time of taking must not be used: it was never written, or was read already. It is
    /// the lowest bit of the time, so [`Taken::is_one_of`] never selects a spoiled time.
    pub(super) const SPOILED: u32 = 1;
    /// The largest slot that a store may hand out.
    pub(crate) const MAX_SLOT: u32 = Self::NONE - 1;

    #[inline]
    pub(super) fn pack(self) -> u32 {
        match self {
            Location::None => Self::NONE | Self::SPOILED,
            Location::Deque => Self::NONE | Self::IN_DEQUE | Self::SPOILED,
            Location::Slot(slot) => slot,
        }
    }

    #[inline]
    pub(super) fn unpack(word: u32) -> Self {
        if word & Self::NONE == 0 {
            Location::Slot(word)
        } else if word & Self::IN_DEQUE == 0 {
            Location::None
        } else {
            Location::Deque
        }
    }
}
