//! What the page asks for: the timers of a cell, the tasks, and the trace.

use std::{net::SocketAddr, thread, time::Duration};

use serde_json::Value;
use tourbillon::{
    Handle, Runtime,
    flight::Recording,
    runtime::Builder,
    time::{Instant, sleep},
};

use crate::{
    client::{Events, get, inspect, request, snapshot},
    common::{Gate, HOUR, alarm, eventually, runtime},
    web::Client,
};

const MS: Duration = Duration::from_millis(1);

fn json(addr: SocketAddr, path: &str) -> Value {
    let reply = get(addr, path);
    assert_eq!(reply.status, 200, "{path}: {reply:?}");
    assert_eq!(reply.header("content-type"), Some("application/json"));
    serde_json::from_str(&reply.body).unwrap()
}

/// Returns the timers that are kept for a cell of worker 0, of all times.
fn cell(addr: SocketAddr, stage: &str, bucket: u64) -> Value {
    let query = format!("stage={stage}&worker=0&bucket={bucket}&from_ms=0&to_ms=1e9");
    json(addr, &format!("/late.json?{query}"))
}

/// Returns the buckets of worker 0 that have timers, of 1 ms or later.
fn late_buckets(addr: SocketAddr, stage: &str) -> Vec<(u64, u64)> {
    let now = snapshot(addr);
    let buckets = now["workers"][0]["lateness"][stage]["buckets"].clone();
    let buckets: Vec<(u64, u64)> = serde_json::from_value(buckets).unwrap();
    let from = |bucket: u64| now["bounds_ns"][bucket as usize - 1].as_u64();
    let is_late = |bucket: &(u64, u64)| from(bucket.0) >= Some(1_000_000);
    buckets.into_iter().filter(is_late).collect()
}

async fn is_late() {
    sleep(MS).await;
}

/// Makes a sleep late, behind a job of the only worker.
fn make_late(runtime: &Runtime) {
    let sleeper = runtime.spawn(is_late());
    let blocks = runtime.spawn(async { thread::sleep(20 * MS) });
    runtime.block_on(async {
        blocks.await.unwrap();
        sleeper.await.unwrap();
    });
}

#[test]
fn the_timers_of_a_cell_come_with_their_causes() {
    let _alarm = alarm();
    let runtime = runtime(1);
    let inspector = inspect(runtime.handle());
    let addr = inspector.local_addr();
    let mut events = Events::ask(addr);
    events.next();
    let (mut bucket, mut found) = (0, Value::Null);
    eventually("a late timer is kept", || {
        make_late(&runtime);
        events.next();
        events.next();
        let buckets = late_buckets(addr, "wake");
        let answers = buckets
            .iter()
            .map(|&(bucket, _)| (bucket, cell(addr, "wake", bucket)));
        let mut kept = answers.filter(|(_, answer)| answer["timers"] != Value::Array(Vec::new()));
        (bucket, found) = kept.next_back().unwrap_or_default();
        // The recorder has seen the sleep's task run.
        found["timers"][0]["timer"].is_object()
    });
    assert_eq!(found["recording"], "light");
    let timer = &found["timers"][0];
    let name = timer["timer"]["name"].as_str().unwrap();
    assert!(name.contains("answers::is_late"), "{timer}");
    let spawned = timer["timer"]["spawned"].as_str().unwrap();
    assert!(spawned.starts_with(file!()), "{timer}");
    let why = timer["why"].as_str().unwrap();
    assert!(
        why.contains("behind ") && why.contains("make_late"),
        "{timer}"
    );
    assert!(timer["late_ns"].as_u64().unwrap() >= 1_000_000, "{timer}");
    assert!(
        timer["all_ns"].as_u64() >= timer["late_ns"].as_u64(),
        "{timer}"
    );
    // The timer is in the cell of its own time and worker, and in no other.
    let at = timer["at_ms"].as_f64().unwrap();
    let at_time = |from: f64, to: f64| {
        let query = format!("stage=wake&worker=0&bucket={bucket}&from_ms={from}&to_ms={to}");
        json(addr, &format!("/late.json?{query}"))["timers"]
            .as_array()
            .unwrap()
            .len()
    };
    assert!(at_time(at - 100.0, at + 100.0) > 0);
    assert_eq!(at_time(at + 1e6, at + 2e6), 0);
    for other in ["worker=helpers", "worker=7"] {
        let query = format!("stage=wake&{other}&bucket={bucket}&from_ms=0&to_ms=1e9");
        let none = json(addr, &format!("/late.json?{query}"));
        assert_eq!(none["timers"], Value::Array(Vec::new()), "{none}");
    }
}

