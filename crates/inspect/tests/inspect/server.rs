//! The server of the live page: what it answers, and what that says about the runtime.

use std::{
    io::ErrorKind,
    net::{SocketAddr, TcpListener},
    time::Duration,
};

use serde_json::Value;
use tourbillon::{Timer, runtime::Builder};
use tourbillon_inspect::{Inspector, serve};

use crate::{
    client::{Events, inspect, inspect_with, request, snapshot, wait_for_listeners},
    common::{
        Gate, HOUR, alarm,
        blocked::{AllBlocked, Blocked},
        eventually,
        net::ANY_PORT,
        paused::paused,
        runtime,
    },
    web::Client,
};

/// The headers that each answer must have.
const HEADERS: [(&str, &str); 5] = [
    (
        "content-security-policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
         img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    ("x-content-type-options", "nosniff"),
    ("cross-origin-resource-policy", "same-origin"),
    ("cache-control", "no-store"),
    ("referrer-policy", "no-referrer"),
];

#[test]
fn each_path_has_its_content_type_and_security_headers() {
    let _alarm = alarm();
    let runtime = runtime(1);
    let inspector = inspect(runtime.handle());
    // All requests use one connection, which is kept.
    let mut client = Client::connect(inspector.local_addr());
    for (path, status, content_type) in [
        ("/", 200, "text/html; charset=utf-8"),
        ("/app.js", 200, "text/javascript; charset=utf-8"),
        ("/style.css", 200, "text/css; charset=utf-8"),
        ("/snapshot.json", 200, "application/json"),
        ("/tasks.json", 200, "application/json"),
        ("/trace.json", 200, "application/json"),
        ("/late.json", 400, "text/plain; charset=utf-8"),
        ("/metrics", 200, "text/plain; version=0.0.4; charset=utf-8"),
        ("/nothing", 404, "text/plain; charset=utf-8"),
        ("/../etc/passwd", 404, "text/plain; charset=utf-8"),
    ] {
        client.send(&request("GET", path, &[]));
        let reply = client.reply();
        assert_eq!(reply.status, status, "{path}: {reply:?}");
        assert_eq!(reply.header("content-type"), Some(content_type), "{path}");
        assert!(!reply.body.is_empty(), "{path}");
        for (name, value) in HEADERS {
            assert_eq!(reply.header(name), Some(value), "{path}");
        }
        assert_eq!(reply.header("access-control-allow-origin"), None);
    }
    let accept = "Accept: application/openmetrics-text; version=1.0.0";
    client.send(&request("GET", "/metrics", &[accept]));
    let reply = client.reply();
    let wanted = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    assert_eq!(reply.header("content-type"), Some(wanted));
    assert!(reply.body.ends_with("# EOF\n"));
}

#[test]
fn a_head_request_gets_the_headers_of_the_get_and_no_body() {
    let _alarm = alarm();
    let runtime = runtime(1);
    let inspector = inspect(runtime.handle());
    for path in [
        "/",
        "/snapshot.json",
        "/tasks.json",
        "/trace.json",
        "/metrics",
        "/events",
    ] {
        let mut client = Client::connect(inspector.local_addr());
        client.send(&request("HEAD", path, &["Connection: close"]));
        let said = client.end();
        assert!(said.starts_with("HTTP/1.1 200 "), "{path}: {said}");
        assert!(said.ends_with("\r\n\r\n"), "{path}: {said}");
    }
    wait_for_listeners(inspector.local_addr(), 0);
}

#[test]
fn a_snapshot_agrees_with_the_metrics() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let inspector = inspect(runtime.handle());
    let addr = inspector.local_addr();
    let timers: Vec<_> = (0..100)
        .map(|_| runtime.handle().after(HOUR, || ()))
        .collect();
    let wall = Timer::at_wall(std::time::SystemTime::now() + HOUR).on(runtime.handle());
    let wall = wall.start(|| ());
    timers[0].cancel();
    eventually("the timer of the wall clock has been read", || {
        runtime.timers().wall.pending == 1
    });
    let now = snapshot(addr);
    assert_eq!(now["version"], 1);
    assert_eq!(now["tourbillon"], env!("CARGO_PKG_VERSION"));
    assert_eq!(now["pid"], std::process::id());
    let workers = now["workers"].as_array().unwrap();
    assert_eq!(workers.len(), 2);
    let sum = |name: &str| -> u64 {
        let of = |counts: &Value| counts[name].as_u64().unwrap();
        let workers = workers.iter().map(|worker| of(&worker["counts"]));
        workers.sum::<u64>() + of(&now["clocks"]["counts"]) + of(&now["helpers"]["counts"])
    };
    // Check all counts, and those of what was done above.
    for (name, count) in runtime.metrics().total().iter() {
        assert!(sum(name) <= count, "{name}");
    }
    assert_eq!(sum("armed_local") + sum("armed_remote"), 101);
    assert_eq!(sum("cancelled"), 1);
    assert_eq!(now["clocks"]["wall"]["pending"], 1);
    let bounds = now["bounds_ns"].as_array().unwrap();
    assert_eq!(bounds.len(), 128);
    assert_eq!(bounds[0], 64);
    assert!(bounds[127].is_null());
    for (id, worker) in workers.iter().enumerate() {
        assert_eq!(worker["id"], id);
        for stage in ["wake", "queue", "rescued"] {
            let late = &worker["lateness"][stage];
            let buckets = late["buckets"].as_array().unwrap();
            let counted: u64 = buckets.iter().map(|pair| pair[1].as_u64().unwrap()).sum();
            assert_eq!(late["count"], counted, "{worker}");
        }
    }
    for name in ["at_ms", "uptime_ms", "unix_ms"] {
        assert!(now[name].as_f64().unwrap() > 0.0, "{name}: {now}");
    }
    assert_eq!(now["period_ms"], 250.0);
    assert_eq!(now["instance"].as_str().unwrap().len(), 16);
    // All clients get the same snapshot for some ms.
    let at = |snapshot: &Value| snapshot["at_ms"].as_f64();
    eventually("there is a later one", || {
        let later = snapshot(addr);
        assert_eq!(later["instance"], now["instance"]);
        at(&later) > at(&now)
    });
    let other = inspect(runtime.handle());
    assert_ne!(snapshot(other.local_addr())["instance"], now["instance"]);
    drop((timers, wall));
}

