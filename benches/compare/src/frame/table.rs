//! The report in Markdown: a table for each workload, a summary, and the disturbances.

use std::{fmt::Write, iter};

use super::{
    repeat,
    results::{Results, Spread},
    targets::{self, ROWS, Row, Wanted},
};
use crate::system::System;

/// Comparison of a figure of Tourbillon with a peer's figure or with an absolute target.
#[derive(Debug)]
struct Comparison {
    row: &'static Row,
    /// The peer, or `None` for an absolute target.
    peer: Option<System>,
    /// Ratio to the peer's figure, or the figure itself for an absolute target.
    value: f64,
    /// The target as text: a sign and a number.
    bound: String,
    is_met: bool,
}

/// Returns the workloads that have runs, in the order of the runs.
pub fn workloads(results: &Results) -> Vec<&'static str> {
    let mut names = Vec::new();
    for run in &results.runs {
        if !names.contains(&run.workload) {
            names.push(run.workload);
        }
    }
    names
}

/// Returns the name of a row of ours, or of a figure without a target.
fn title(ours: System, figure: &str) -> String {
    match ours {
        System::Exact => format!("{figure}, exact"),
        _ => figure.to_owned(),
    }
}

/// Returns the names of a workload's figures, in the order of the table.
///
/// Figures with a target come first, in the order of [`ROWS`]. The others follow, in the order in
/// which they first appear in the results.
fn figures<'a>(results: &'a Results, workload: &str) -> Vec<&'a str> {
    let mut names = results.figures(workload);
    let place = |name: &str| {
        let is_it = |row: &Row| row.workload == workload && row.figure == name;
        ROWS.iter().position(is_it).unwrap_or(usize::MAX)
    };
    names.sort_by_key(|name| place(name));
    names
}

/// Returns name and spread of the peer's figure for a row.
///
/// This is the first of [`Row::of_peers`] that the peer has. Returns `None` if it has none of them.
fn of_peer(results: &Results, row: &Row, peer: System) -> Option<(&'static str, Spread)> {
    row.of_peers().iter().find_map(|&name| {
        let spread = results.spread(row.workload, peer, name)?;
        Some((name, spread))
    })
}

/// Returns the spread of a system's figure for a row, or `None` if the system has none.
pub fn of_system(results: &Results, row: &Row, system: System) -> Option<Spread> {
    match system.is_ours() {
        true => results.spread(row.workload, system, row.figure),
        false => of_peer(results, row, system).map(|(_, spread)| spread),
    }
}

/// Comparison of a row with a peer.
struct Beside {
    /// Our figure divided by the peer's.
    ratio: f64,
    wanted: Wanted,
    is_met: bool,
}

/// Compares a row with a peer. Returns `None` if the target says nothing of this peer, or unless
/// some round has figures of both systems.
fn compare(results: &Results, row: &Row, peer: System) -> Option<Beside> {
    let wanted = row.wanted(peer)?;
    let (theirs, _) = of_peer(results, row, peer)?;
    let ratio = results.ratio(row.workload, (row.ours, row.figure), (peer, theirs))?;
    let ours = results.spread(row.workload, row.ours, row.figure)?;
    Some(Beside {
        ratio,
        wanted,
        is_met: wanted.is_met(ratio) || row.is_least(ours.median),
    })
}

/// Returns all comparisons, by row: first with the absolute target, then with each peer.
fn comparisons(results: &Results) -> Vec<Comparison> {
    let mut all = Vec::new();
    for row in ROWS {
        let ours = results.spread(row.workload, row.ours, row.figure);
        if let (Some(ours), Some((sign, target))) = (ours, row.bound_here()) {
            all.push(Comparison {
                row,
                peer: None,
                value: ours.median,
                bound: format!("{sign} {}", number(target)),
                is_met: row.is_met_here(ours.median) == Some(true),
            });
        }
        for peer in System::ALL {
            if let Some(beside) = compare(results, row, peer) {
                let (sign, bound) = (beside.wanted.sign(), ratio(beside.wanted.ratio()));
                all.push(Comparison {
                    row,
                    peer: Some(peer),
                    value: beside.ratio,
                    bound: format!("{sign} {bound}"),
                    is_met: beside.is_met,
                });
            }
        }
    }
    all
}

/// Returns the whole report in Markdown.
pub fn markdown(results: &Results) -> String {
    let mut text = String::new();
    head(results, &mut text).expect("a string takes all");
    for workload in workloads(results) {
        section(results, workload, &mut text).expect("a string takes all");
    }
    summary(results, &mut text).expect("a string takes all");
    disturbances(results, &mut text).expect("a string takes all");
    text
}

