//! Number formats of the reports.

use clap::ValueEnum;
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// Report format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// A table, for people.
    Table,
    /// One JSON object on one line, for programs.
    Json,
}

/// Rounds to four decimal places, for JSON.
pub fn rounded(figure: f64) -> f64 {
    (figure * 1e4).round() / 1e4
}

/// Quantiles of lateness, in µs.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
pub struct Lateness {
    /// Half of the timers were no later.
    pub p50: f64,
    /// 99 % were no later.
    pub p99: f64,
    /// 99.9 % were no later.
    pub p999: f64,
    /// The latest one.
    pub max: f64,
}

impl Lateness {
    /// Returns the quantiles of a histogram in ns.
    pub fn of(nanos: &Histogram<u64>) -> Self {
        let at = |quantile| nanos.value_at_quantile(quantile) as f64 / 1e3;
        Self {
            p50: at(0.5),
            p99: at(0.99),
            p999: at(0.999),
            max: nanos.max() as f64 / 1e3,
        }
    }
}

/// Formats a time in ns, with three significant digits and the unit that fits: ns, µs, ms or s.
pub fn scaled(nanos: f64) -> String {
    // The limits are where the next smaller unit would round to 1000.
    let (value, unit) = match nanos {
        n if n < 999.5 => return format!("{n:.0} ns"),
        n if n < 999.5e3 => (n / 1e3, "µs"),
        n if n < 999.5e6 => (n / 1e6, "ms"),
        n => (n / 1e9, "s"),
    };
    let decimals = match value {
        v if v < 9.995 => 2,
        v if v < 99.95 => 1,
        _ => 0,
    };
    format!("{value:.decimals$} {unit}")
}

/// Formats a count with commas between the thousands.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::with_capacity(digits.len() * 4 / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
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
    fn times_have_three_digits_and_a_unit() {
        for (nanos, text) in [
            (0.0, "0 ns"),
            (834.0, "834 ns"),
            (999.4, "999 ns"),
            (999.6, "1.00 µs"),
            (9_994.0, "9.99 µs"),
            (9_996.0, "10.0 µs"),
            (19_840.0, "19.8 µs"),
            (99_960.0, "100 µs"),
            (999_600.0, "1.00 ms"),
            (196_739_100.0, "197 ms"),
            (1_234_000_000.0, "1.23 s"),
            (86_400e9, "86400 s"),
        ] {
            assert_eq!(scaled(nanos), text);
        }
    }

    #[test]
    fn thousands_have_commas() {
        assert_eq!(grouped(7), "7");
        assert_eq!(grouped(1_000), "1,000");
        assert_eq!(grouped(12_345_678), "12,345,678");
    }
}
