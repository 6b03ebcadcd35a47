//! The clocks of a runtime, and the types of moments on them.

pub(crate) mod current;
pub(crate) mod instant;
pub(crate) mod looked;
pub(crate) mod other;
pub(crate) mod runtime_clock;
pub(crate) mod wall;