/// Writes the machine, the versions, the load, and how to read the table.
fn head(results: &Results, text: &mut String) -> std::fmt::Result {
    let machine = &results.machine;
    writeln!(
        text,
        "{}, {}, {} hardware threads, Linux {}; {}. Rounds: {}; load average {:.1} before, {:.1} after.",
        machine.date,
        machine.processor,
        machine.threads,
        machine.kernel,
        machine.peers.join(", "),
        results.rounds,
        results.load_before,
        results.load_after,
    )?;
    if results.quick {
        writeln!(
            text,
            "\n**A quick run: it shows that all works, its figures mean nothing.**"
        )?;
    }
    writeln!(
        text,
        "\nMedians, and min–max; ×: ours ÷ the peer's, the median of the rounds' ratios, beside what is wanted of it.\n"
    )
}

/// Writes the section of a workload: its table, then its errors.
fn section(results: &Results, workload: &str, text: &mut String) -> std::fmt::Result {
    let systems = results.systems(workload);
    let figures = figures(results, workload);
    writeln!(text, "### {}\n", workload.to_uppercase())?;
    let has_figures = |system: &&System| {
        let has = |figure: &&str| results.spread(workload, **system, figure).is_some();
        figures.iter().any(has)
    };
    let shown: Vec<_> = systems.iter().filter(has_figures).collect();
    if !shown.is_empty() {
        write!(text, "| |")?;
        for system in &shown {
            write!(text, " {system} |")?;
        }
        writeln!(text, "\n|---|{}", "---|".repeat(shown.len()))?;
        for figure in figures {
            // A figure for which exact timers have a target of their own has a second line.
            let exact = targets::row(System::Exact, workload, figure).map(|row| row.ours);
            let exact = exact.filter(|ours| shown.contains(&ours));
            for ours in iter::once(System::Tourbillon).chain(exact) {
                write!(text, "| {} |", title(ours, figure))?;
                for system in &shown {
                    let cell = cell(results, workload, (ours, figure), **system);
                    write!(text, " {cell} |")?;
                }
                writeln!(text)?;
            }
        }
        machine(results, workload, &shown, text)?;
        writeln!(text)?;
    }
    let mut any = false;
    for system in systems {
        for (trouble, times) in results.troubles(workload, system) {
            // An error may have several lines, and characters that are Markdown syntax.
            let trouble = trouble.replace(['|', '`', '<', '\n'], " ");
            writeln!(
                text,
                "- {system}, {times} of {} times, {trouble}",
                results.rounds
            )?;
            any = true;
        }
    }
    if any {
        writeln!(text)?;
    }
    Ok(())
}

/// Writes the table's last rows: the lost processor time and the preemptions of each system's runs.
fn machine(
    results: &Results,
    workload: &str,
    shown: &[&System],
    text: &mut String,
) -> std::fmt::Result {
    let mut row = |name: &str, figure: fn(&repeat::Disturbed) -> Option<f64>| {
        write!(text, "| {name} |")?;
        for system in shown {
            let spread = results.beside(workload, **system, figure);
            let cell = spread.map_or(String::new(), |spread| with_bounds(results, spread));
            write!(text, " {cell} |")?;
        }
        writeln!(text)
    };
    row("*stolen + other load, %*", repeat::Disturbed::lost_percent)?;
    row("*preempted*", |machine| Some(machine.preempted as f64))
}

/// Formats the median, with the minimum and the maximum if there are several rounds.
fn with_bounds(results: &Results, spread: Spread) -> String {
    let median = number(spread.median);
    if results.rounds == 1 {
        return median;
    }
    let (min, max) = (number(spread.min), number(spread.max));
    format!("{median} ({min}–{max})")
}

/// Formats a system's cell in the line of a figure of `ours`.
///
/// For `ours`, the cell also shows the absolute target if there is one. For a peer, the cell also
/// shows the ratio and the wanted ratio. The cell is empty if the system has no figure, and for
/// Tourbillon in the line of exact timers.
fn cell(
    results: &Results,
    workload: &str,
    (ours, figure): (System, &str),
    system: System,
) -> String {
    if (ours, system) == (System::Exact, System::Tourbillon) {
        return String::new();
    }
    let row = targets::row(ours, workload, figure);
    let spread = match row {
        Some(row) => of_system(results, row, system),
        None => results.spread(workload, system, figure),
    };
    let Some(spread) = spread else {
        return String::new();
    };
    let mut cell = with_bounds(results, spread);
    if results.is_disturbed(workload, system) {
        cell.push('†');
    }
    let Some(row) = row else {
        return cell;
    };
    if system == ours {
        cell = format!("**{cell}**");
        if let (Some((sign, target)), Some(is_met)) =
            (row.bound_here(), row.is_met_here(spread.median))
        {
            let met = mark(is_met);
            write!(cell, " {sign} {} {met}", number(target)).expect("a string takes all");
        }
    } else if let Some(beside) = compare(results, row, system) {
        // Escape the signs: Markdown may contain HTML, and a bare `<` could open a tag.
        let sign = (beside.wanted.sign().replace('<', "&lt;")).replace('>', "&gt;");
        let (value, bound) = (ratio(beside.ratio), ratio(beside.wanted.ratio()));
        let met = mark(beside.is_met);
        write!(cell, " ×{value}, {sign} {bound} {met}").expect("a string takes all");
    }
    cell
}