#[test]
fn a_late_timer_comes_with_the_line_that_its_job_was_in() {
    let _alarm = alarm();
    let mut builder = Builder::new();
    builder.worker_threads(1).stall_threshold(10 * MS);
    // As `tourbillon-stacks` does.
    builder.on_stall(|stall| {
        let stack = "[futex]\nstd::wait at m.rs:1\nshop::sum at a.rs:7\nshop::main";
        Handle::current().add_stack(stall, stack.into());
    });
    let runtime = builder.build().unwrap();
    let inspector = inspect(runtime.handle());
    let addr = inspector.local_addr();
    let mut events = Events::ask(addr);
    events.next();
    eventually("the line is told", || {
        make_late(&runtime);
        events.next();
        events.next();
        let buckets = late_buckets(addr, "wake").into_iter();
        let answers = buckets.map(|(bucket, _)| cell(addr, "wake", bucket).to_string());
        answers
            .into_iter()
            .any(|answer| answer.contains("; in shop::sum at a.rs:7\""))
    });
}

/// A timer that is taken in time, and then waits in a queue, is late in the stage `queue`.
#[test]
fn a_timer_that_was_queued_for_long_is_in_a_cell_of_that_stage() {
    let _alarm = alarm();
    // A helper would run it in place of the worker.
    let mut builder = Builder::new();
    builder.worker_threads(1).helpers(0..=0);
    let runtime = builder.flight_recorder(Recording::Full).build().unwrap();
    let inspector = inspect(runtime.handle());
    let addr = inspector.local_addr();
    let mut events = Events::ask(addr);
    eventually("a queued timer is kept", || {
        // Both are due at once, so that they are taken together, and the first one blocks.
        let due = Instant::now() + 5 * MS;
        runtime.handle().at(due, || thread::sleep(10 * MS));
        let ran = Gate::new();
        let gate = ran.clone();
        runtime.handle().at(due, move || gate.open());
        ran.wait();
        events.next();
        events.next();
        // The histogram samples one in 16 timers, and the recorder has all. These buckets are
        // from 1 ms to 1 s.
        let mut answers = (57..97).map(|bucket| cell(addr, "queue", bucket));
        answers.any(|answer| {
            let timers = answer["timers"].as_array().unwrap();
            timers
                .iter()
                .any(|timer| timer["timer"]["name"].as_str().is_some())
        })
    });
}

#[test]
fn nothing_is_kept_while_no_page_is_open() {
    let _alarm = alarm();
    let runtime = runtime(1);
    let inspector = inspect(runtime.handle());
    make_late(&runtime);
    let answer = cell(inspector.local_addr(), "wake", 80);
    assert_eq!(answer["since_ms"], Value::Null);
    assert_eq!(answer["timers"], Value::Array(Vec::new()));
}

#[test]
fn invalid_queries_get_400_with_the_reason() {
    let _alarm = alarm();
    let runtime = runtime(1);
    let inspector = inspect(runtime.handle());
    for (path, why) in [
        ("/late.json", "the query has no stage\n"),
        (
            "/late.json?stage=wake&worker=a&bucket=1&from_ms=1&to_ms=2",
            "worker is not a number\n",
        ),
        (
            "/tasks.json?order=name",
            "order is busy, polls or age, not name\n",
        ),
    ] {
        let reply = get(inspector.local_addr(), path);
        assert_eq!((reply.status, &*reply.body), (400, why), "{path}");
    }
}

#[test]
fn the_trace_is_a_file_for_viewers() {
    let _alarm = alarm();
    let runtime = runtime(2);
    make_late(&runtime);
    let inspector = inspect(runtime.handle());
    let addr = inspector.local_addr();
    let reply = get(addr, "/trace.json");
    assert_eq!(reply.status, 200);
    let named = reply.header("content-disposition").unwrap();
    let pid = std::process::id();
    assert!(
        named.starts_with(&format!("attachment; filename=\"tourbillon-{pid}-")),
        "{named}"
    );
    let trace: Value = serde_json::from_str(&reply.body).unwrap();
    assert!(!trace["traceEvents"].as_array().unwrap().is_empty());
    assert_eq!(trace["tourbillon"]["workers"], 2);
    // Other sites and other host names get the trace no more than the rest.
    for (line, status) in [
        ("Sec-Fetch-Site: cross-site", 403),
        ("Origin: http://other.example", 403),
        ("Host: other.example", 421),
    ] {
        let mut client = Client::connect(addr);
        client.send(&request("GET", "/trace.json", &[line, "Connection: close"]));
        assert_eq!(client.reply().status, status, "{line}");
    }
    // Traces are sent one after the other, also after a client that has left.
    for _ in 0..3 {
        let mut client = Client::connect(addr);
        client.send(&request("GET", "/trace.json", &["Connection: close"]));
        drop(client);
    }
    eventually("there is room again", || {
        get(addr, "/trace.json").status == 200
    });
}

#[test]
fn the_traces_that_the_recorder_kept_can_be_had_later() {
    let _alarm = alarm();
    let mut builder = Builder::new();
    builder.worker_threads(1);
    let runtime = builder.late_threshold(5 * MS).build().unwrap();
    let inspector = inspect(runtime.handle());
    let addr = inspector.local_addr();
    assert_eq!(snapshot(addr)["kept_unix_ms"], Value::Array(Vec::new()));
    let mut at = Value::Null;
    eventually("a trace is kept", || {
        make_late(&runtime);
        at = snapshot(addr)["kept_unix_ms"][0].clone();
        at.is_number()
    });
    let trace = json(addr, &format!("/trace.json?kept={at}"));
    let late = trace["tourbillon"]["late"].as_array().unwrap();
    assert!(!late.is_empty(), "{late:?}");
    assert_eq!(get(addr, "/trace.json?kept=1").status, 404);
    assert_eq!(get(addr, "/trace.json?kept=now").status, 400);
}

