//! When a live page ends, what it leaves behind, and the threads that serve it.

use serde_json::Value;
use std::{fs, time::Duration};
use tourbillon::runtime::Builder;
use tourbillon_inspect::{Inspector, serve};

use crate::{
    client::{Events, get, inspect, inspect_with, is_refused},
    common::{alarm, eventually, fds, net::ANY_PORT, process::alone, runtime, threads},
    web::Client,
};

#[test]
fn the_page_ends_with_its_runtime() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let inspector = inspect(runtime.handle());
    let addr = inspector.local_addr();
    // The server continues when its `Inspector` is dropped.
    drop(inspector);
    let mut events = Events::ask(addr);
    events.next();
    let idle = Client::connect(addr);
    drop(runtime);
    // The stream has an event for the end of the runtime, and then the last chunk of the body.
    let said = events.0.end();
    let end = "event: end\ndata: the runtime has ended\n\n\r\n0\r\n\r\n";
    assert!(said.ends_with(end), "{said}");
    assert_eq!(idle.end(), "");
    eventually("it is gone", || is_refused(addr));
}

/// No snapshot comes after the end of the runtime. Otherwise the page would take the missing
/// workers for another runtime's, and forget what it shows.
#[test]
fn no_snapshot_is_sent_after_the_runtime_has_ended() {
    let _alarm = alarm();
    // The moment is short: without the check in the server, about one round in sixty fails.
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
fn dropped_inspectors_leak_nothing() {
    alone(|| {
        let runtime = runtime(1);
        let before = (threads(), fds());
        for _ in 0..200 {
            inspect(runtime.handle()).shutdown();
        }
        eventually("all is as it was", || (threads(), fds()) == before);
    });
}

#[test]
fn a_shutdown_closes_all_connections_and_threads() {
    alone(|| {
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
        // The page can be served again at the same address.
        let inspector = Inspector::builder(runtime.handle()).serve(addr).unwrap();
        assert_eq!(get(inspector.local_addr(), "/").status, 200);
        inspector.shutdown();
    });
}

/// Returns the nice value, the policy (0 is the usual one) and the affinity mask of each thread
/// of this process whose name begins with `name`.
fn threads_named(name: &str) -> Vec<(i64, i64, String)> {
    let tasks = fs::read_dir("/proc/self/task").unwrap();
    let all = tasks.filter_map(|task| {
        let dir = task.unwrap().path();
        let stat = fs::read_to_string(dir.join("stat")).ok()?;
        let status = fs::read_to_string(dir.join("status")).ok()?;
        let (before, after) = stat.rsplit_once(')')?;
        // These are the 19th and the 41st of all fields. Two fields come before `after`.
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
fn inspector_threads_have_low_priority_and_are_not_pinned() {
    alone(|| {
        let (own, policy, cores) = threads_named("").remove(0);
        let runtime = runtime(1);
        // Serve from a worker, which is pinned and has a nice value of its own.
        let inspector = runtime.block_on(async {
            let task = tourbillon::spawn(async { serve(ANY_PORT) });
            task.await.unwrap().unwrap()
        });
        let nice = (own + 10).min(19);
        let inspecting = threads_named("inspector");
        assert_eq!(inspecting, vec![(nice, policy, cores); 2]);
        assert_eq!(threads_named("tourbillon-0")[0].0, own);
        inspector.shutdown();
    });
}

#[test]
fn inspector_threads_do_not_inherit_real_time_priority() {
    alone(|| {
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
            let task = tourbillon::spawn(async { serve(ANY_PORT) });
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
    });
}
