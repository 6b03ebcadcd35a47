//! Callbacks that misbehave, and the metrics for Prometheus.

use std::{
    future::pending,
    io::Write,
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use axum::{
    Router,
    body::Body,
    http::{Request, StatusCode, header},
};
use http_body_util::BodyExt;
use tourbillon::{runtime::Builder, time::sleep};
use tourbillon_axum::SameOrigin;
use tourbillon_jobs::{
    Attempt, Backoff, Failure, Node, Queue, node::NodeBuilder, sqlite::Sqlite, store::Store,
};
use tourbillon_jobs_server::{metrics_router, router};
use tourbillon_support::{Gate, clients::have};
use tower_service::Service;

use crate::support::{
    Dir, HOUR, PATIENCE, live, new, on_file, on_file_with_two_threads, soon, unbounded_channel,
};

/// A node whose jobs fail once, and are dead then, if their keys begin with `fails`.
fn failing<S: Store>(
    queue: &Queue<S>,
    options: impl FnOnce(NodeBuilder<S>) -> NodeBuilder<S>,
) -> Node<S> {
    let node = Node::builder(queue.clone()).backoff(Backoff {
        attempts: 1,
        ..Backoff::default()
    });
    options(node).start(|attempt| async move {
        match attempt.key.starts_with("fails") {
            true => Err(Failure::retry("on purpose")),
            false => Ok(()),
        }
    })
}

#[test]
fn a_callback_that_blocks_stalls_nothing() {
    on_file_with_two_threads(async |queue| {
        let (gate, told) = (Gate::default(), Arc::new(AtomicU64::new(0)));
        let (began, mut begins) = unbounded_channel();
        let (waits, counts) = (gate.clone(), told.clone());
        let node = failing(&queue, |node| {
            node.on_error(move |_| {
                let _ = began.send(());
                waits.wait();
                counts.fetch_add(1, Ordering::Relaxed);
            })
        });
        queue.schedule("fails", Duration::ZERO, "").await.unwrap();
        begins.recv().await.unwrap();
        // While that call blocks, attempts begin and end, more of them than may wait for a call.
        let jobs = (0..1100).map(|number| new(format!("fails-{number}"), Duration::ZERO));
        queue.store().schedule(jobs.collect()).await.unwrap();
        live(&queue, 0).await;
        queue.schedule("works", Duration::ZERO, "").await.unwrap();
        live(&queue, 0).await;
        soon("for the answers to the ends", async {
            while node.stats().running > 0 {
                sleep(Duration::from_millis(2)).await;
            }
        })
        .await;
        let (stats, before) = (node.stats(), told.load(Ordering::Relaxed));
        // First, as a failed test would wait at the gate otherwise.
        gate.open();
        assert_eq!((stats.failed, stats.done, stats.dead), (1101, 1, 1101));
        assert_eq!((stats.untold, before), (76, 0));
        // The stop waits for the calls.
        assert!(node.stop(PATIENCE).await);
        assert_eq!(told.load(Ordering::Relaxed), 1025);
    });
}

#[test]
fn a_stop_waits_for_a_callback_for_its_limit_only() {
    on_file_with_two_threads(async |queue| {
        let gate = Gate::default();
        let (began, mut begins) = unbounded_channel();
        let waits = gate.clone();
        let node = failing(&queue, |node| {
            node.on_error(move |_| {
                let _ = began.send(());
                waits.wait();
            })
        });
        queue.schedule("fails", Duration::ZERO, "").await.unwrap();
        begins.recv().await.unwrap();
        while node.stats().running > 0 {
            sleep(Duration::from_millis(2)).await;
        }
        let ended = node.stop(Duration::from_secs(1)).await;
        gate.open();
        assert!(ended);
    });
}

#[test]
fn a_callback_that_panics_is_counted_and_called_again() {
    on_file(async |queue| {
        let (sender, mut told) = unbounded_channel();
        let node = failing(&queue, |node| {
            node.on_end(|_| panic!("on_end, on purpose"))
                .on_error(move |failed| {
                    let _ = sender.send(failed.key.clone());
                    panic!("on_error, on purpose");
                })
        });
        for key in ["fails-1", "fails-2", "works"] {
            queue.schedule(key, Duration::ZERO, "").await.unwrap();
            live(&queue, 0).await;
        }
        let reader = node.metrics_reader();
        assert!(node.stop(PATIENCE).await);
        assert_eq!(told.recv().await.unwrap(), "fails-1");
        assert_eq!(told.recv().await.unwrap(), "fails-2");
        assert_eq!(reader.read().total.panics, 5);
    });
}

#[cfg(feature = "tracing")]
#[test]
fn a_span_that_is_disabled_is_not_told() {
    // No test of this process has a subscriber.
    on_file(async |queue| {
        let told = Arc::new(AtomicU64::new(0));
        let tells = told.clone();
        let node = failing(&queue, |node| {
            node.on_span(move |_, _| {
                tells.fetch_add(1, Ordering::Relaxed);
            })
        });
        queue.schedule("works", Duration::ZERO, "").await.unwrap();
        live(&queue, 0).await;
        assert!(node.stop(PATIENCE).await);
        assert_eq!(told.load(Ordering::Relaxed), 0);
    });
}

#[test]
fn nothing_runs_after_the_end_of_the_runtime() {
    let (began, begins) = std::sync::mpsc::channel();
    let told = Arc::new(AtomicU64::new(0));
    let tells = told.clone();
    let dir = Dir::new();
    let runtime = Builder::new().worker_threads(2).build().unwrap();
    let reader = runtime.block_on(async {
        let queue = Queue::new(Sqlite::open(dir.store()).unwrap());
        let node = Node::builder(queue.clone())
            .on_error(move |_| {
                tells.fetch_add(1, Ordering::Relaxed);
            })
            .start(move |_| {
                let _ = began.send(());
                pending()
            });
        let jobs = (0..100).map(|number| new(format!("job-{number}"), Duration::ZERO));
        queue.store().schedule(jobs.collect()).await.unwrap();
        node.metrics_reader()
    });
    for _ in 0..100 {
        begins.recv_timeout(PATIENCE).unwrap();
    }
    drop(runtime);
    let metrics = reader.read();
    assert_eq!((metrics.total.running, metrics.kinds[0].running), (0, 0));
    // The end may drop the attempts before these learn that they are cut off.
    let told = told.load(Ordering::Relaxed);
    assert_eq!(told + metrics.total.untold, metrics.total.failed);
}

/// Asks a router for its metrics.
async fn scrape(router: &mut Router, host: &str) -> (StatusCode, String) {
    let request = Request::builder()
        .uri("/metrics")
        .header(header::HOST, host)
        .body(Body::empty());
    let answer = router.call(request.unwrap()).await.unwrap();
    let status = answer.status();
    if status == StatusCode::OK {
        let kind = &answer.headers()[header::CONTENT_TYPE];
        assert_eq!(kind, "text/plain; version=0.0.4");
    }
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

/// Checks a text by Prometheus' own tool, if it is installed.
pub fn promtool_accepts(text: &str) {
    if !have("promtool") {
        return;
    }
    let check = |text: &str| {
        let mut child = Command::new("promtool")
            .args(["check", "metrics"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // It reads to the end before it writes.
        child
            .stdin
            .take()
            .unwrap()
            .write_all(text.as_bytes())
            .unwrap();
        let output = child.wait_with_output().unwrap();
        String::from_utf8([output.stdout, output.stderr].concat()).unwrap()
    };
    // First, it must report an error.
    assert!(check("jobs_total 1\njobs_total 2\n").contains("jobs_total"));
    assert_eq!(check(text), "", "{text}");
}

async fn bomb(_: Attempt) -> Result<(), Failure> {
    panic!("on purpose")
}

#[track_caller]
fn has(text: &str, line: &str) {
    assert!(
        text.lines().any(|it| it == line),
        "`{line}` is not in {text}"
    );
}

#[test]
fn prometheus_reads_the_metrics() {
    on_file(async |queue| {
        let node = Node::builder(queue.clone())
            .backoff(Backoff {
                attempts: 1,
                ..Backoff::default()
            })
            .queue("a \"queue\" \\", 10)
            .on_kind("own", bomb)
            .on_other(|_| async { Ok(()) })
            .start_kinds();
        // There are more kinds than are counted apart.
        let jobs = (0..104).map(|number| {
            let kind = match number {
                0 => "own".to_owned(),
                1 => String::new(),
                _ => format!("kind-{number}"),
            };
            new(format!("job-{number}"), Duration::ZERO)
                .kind(kind)
                .queue("a \"queue\" \\")
        });
        queue.store().schedule(jobs.collect()).await.unwrap();
        live(&queue, 0).await;
        queue.schedule("later", HOUR, "").await.unwrap();
        queue.pause("reports").await.unwrap();
        let guard = SameOrigin::new().allow_host("jobs.example.com").unwrap();
        let metrics = metrics_router(queue.clone(), node.metrics_reader(), guard);
        let mut router = router(queue.clone()).merge(metrics);
        let (status, _) = scrape(&mut router, "evil.example.com").await;
        assert!(status.is_client_error(), "{status}");
        assert!(node.stop(PATIENCE).await);
        let (status, text) = scrape(&mut router, "jobs.example.com").await;
        assert_eq!(status, StatusCode::OK);
        promtool_accepts(&text);
        let ended = "tourbillon_jobs_attempts_ended_total{queue=\"a \\\"queue\\\" \\\\\",kind=";
        has(&text, &format!("{ended}\"own\",outcome=\"panicked\"}} 1"));
        has(&text, &format!("{ended}\"own\",outcome=\"failed\"}} 0"));
        let done: Vec<_> = text
            .lines()
            .filter_map(|line| line.strip_prefix(ended)?.split_once(",outcome=\"done\"} "))
            .collect();
        // One of their own for 102 kinds, and one for the other two.
        assert_eq!(done.len(), 103, "{text}");
        let of = |kind: &str| done.iter().find(|it| it.0 == kind).map(|it| it.1);
        assert_eq!(of("\"\",overflow=\"true\""), Some("2"));
        assert_eq!(of("\"own\""), Some("0"));
        assert_eq!(of("\"\""), Some("1"));
        for line in [
            "tourbillon_jobs_store_up 1",
            "tourbillon_jobs_has_lease 0",
            "tourbillon_jobs_leases_total 1",
            "tourbillon_jobs_answers_total{answer=\"created\"} 1",
            "tourbillon_jobs_store_errors_total{request=\"begin\"} 0",
            "tourbillon_jobs_live 1",
            "tourbillon_jobs_dead 1",
            "tourbillon_jobs_paused_queues 1",
            "tourbillon_jobs_paused{queue=\"reports\"} 1",
        ] {
            has(&text, line);
        }
        let name = "tourbillon_jobs_start_lateness_seconds";
        let labels = "queue=\"a \\\"queue\\\" \\\\\",kind=\"own\"";
        has(&text, &format!("{name}_bucket{{{labels},le=\"+Inf\"}} 1"));
        has(&text, &format!("{name}_count{{{labels}}} 1"));
    });
}

#[cfg(any(feature = "postgres", feature = "redis"))]
pub use self::away::a_node_that_is_cut_off_says_so;

#[cfg(any(feature = "postgres", feature = "redis"))]
mod away {
    use super::*;
    use crate::{
        network::behind_a_proxy,
        server::Server,
        shared::{LEASE, connect},
    };

    pub fn a_node_that_is_cut_off_says_so<S: Server>() {
        behind_a_proxy(async |_server: S, proxy| {
            let queue = connect::<S>(proxy.port()).await;
            let node = failing(&queue, |node| node.lease(LEASE));
            let reader = node.metrics_reader();
            let is = async |what: &str, is_up: bool| {
                soon(what, async {
                    loop {
                        let store = reader.read().store;
                        if (store.is_up, store.has_lease) == (is_up, is_up) {
                            break store;
                        }
                        sleep(Duration::from_millis(5)).await;
                    }
                })
                .await
            };
            let guard = SameOrigin::new();
            let mut router = metrics_router(queue.clone(), reader.clone(), guard);
            is("for a lease", true).await;
            proxy.cut();
            let store = is("for the end of the lease", false).await;
            assert!(store.last_error.is_some());
            // The metrics are there all the same.
            let (status, text) = scrape(&mut router, "localhost").await;
            assert_eq!(status, StatusCode::OK);
            promtool_accepts(&text);
            has(&text, "tourbillon_jobs_has_lease 0");
            assert!(!text.contains("tourbillon_jobs_live"), "{text}");
            assert!(reader.read().total.leases_lost > 0);
            proxy.heal();
            is("for another lease", true).await;
            // The connection of clients may still be the one that was cut.
            soon("for the number of jobs", async {
                loop {
                    let (_, text) = scrape(&mut router, "localhost").await;
                    if text.contains("\ntourbillon_jobs_live 0\n") {
                        break;
                    }
                }
            })
            .await;
            assert!(node.stop(PATIENCE).await);
        });
    }
}