#[test]
fn a_late_timer_is_in_the_histogram_of_its_worker() {
    let _alarm = alarm();
    let runtime = runtime(1);
    let inspector = inspect(runtime.handle());
    let ran = Gate::new();
    let gate = ran.clone();
    runtime
        .handle()
        .after(Duration::from_millis(1), move || gate.open());
    ran.wait();
    let now = snapshot(inspector.local_addr());
    let wake = &now["workers"][0]["lateness"]["wake"];
    assert_eq!(wake["count"], 1, "{now}");
    assert_eq!(wake["buckets"].as_array().unwrap().len(), 1);
    assert!(wake["sum_ns"].as_u64().unwrap() > 0);
}

#[test]
fn events_arrive_in_order_and_workers_are_sampled_only_for_listeners() {
    let _alarm = alarm();
    let runtime = runtime(1);
    let inspector = inspect_with(runtime.handle(), |builder| {
        builder.period(Duration::from_millis(20))
    });
    let addr = inspector.local_addr();
    let samples = |snapshot: &Value| -> u64 {
        let samples = snapshot["workers"][0]["samples"].as_object().unwrap();
        assert_eq!(samples.len(), 5);
        samples.values().map(|count| count.as_u64().unwrap()).sum()
    };
    // No client has listened yet.
    assert_eq!(samples(&snapshot(addr)), 0);
    let mut events = Events::ask(addr);
    let mut last = events.next();
    assert_eq!(last["clients"], 1);
    for _ in 0..5 {
        let next = events.next();
        let [before, after] = [&last, &next].map(|event| event["at_ms"].as_f64().unwrap());
        assert!(after > before, "{before} {after}");
        assert!(samples(&next) > samples(&last));
        last = next;
    }
    // A second client first gets the newest snapshot, and then the same ones.
    let mut second = Events::ask(addr);
    assert!(second.next()["at_ms"].as_f64() >= last["at_ms"].as_f64());
    wait_for_listeners(addr, 2);
    drop((events, second));
    wait_for_listeners(addr, 0);
    eventually("nobody looks any more", || {
        let before = snapshot(addr);
        // Fifty samples would be taken in this time. The old snapshot has expired after it.
        std::thread::sleep(Duration::from_millis(100));
        let after = snapshot(addr);
        assert_ne!(before["at_ms"], after["at_ms"]);
        samples(&before) == samples(&after)
    });
}

