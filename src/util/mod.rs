//! Small parts that any module may use.

pub(crate) mod budget;
pub(crate) mod contained;
pub(crate) mod lock;
pub(crate) mod nanos;
