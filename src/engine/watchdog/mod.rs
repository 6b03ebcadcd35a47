//! What watches over the workers: rescue of a stuck one, and reports of long jobs.

pub(crate) mod rescue;
pub(crate) mod rescuers;
pub(crate) mod stall;
