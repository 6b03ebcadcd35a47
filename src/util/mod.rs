//! Small parts that any module may use.

pub(crate) mod budget;
#[cfg(feature = "facade")]
pub(crate) mod budget_hooks;
pub(crate) mod contained;
pub(crate) mod lock;
pub(crate) mod nanos;
pub(crate) mod probe;
