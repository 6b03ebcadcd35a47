#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]
#![warn(missing_debug_implementations)]

pub mod families;
#[cfg(feature = "opentelemetry")]
mod opentelemetry;
mod prometheus;
#[cfg(test)]
mod prometheus_tests;
#[cfg(feature = "metrics")]
mod reporter;
mod samples;
mod text;

#[cfg(feature = "opentelemetry")]
#[cfg_attr(docsrs, doc(cfg(feature = "opentelemetry")))]
pub use crate::opentelemetry::observe_runtime;
pub use crate::prometheus::{openmetrics, prometheus};
#[cfg(feature = "metrics")]
#[cfg_attr(docsrs, doc(cfg(feature = "metrics")))]
pub use crate::reporter::{RuntimeMetricsReporter, RuntimeMetricsReporterBuilder};
