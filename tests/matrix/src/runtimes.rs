//! The two runtimes in which each exchange runs.

use std::{
    fmt,
    time::{Duration, Instant},
};

use tourbillon::{runtime::Builder, time::timeout};

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
    let builder = match with_compat {
        true => builder.enable_tokio(),
        false => builder,
    };
    let runtime = builder.build().expect("a runtime");
    let start = Instant::now();
    let ended = runtime.block_on(async {
        let task = tourbillon::spawn(exchange);
        timeout(AGES, task).await
    });
    let all_ended = runtime.shutdown_timeout(AGES.saturating_sub(start.elapsed()));
    match (ended, panics::first()) {
        (_, Some(panic)) => Outcome::Panicked(panic),
        (Ok(Ok(())), None) if all_ended => Outcome::Works,
        _ => Outcome::Hung,
    }
}