/// Writes the number of met targets, and a table of the missed ones.
fn summary(results: &Results, text: &mut String) -> std::fmt::Result {
    let all = comparisons(results);
    let missed: Vec<_> = all.iter().filter(|one| !one.is_met).collect();
    let met = all.len() - missed.len();
    let behind = |one: &&Comparison| one.peer.is_some() && is_behind(one.row, one.value);
    writeln!(text, "### In sum\n")?;
    writeln!(
        text,
        "{met} of {} comparisons are as wanted; in {} ours is behind the peer.",
        all.len(),
        all.iter().filter(behind).count(),
    )?;
    if !missed.is_empty() {
        writeln!(
            text,
            "\n| missed | beside | ours ÷ it | wanted | behind |\n|---|---|---|---|---|"
        )?;
    }
    for one in missed {
        let (peer, value) = match one.peer {
            Some(peer) => (peer.name(), ratio(one.value)),
            None => ("itself", number(one.value)),
        };
        let bound = one.bound.replace('<', "&lt;").replace('>', "&gt;");
        let is_behind = if behind(&one) { "yes" } else { "" };
        let workload = one.row.workload.to_uppercase();
        writeln!(
            text,
            "| {workload} {} | {peer} | {value} | {bound} | {is_behind} |",
            title(one.row.ours, one.row.figure)
        )?;
    }
    Ok(())
}

/// Writes the rule for repetitions, the repeated rounds, and the number of disturbed runs.
fn disturbances(results: &Results, text: &mut String) -> std::fmt::Result {
    writeln!(
        text,
        "\n### Disturbances\n\n{}",
        repeat::rule(results.retries)
    )?;
    let repeated = results.repeated();
    let all = workloads(results).len() * results.rounds;
    write!(
        text,
        "\nRepeated: {} of {all} rounds of workloads",
        repeated.len()
    )?;
    for (at, (workload, round, times)) in repeated.iter().enumerate() {
        let before = if at == 0 { ": " } else { ", " };
        let workload = workload.to_uppercase();
        write!(text, "{before}{workload} round {}, {times}×", round + 1)?;
    }
    let disturbed = results.runs.iter().filter(|run| run.machine.disturbed);
    writeln!(
        text,
        ". Of the {} runs that count, {} were disturbed.",
        results.runs.len(),
        disturbed.count(),
    )
}

/// Returns whether our figure is worse than the peer's, by their ratio.
fn is_behind(row: &Row, ratio: f64) -> bool {
    match row.better {
        targets::Better::Lower => ratio > 1.0,
        targets::Better::Higher => ratio < 1.0,
    }
}

/// Returns the sign for a met or a missed target.
fn mark(is_met: bool) -> char {
    if is_met { '✓' } else { '✗' }
}

