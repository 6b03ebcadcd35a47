//! The inspector: what it answers, what that says of a runtime, and when it ends.

mod common;
mod inspected;
mod web;

use std::{
    fs,
    io::ErrorKind,
    net::{SocketAddr, TcpListener, TcpStream},
    time::Duration,
};

use common::{
    Gate, HOUR, alarm,
    blocked::{AllBlocked, Blocked},
    eventually, fds, isolated,
    net::ANY_PORT,
    runtime, threads,
};
use inspected::{Events, get, inspect, inspect_with, request, snapshot, wait_for_listeners};
use serde_json::Value;
use tourbillon::{
    Timer,
    inspect::{self, Inspector},
    runtime::Builder,
};
use web::Client;

/// What each answer has to say to browsers.
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

fn is_refused(addr: SocketAddr) -> bool {
    let connected = TcpStream::connect(addr);
    connected.is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
}

#[test]
fn each_path_has_its_type_and_all_say_what_browsers_may_do() {
    let _alarm = alarm();
    let runtime = runtime(1);
    let inspector = inspect(runtime.handle());
    // On one connection, which is kept.
    let mut client = Client::connect(inspector.local_addr());
    for (path, status, content_type) in [
        ("/", 200, "text/html; charset=utf-8"),
        ("/app.js", 200, "text/javascript; charset=utf-8"),
        ("/style.css", 200, "text/css; charset=utf-8"),
        ("/snapshot.json", 200, "application/json"),
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
fn a_head_is_that_of_the_answer_and_nothing_more() {
    let _alarm = alarm();
    let runtime = runtime(1);
    let inspector = inspect(runtime.handle());
    for path in ["/", "/snapshot.json", "/metrics", "/events"] {
        let mut client = Client::connect(inspector.local_addr());
        client.send(&request("HEAD", path, &["Connection: close"]));
        let said = client.end();
        assert!(said.starts_with("HTTP/1.1 200 "), "{path}: {said}");
        assert!(said.ends_with("\r\n\r\n"), "{path}: {said}");
    }
    wait_for_listeners(inspector.local_addr(), 0);
}

#[test]
fn a_snapshot_says_what_the_metrics_say() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let inspector = inspect(runtime.handle());
    let addr = inspector.local_addr();
    let timers: Vec<_> = (0..100).map(|_| runtime.after(HOUR, || ())).collect();
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
    // All counts that there are, and what was done above.
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
    // For some ms all are told the same.
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
fn how_late_a_timer_was_stands_in_its_workers_histogram() {
    let _alarm = alarm();
    let runtime = runtime(1);
    let inspector = inspect(runtime.handle());
    let ran = Gate::new();
    let gate = ran.clone();
    runtime.after(Duration::from_millis(1), move || gate.open());
    ran.wait();
    let now = snapshot(inspector.local_addr());
    let wake = &now["workers"][0]["lateness"]["wake"];
    assert_eq!(wake["count"], 1, "{now}");
    assert_eq!(wake["buckets"].as_array().unwrap().len(), 1);
    assert!(wake["sum_ns"].as_u64().unwrap() > 0);
}

#[test]
fn events_come_one_after_another_and_workers_are_looked_at_meanwhile() {
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
    // Nobody has listened.
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
    // A second one is sent the newest at once, and then the same.
    let mut second = Events::ask(addr);
    assert!(second.next()["at_ms"].as_f64() >= last["at_ms"].as_f64());
    wait_for_listeners(addr, 2);
    drop((events, second));
    wait_for_listeners(addr, 0);
    eventually("nobody looks any more", || {
        let before = snapshot(addr);
        // In which fifty looks would be had, and what was told is told no more.
        std::thread::sleep(Duration::from_millis(100));
        let after = snapshot(addr);
        assert_ne!(before["at_ms"], after["at_ms"]);
        samples(&before) == samples(&after)
    });
}

#[test]
fn a_runtime_whose_only_worker_is_stuck_is_still_looked_at() {
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
    assert!(name.contains("is_still_looked_at"), "{name}");
    let spawned = job["spawned"].as_str().unwrap();
    assert!(spawned.starts_with("tests/inspect.rs:"), "{spawned}");
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
fn a_stall_that_was_reported_is_told() {
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
        assert!(job.contains("a_stall_that_was_reported_is_told"), "{job}");
        assert!(stall["spawned"].as_str().unwrap().starts_with("tests/"));
        assert!(stall["elapsed_ms"].as_f64().unwrap() >= 5.0);
        assert!(stall["at_ms"].as_f64() <= now["at_ms"].as_f64());
        true
    });
}

/// It has no place among the workers.
#[test]
fn a_stall_of_a_helper_is_no_workers() {
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
        // The worker's, if it is told, is of another job.
        let is_it = |job: &str| job.contains("a_stall_of_a_helper");
        let it = stalls.find(|stall| is_it(stall["job"].as_str().unwrap()));
        it.is_some_and(|stall| {
            assert!(stall["worker"].is_null(), "{stall}");
            true
        })
    });
    drop(stuck);
}

