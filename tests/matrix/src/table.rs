//! The table: its rows, its place in the docs, and the run that checks both.

use std::{env, fs, path::Path, process::ExitCode};

use crate::{
    case::{Case, Expected},
    runtimes::{Outcome, outcome},
    servers::{Program, Servers},
};

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guide/migrating.md");
const LOCK: &str = include_str!("../Cargo.lock");
const HEAD: &str =
    "| crate | exchange | as it is | `enable_tokio` | remark |\n|---|---|---|---|---|\n";

/// Runs the cases, prints the table, and compares results and docs with what is expected.
///
/// Arguments: `--write` writes the table into the docs if all results are as expected. An argument
/// without a dash selects the cases whose crate or exchange contains it.
pub fn run(cases: Vec<Case>) -> ExitCode {
    let args: Vec<String> = env::args().skip(1).collect();
    let filters: Vec<_> = args.iter().filter(|arg| !arg.starts_with('-')).collect();
    let table: String = cases.iter().map(row).collect();
    let mut failed = 0;
    let writes = args.iter().any(|arg| arg == "--write");
    if !writes && documented() != table {
        eprintln!("failed: the table in {PAGE} differs; write it with --write");
        failed += 1;
    }

    let selected = |case: &&Case| {
        let is_in = |filter: &&String| {
            case.package.contains(filter.as_str()) || case.what.contains(filter.as_str())
        };
        filters.is_empty() || filters.iter().any(is_in)
    };
    let cases: Vec<&Case> = cases.iter().filter(selected).collect();
    assert!(!cases.is_empty(), "no case is called {filters:?}");
    let mut needed: Vec<Program> = Vec::new();
    for &program in cases.iter().flat_map(|case| &case.needs) {
        if !needed.contains(&program) {
            needed.push(program);
        }
    }
    let servers = Servers::start(&needed);
    let mut tried = String::new();
    for case in cases {
        if let Some(missing) = case
            .needs
            .iter()
            .find(|&&p| servers.addresses.get(p).is_none())
        {
            eprintln!("skipped: {}: {}: no {missing:?}", case.package, case.what);
            continue;
        }
        let failed_before = failed;
        for (number, exchange) in case.exchanges.iter().enumerate() {
            for (with_compat, expected) in [(false, case.as_it_is), (true, case.with_compat)] {
                let outcome: Outcome = outcome(with_compat, exchange(servers.addresses));
                let runtime = if with_compat {
                    "enable_tokio"
                } else {
                    "as it is"
                };
                let name = format!("{}: {} ({number}), {runtime}", case.package, case.what);
                eprintln!("{name}: {outcome}");
                if !outcome.is(expected) {
                    eprintln!("failed: {name}: {outcome}; expected: {expected:?}");
                    failed += 1;
                }
            }
        }
        if failed == failed_before {
            tried.push_str(&row(case));
        }
    }
    println!("\n{HEAD}{tried}");
    if writes && tried != table {
        eprintln!("failed: the table is not written, since some rows were not tried");
        failed += 1;
    }
    if failed > 0 {
        eprintln!("{failed} failed");
        return ExitCode::FAILURE;
    }
    if writes {
        write(&table);
    }
    ExitCode::SUCCESS
}

/// Returns a line of the table. [`run`] checks that its results are true.
fn row(case: &Case) -> String {
    let cell = |expected| match expected {
        Expected::Works => "works".to_owned(),
        Expected::Panics(text) => format!("panics: *{text}*"),
        Expected::Fails(text) => format!("an error: *{text}*"),
    };
    let cells = [
        &format!("{} {}", case.package, version(case.package)),
        case.what,
        &cell(case.as_it_is),
        &cell(case.with_compat),
        case.remark,
    ];
    let cells = cells.map(str::trim).join(" | ");
    format!("| {} |\n", cells.trim_end())
}

/// Returns the version of a package in the lock file, or an empty string if `package` names several
/// packages.
fn version(package: &str) -> &'static str {
    let start = format!("\nname = \"{package}\"\nversion = \"");
    let found = LOCK.split_once(&start);
    let version = found.and_then(|(_, rest)| rest.split('"').next());
    version.unwrap_or_default()
}

/// Splits the page into the text before the rows, the rows, and the text after them.
fn split(page: &str) -> (&str, &str, &str) {
    let at = page.find(HEAD).expect("the page has the table's head") + HEAD.len();
    let rest = &page[at..];
    let rows: usize = rest
        .split_inclusive('\n')
        .take_while(|line| line.starts_with('|'))
        .map(str::len)
        .sum();
    (&page[..at], &rest[..rows], &rest[rows..])
}

fn documented() -> String {
    let page = fs::read_to_string(Path::new(PAGE)).expect("the page exists");
    split(&page).1.to_owned()
}

fn write(table: &str) {
    let page = fs::read_to_string(Path::new(PAGE)).expect("the page exists");
    let (before, _, after) = split(&page);
    fs::write(PAGE, format!("{before}{table}{after}")).expect("the page is writable");
}
