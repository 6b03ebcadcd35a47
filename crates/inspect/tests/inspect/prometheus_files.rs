//! The alerts and the dashboard in `docs/prometheus`: Prometheus' own tool accepts them, each alert
//! fires when it should, and all metrics that they ask for exist.

use std::{collections::BTreeSet, fs, path::PathBuf, process::Command};

use serde_json::Value;

use crate::{
    clients::have,
    common::{alarm, runtime, unix::Dir},
};

fn path(name: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "../../docs/prometheus", name]
        .iter()
        .collect()
}

fn text(name: &str) -> String {
    fs::read_to_string(path(name)).unwrap()
}

/// Runs `promtool` on files, in a directory of its own. Returns what it said if it refused them.
fn promtool(args: [&str; 3], files: &[(&str, &str)]) -> Result<(), String> {
    let dir = Dir::new();
    for (name, text) in files {
        fs::write(dir.path(name), text).unwrap();
    }
    let output = Command::new("promtool")
        .args(args)
        .current_dir(dir.path(""))
        .output()
        .unwrap();
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8(said).unwrap();
    output.status.success().then_some(()).ok_or(said)
}

/// Returns the queries of all panels.
fn queries() -> Vec<String> {
    let dashboard: Value = serde_json::from_str(&text("dashboard.json")).unwrap();
    let panels = dashboard["panels"].as_array().unwrap().iter();
    let targets = panels.flat_map(|panel| panel["targets"].as_array().unwrap());
    targets
        .map(|target| target["expr"].as_str().unwrap().to_owned())
        .collect()
}

/// Returns the names of metrics in a text.
fn names(text: &str) -> BTreeSet<&str> {
    let is_of_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.split(|c| !is_of_name(c))
        .filter(|word| word.starts_with("tourbillon_"))
        .collect()
}

#[test]
fn promtool_accepts_the_alerts_and_sees_each_of_them_fire() {
    let _alarm = alarm();
    if !have("promtool") {
        return;
    }
    let (rules, tests) = (text("alerts.yml"), text("alerts_test.yml"));
    let check = |tests: &str| {
        let files = [("alerts.yml", &*rules), ("alerts_test.yml", tests)];
        promtool(["test", "rules", "alerts_test.yml"], &files)
    };
    assert_eq!(check(&tests), Ok(()));
    // Each alert is among those that fire, and the tool notices if one does not.
    for line in rules.lines() {
        if let Some(alert) = line.trim().strip_prefix("- alert: ") {
            let fires = format!("alertname=\"{alert}\",instance=\"bad\"");
            assert!(tests.contains(&fires), "{alert} is not tested");
            assert!(check(&tests.replace(&fires, "alertname=\"None\"")).is_err());
        }
    }
}

#[test]
fn promtool_accepts_the_queries_of_the_dashboard() {
    let _alarm = alarm();
    if !have("promtool") {
        return;
    }
    let queries = queries();
    assert!(queries.len() > 20);
    let rules = |queries: &[String]| {
        let rules: Vec<_> = queries
            .iter()
            .enumerate()
            .map(|(at, query)| {
                // Grafana replaces its variables like this.
                let query = query
                    .replace("$__rate_interval", "5m")
                    .replace("$__range", "1h");
                serde_json::json!({
                    "record": "dashboard:query", "expr": query,
                    "labels": { "query": at.to_string() },
                })
            })
            .collect();
        // JSON is YAML, too.
        serde_json::json!({ "groups": [{ "name": "dashboard", "rules": rules }] }).to_string()
    };
    let check = |queries: &[String]| {
        let files = [("dashboard.yml", &*rules(queries))];
        promtool(["check", "rules", "dashboard.yml"], &files)
    };
    assert_eq!(check(&queries), Ok(()));
    assert!(check(&["sum(".to_owned()]).is_err());
}

#[test]
fn the_alerts_and_the_dashboard_ask_for_metrics_that_exist() {
    let runtime = runtime(1);
    let metrics = tourbillon_exporters::prometheus(&runtime.metrics());
    let existing = names(&metrics);
    let asked = [
        text("alerts.yml"),
        text("alerts_test.yml"),
        queries().join("\n"),
    ]
    .join("\n");
    let asked = names(&asked);
    assert!(asked.len() > 20);
    let missing: Vec<_> = asked.difference(&existing).collect();
    assert!(missing.is_empty(), "{missing:?}");
}
