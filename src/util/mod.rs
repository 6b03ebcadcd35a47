//! Small parts that any module may use.

pub(crate) mod budget;
pub(crate) mod contained;
pub(crate) mod lock;
pub(crate) mod nanos;
#[cfg(feature = "tokio-compat")]
pub(crate) mod tokio_budget;
