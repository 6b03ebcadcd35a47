//! A writer of Prometheus' text format and of OpenMetrics: families, samples and histograms.

use std::fmt::{Display, Write};

use tourbillon::metrics::LatenessHistogram;

use crate::families::{Kind, Label};

/// The first and last bound of a histogram, as powers of two in ns: 1.024 µs and 68.7 s.
pub(crate) const OCTAVES: std::ops::RangeInclusive<u32> = 10..=36;

/// The output format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    Prometheus,
    OpenMetrics,
}

/// The text under construction.
pub(super) struct Text {
    format: Format,
    pub(super) out: String,
    /// The name of the current family.
    name: &'static str,
}

impl Text {
    pub(super) fn new(format: Format) -> Self {
        Self {
            format,
            out: String::new(),
            name: "",
        }
    }

    pub(super) fn end(mut self) -> String {
        if self.format == Format::OpenMetrics {
            self.out.push_str("# EOF\n");
        }
        self.out
    }

    /// Begins a family: writes its description and its kind.
    pub(super) fn family(&mut self, name: &'static str, kind: Kind, help: &str) {
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        };
        self.name = name;
        // OpenMetrics names the family of a counter without the suffix of its samples.
        let family = match self.format {
            Format::Prometheus => name,
            Format::OpenMetrics => name.strip_suffix("_total").unwrap_or(name),
        };
        self.write(format_args!("# HELP {family} "));
        self.escape(help, self.format == Format::OpenMetrics);
        self.write(format_args!("\n# TYPE {family} {kind}\n"));
    }

    /// Writes a sample of the current family. `suffix` follows the family's name.
    pub(super) fn sample(&mut self, suffix: &str, labels: &[Label<'_>], value: impl Display) {
        self.out.push_str(self.name);
        self.out.push_str(suffix);
        for (i, (name, label)) in labels.iter().enumerate() {
            let before = if i == 0 { '{' } else { ',' };
            self.write(format_args!("{before}{name}=\""));
            self.escape(label, true);
            self.out.push('"');
        }
        if !labels.is_empty() {
            self.out.push('}');
        }
        self.write(format_args!(" {value}\n"));
    }

    /// Writes the samples of a histogram.
    pub(super) fn buckets(&mut self, labels: &[Label<'_>], late: &LatenessHistogram) {
        let count = each_bucket(late, |le, below| {
            self.sample("_bucket", &[labels, &[("le", le)]].concat(), below);
        });
        self.sample("_sum", labels, Float(late.sum().as_secs_f64()));
        self.sample("_count", labels, count);
    }

    fn escape(&mut self, text: &str, quotes: bool) {
        for c in text.chars() {
            match c {
                '\\' => self.out.push_str("\\\\"),
                '\n' => self.out.push_str("\\n"),
                '"' if quotes => self.out.push_str("\\\""),
                c => self.out.push(c),
            }
        }
    }

    fn write(&mut self, text: std::fmt::Arguments<'_>) {
        // Writing to a string cannot fail.
        let _ = self.out.write_fmt(text);
    }
}

/// Calls `visit` with each bucket of Prometheus: its bound in seconds, as the label `le` has it,
/// and how many times are below. Returns the number of all times.
///
/// Our buckets exclude their upper bound, while those of Prometheus include it. So a time exactly
/// on a bound counts in the next bucket.
pub(crate) fn each_bucket(late: &LatenessHistogram, mut visit: impl FnMut(&str, u64)) -> u64 {
    let mut buckets = late.buckets().peekable();
    let mut below = 0;
    for octave in OCTAVES {
        // Prometheus' buckets are cumulative. Each of its bounds is also a bound of ours.
        let bound = std::time::Duration::from_nanos(1 << octave);
        while let Some(bucket) = buckets.next_if(|bucket| bucket.to() <= bound) {
            below += bucket.count();
        }
        visit(&Float(bound.as_secs_f64()).to_string(), below);
    }
    // Sum the buckets: Prometheus requires that the count equals the last bucket.
    let count = below + buckets.map(|bucket| bucket.count()).sum::<u64>();
    visit("+Inf", count);
    count
}

/// A float, always written with a decimal point or exponent, as both formats require.
pub(super) struct Float(pub(super) f64);

impl Display for Float {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Debug::fmt(&self.0, f)
    }
}
