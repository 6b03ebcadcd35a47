//! The types that a user holds: the runtime, its handles, and its builder. This layer uses all
//! layers below it; none of them uses this one.

pub(crate) mod build;
pub(crate) mod builder;
pub(crate) mod cores;
pub mod dump;
#[cfg(feature = "facade")]
pub(crate) mod facade;
pub(crate) mod reports;
pub(crate) mod runtime;