#[test]
fn a_runtime_on_a_paused_clock_is_looked_at_in_real_time() {
    let _alarm = alarm();
    let runtime = Builder::new()
        .worker_threads(1)
        .start_paused(true)
        .build()
        .unwrap();
    let inspector = inspect(runtime.handle());
    let mut events = Events::ask(inspector.local_addr());
    let first = events.next()["at_ms"].as_f64();
    assert!(events.next()["at_ms"].as_f64() > first);
}

#[test]
fn it_ends_with_the_runtime_that_it_inspects() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let inspector = inspect(runtime.handle());
    let addr = inspector.local_addr();
    // Dropped, it goes on.
    drop(inspector);
    let mut events = Events::ask(addr);
    events.next();
    let idle = Client::connect(addr);
    drop(runtime);
    // That of the runtime is said, and then that of the stream as that of a body is.
    let said = events.0.end();
    let end = "event: end\ndata: the runtime has ended\n\n\r\n0\r\n\r\n";
    assert!(said.ends_with(end), "{said}");
    assert_eq!(idle.end(), "");
    eventually("it is gone", || is_refused(addr));
}

/// The page would take workers that are gone for another runtime's, and forget what it shows.
#[test]
fn no_snapshot_of_a_runtime_that_has_ended_is_sent() {
    let _alarm = alarm();
    // It is a matter of a moment: a server without the check is found out by some one in sixty.
    for _ in 0..100 {
        let runtime = Builder::new().worker_threads(2).build().unwrap();
        let inspector = inspect_with(runtime.handle(), |builder| {
            builder.period(Duration::from_millis(10))
        });
        let addr = inspector.local_addr();
        let mut events = Events::ask(addr);
        events.next();
        drop(runtime);
        let said = events.0.end();
        let told = said.lines().filter_map(|line| line.strip_prefix("data: {"));
        for line in told {
            let snapshot: Value = serde_json::from_str(&format!("{{{line}")).unwrap();
            assert_eq!(snapshot["workers"].as_array().unwrap().len(), 2);
        }
        assert!(said.contains("event: end"), "{said}");
    }
}

#[test]
fn inspectors_that_are_gone_leave_nothing() {
    isolated("inspectors_that_are_gone_leave_nothing", || {
        let runtime = runtime(1);
        let before = (threads(), fds());
        for _ in 0..200 {
            inspect(runtime.handle()).shutdown();
        }
        eventually("all is as it was", || (threads(), fds()) == before);
    });
}

#[test]
fn a_shutdown_ends_all_that_it_had() {
    isolated("a_shutdown_ends_all_that_it_had", || {
        let runtime = runtime(1);
        let before = (threads(), fds());
        let inspector = inspect(runtime.handle());
        let addr = inspector.local_addr();
        let mut events = Events::ask(addr);
        events.next();
        let silent = Client::connect(addr);
        inspector.shutdown();
        assert!(is_refused(addr));
        let said = events.0.end();
        assert!(!said.contains("event: end"), "the runtime goes on: {said}");
        silent.end();
        eventually("all is as it was", || (threads(), fds()) == before);
        // And again, at the same address.
        let inspector = Inspector::builder(runtime.handle()).serve(addr).unwrap();
        assert_eq!(get(inspector.local_addr(), "/").status, 200);
        inspector.shutdown();
    });
}

