#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]
#![warn(missing_debug_implementations)]

mod options;
mod pprof;
mod profile;
mod profiling;
mod ring;
mod signal;
mod spans;
#[cfg(feature = "flamegraph")]
mod svg;
mod timer;

pub use options::{Clock, Options};
pub use profile::{Profile, Sampled};
pub use profiling::{ProfileError, Profiling, profile};
#[cfg(feature = "tracing")]
#[cfg_attr(docsrs, doc(cfg(feature = "tracing")))]
pub use spans::SpanLayer;
