//! A summary of the results: the medians of selected figures, as a few lines of plain text.
//!
//! A † marks a figure if any run of that workload on that system was disturbed.

use std::fmt::Write;

use super::{
    repeat,
    results::Results,
    table::{number, of_system},
    targets,
};
use crate::system::System;

/// Lines of the summary: workload, name of Tourbillon's figure, and label.
const LINES: [(&str, &str, &str); 18] = [
    (
        "w1",
        "callback: ns per pair",
        "cancel + arm, of 100,000, ns",
    ),
    ("w1", "sleep: ns per pair", "the same with sleeps, ns"),
    ("w2", "later 10k, clock read: ns", "refresh, of 10,000, ns"),
    (
        "w2",
        "later 1M, clock read: ns",
        "refresh, of a million, ns",
    ),
    ("w4", "1 thread: ns per arm", "arm from outside, ns"),
    (
        "w5",
        "p50 µs",
        "a sleep on an idle runtime, late by (p50), µs",
    ),
    ("w5", "CPU µs each", "the same, processor time, µs"),
    (
        "w3",
        "tasks 200k: p50 µs",
        "200,000 tasks sleep, late by (p50), µs",
    ),
    (
        "w3",
        "tasks 200k: CPU ns per fire",
        "the same, processor time each, ns",
    ),
    (
        "w3",
        "tasks 20k: p50 µs",
        "20,000 tasks sleep, late by (p50), µs",
    ),
    (
        "w3",
        "tasks 20k: CPU ns per fire",
        "the same, processor time each, ns",
    ),
    ("w6", "sleep, unboxed: bytes", "memory of a sleep, bytes"),
    ("w6", "task: bytes", "memory of a task that sleeps, bytes"),
    (
        "w7",
        "armed: p50 µs",
        "timers of a worker that spins, late by (p50), µs",
    ),
    ("w8", "spawn 1M: ns", "spawn, ns"),
    ("w8", "yield: ns", "yield, ns"),
    ("w8", "ping-pong: ns", "ping-pong over oneshots, ns a round"),
    (
        "w9",
        "hello: req/s",
        "hyper, hello over 64 connections, requests/s",
    ),
];

/// Columns of the summary. Tourbillon comes first.
const SHOWN: [System; 5] = [
    System::Tourbillon,
    System::Exact,
    System::Tokio,
    System::DelayQueue,
    System::Smol,
];

/// Returns the summary of the results.
///
/// It omits each line for which Tourbillon has no figure, and shows – where a peer has none.
pub fn text(results: &Results) -> String {
    let mut text = String::new();
    write(results, &mut text).expect("a string takes all");
    text
}

/// Writes the summary to `text`.
fn write(results: &Results, text: &mut String) -> std::fmt::Result {
    write!(text, "{:<48}", "")?;
    for system in SHOWN {
        write!(text, "{:>12}", system.name())?;
    }
    writeln!(text)?;
    for (workload, figure, label) in LINES {
        let Some(ours) = results.spread(workload, System::Tourbillon, figure) else {
            continue;
        };
        let shown = |system, median| {
            let mark = if results.is_disturbed(workload, system) {
                "†"
            } else {
                ""
            };
            number(median) + mark
        };
        write!(
            text,
            "{label:<48}{:>12}",
            shown(System::Tourbillon, ours.median)
        )?;
        let row = targets::row(System::Tourbillon, workload, figure);
        let row = row.expect("each line is a row of the table");
        for other in &SHOWN[1..] {
            let spread = of_system(results, row, *other);
            let cell = spread.map_or("–".to_owned(), |spread| shown(*other, spread.median));
            write!(text, "{cell:>12}")?;
        }
        writeln!(text)?;
    }
    if text.contains('†') {
        writeln!(text, "† disturbed. {}", repeat::rule(results.retries))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::results::tests::{results, run};

    #[test]
    fn each_line_is_a_row_of_the_table() {
        for (workload, figure, _) in LINES {
            assert!(
                targets::row(System::Tourbillon, workload, figure).is_some(),
                "{workload} {figure}"
            );
        }
    }

    #[test]
    fn each_system_has_a_column_and_missing_figures_are_omitted() {
        let text = text(&results(vec![
            run(0, System::Tourbillon, "callback: ns per pair", Some(50.0)),
            run(0, System::Exact, "callback: ns per pair", Some(60.0)),
            run(0, System::Tokio, "sleep: ns per pair", Some(1_234.0)),
        ]));
        let lines: Vec<Vec<_>> = text
            .lines()
            .map(|line| line.split_whitespace().collect())
            .collect();
        let columns = ["tourbillon", "exact", "tokio", "delay-queue", "smol"];
        assert_eq!(lines[0], columns);
        assert_eq!(lines[1][5..], ["ns", "50.0", "60.0", "1,234", "–", "–"]);
        assert_eq!(lines.len(), 2, "{text}");
    }
}