#[test]
fn a_runtime_whose_only_worker_is_blocked_is_still_inspected() {
    let _alarm = alarm();
    let runtime = runtime(1);
    let inspector = inspect(runtime.handle());
    let addr = inspector.local_addr();
    let (stuck, release) = (Gate::new(), Gate::new());
    let (stuck_here, release_here) = (stuck.clone(), release.clone());
    let task = runtime.spawn(async move {
        stuck_here.open();
        release_here.wait();
    });
    stuck.wait();
    let worker = snapshot(addr)["workers"][0].clone();
    assert_eq!(worker["activity"], "running");
    let job = &worker["job"];
    let name = job["name"].as_str().unwrap();
    assert!(name.contains("is_still_inspected"), "{name}");
    let spawned = job["spawned"].as_str().unwrap();
    assert!(spawned.starts_with(file!()), "{spawned}");
    assert!(Events::ask(addr).next()["workers"][0]["job"].is_object());
    release.open();
    runtime.block_on(task).unwrap();
    eventually("it sleeps", || {
        let worker = snapshot(addr)["workers"][0].clone();
        worker["activity"] == "parked" && worker["job"].is_null()
    });
    let blocked = Blocked::some(runtime.handle());
    eventually("it is told", || {
        let worker = snapshot(addr)["workers"][0].clone();
        worker["activity"] == "firing" && worker["job"]["spawned"].is_null()
    });
    drop(blocked);
}

#[test]
fn a_reported_stall_is_in_the_snapshot() {
    let _alarm = alarm();
    let runtime = Builder::new()
        .worker_threads(1)
        .stall_threshold(Duration::from_millis(5))
        .build()
        .unwrap();
    let inspector = inspect(runtime.handle());
    let addr = inspector.local_addr();
    assert_eq!(snapshot(addr)["stalls"], Value::Array(Vec::new()));
    runtime.spawn(async { std::thread::sleep(Duration::from_millis(20)) });
    eventually("it is told", || {
        let now = snapshot(addr);
        let Some(stall) = now["stalls"].get(0) else {
            return false;
        };
        assert_eq!((&stall["number"], &stall["worker"]), (&1.into(), &0.into()));
        let job = stall["job"].as_str().unwrap();
        assert!(
            job.contains("server::a_reported_stall_is_in_the_snapshot"),
            "{job}"
        );
        assert!(stall["spawned"].as_str().unwrap().starts_with(file!()));
        assert!(stall["elapsed_ms"].as_f64().unwrap() >= 5.0);
        assert!(stall["at_ms"].as_f64() <= now["at_ms"].as_f64());
        assert_eq!(stall["stacks"], Value::Array(Vec::new()));
        true
    });
    // Of equal stacks there is one text.
    let stall = runtime.recent_stalls().remove(0).stall;
    let deep = "walk\n".repeat(50);
    for text in ["sum at a.rs:7\nmain", &deep, "sum at a.rs:7\nmain"] {
        runtime.handle().add_stack(&stall, text.into());
    }
    eventually("they are told", || {
        let now = snapshot(addr);
        let [stacks, texts] = [&now["stalls"][0]["stacks"], &now["stacks"]];
        stacks == &serde_json::json!([0, 1, 0])
            && texts[0] == serde_json::json!(["sum at a.rs:7", "main"])
            && texts[1][40] == "and 10 that called them"
    });
    // A long line is cut, and of the stacks that a job had, there are the five most frequent.
    let long = "x".repeat(400);
    for text in [&long, &long, "a", "b", "c", "d"] {
        runtime.handle().add_stack(&stall, text.into());
    }
    eventually("some are left out", || {
        let now = snapshot(addr);
        let [stacks, texts] = [&now["stalls"][0]["stacks"], &now["stacks"]];
        stacks == &serde_json::json!([0, 0, 1, 1, 2, 3, 4])
            && texts[1] == serde_json::json!([format!("{}…", "x".repeat(300))])
            && texts[4] == serde_json::json!(["c"])
    });
}

