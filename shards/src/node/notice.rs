//! Delivery of an outcome to the callback of a timer that ended: the methods of [`Notice`].

use std::{any::Any, marker::PhantomData, mem::ManuallyDrop};

use tourbillon_sync::{TypeName, foreign::resume};

use crate::{
    answer::{Kind, Outcome},
    node::{NodeRef, ending::deliver, header::VTable},
    owner::{Notice, Owner},
};

// SAFETY: it owns a `NodeRef`, which is Send and Sync, and an outcome.
unsafe impl<O: Owner> Send for Notice<O> {}
// SAFETY: as above.
unsafe impl<O: Owner> Sync for Notice<O> {}

impl<O: Owner> Notice<O> {
    pub(crate) fn new(node: NodeRef<O>, how: Outcome) -> Self {
        Self {
            held: Some((node.into_raw().cast(), how)),
            _owner: PhantomData,
        }
    }

    /// Takes the node and the outcome out.
    fn take(&mut self) -> Option<(NodeRef<O>, Outcome)> {
        let (node, how) = self.held.take()?;
        // SAFETY: `new` has turned the node into this pointer, and the notice gives it up here.
        Some((unsafe { NodeRef::from_raw(node.cast()) }, how))
    }

    /// Returns the outcome that the callback will receive.
    pub fn outcome(&self) -> Outcome {
        self.held
            .map(|(_, how)| how)
            .expect("only a consuming method takes the node")
    }

    /// Returns the node.
    fn node(&self) -> ManuallyDrop<NodeRef<O>> {
        let (node, _) = self.held.expect("only a consuming method takes the node");
        // SAFETY: `new` has turned the node into this pointer. The notice keeps the reference: this
        // one is not dropped.
        ManuallyDrop::new(unsafe { NodeRef::from_raw(node.cast()) })
    }

    /// Returns the table of the node.
    fn vtable(&self) -> &'static VTable<O> {
        self.node().vtable
    }

    /// Returns the timer's [tag](crate::Options::tag), or zero if it has none.
    pub fn tag(&self) -> u32 {
        self.node().extras().map_or(0, |extras| extras.tag)
    }

    /// Returns the kind of the timer.
    pub fn kind(&self) -> Kind {
        self.vtable().kind
    }

    /// Returns the type name of the callback: see [`Due::type_name`](crate::Due::type_name).
    pub fn type_name(&self) -> &'static TypeName {
        &self.vtable().name
    }

    /// Calls the callback with the outcome. Returns the payload of its panic, if it panics.
    pub fn run(mut self) -> Option<Box<dyn Any + Send>> {
        let (node, how) = self.take()?;
        deliver(&node, how).err()
    }
}

impl<O: Owner> Drop for Notice<O> {
    fn drop(&mut self) {
        if let Some((node, how)) = self.take() {
            if let Err(panic) = deliver(&node, how) {
                resume(panic);
            }
        }
    }
}

impl<O: Owner> std::fmt::Debug for Notice<O> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let how = self.held.map(|(_, how)| how);
        f.debug_tuple("Notice").field(&how).finish()
    }
}
