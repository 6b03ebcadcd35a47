//! Three small structures that threads share. Their models are in `tests/`, and `mutants/` has
//! mistakes that these must find. `README.md` is the chapter that goes with them.
//!
//! What a structure holds moves from one thread to another, so it has to be `Send`:
//!
//! ```compile_fail,E0277
//! fn sync<T: Sync>() {}
//! sync::<handover::mailbox::Mailbox<std::rc::Rc<u8>>>();
//! ```

mod sync;

pub mod mailbox;
pub mod queue;
pub mod spin_lock;
