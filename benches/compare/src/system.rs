//! The systems that are compared.

use std::{fmt, str::FromStr};

use serde::{Serialize, Serializer};

/// A system under comparison: a runtime, or a queue of timers on a runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum System {
    Tourbillon,
    /// Tourbillon with `Builder::exact`.
    Exact,
    Tokio,
    /// tokio with `enable_alt_timer`.
    TokioAlt,
    /// tokio-util's `DelayQueue`, on tokio.
    DelayQueue,
    Smol,
    Compio,
    Monoio,
    Glommio,
}

impl System {
    /// All systems, in the order of the table's columns.
    pub const ALL: [System; 9] = [
        System::Tourbillon,
        System::Exact,
        System::Tokio,
        System::TokioAlt,
        System::DelayQueue,
        System::Smol,
        System::Compio,
        System::Monoio,
        System::Glommio,
    ];

    /// The runtimes, and Tourbillon with `Builder::exact`.
    pub const RUNTIMES_AND_EXACT: [System; 8] = [
        System::Tourbillon,
        System::Exact,
        System::Tokio,
        System::TokioAlt,
        System::Smol,
        System::Compio,
        System::Monoio,
        System::Glommio,
    ];

    /// The runtimes.
    pub const RUNTIMES: [System; 7] = [
        System::Tourbillon,
        System::Tokio,
        System::TokioAlt,
        System::Smol,
        System::Compio,
        System::Monoio,
        System::Glommio,
    ];

    /// The runtimes that run on several threads.
    pub const THREADED: [System; 4] = [
        System::Tourbillon,
        System::Tokio,
        System::TokioAlt,
        System::Smol,
    ];

    /// The systems whose timers are armed and moved from several threads.
    pub const TIMERS: [System; 5] = [
        System::Tourbillon,
        System::Tokio,
        System::TokioAlt,
        System::DelayQueue,
        System::Smol,
    ];

    /// Returns whether this is Tourbillon, and not a peer.
    pub fn is_ours(self) -> bool {
        matches!(self, System::Tourbillon | System::Exact)
    }

    /// Returns the system's name on the command line, in the table and in the JSON.
    pub fn name(self) -> &'static str {
        match self {
            System::Tourbillon => "tourbillon",
            System::Exact => "exact",
            System::Tokio => "tokio",
            System::TokioAlt => "tokio-alt",
            System::DelayQueue => "delay-queue",
            System::Smol => "smol",
            System::Compio => "compio",
            System::Monoio => "monoio",
            System::Glommio => "glommio",
        }
    }
}

impl FromStr for System {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|system| system.name() == name);
        known.ok_or_else(|| format!("no such system: {name}"))
    }
}

impl fmt::Display for System {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Serialize for System {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}
