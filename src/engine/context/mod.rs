//! The runtime and the worker that the calling thread belongs to.

pub(crate) mod current;
pub(crate) mod entered;
pub(crate) mod group;
pub(crate) mod placement;
pub(crate) mod spread;
pub(crate) mod tolerance;