/// A stall of a helper names no worker: a helper has no place among the workers.
#[test]
fn a_stall_of_a_helper_names_no_worker() {
    let _alarm = alarm();
    let runtime = Builder::new()
        .worker_threads(1)
        .helpers(0..=1)
        .stall_threshold(Duration::from_millis(5))
        .build()
        .unwrap();
    let inspector = inspect(runtime.handle());
    let stuck = AllBlocked::all(&runtime);
    runtime.spawn(async { std::thread::sleep(Duration::from_millis(20)) });
    eventually("it is told", || {
        let now = snapshot(inspector.local_addr());
        let mut stalls = now["stalls"].as_array().unwrap().iter();
        // A report of the worker, if there is one, is about another job.
        let is_it = |job: &str| job.contains("a_stall_of_a_helper");
        let it = stalls.find(|stall| stall["job"].as_str().is_some_and(is_it));
        it.is_some_and(|stall| {
            assert!(stall["worker"].is_null(), "{stall}");
            true
        })
    });
    drop(stuck);
}

/// A peer reports a job while it runs, and the worker its end: one entry.
#[test]
fn a_stall_that_ends_is_completed() {
    let _alarm = alarm();
    let runtime = Builder::new()
        .worker_threads(2)
        .stall_threshold(Duration::from_millis(50))
        .build()
        .unwrap();
    let inspector = inspect(runtime.handle());
    let (release, released) = std::sync::mpsc::channel::<()>();
    runtime.spawn(async move { _ = released.recv() });
    let stall = || {
        let now = snapshot(inspector.local_addr());
        let is_it = |job: &str| job.contains("a_stall_that_ends_is_completed");
        let mut stalls = now["stalls"].as_array().unwrap().clone();
        stalls.retain(|stall| stall["job"].as_str().is_some_and(is_it));
        assert!(stalls.len() <= 1, "{stalls:?}");
        stalls.pop()
    };
    eventually("it is told", || {
        stall().is_some_and(|stall| stall["is_running"] == true)
    });
    let before = stall().unwrap()["elapsed_ms"].as_f64().unwrap();
    std::thread::sleep(Duration::from_millis(100));
    drop(release);
    eventually("it is over", || {
        let stall = stall().unwrap();
        let took = stall["elapsed_ms"].as_f64().unwrap();
        stall["is_running"] == false && took >= before + 100.0
    });
}

#[test]
fn a_runtime_on_a_paused_clock_is_inspected_in_real_time() {
    let _alarm = alarm();
    let runtime = paused(1);
    let inspector = inspect(runtime.handle());
    let mut events = Events::ask(inspector.local_addr());
    let first = events.next()["at_ms"].as_f64();
    assert!(events.next()["at_ms"].as_f64() > first);
}

#[test]
fn an_address_that_cannot_be_served_is_an_error() {
    let _alarm = alarm();
    assert!(serve(ANY_PORT).is_err(), "in no runtime");
    let runtime = runtime(1);
    let taken = TcpListener::bind(ANY_PORT).unwrap();
    let error = runtime.block_on(async { serve(taken.local_addr().unwrap()) });
    assert_eq!(error.unwrap_err().kind(), ErrorKind::AddrInUse);
    let none: &[SocketAddr] = &[];
    let error = Inspector::builder(runtime.handle()).serve(none);
    assert_eq!(error.unwrap_err().kind(), ErrorKind::InvalidInput);
    let handle = runtime.handle().clone();
    drop(runtime);
    assert!(Inspector::builder(&handle).serve(ANY_PORT).is_err());
}

#[test]
fn an_inspector_can_be_started_on_a_worker() {
    let _alarm = alarm();
    let runtime = runtime(1);
    let inspector = runtime.block_on(async {
        let task = tourbillon::spawn(async { serve(ANY_PORT) });
        task.await.unwrap().unwrap()
    });
    assert_eq!(
        snapshot(inspector.local_addr())["workers"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
    inspector.shutdown();
}
