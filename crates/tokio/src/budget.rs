//! Gives polls by Tourbillon the budget of the real tokio, which its channels spend.

mod tokio_budget;

use tourbillon::facade::BudgetHooks;

/// Gives it in all runtimes that are built from now on.
pub(crate) fn enable() {
    let hooks = BudgetHooks {
        with_budget: |f| tokio_budget::with_budget(f),
        refill: tokio_budget::refill,
        unlimited: |f| tokio_budget::unlimited(f),
        refused: tourbillon::facade::count_forced_yield,
    };
    hooks.set();
}
