//! Labels of the job that runs.

use crate::{engine::local::with_local, metrics::label::Label};

/// Gives the running job of this worker a label, until this poll of a task, or this callback, ends.
///
/// A server runs many handlers in tasks of one type. With a label, reports tell which one it was:
/// [stalls](crate::runtime::Stall), the workers'
/// [current jobs](crate::metrics::WorkerMetrics::job), and the flight recorder. A job that is given
/// two different labels has none from then on, since nobody could tell which part of it took the
/// time. `tourbillon-axum` labels its requests by method and route.
///
/// It costs two stores, and for a text the look into a table: [keep](Label) the label of a hot
/// path. On a thread that is no worker it does nothing.
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

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::{metrics::activity::JobName, runtime::Builder};

    /// Returns the job in which this is called.
    fn job() -> JobName {
        let job = with_local(|local| {
            let watch = &local?.shard.owner().watchdog.watch;
            watch.activity().1
        });
        job.expect("this thread is a worker in a job")
    }

    #[test]
    fn a_label_is_not_that_of_a_job_in_a_later_block_on() {
        let runtime = Builder::new_current_thread().build().unwrap();
        // In each one the same number of jobs have run before.
        for text in ["first", "second"] {
            runtime.block_on(async {
                assert_eq!(job().label, None);
                label(text);
                assert_eq!(job().label, Some(text));
            });
        }
        assert_eq!(runtime.block_on(async { job().label }), None);
    }

    #[cfg(feature = "facade")]
    #[test]
    fn a_hook_before_a_poll_is_part_of_the_job() {
        use crate::engine::facade::{Options, TaskHooks};
        use std::sync::Arc;

        async fn labelled_by_a_hook() -> JobName {
            job()
        }
        let mut builder = Builder::new_current_thread();
        let hooks = TaskHooks {
            before_poll: Some(Arc::new(|_, _, _| {
                label(job().name.rsplit("::").nth(1).unwrap_or_default());
            })),
            ..TaskHooks::default()
        };
        let options = Options {
            hooks,
            ..Options::DEFAULT
        };
        options.set(&mut builder);
        let runtime = builder.build().unwrap();
        for _ in 0..2 {
            let task = runtime.spawn(labelled_by_a_hook());
            let job = runtime.block_on(task).unwrap();
            assert_eq!(job.label, Some("labelled_by_a_hook"));
        }
    }
}
