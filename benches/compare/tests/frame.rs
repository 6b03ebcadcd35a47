//! Tests of the command line: the program writes a table, JSON and plots, and names each system
//! that fails.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{self, Command, Output},
};

use tourbillon_support::clients::output::fails_if_output_is_lost;

/// Runs the program with `--out`, and returns its output and its stdout as text.
fn compare(args: &[&str], out: &Path) -> (Output, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_compare"))
        .args(args)
        .arg("--out")
        .arg(out)
        .output()
        .expect("it can be run");
    let table = String::from_utf8(output.stdout.clone()).expect("a table is text");
    (output, table)
}

/// Returns the path of a directory that does not exist yet. `name` identifies the test.
fn directory(name: &str) -> PathBuf {
    let dir = env::temp_dir().join(format!("compare-{name}-{}", process::id()));
    let _ = fs::remove_dir_all(&dir);
    dir
}

/// Returns the text of a file, and panics with the path if the file cannot be read.
fn read(path: PathBuf) -> String {
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn the_program_writes_a_table_json_and_a_plot() {
    let out = directory("all");
    let args = [
        "--quick",
        "--rounds",
        "2",
        "--only",
        "w1",
        "--systems",
        "tourbillon,tokio",
    ];
    let (output, table) = compare(&args, &out);
    assert!(output.status.success(), "{output:?}");

    assert!(table.contains("| | tourbillon | tokio |"), "{table}");
    let row = table
        .lines()
        .find(|line| line.starts_with("| callback: ns per pair |"));
    let row = row.unwrap_or_else(|| panic!("no row: {table}"));
    // The wanted ratio is 60 / 157: the target divided by tokio's reference figure.
    assert!(row.contains('×') && row.contains("≤ 0.38"), "{row}");
    assert!(table.contains("### In sum"), "{table}");
    assert_eq!(read(out.join("table.md")), table);

    let json: serde_json::Value =
        serde_json::from_str(&read(out.join("results.json"))).expect("it is JSON");
    let runs = json["runs"].as_array().expect("an array");
    // The two rounds start with different systems.
    let systems: Vec<_> = runs
        .iter()
        .map(|run| run["system"].as_str().unwrap())
        .collect();
    assert_eq!(systems, ["tourbillon", "tokio", "tokio", "tourbillon"]);
    for run in runs {
        for figure in run["outcome"]["figures"].as_array().expect("figures") {
            let value = figure["value"].as_f64().expect("a number");
            assert!(value > 0.0 && value.is_finite(), "{run}");
        }
    }

    // The JSON has the disturbance of each run. A quick run is never repeated.
    for run in runs {
        let shares = ["stolen", "other_load"].map(|share| run["machine"][share].as_f64());
        assert!(
            shares
                .iter()
                .all(|share| share.is_some_and(|share| share >= 0.0)),
            "{run}"
        );
        assert!(run["machine"]["preempted"].is_u64() && run["machine"]["disturbed"].is_boolean());
        assert_eq!(run["attempt"], 0);
    }
    assert_eq!(json["discarded"].as_array().map(Vec::len), Some(0));
    assert!(table.contains("| *stolen + other load, %* |"), "{table}");
    assert!(
        table.contains("Repeated: 0 of 2 rounds of workloads."),
        "{table}"
    );

    let svg = read(out.join("w1.svg"));
    assert!(
        svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"),
        "{svg}"
    );
    assert!(svg.contains("tourbillon") && svg.contains("tokio"), "{svg}");
    fs::remove_dir_all(out).expect("it is there");
}

#[test]
fn who_fails_is_named() {
    let out = directory("failing");
    // With a limit of 0 s, no system finishes in time.
    let args = [
        "--quick",
        "--rounds",
        "1",
        "--only",
        "w1",
        "--systems",
        "tourbillon,tokio",
    ];
    let (output, table) = compare(&[&args[..], &["--limit", "0"]].concat(), &out);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    for system in ["tourbillon", "tokio"] {
        let line = format!("- {system}, 1 of 1 times, failed: took more than");
        assert!(table.contains(&line), "{table}");
    }
    let json = read(out.join("results.json"));
    assert!(json.contains("\"failed\": \"took more than"), "{json}");
    assert!(!out.join("w1.svg").exists(), "there is nothing to draw");
    fs::remove_dir_all(out).expect("it is there");
}

#[test]
fn an_unknown_workload_is_an_error() {
    let out = directory("unknown");
    let (output, _) = compare(&["--only", "w0"], &out);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("no such workload: w0"), "{said}");
    assert!(!out.exists(), "nothing was begun");
}

#[test]
fn a_table_that_is_lost_is_a_failure() {
    let quick = ["--quick", "--rounds", "1", "--only", "w1"];
    let compare = || Command::new(env!("CARGO_BIN_EXE_compare"));
    fails_if_output_is_lost(compare().args(quick).args(["--systems", "tourbillon"]));
    fails_if_output_is_lost(compare().args(["run", "w1", "tourbillon", "--quick"]));
    fails_if_output_is_lost(compare().arg("--help"));
}
