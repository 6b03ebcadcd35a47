//! Delivery of an outcome to the callback of a timer that ended.

use std::{any::Any, panic::resume_unwind, thread::panicking};

use crate::{
    claim::Outcome,
    ending::tell,
    node::{Kind, NodeRef},
    owner::Owner,
    type_name::TypeName,
};

/// Outcome that has to be delivered to the callback of a timer, which ended without a run or will
/// not run again.
///
/// The receiver must [run](Notice::run) it. Dropping it runs it too, so no outcome is lost; a panic
/// of the callback then continues in the thread that drops it.
///
/// The shard passes it to [`Owner::deliver`]. The owner keeps it for its loop, or sends it there:
///
/// ```
/// # use std::sync::{Arc, mpsc};
/// use tourbillon_shards::{Flow, Notice, Options, Outcome, Owner, Shard, Timer};
///
/// struct Loop { notices: mpsc::Sender<Notice<Loop>> }
///
/// impl Owner for Loop {
///     fn wake(&self) {}
///     fn is_current(&self) -> bool { true }
///     fn deliver(&self, notice: Notice<Loop>) {
///         // A loop on another thread has to be woken after this. If the loop is gone, `send`
///         // returns the notice, and dropping it runs the callback here.
///         let _ = self.notices.send(notice);
///     }
/// }
///
/// let (notices, delivered) = mpsc::channel();
/// let shard = Arc::new(Shard::new(Loop { notices }));
/// let options = Options { outcome: true, ..Options::default() };
/// let timer = Timer::build(&shard, 1_000, None, options, Flow::Break);
/// timer.start(0);
/// timer.cancel();
///
/// // In the loop:
/// for notice in delivered.try_iter() {
///     assert_eq!(notice.outcome(), Outcome::Cancelled);
///     if let Some(_panic) = notice.run() { /* the callback panicked */ }
/// }
/// # shard.close();
/// ```
pub struct Notice<O: Owner>(Option<(NodeRef<O>, Outcome)>);

impl<O: Owner> Notice<O> {
    pub(crate) fn new(node: NodeRef<O>, how: Outcome) -> Self {
        Self(Some((node, how)))
    }

    /// Returns the outcome that the callback will receive.
    pub fn outcome(&self) -> Outcome {
        self.0
            .as_ref()
            .map(|(_, how)| *how)
            .expect("only a consuming method takes the node")
    }

    /// Returns the kind of the timer.
    pub fn kind(&self) -> Kind {
        self.0
            .as_ref()
            .map(|(node, _)| node.vtable.kind)
            .expect("only a consuming method takes the node")
    }

    /// Returns the type name of the callback: see [`Due::type_name`](crate::Due::type_name).
    pub fn type_name(&self) -> &'static TypeName {
        self.0
            .as_ref()
            .map(|(node, _)| &node.vtable.name)
            .expect("only a consuming method takes the node")
    }

    /// Calls the callback with the outcome. Returns the payload of its panic, if it panics.
    pub fn run(mut self) -> Option<Box<dyn Any + Send>> {
        let (node, how) = self.0.take()?;
        tell(&node, how).err()
    }
}

impl<O: Owner> Drop for Notice<O> {
    fn drop(&mut self) {
        if let Some((node, how)) = self.0.take() {
            if let Err(panic) = tell(&node, how) {
                // A second panic would abort the process.
                if !panicking() {
                    resume_unwind(panic);
                }
            }
        }
    }
}

impl<O: Owner> std::fmt::Debug for Notice<O> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let how = self.0.as_ref().map(|(_, how)| how);
        f.debug_tuple("Notice").field(&how).finish()
    }
}
