//! Metrics as text for Prometheus.

use std::{
    fmt::{Display, Write},
    time::Duration,
};

use tourbillon_jobs::node::Histogram;

use crate::families::{Of, Sink};

/// What the name of each metric begins with.
const PREFIX: &str = "tourbillon_jobs_";

/// A writer of Prometheus' text. Names and numbers look as those of `tourbillon-exporters`.
#[derive(Default)]
pub(crate) struct Text {
    pub(crate) out: String,
    /// The name of the present family, without the prefix.
    name: &'static str,
}

impl Text {
    /// Writes a sample of the present family. `suffix` follows the family's name.
    fn line(&mut self, suffix: &str, labels: &[(&str, &str)], value: impl Display) {
        let name = self.name;
        self.write(format_args!("{PREFIX}{name}{suffix}"));
        for (at, (name, label)) in labels.iter().enumerate() {
            let before = if at == 0 { '{' } else { ',' };
            self.write(format_args!("{before}{name}=\""));
            for c in label.chars() {
                match c {
                    '\\' => self.out.push_str("\\\\"),
                    '\n' => self.out.push_str("\\n"),
                    '"' => self.out.push_str("\\\""),
                    c => self.out.push(c),
                }
            }
            self.out.push('"');
        }
        if !labels.is_empty() {
            self.out.push('}');
        }
        self.write(format_args!(" {value}\n"));
    }

    fn write(&mut self, text: std::fmt::Arguments<'_>) {
        // Writing to a string cannot fail.
        let _ = self.out.write_fmt(text);
    }
}

impl Sink for Text {
    fn family(&mut self, name: &'static str, of: Of, help: &'static str) {
        self.name = name;
        let of = match of {
            Of::Counter => "counter",
            Of::Gauge => "gauge",
            Of::Histogram => "histogram",
        };
        self.write(format_args!(
            "# HELP {PREFIX}{name} {help}\n# TYPE {PREFIX}{name} {of}\n"
        ));
    }

    fn sample(&mut self, labels: &[(&str, &str)], value: u64) {
        self.line("", labels, value);
    }

    fn histogram(&mut self, labels: &[(&str, &str)], times: &Histogram) {
        for (le, within) in buckets(times) {
            self.line("_bucket", &[labels, &[("le", &le)]].concat(), within);
        }
        let sum = format!("{:?}", times.sum().as_secs_f64());
        self.line("_sum", labels, sum);
        self.line("_count", labels, times.count());
    }
}

/// Returns the buckets of a histogram: the upper bound of each in seconds, and how many times do
/// not exceed it. The last one has all.
pub(crate) fn buckets(times: &Histogram) -> impl Iterator<Item = (String, u64)> {
    let bound = |(bound, within): (Duration, u64)| (format!("{:?}", bound.as_secs_f64()), within);
    let all = ("+Inf".to_owned(), times.count());
    times.buckets().map(bound).chain([all])
}
