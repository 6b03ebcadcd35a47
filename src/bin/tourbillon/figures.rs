//! Figures as reports have them.

use clap::ValueEnum;
use hdrhistogram::Histogram;
use serde::Serialize;

/// How the report is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// A table, for people.
    Table,
    /// One object, for programs.
    Json,
}

/// A figure with as many digits as mean something.
pub(crate) fn rounded(figure: f64) -> f64 {
    (figure * 1e4).round() / 1e4
}

/// How late timers ran, in µs.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Lateness {
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    pub(crate) p999: f64,
    pub(crate) max: f64,
}

impl Lateness {
    pub(crate) fn of(nanos: &Histogram<u64>) -> Self {
        let at = |quantile| nanos.value_at_quantile(quantile) as f64 / 1e3;
        Self {
            p50: at(0.5),
            p99: at(0.99),
            p999: at(0.999),
            max: nanos.max() as f64 / 1e3,
        }
    }
}

/// A count with its thousands set apart.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::with_capacity(digits.len() * 4 / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i) % 3 == 0 {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_set_apart() {
        assert_eq!(grouped(7), "7");
        assert_eq!(grouped(1_000), "1,000");
        assert_eq!(grouped(12_345_678), "12,345,678");
    }
}