/// Formats a number for the report, with commas between thousands.
///
/// Numbers from 1 to 100 have three significant digits. Smaller numbers have three decimal places,
/// and larger numbers have none. Zero is `0`.
pub fn number(value: f64) -> String {
    let digits = match value.abs() {
        0.0 => 0,
        value if value < 1.0 => 3,
        value if value < 10.0 => 2,
        value if value < 100.0 => 1,
        _ => 0,
    };
    let text = format!("{value:.digits$}");
    let (whole, rest) = text.split_at(text.find('.').unwrap_or(text.len()));
    let mut grouped = String::new();
    for (at, digit) in whole.char_indices() {
        let left = whole.len() - at;
        if at > 0 && left % 3 == 0 && !grouped.ends_with('-') {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped + rest
}

/// Formats a ratio with two decimal places, or with four if it is below 0.0995.
fn ratio(value: f64) -> String {
    if value < 0.0995 {
        format!("{value:.4}")
    } else {
        format!("{value:.2}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::results::{
        Run,
        tests::{results, run},
    };

    #[test]
    fn numbers_are_rounded_and_grouped() {
        assert_eq!(number(0.0), "0");
        assert_eq!(number(0.1234), "0.123");
        assert_eq!(number(12.34), "12.3");
        assert_eq!(number(999.9), "1,000");
        assert_eq!(number(1_234_567.0), "1,234,567");
        assert_eq!(ratio(0.004), "0.0040");
        assert_eq!(ratio(1.5), "1.50");
    }

    #[test]
    fn the_table_shows_met_and_missed_targets_and_failures() {
        let figure = "callback: ns per pair";
        let results = results(vec![
            run(0, System::Tourbillon, figure, Some(50.0)),
            run(0, System::Exact, figure, Some(70.0)),
            run(0, System::Tokio, "sleep: ns per pair", Some(100.0)),
            run(0, System::DelayQueue, figure, Some(200.0)),
            run(0, System::Smol, figure, None),
        ]);
        let table = markdown(&results);
        // The wanted ratio is 60 / 157 to tokio, and 60 / 137 to `DelayQueue`.
        assert!(table.contains("×0.50, ≤ 0.38 ✗"), "{table}");
        assert!(table.contains("×0.25, ≤ 0.44 ✓"), "{table}");
        // Without a target of their own, exact timers have a cell and no ratio.
        let both = "**50.0 (50.0–50.0)** | 70.0 (70.0–70.0) | 100";
        assert!(table.contains(both), "{table}");
        assert!(
            table.contains("- smol, 1 of 3 times, failed: it broke"),
            "{table}"
        );
        assert!(table.contains("1 of 2 comparisons"), "{table}");
        assert!(
            table.contains("| W1 callback: ns per pair | tokio | 0.50 | ≤ 0.38 |  |"),
            "{table}"
        );
    }

    #[test]
    fn exact_timers_have_a_column_and_targets_of_their_own() {
        let figure = "tasks 200k: p50 µs";
        let of_w3 = |system, value| Run {
            workload: "w3",
            ..run(0, system, figure, Some(value))
        };
        let runs = vec![
            of_w3(System::Tourbillon, 400.0),
            of_w3(System::Exact, 6.0),
            of_w3(System::Tokio, 1_000.0),
            of_w3(System::Compio, 10.0),
        ];
        let table = markdown(&results(runs));
        // Of tokio's lateness, the default may have half, and exact timers 5 / 1,257. The default
        // has no target beside compio.
        for line in [
            "| tasks 200k: p50 µs | **400 (400–400)** | 6.00 (6.00–6.00) \
             | 1,000 (1,000–1,000) ×0.40, ≤ 0.50 ✓ | 10.0 (10.0–10.0) |",
            "| tasks 200k: p50 µs, exact |  | **6.00 (6.00–6.00)** \
             | 1,000 (1,000–1,000) ×0.0060, ≤ 0.0040 ✗ | 10.0 (10.0–10.0) ×0.60, ≤ 0.38 ✗ |",
            "| W3 tasks 200k: p50 µs, exact | compio | 0.60 | ≤ 0.38 |  |",
        ] {
            let is_it = |there: &str| there == line;
            assert!(table.lines().any(is_it), "{line}: {table}");
        }
        assert!(table.contains("1 of 3 comparisons"), "{table}");
    }

    #[test]
    fn the_table_marks_disturbed_runs_and_states_the_rule() {
        let figure = "callback: ns per pair";
        let mut results = results(vec![
            run(0, System::Tourbillon, figure, Some(50.0)),
            run(1, System::Tourbillon, figure, Some(60.0)),
            run(0, System::DelayQueue, figure, Some(200.0)),
        ]);
        let table = markdown(&results);
        assert!(!table.contains("0)†"), "{table}");
        assert!(table.contains("at most 2 times"), "{table}");
        assert!(table.contains("Repeated: 0 of 3 rounds"), "{table}");
        results.runs[1].machine.disturbed = true;
        results.runs[1].machine.preempted = 7;
        results.runs[1].attempt = 2;
        let table = markdown(&results);
        assert!(table.contains("**55.0 (50.0–60.0)†**"), "{table}");
        assert!(table.contains("| 200 (200–200) ×"), "{table}");
        assert!(
            table.contains("| *preempted* | 3.50 (0–7.00) | 0 (0–0) |"),
            "{table}"
        );
        assert!(
            table.contains("of 3 rounds of workloads: W1 round 2, 2×."),
            "{table}"
        );
        assert!(
            table.contains("Of the 3 runs that count, 1 were disturbed."),
            "{table}"
        );
    }

    #[test]
    fn a_figure_of_zero_meets_its_target() {
        let figure = "callback: ns per pair";
        let beside = |ours| {
            markdown(&results(vec![
                run(0, System::Tourbillon, figure, Some(ours)),
                run(0, System::Tokio, figure, Some(0.0)),
            ]))
        };
        let table = beside(0.0);
        assert!(table.contains("×1.00, ≤ 0.38 ✓"), "{table}");
        let table = beside(1.0);
        assert!(table.contains("×inf, ≤ 0.38 ✗"), "{table}");
    }
}
