//! What watches over the workers: rescue of a stuck one, and reports of long jobs.

pub(crate) mod looks;
pub(crate) mod report;
pub(crate) mod rescue;
pub(crate) mod rescuers;
pub(crate) mod stall;
pub(crate) mod state;
pub(crate) mod watch;
