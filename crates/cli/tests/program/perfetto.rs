//! The trace of a storm opens in Perfetto, and says there what the file says.
//!
//! The test needs Chromium, and the directory of Perfetto's user interface in
//! `TOURBILLON_PERFETTO`. `.ci/perfetto` installs that, and prints its name.

use std::{
    env, fs,
    net::{IpAddr, Ipv4Addr},
    path::{Path, PathBuf},
    sync::Arc,
};

use axum::{
    Router,
    http::{StatusCode, Uri, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
    routing::get,
};
use serde_json::{Value, json};
use tourbillon::{Runtime, net::TcpListener};
use tourbillon_axum::serve;

use crate::{
    clients::{browser::Browser, storm::write_trace},
    common::{installed::skip, unix::Dir},
};

/// Returns a file of the user interface.
fn file(ui: &Path, uri: &Uri) -> Response {
    let name = match uri.path() {
        "/" => "index.html",
        path => &path[1..],
    };
    let kind = match Path::new(name).extension().and_then(|kind| kind.to_str()) {
        Some("html") => "text/html",
        Some("js") => "text/javascript",
        Some("css") => "text/css",
        Some("json") => "application/json",
        Some("wasm") => "application/wasm",
        _ => "application/octet-stream",
    };
    match fs::read(ui.join(name)) {
        Ok(content) => ([(CONTENT_TYPE, kind)], content).into_response(),
        Err(error) => (StatusCode::NOT_FOUND, error.to_string()).into_response(),
    }
}

/// Asks Perfetto by SQL. Each row of the answer is an array of the named columns, as text.
fn query(browser: &mut Browser, columns: &[&str], from: &str) -> Vec<Vec<String>> {
    let kinds: Vec<_> = columns
        .iter()
        .map(|column| format!("{column}: 'str'"))
        .collect();
    let casts: Vec<_> = columns
        .iter()
        .map(|column| format!("cast({column} as text) as {column}"))
        .collect();
    let row: Vec<_> = columns
        .iter()
        .map(|column| format!("it.{column}"))
        .collect();
    let script = format!(
        "app.trace.engine.query({sql}).then((result) => {{
           const rows = [];
           for (const it = result.iter({{ {kinds} }}); it.valid(); it.next()) rows.push([{row}]);
           return rows;
         }})",
        sql = json!(format!("select {} from {from}", casts.join(", "))),
        kinds = kinds.join(", "),
        row = row.join(", "),
    );
    serde_json::from_value(browser.eval(&script)).unwrap()
}

/// Returns the number of rows of a query.
fn count(browser: &mut Browser, from: &str) -> usize {
    let rows = query(
        browser,
        &["n"],
        &format!("(select count(*) as n from {from})"),
    );
    rows[0][0].parse().unwrap()
}

#[test]
fn the_trace_of_a_storm_opens_in_perfetto() {
    let Some(ui) = env::var_os("TOURBILLON_PERFETTO").map(PathBuf::from) else {
        skip("Perfetto (in the directory TOURBILLON_PERFETTO)");
        return;
    };
    let Some(mut browser) = Browser::start() else {
        return;
    };
    // 1. The trace of a storm in which something is late.
    let directory = Dir::new();
    let path = directory.path("trace.json");
    write_trace("2k", &path);
    let trace: Arc<[u8]> = fs::read(&path).unwrap().into();
    let written: Value = serde_json::from_slice(&trace).unwrap();
    // 2. Perfetto opens it.
    let runtime = Runtime::new().unwrap();
    let addr = (IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
    let listener = runtime.block_on(TcpListener::bind(addr)).unwrap();
    let addr = listener.local_addr().unwrap();
    let router = Router::new()
        .route("/trace.json", get(async move || trace.to_vec()))
        .fallback(async move |uri: Uri| file(&ui, &uri));
    runtime.spawn(async move { serve(listener, router).await });
    browser.open(&format!("http://{addr}/#!/?url=http://{addr}/trace.json"));
    browser.eventually("app.trace !== undefined");
    // 3. It finds no error in it, and loses nothing.
    let problems = query(
        &mut browser,
        &["name", "value"],
        "stats where severity in ('error', 'data_loss') and value > 0",
    );
    assert!(problems.is_empty(), "{problems:?}");
    let events = written["traceEvents"].as_array().unwrap();
    let phases = |wanted: &[&str]| {
        let found = events
            .iter()
            .filter(|event| wanted.iter().any(|phase| event["ph"] == *phase));
        found.count()
    };
    assert_eq!(count(&mut browser, "slice"), phases(&["X", "i", "b"]));
    assert_eq!(count(&mut browser, "flow"), phases(&["f"]));
    assert!(phases(&["f"]) > 0 && phases(&["X"]) > 0 && phases(&["b"]) > 0);
    // 4. Its tracks have their names, and belong to three processes.
    let processes = query(&mut browser, &["name"], "process where name is not null");
    for name in ["tourbillon", "cores", "late timers"] {
        assert!(processes.contains(&vec![name.to_owned()]), "{processes:?}");
    }
    let late = "slice join process_track on slice.track_id = process_track.id \
                join process using (upid) where process.name = 'late timers'";
    assert_eq!(count(&mut browser, late), phases(&["b"]));
    let threads = query(&mut browser, &["name"], "thread where name is not null");
    for name in ["worker 0", "worker 1", "core 0", "core 1"] {
        assert!(threads.contains(&vec![name.to_owned()]), "{threads:?}");
    }
    // 5. The cause of a late timer can be read there.
    let late = written["tourbillon"]["late"][0]["text"].as_str().unwrap();
    let text = late.replace('\'', "''");
    let same = format!("args where key = 'args.why' and string_value = '{text}'");
    assert!(count(&mut browser, &same) > 0, "{late}");
    if let Some(to) = env::var_os("TOURBILLON_PICTURE") {
        browser.eval("waitForPerfettoIdle()");
        fs::write(to, browser.picture()).unwrap();
    }
}
