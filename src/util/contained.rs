//! Calls of user code whose panic must not unwind into the runtime.

pub(crate) use tourbillon_sync::foreign::{Drops, contained, each, each_or, forget};
