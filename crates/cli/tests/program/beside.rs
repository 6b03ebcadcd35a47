//! `tourbillon storm --beside`: the same sleeps on Tourbillon and on a peer.

use std::process::Output;

use crate::clients::tourbillon;

fn beside_tokio(args: &[&str]) -> Output {
    let command = ["storm", "--beside", "tokio"];
    tourbillon().args(command).args(args).output().unwrap()
}

/// Checks that the arguments are refused, with this hint.
fn refused(args: &[&str], hint: &str) {
    let output = beside_tokio(args);
    let err = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{args:?}: {err}");
    assert!(err.contains(hint), "{args:?}: {err}");
    assert!(output.stdout.is_empty());
}

#[test]
fn what_only_a_load_test_has_is_refused() {
    for option in [
        ["--outside", "1"],
        ["--meddlers", "1"],
        ["--cancel", "5"],
        ["--refresh", "5"],
        ["--reset", "5"],
        ["--tasks", "5"],
        ["--trace", "file"],
        ["--inspect", "127.0.0.1:0"],
    ] {
        let hint = format!("'--beside <PEER>' cannot be used with '{}", option[0]);
        refused(&option, &hint);
    }
}

#[test]
fn wrong_comparisons_are_refused() {
    refused(&["--rate", "0"], "at least 1");
    refused(&["--rate", "20k,many"], "20k");
    refused(&["--rate", "20k", "--timers", "20k"], "cannot be used with");
    refused(&["--turns", "0"], "1..=1000");
    refused(&["--turn", "{}"], "missing field");
    for (args, hint) in [
        (&["--beside", "smoll"][..], "tokio"),
        (&["--rate", "20k"], "--beside <PEER>"),
        (&["--turns", "2"], "--beside <PEER>"),
    ] {
        let output = tourbillon().arg("storm").args(args).output().unwrap();
        let err = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}: {err}");
        assert!(err.contains(hint), "{args:?}: {err}");
    }
}

#[cfg(not(feature = "tokio"))]
#[test]
fn without_the_feature_the_error_says_how_to_build_it() {
    refused(&[], "--features tokio -- storm --beside tokio");
}

#[cfg(feature = "tokio")]
mod built {
    use serde_json::Value;

    use super::{beside_tokio, refused};
    use crate::clients::output::fails_if_output_is_lost;

    const SYSTEMS: [&str; 2] = ["tourbillon", "tokio"];

    /// Runs a comparison that has to succeed. Returns its output.
    fn compared(args: &[&str]) -> String {
        let output = beside_tokio(args);
        let out = String::from_utf8(output.stdout).unwrap();
        let err = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(0), "{out} {err}");
        out
    }

    fn json(args: &[&str]) -> Value {
        let out = compared(&[args, &["--format", "json"]].concat());
        assert_eq!(out.lines().count(), 1, "{out}");
        serde_json::from_str(&out).unwrap()
    }

    #[test]
    fn all_sleeps_end_on_both_and_none_early() {
        let sleeps = ["--timers", "300", "--spread", "100ms"];
        let options = ["--workers", "2", "--turns", "2", "--store", "heap"];
        let all = json(&[&sleeps[..], &options, &["--budget", "0.1"]].concat());
        assert_eq!(all["waking"], "budget 0.1", "{all}");
        assert_eq!(all["beside"], "tokio", "{all}");
        assert_eq!((&all["workers"], &all["turns"]), (&2.into(), &2.into()));
        assert_eq!(all["rates"].as_array().map(Vec::len), Some(1), "{all}");
        let rate = &all["rates"][0];
        assert_eq!(rate["rate"], 3_000, "{all}");
        assert_eq!(rate["timers"], 300, "{all}");
        for system in SYSTEMS {
            assert_eq!(rate["lost"][system], 0, "{all}");
            assert_eq!(rate["early"][system], 0, "{all}");
            let of = |key: &str, part: &str| rate[key][system][part].as_f64().unwrap();
            let median = |key| of(key, "median");
            let keys = ["p50", "p99", "p999", "max"].map(|q| format!("lateness_{q}_us"));
            assert!(keys.iter().map(|key| median(key)).is_sorted(), "{all}");
            assert!(median("lateness_max_us") > 0.0, "{all}");
            assert!(median("cpu_seconds") > 0.0, "{all}");
            for key in keys.iter().map(String::as_str).chain(["bytes_per_timer"]) {
                let parts = ["least", "median", "most"].map(|part| of(key, part));
                assert!(parts.is_sorted(), "{all}");
            }
        }
        let better = rate["lateness_p50_us"]["better"].as_str();
        assert!(better.is_none_or(|name| SYSTEMS.contains(&name)), "{all}");
    }

    #[test]
    fn each_rate_has_a_part_of_its_own() {
        let all = json(&["--rate", "1k,2k", "--spread", "200ms", "--turns", "1"]);
        let of = |key| [0, 1].map(|index| all["rates"][index][key].as_u64().unwrap());
        assert_eq!(of("rate"), [1_000, 2_000], "{all}");
        assert_eq!(of("timers"), [200, 400], "{all}");
    }

    #[test]
    fn the_table_has_both_columns_and_fits() {
        let args = ["--rate", "2k", "--spread", "100ms", "--turns", "1"];
        let out = compared(&[&args[..], &["--exact"]].concat());
        let titles = out.lines().find(|line| line.starts_with("2,000 a second"));
        let titles: Vec<_> = titles.unwrap().split_whitespace().skip(3).collect();
        assert_eq!(
            titles,
            ["tourbillon", "(exact)", "tokio", "better"],
            "{out}"
        );
        for row in [
            "lateness p50 ",
            "lateness p99 ",
            "lateness p99.9 ",
            "lateness max ",
            "CPU to arm one ",
            "CPU to fire one ",
            "CPU in all ",
            "memory of one ",
        ] {
            let line = out.lines().find(|line| line.starts_with(row));
            let line = line.unwrap_or_else(|| panic!("{row}: {out}"));
            assert!(line.chars().count() <= 100, "{out}");
        }
        let verdict = "\n\nAll sleeps ended on both. None ended early.\n";
        assert!(out.ends_with(verdict), "{out}");
    }

    #[test]
    fn a_comparison_that_is_lost_is_a_failure() {
        let args = ["--timers", "10", "--spread", "10ms", "--turns", "1"];
        let mut command = crate::clients::tourbillon();
        fails_if_output_is_lost(command.args(["storm", "--beside", "tokio"]).args(args));
        refused(&["--format", "xml"], "json");
    }
}
