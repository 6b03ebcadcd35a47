//! Labels of the job that runs.

use crate::{engine::local::with_local, metrics::label::Label};

/// Gives the running job of this worker a label, until this poll of a task, or this callback, ends.
///
/// A server runs many handlers in tasks of one type. With a label, reports tell which one it was:
/// [stalls](crate::runtime::Stall), the workers' [current jobs](crate::metrics::WorkerMetrics::job),
/// and the flight recorder. A job that is given two different labels has none from then on, since
/// nobody could tell which part of it took the time. `tourbillon-axum` labels its requests by
/// method and route.
///
/// It costs two stores, and for a text the look into a table: [keep](Label) the label of a hot path.
/// On a thread that is no worker it does nothing.
///
/// ```
/// use tourbillon::task::{self, Label};
///
/// # let runtime = tourbillon::Runtime::new().unwrap();
/// let label = Label::new("GET /report");
/// let handle = runtime.spawn(async move {
///     task::label("reads the orders");
///     task::yield_now().await;
///     // The next poll has no label yet.
///     task::label(label);
/// });
/// # runtime.block_on(handle).unwrap();
/// ```
pub fn label(label: impl Into<Label>) {
    with_local(|local| {
        if let Some(local) = local {
            let watch = &local.shard.owner().watchdog.watch;
            watch.set_label(label.into());
        }
    });
}
