//! Values of which each simulated process has its own.

use std::{ops::Deref, ptr};

use super::{Hook, here_without_a_step};

/// A value of a `static`, and how to make that of another process. See
/// [`per_process!`](crate::per_process).
#[derive(Debug)]
pub struct PerProcess<T> {
    /// That of the real process.
    value: T,
    make: fn() -> T,
}

impl<T> PerProcess<T> {
    /// Creates the value of the real process. `make` creates those of simulated ones.
    pub const fn new(value: T, make: fn() -> T) -> Self {
        Self { value, make }
    }
}

impl<T> Deref for PerProcess<T> {
    type Target = T;

    fn deref(&self) -> &T {
        let address = ptr::from_ref(self).addr();
        let mut make = || Box::into_raw(Box::new((self.make)())).cast_const().cast();
        match here_without_a_step().and_then(|hook: &dyn Hook| hook.own(address, &mut make)) {
            // SAFETY: `make` has made it for this address, so it is a `T`. Nobody frees it.
            Some(own) => unsafe { &*own.cast::<T>() },
            None => &self.value,
        }
    }
}
