//! The trace is what viewers of trace events expect.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;
use tourbillon::{Runtime, flight::Recording, runtime::Builder, time};
use tourbillon_flight::write_trace;

use super::common::{eventually, rounds};

const MS: Duration = Duration::from_millis(1);

fn trace(runtime: &Runtime) -> Value {
    let mut trace = Vec::new();
    let snapshot = runtime.flight_recorder().snapshot();
    write_trace(&snapshot, &mut trace).unwrap();
    serde_json::from_slice(&trace).unwrap()
}

/// Checks each event by the description of the format ("Trace Event Format", Google, 2016), and the
/// rules that Perfetto reports violations of: slices of a thread nest, asynchronous slices and
/// arrows begin and end.
fn check(trace: &Value) {
    let events = trace["traceEvents"].as_array().unwrap();
    let mut slices: HashMap<(u64, u64), Vec<(f64, f64)>> = HashMap::new();
    let mut open: HashMap<(String, String), i64> = HashMap::new();
    let (mut begins, mut ends) = (Vec::new(), Vec::new());
    for event in events {
        let number = |key: &str| event[key].as_f64();
        let place = (
            event["pid"].as_u64().unwrap(),
            event["tid"].as_u64().unwrap(),
        );
        let at = number("ts").expect("each event has a time");
        let name = event["name"].as_str().expect("each event has a name");
        match event["ph"].as_str().unwrap() {
            "M" => {
                assert!(["process_name", "thread_name"].contains(&name));
                assert!(event["args"]["name"].is_string());
            }
            "X" => {
                let length = number("dur").unwrap();
                assert!(length >= 0.0);
                slices.entry(place).or_default().push((at, at + length));
            }
            "i" => assert_eq!(event["s"], "t"),
            phase @ ("b" | "e") => {
                assert!(event["cat"].is_string());
                let number = event["id2"]["local"].as_str().unwrap();
                let key = (number.to_owned(), name.to_owned());
                let count = open.entry(key).or_default();
                *count += if phase == "b" { 1 } else { -1 };
                assert!(*count >= 0, "{event} ends before it begins");
            }
            phase @ ("s" | "f") => {
                assert!(event["cat"].is_string());
                let id = event["id"].as_u64().unwrap();
                if phase == "s" { &mut begins } else { &mut ends }.push(id);
            }
            phase => panic!("unknown phase {phase}"),
        }
    }
    assert!(open.values().all(|count| *count == 0), "{open:?}");
    assert!(
        ends.iter().all(|id| begins.contains(id)),
        "an arrow has no begin"
    );
    let all = begins.len();
    begins.sort_unstable();
    begins.dedup();
    assert_eq!(begins.len(), all, "two arrows have one number");
    for slices in slices.values_mut() {
        slices.sort_by(|a, b| a.partial_cmp(b).unwrap());
        // A thousandth of a µs is the last digit.
        let overlap = slices
            .windows(2)
            .find(|pair| pair[1].0 < pair[0].1 - 0.000_5);
        assert!(overlap.is_none(), "{overlap:?}");
    }
}

#[test]
fn timers_of_one_deadline_have_no_arrows() {
    let mut builder = Builder::new();
    builder.worker_threads(1);
    let runtime = builder.flight_recorder(Recording::Full).build().unwrap();
    let now = time::Instant::now();
    let ran = Arc::new(AtomicUsize::new(0));
    for wait in [MS, 2 * MS, 2 * MS, 3 * MS] {
        let ran = ran.clone();
        runtime
            .handle()
            .at(now + wait, move || _ = ran.fetch_add(1, Relaxed));
    }
    eventually("all timers ran", || ran.load(Relaxed) == 4);
    let count = |phase: &str| {
        let trace = trace(&runtime);
        check(&trace);
        let events = trace["traceEvents"].as_array().unwrap();
        events.iter().filter(|event| event["ph"] == phase).count()
    };
    assert_eq!(count("s"), 2);
    eventually("the run of the last timer is recorded", || count("f") == 2);
}

