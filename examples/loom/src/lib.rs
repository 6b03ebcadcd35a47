//! Three small structures that threads share. Their models are in `tests/`, and `mutants/` has
//! mistakes that these must find. `README.md` is the chapter that goes with them.

mod sync;

pub mod mailbox;
pub mod queue;
pub mod spin_lock;
