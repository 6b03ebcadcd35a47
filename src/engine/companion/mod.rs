//! The companion: a tokio runtime that belongs to this one, for libraries that need tokio's.
//!
//! Threads of this runtime enter the companion for as long as they live, so nothing is done for
//! each poll but to refill tokio's budget. Threads of the companion enter this runtime likewise.

#[cfg(not(feature = "tokio-compat"))]
mod absent;
#[cfg(feature = "tokio-compat")]
mod present;

#[cfg(not(feature = "tokio-compat"))]
pub(crate) use self::absent::{Companion, EnteredCompanion};
#[cfg(feature = "tokio-compat")]
pub(crate) use self::present::{Companion, EnteredCompanion};