#[test]
fn a_trace_has_tracks_arrows_and_late_timers() {
    for recording in [Recording::Light, Recording::Full] {
        let mut builder = Builder::new();
        builder.worker_threads(2).name("shop \"1\"");
        let runtime = builder.flight_recorder(recording).build().unwrap();
        let mut last = Value::Null;
        eventually("a late timer is traced", || {
            let sleeper = runtime.spawn(time::sleep(MS));
            let blocks = || runtime.spawn(async { thread::sleep(5 * MS) });
            let both = (blocks(), blocks());
            runtime.block_on(async {
                both.0.await.unwrap();
                both.1.await.unwrap();
                sleeper.await.unwrap();
            });
            last = trace(&runtime);
            check(&last);
            !last["tourbillon"]["late"].as_array().unwrap().is_empty()
        });
        let events = last["traceEvents"].as_array().unwrap();
        let has = |phase: &str| events.iter().any(|event| event["ph"] == phase);
        assert!(has("M") && has("i") && has("X") && has("b") && has("e"));
        assert_eq!(has("s"), recording == Recording::Full);
        assert_eq!(has("f"), recording == Recording::Full);
        let names = events
            .iter()
            .filter_map(|event| event["args"]["name"].as_str());
        let names: Vec<_> = names.collect();
        assert!(names.contains(&"shop \"1\"") && names.contains(&"worker 1"));
        let late = &last["tourbillon"]["late"][0];
        let spans = late["spans"].as_array().unwrap();
        let sum: f64 = spans.iter().map(|span| span["us"].as_f64().unwrap()).sum();
        let whole = late["late_us"].as_f64().unwrap();
        assert!((sum - whole).abs() < 0.1, "{late}");
        assert!(late["text"].as_str().unwrap().contains("late: "));
    }
}

#[test]
fn a_late_timer_leads_to_the_stack_of_the_job_that_it_waited_for() {
    let mut builder = Builder::new();
    builder.worker_threads(1).stall_threshold(10 * MS);
    let runtime = builder.build().unwrap();
    // The worker is in its sleep when the job comes that blocks it. On a busy machine this thread may
    // send the job too late.
    let is_in_time = rounds(u64::MAX).any(|_| {
        let deadline = Instant::now() + 5 * MS;
        let waits = runtime.spawn(async move { time::sleep_until(deadline.into()).await });
        thread::sleep(MS);
        let blocks = runtime.spawn(async move {
            let is_in_time = Instant::now() < deadline;
            thread::sleep(30 * MS);
            is_in_time
        });
        runtime.block_on(waits).unwrap();
        runtime.block_on(blocks).unwrap()
    });
    assert!(is_in_time);
    eventually("the stall is reported", || {
        !runtime.recent_stalls().is_empty()
    });
    let without = trace(&runtime);
    assert_eq!(without["tourbillon"]["stacks"], serde_json::json!([]));
    assert!(without["tourbillon"]["late"][0]["stack"].is_null());
    for recent in runtime.recent_stalls() {
        for stack in ["sum at a.rs:7\nmain", "sum at a.rs:7\nmain"] {
            runtime.handle().add_stack(&recent.stall, stack.into());
        }
    }
    let trace = trace(&runtime);
    check(&trace);
    let summary = &trace["tourbillon"];
    let rows = summary["stacks"].as_array().unwrap();
    assert!(rows.iter().all(|row| row["stack"] == "sum at a.rs:7\nmain"));
    assert!(rows[0]["times"].as_u64() >= Some(2), "{rows:?}");
    let late = summary["late"].as_array().unwrap();
    let numbers: Vec<_> = late.iter().filter_map(|it| it["stack"].as_u64()).collect();
    assert!(numbers.contains(&1), "{late:?}");
    let events = trace["traceEvents"].as_array().unwrap();
    let spans = events
        .iter()
        .filter(|event| event["name"] == "stuck-in-job");
    let lines: Vec<_> = spans.map(|span| &span["args"]["in"]).collect();
    assert!(lines.iter().any(|it| *it == "sum at a.rs:7"), "{lines:?}");
}
