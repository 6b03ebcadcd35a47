//! Prints the steps of one execution, which loom reports by `tracing`.

use std::{
    any::Any,
    io::{self, Write},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use tracing_subscriber::{filter::LevelFilter, fmt, util::SubscriberInitExt};

/// Prints the steps of execution number `shown` until the returned guard is dropped. `executions`
/// holds the number of the current execution.
pub(crate) fn begin(executions: Arc<AtomicUsize>, shown: usize) -> impl Any {
    let out = move || -> Box<dyn Write> {
        if executions.load(Ordering::Relaxed) == shown {
            Box::new(io::stdout())
        } else {
            Box::new(io::sink())
        }
    };
    fmt()
        .with_max_level(LevelFilter::TRACE)
        .with_ansi(false)
        .with_target(false)
        .with_level(false)
        .without_time()
        .with_writer(out)
        .set_default()
}
