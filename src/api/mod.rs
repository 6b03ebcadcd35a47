//! What a user holds: the runtime, handles to it, and its options. It knows all that is below.

pub(crate) mod build;
pub(crate) mod builder;
pub(crate) mod handle;
pub(crate) mod runtime;
