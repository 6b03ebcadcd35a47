//! How programs, seeds and simulations end.

use std::{collections::BTreeMap, error::Error, fmt, time::Duration};

/// What the program of a host may return: `()`, or a `Result` whose error fails the seed. A program
/// may also never return.
pub trait Outcome: private::Sealed {
    /// Returns why the program failed, as text.
    #[doc(hidden)]
    fn why(self) -> Result<(), String>;
}

mod private {
    use std::fmt;

    pub trait Sealed {}

    /// Names the type of expressions that never end, which has no name in stable Rust.
    pub trait Returns {
        type Type;
    }

    impl<T> Returns for fn() -> T {
        type Type = T;
    }

    pub type Never = <fn() -> ! as Returns>::Type;

    impl Sealed for Never {}

    impl Sealed for () {}
    impl<E: fmt::Debug> Sealed for Result<(), E> {}
}

impl Outcome for private::Never {
    fn why(self) -> Result<(), String> {
        self
    }
}

impl Outcome for () {
    fn why(self) -> Result<(), String> {
        Ok(())
    }
}

impl<E: fmt::Debug> Outcome for Result<(), E> {
    fn why(self) -> Result<(), String> {
        self.map_err(|error| format!("{error:?}"))
    }
}

/// What a seed did that did not fail. Two of them are equal if the runs are, whatever
/// [`outside`](Self::outside) returns: the names of files may differ from process to process.
#[derive(Clone, Debug)]
pub struct Report {
    pub(crate) numbers: BTreeMap<String, u64>,
    /// The calls that the real system has answered, and how often each was made.
    pub(crate) outside: BTreeMap<String, u64>,
}

impl PartialEq for Report {
    fn eq(&self, other: &Self) -> bool {
        self.numbers == other.numbers
    }
}

impl Eq for Report {}

impl Report {
    fn number(&self, name: &str) -> u64 {
        self.numbers.get(name).copied().unwrap_or(0)
    }

    /// Returns a hash of each step of the run: equal for equal seeds, and most likely different for
    /// others.
    pub fn hash(&self) -> u64 {
        self.number("hash")
    }

    /// Returns at how many points a thread could have lost its core.
    pub fn points(&self) -> u64 {
        self.number("points")
    }

    /// Returns the calls of hosts that the real system has answered, such as `open("/etc/hosts") by
    /// a`, and how often each was made.
    pub fn outside(&self) -> impl Iterator<Item = (&str, u64)> {
        self.outside
            .iter()
            .map(|(call, times)| (call.as_str(), *times))
    }

    /// Returns how many threads there were.
    pub fn threads(&self) -> u64 {
        self.number("threads")
    }

    /// Returns how long the simulation took by its own clock.
    pub fn simulated(&self) -> Duration {
        Duration::from_nanos(self.number("simulated_ns"))
    }
}

/// Why a seed has failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    pub(crate) seed: u64,
    pub(crate) why: String,
    /// The end of what the program printed.
    pub(crate) output: String,
}

impl Failure {
    /// Returns the seed.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Returns what went wrong, and what each thread did at that moment.
    pub fn why(&self) -> &str {
        &self.why
    }

    /// Returns the end of what the program printed, at most some thousand bytes.
    pub fn output(&self) -> &str {
        &self.output
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "seed {} failed: {}", self.seed, self.why.trim_end())?;
        if !self.output.is_empty() {
            write!(f, "\nit printed:\n{}", self.output.trim_end())?;
        }
        Ok(())
    }
}

impl Error for Failure {}
