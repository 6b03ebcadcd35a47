//! Stores: priority queues that know which timer is next.
//!
//! A store keeps `(key, slot)` entries in dense arrays and never touches a timer's node: a cache
//! miss on a cold node costs more than two heap operations. Keys are exact, in ns.

pub(crate) mod any;
mod blocks;
mod heap;
mod interface;
mod keys;
mod slots;
mod tree;
mod wheel;

pub use self::{
    any::{AnyStore, StoreKind},
    heap::Heap,
    interface::Store,
    wheel::Wheel,
};
pub(crate) use self::{
    interface::Entry,
    tree::{Nowhere, Tree},
};
