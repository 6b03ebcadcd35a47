//! What the runtime tells the simulator about work that waits.

use std::sync::Arc;

/// Work that waits, although a worker sleeps that could do it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Neglected {
    /// What waits, and where.
    pub what: String,
    /// The thread that had to wake another, and which.
    pub blame: String,
    /// For how many ns the design lets it wait while no thread can run.
    pub allowed: u64,
    /// Changes when this is other work in the same place: the job that keeps the thread of the
    /// place from it.
    pub job: u64,
}

/// Lists the neglected work of a runtime. It runs while no thread can run, so it takes no lock and
/// waits for nothing. An entry keeps its place in the list from one call to the next.
pub type Probe = Arc<dyn Fn() -> Vec<Option<Neglected>> + Send + Sync>;

/// Has the simulator watch what `probe` lists.
pub fn watch(probe: Probe) {
    if let Some(hook) = super::here() {
        hook.watch(probe);
    }
}
