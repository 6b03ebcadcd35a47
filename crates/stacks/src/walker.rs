//! Walks stacks that others have copied.

use std::fmt;

use crate::{sys::Registers, unwind::Tables};

/// Walks stacks that were copied in a signal handler, as a profiler does.
///
/// The handler takes the [registers](Registers::of_handler) and copies the stack, from the
/// [stack pointer](Registers::stack_pointer) upwards. Another thread walks the copy.
pub struct Walker(Tables);

impl Walker {
    /// Reads the tables of the program and of the libraries that are loaded now. It takes some
    /// µs. Stacks end at functions of libraries that are loaded later.
    ///
    /// The tables are read in place. So the program must unload no library (`dlclose`) that is
    /// loaded now while there is this value: a walk would read memory that is gone.
    pub fn new() -> Self {
        Self(Tables::new())
    }

    /// Returns the addresses of a stack as [`Stack::addresses`](crate::Stack::addresses) does.
    /// [`frames_at`](crate::frames_at) has the functions. `words` is the copy. The result is
    /// shorter than the stack if the copy ends before it, and empty on processors other than x86-64
    /// and AArch64.
    pub fn walk(&mut self, registers: &Registers, words: &[u64]) -> Vec<u64> {
        self.0.walk(*registers, words)
    }
}

impl Default for Walker {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Walker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Walker").finish_non_exhaustive()
    }
}