async fn works(gate: Gate) {
    while !gate.is_open() {
        thread::sleep(2 * MS);
        sleep(MS).await;
    }
}

#[test]
fn tasks_are_listed_the_busiest_first() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let inspector = inspect(runtime.handle());
    let addr = inspector.local_addr();
    let gate = Gate::new();
    let idle: Vec<_> = (0..30)
        .map(|_| runtime.spawn(std::future::pending::<()>()))
        .collect();
    let busy = runtime.spawn(works(gate.clone()));
    // A task may be listed between the walk over the lists and the count of what is on them.
    let mut list = Value::Null;
    eventually("all are seen", || {
        list = json(addr, "/tasks.json");
        list["seen"] == 31
    });
    assert_eq!((&list["alive"], &list["listed"]), (&31.into(), &31.into()));
    assert_eq!(list["tasks"].as_array().unwrap().len(), 20);
    let id = busy.id().to_string();
    eventually("the busy one is first", || {
        let list = json(addr, "/tasks.json?order=busy");
        list["tasks"][0]["id"] == id
    });
    let mut first = Value::Null;
    eventually("its polls are counted", || {
        let list = json(addr, "/tasks.json?order=polls");
        first = list["tasks"][0].clone();
        first["polls"].as_u64().unwrap() > 5
    });
    assert_eq!(first["id"], id);
    assert!(
        first["name"].as_str().unwrap().contains("answers::works"),
        "{first}"
    );
    assert!(first["spawned"].as_str().unwrap().starts_with(file!()));
    // A poll takes 2 ms at least; the present one may not be over.
    let (polls, busy_ms) = (
        first["polls"].as_f64().unwrap(),
        first["busy_ms"].as_f64().unwrap(),
    );
    assert!(busy_ms >= 2.0 * (polls - 1.0), "{first}");
    assert_eq!(
        json(addr, "/tasks.json?order=age")["tasks"]
            .as_array()
            .unwrap()
            .len(),
        20
    );
    gate.open();
    runtime.block_on(busy).unwrap();
    eventually("it has ended", || json(addr, "/tasks.json")["alive"] == 30);
    idle.iter().for_each(|task| task.abort());
}

#[test]
fn a_task_that_holds_its_worker_is_listed_with_it() {
    let _alarm = alarm();
    let runtime = runtime(1);
    let inspector = inspect(runtime.handle());
    let addr = inspector.local_addr();
    // From now on polls are timed.
    assert!(json(addr, "/tasks.json")["timed_ms"].is_number());
    let (stuck, release) = (Gate::new(), Gate::new());
    let gates = (stuck.clone(), release.clone());
    let task = runtime.spawn(async move {
        sleep(MS).await;
        gates.0.open();
        gates.1.wait();
    });
    stuck.wait();
    let mut row = Value::Null;
    eventually("it is seen to run", || {
        row = json(addr, "/tasks.json")["tasks"][0].clone();
        row["poll_ms"].as_f64().is_some_and(|ms| ms > 20.0)
    });
    assert_eq!(
        (&row["state"], &row["worker"]),
        (&"running".into(), &0.into()),
        "{row}"
    );
    assert!(row["busy_ms"].as_f64() >= row["poll_ms"].as_f64(), "{row}");
    release.open();
    runtime.block_on(task).unwrap();
}

#[test]
fn a_task_waits_for_the_sleep_that_it_armed_last() {
    let _alarm = alarm();
    let runtime = runtime(1);
    let inspector = inspect(runtime.handle());
    let addr = inspector.local_addr();
    // From now on it is noted which sleeps are armed.
    json(addr, "/tasks.json");
    let sleeper = runtime.spawn(async {
        sleep(MS).await;
        sleep(HOUR).await;
    });
    // A timer of another task, and a callback, are no sleeps of this one.
    let other = runtime.spawn(async {
        drop(tourbillon::after(HOUR, || ()));
        std::future::pending::<()>().await;
    });
    let waits_for = |id: String| {
        let list = json(addr, "/tasks.json");
        let tasks = list["tasks"].as_array().unwrap().clone();
        let task = tasks.into_iter().find(|task| task["id"] == id);
        task.map(|mut task| task["waits_for"].take())
    };
    eventually("it sleeps for an hour", || {
        let waits = waits_for(sleeper.id().to_string());
        let sleeps = waits.as_ref().and_then(|waits| waits[0].as_str());
        sleeps.is_some_and(|sleeps| {
            assert!(
                sleeps.starts_with("a sleep of ") && sleeps.ends_with(" more"),
                "{sleeps}"
            );
            sleeps.starts_with("a sleep of 35")
        })
    });
    assert_eq!(
        waits_for(other.id().to_string()).unwrap(),
        Value::Array(Vec::new())
    );
    sleeper.abort();
    other.abort();
}
