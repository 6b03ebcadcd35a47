//! The two runtimes in which each exchange runs.

use std::{
    fmt,
    time::{Duration, Instant},
};

use tourbillon::{Runtime, runtime::Builder, time::timeout};

use crate::{case::Expected, panics};

/// Longer than any exchange takes.
const AGES: Duration = Duration::from_secs(60);

/// The result of an exchange.
pub enum Outcome {
    Works,
    Panicked(String),
    Hung,
}

impl Outcome {
    pub fn is(&self, expected: Expected) -> bool {
        match (self, expected) {
            (Self::Works, Expected::Works) => true,
            (Self::Panicked(text), Expected::Panics(part)) => text.contains(part) && !unwraps(text),
            (Self::Panicked(text), Expected::Fails(part)) => text.contains(part) && unwraps(text),
            _ => false,
        }
    }
}

/// Returns whether this is the message of a `Result` that was unwrapped.
fn unwraps(text: &str) -> bool {
    text.starts_with("called `Result::unwrap()` on an `Err` value")
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Works => f.write_str("works"),
            Self::Panicked(text) => write!(f, "panics: {text}"),
            Self::Hung => write!(f, "does not end within {AGES:?}"),
        }
    }
}

/// Runs an exchange in a plain runtime, or in one with a companion.
pub fn outcome<F>(with_compat: bool, exchange: F) -> Outcome
where
    F: Future<Output = ()> + Send + 'static,
{
    panics::clear();
    // Other processes may need the cores, so the workers are not pinned.
    let builder = Builder::new().worker_threads(2).pin(false);
    let (runtime, companion) = match with_compat {
        true => enable_tokio(builder),
        false => (builder.build().expect("a runtime"), None),
    };
    let start = Instant::now();
    let ended = runtime.block_on(async {
        let task = tourbillon::spawn(exchange);
        timeout(AGES, task).await
    });
    let all_ended = runtime.shutdown_timeout(AGES.saturating_sub(start.elapsed()));
    drop(companion);
    match (ended, panics::first()) {
        (_, Some(panic)) => Outcome::Panicked(panic),
        (Ok(Ok(())), None) if all_ended => Outcome::Works,
        _ => Outcome::Hung,
    }
}

/// Stands in for `Builder::enable_tokio`.
fn enable_tokio(builder: Builder) -> (Runtime, Option<tokio::runtime::Runtime>) {
    let ours: &'static std::sync::OnceLock<tourbillon::Handle> = Box::leak(Box::default());
    let companion = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .on_thread_start(|| std::mem::forget(ours.wait().enter()))
        .build()
        .expect("a companion");
    let handle: &'static _ = Box::leak(Box::new(companion.handle().clone()));
    let builder = builder.on_thread_start(move || std::mem::forget(handle.enter()));
    let runtime = builder.build().expect("a runtime");
    assert!(ours.set(runtime.handle().clone()).is_ok());
    (runtime, Some(companion))
}