#[test]
fn what_cannot_be_served_is_an_error() {
    let _alarm = alarm();
    assert!(inspect::serve(ANY_PORT).is_err(), "in no runtime");
    let runtime = runtime(1);
    let taken = TcpListener::bind(ANY_PORT).unwrap();
    let error = runtime.block_on(async { inspect::serve(taken.local_addr().unwrap()) });
    assert_eq!(error.unwrap_err().kind(), ErrorKind::AddrInUse);
    let none: &[SocketAddr] = &[];
    let error = Inspector::builder(runtime.handle()).serve(none);
    assert_eq!(error.unwrap_err().kind(), ErrorKind::InvalidInput);
    let handle = runtime.handle().clone();
    drop(runtime);
    assert!(Inspector::builder(&handle).serve(ANY_PORT).is_err());
}

#[test]
fn from_a_worker_it_is_started_as_from_elsewhere() {
    let _alarm = alarm();
    let runtime = runtime(1);
    let inspector = runtime.block_on(async {
        let task = tourbillon::spawn(async { inspect::serve(ANY_PORT) });
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

/// The nice value, the policy (0 is the usual one) and the affinity mask of each of this process's threads whose names
/// begin so.
fn threads_named(name: &str) -> Vec<(i64, i64, String)> {
    let tasks = fs::read_dir("/proc/self/task").unwrap();
    let all = tasks.filter_map(|task| {
        let dir = task.unwrap().path();
        let stat = fs::read_to_string(dir.join("stat")).ok()?;
        let status = fs::read_to_string(dir.join("status")).ok()?;
        let (before, after) = stat.rsplit_once(')')?;
        // The 19th and the 41st of all fields, of which two stand before.
        let field = |at: usize| after.split_whitespace().nth(at - 3)?.parse().ok();
        let (nice, policy) = (field(19)?, field(41)?);
        let cores = status
            .lines()
            .find(|line| line.starts_with("Cpus_allowed:"))?;
        let is_named = before.split_once('(')?.1.starts_with(name);
        is_named.then(|| (nice, policy, cores.to_owned()))
    });
    all.collect()
}

#[test]
fn its_threads_let_others_go_first_and_are_on_no_core_of_their_own() {
    isolated(
        "its_threads_let_others_go_first_and_are_on_no_core_of_their_own",
        || {
            let (own, policy, cores) = threads_named("").remove(0);
            let runtime = runtime(1);
            // From a worker, which is pinned and has the nice value of others.
            let inspector = runtime.block_on(async {
                let task = tourbillon::spawn(async { inspect::serve(ANY_PORT) });
                task.await.unwrap().unwrap()
            });
            let nice = (own + 10).min(19);
            let inspecting = threads_named("inspector");
            assert_eq!(inspecting, vec![(nice, policy, cores); 2]);
            assert_eq!(threads_named("tourbillon-0")[0].0, own);
            inspector.shutdown();
        },
    );
}

#[test]
fn its_threads_have_no_real_time_priority_though_workers_do() {
    isolated(
        "its_threads_have_no_real_time_priority_though_workers_do",
        || {
            let runtime = Builder::new()
                .worker_threads(1)
                .on_thread_start(|| {
                    if std::thread::current().name() != Some("tourbillon-0") {
                        return;
                    }
                    let first = libc::sched_param { sched_priority: 1 };
                    // SAFETY: of the calling thread; the pointer is read during the call.
                    unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const first) };
                })
                .build()
                .unwrap();
            let inspector = runtime.block_on(async {
                let task = tourbillon::spawn(async { inspect::serve(ANY_PORT) });
                task.await.unwrap().unwrap()
            });
            let policies = |name| -> Vec<_> {
                let threads = threads_named(name).into_iter();
                threads.map(|(_, policy, _)| policy).collect()
            };
            if policies("tourbillon-0") == [i64::from(libc::SCHED_FIFO)] {
                assert_eq!(policies("inspector"), [i64::from(libc::SCHED_OTHER); 2]);
            } else {
                eprintln!("skipped: this process may have no real-time priorities");
            }
            inspector.shutdown();
        },
    );
}
