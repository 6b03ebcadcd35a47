//! Writing the text that Prometheus reads: families, samples and histograms, in either format.

use std::fmt::{Display, Write};

use super::LatenessHistogram;

/// The shortest and the longest boundary of the histogram, as powers of two, in ns: 1.024 µs and 68.7 s.
pub(super) const OCTAVES: std::ops::RangeInclusive<u32> = 10..=36;

/// A label's name, and its value.
type Label<'a> = (&'a str, &'a str);

/// Which of the two formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    Prometheus,
    OpenMetrics,
}

/// What is written, family by family.
pub(super) struct Text {
    format: Format,
    pub(super) out: String,
    /// The name of the family whose samples come next.
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

    pub(super) fn counter(&mut self, name: &'static str, help: &str) {
        debug_assert!(name.ends_with("_total"), "{name}");
        self.family(name, "counter", help);
    }

    pub(super) fn gauge(&mut self, name: &'static str, help: &str) {
        self.family(name, "gauge", help);
    }

    pub(super) fn histogram(&mut self, name: &'static str, help: &str) {
        self.family(name, "histogram", help);
    }

    fn family(&mut self, name: &'static str, kind: &str, help: &str) {
        self.name = name;
        // In OpenMetrics a counter's family is not named as its samples are.
        let family = match self.format {
            Format::Prometheus => name,
            Format::OpenMetrics => name.strip_suffix("_total").unwrap_or(name),
        };
        self.write(format_args!("# HELP {family} "));
        self.escape(help, self.format == Format::OpenMetrics);
        self.write(format_args!("\n# TYPE {family} {kind}\n"));
    }

    /// One line of the family: its name, what that one's ends in, and its value.
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

    /// The lines of a histogram. (Its buckets begin where the one before ends, and Prometheus' end there: what
    /// lies on a boundary to the nanosecond is counted one up.)
    pub(super) fn buckets(&mut self, labels: &[Label<'_>; 2], late: &LatenessHistogram) {
        let [a, b] = *labels;
        let mut buckets = late.buckets().peekable();
        let mut below = 0;
        for octave in OCTAVES {
            let bound = std::time::Duration::from_nanos(1 << octave);
            while let Some(bucket) = buckets.next_if(|bucket| bucket.to <= bound) {
                below += bucket.count;
            }
            let le = Float(bound.as_secs_f64()).to_string();
            self.sample("_bucket", &[a, b, ("le", &le)], below);
        }
        // Counted here, and not asked for: the two have to be the same.
        let count = below + buckets.map(|bucket| bucket.count).sum::<u64>();
        self.sample("_bucket", &[a, b, ("le", "+Inf")], count);
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
        // A string takes all that there is memory for.
        let _ = self.out.write_fmt(text);
    }
}

/// A number that is not whole, or only by chance: so that both formats take it.
pub(super) struct Float(pub(super) f64);

impl Display for Float {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Debug::fmt(&self.0, f)
    }
}
