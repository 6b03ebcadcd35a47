//! The budget of another runtime's futures, in polls by this one.
//!
//! The package in the folder `crates/tokio` uses the channels of the real tokio, which have a
//! budget of their own. That package cannot be a dependency of this one. So it passes three
//! functions here, and a thread of a runtime that is built after that calls them. `tokio_budget.rs`
//! implements them.

use std::sync::OnceLock;

/// The functions that give polls another budget, too.
#[derive(Clone, Copy, Debug)]
pub struct BudgetHooks {
    /// Calls its argument, in which `refill` gives a whole budget.
    pub with_budget: fn(&mut dyn FnMut()),
    /// Gives the next poll a whole budget.
    pub refill: fn(),
    /// Calls its argument without a budget.
    pub unlimited: fn(&mut dyn FnMut()),
    /// Is called at the first refusal in a poll, with `--cfg tokio_unstable`.
    pub refused: fn(),
}

static HOOKS: OnceLock<BudgetHooks> = OnceLock::new();

impl BudgetHooks {
    /// Sets the functions for this process. Only the first call has an effect.
    pub fn set(self) {
        HOOKS.get_or_init(|| self);
    }
}

pub(crate) fn with_budget<R>(f: impl FnOnce() -> R) -> R {
    match HOOKS.get() {
        Some(hooks) => run_in(hooks.with_budget, f),
        None => f(),
    }
}

#[inline]
pub(crate) fn refill() {
    if let Some(hooks) = HOOKS.get() {
        (hooks.refill)();
    }
}

#[inline]
pub(crate) fn unlimited<R>(f: impl FnOnce() -> R) -> R {
    match HOOKS.get() {
        Some(hooks) => run_in(hooks.unlimited, f),
        None => f(),
    }
}

#[cfg(tokio_unstable)]
pub(crate) fn refused() {
    if let Some(hooks) = HOOKS.get() {
        (hooks.refused)();
    }
}

/// Runs `f` in a hook, and returns its result.
fn run_in<R>(hook: fn(&mut dyn FnMut()), f: impl FnOnce() -> R) -> R {
    let (mut f, mut output) = (Some(f), None);
    hook(&mut || output = f.take().map(|f| f()));
    output.expect("the hook calls its argument")
}
