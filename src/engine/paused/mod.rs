//! A paused clock: it advances to the next deadline when nothing is left to do.

pub(crate) mod advance;
pub(crate) mod passing;
pub(crate) mod quiescence;
pub(crate) mod state;
