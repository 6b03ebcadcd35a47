//! A router with the layer, under more load than its worker can do.

use std::{
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use axum::{
    Router,
    body::Body,
    http::{Request, Response, StatusCode, header::RETRY_AFTER},
    routing::get,
};
use http_body_util::BodyExt;
use tourbillon::{Runtime, runtime::Builder, task::yield_now, time::sleep};
use tourbillon_admission::{Admission, Counts, Priority};
use tourbillon_support::PATIENCE;
use tower_service::Service;

/// A runtime with one worker, so that jobs wait for each other.
fn runtime() -> Runtime {
    Builder::new_multi_thread()
        .worker_threads(1)
        .build()
        .expect("a runtime")
}

/// A router whose handlers keep the worker busy for a while, with the layer.
fn router(admission: &Admission) -> Router {
    async fn work() -> &'static str {
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_millis(2) {}
        "done"
    }
    Router::new()
        .route("/work", get(work))
        .route("/report", get(work))
        .route("/pay", get(work))
        .route("/healthz", get(|| async { "healthy" }))
        .layer(admission.layer())
}

async fn request(router: &Router, path: &str) -> Response<Body> {
    let request = Request::get(path).body(Body::empty()).expect("a request");
    let Ok(response) = router.clone().call(request).await;
    response
}

async fn status(router: &Router, path: &str) -> StatusCode {
    request(router, path).await.status()
}

/// Sends requests by many tasks, one after the other each, while `during` runs.
async fn flood<F: Future>(router: &Router, paths: &[&'static str], during: F) -> F::Output {
    let ends = Arc::new(AtomicBool::new(false));
    let tasks: Vec<_> = (0..60)
        .map(|number| {
            let (router, ends) = (router.clone(), ends.clone());
            let path = paths[number % paths.len()];
            tourbillon::spawn(async move {
                while !ends.load(Relaxed) {
                    status(&router, path).await;
                    yield_now().await;
                }
            })
        })
        .collect();
    let output = during.await;
    ends.store(true, Relaxed);
    for task in tasks {
        task.await.expect("no panic");
    }
    output
}

/// Returns the first answer to a request that is refused.
async fn refusal(admission: &Admission, router: &Router) -> Response<Body> {
    flood(router, &["/work"], async {
        let begin = Instant::now();
        loop {
            let response = request(router, "/work").await;
            if response.status() != StatusCode::OK {
                return response;
            }
            assert!(begin.elapsed() < PATIENCE, "{admission:?}");
        }
    })
    .await
}

async fn until(what: &str, condition: impl Fn() -> bool) {
    let begin = Instant::now();
    while !condition() {
        assert!(begin.elapsed() < PATIENCE, "{what}");
        sleep(Duration::from_millis(1)).await;
    }
}

#[test]
fn requests_are_refused_while_there_is_too_much_to_do_and_taken_again_after_that() {
    runtime().block_on(async {
        let admission = Admission::start();
        let router = router(&admission);
        assert_eq!(status(&router, "/work").await, StatusCode::OK);
        assert_eq!(admission.pressure(), 0.0);

        flood(&router, &["/work"], async {
            until("no request was refused", || {
                admission.counts(Priority::Normal).refused > 100
            })
            .await;
            assert!(admission.pressure() > 0.0);
            // Health checks are answered all the time.
            for _ in 0..20 {
                assert_eq!(status(&router, "/healthz").await, StatusCode::OK);
            }
        })
        .await;

        // A request now and then is what the worker can do, so nothing is refused in the end.
        let begin = Instant::now();
        while admission.pressure() > 0.0 {
            assert!(begin.elapsed() < PATIENCE, "{admission:?}");
            status(&router, "/work").await;
            sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(status(&router, "/work").await, StatusCode::OK);
        let counts = admission.counts(Priority::Normal);
        assert!(counts.arrived > counts.refused);
        assert_eq!(admission.counts(Priority::Always), Counts::default());
    });
}

#[test]
fn a_refused_client_learns_when_to_come_back() {
    runtime().block_on(async {
        let admission = Admission::builder()
            .retry_after(Duration::from_millis(1_500))
            .start();
        let router = router(&admission);
        let refused = refusal(&admission, &router).await;
        assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(refused.headers()[RETRY_AFTER], "2");
        let body = refused.into_body().collect().await.expect("a body");
        let text = "The server has too much to do. Try again later.\n";
        assert_eq!(body.to_bytes(), text);
    });
}

#[test]
fn a_hook_writes_the_answer() {
    runtime().block_on(async {
        let admission = Admission::builder()
            .answer(|shed| {
                assert!(shed.delay > Duration::ZERO);
                let text = format!("{:?}, {} s", shed.priority, shed.retry_after.as_secs());
                let mut response = Response::new(text);
                *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
                response
            })
            .start();
        let router = router(&admission);
        let refused = refusal(&admission, &router).await;
        assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
        let body = refused.into_body().collect().await.expect("a body");
        assert_eq!(body.to_bytes(), "Normal, 1 s");
    });
}

/// A third of the requests is of each priority, and the worker does a part of one third at most.
#[test]
fn lower_priorities_are_refused_first() {
    runtime().block_on(async {
        let admission = Admission::builder()
            .priority(|request| match request.uri.path() {
                "/report" => Priority::Low,
                "/pay" => Priority::High,
                _ => Priority::Normal,
            })
            .start();
        let router = router(&admission);
        let all = ["/report", "/work", "/pay"];
        flood(&router, &all, async {
            let refused = |priority| admission.counts(priority).refused;
            until("no request of low priority was refused", || {
                refused(Priority::Low) > 1_000
            })
            .await;
            let [low, normal, high] = [Priority::Low, Priority::Normal, Priority::High]
                .map(|priority| admission.counts(priority));
            let part = |counts: Counts| counts.refused as f64 / counts.arrived as f64;
            assert!(part(low) >= part(normal), "{low:?} {normal:?}");
            assert!(part(normal) >= part(high), "{normal:?} {high:?}");
            assert!(part(low) > part(high), "{low:?} {high:?}");
        })
        .await;
    });
}

/// Requests that wait for something else than a worker are no reason to refuse others.
#[test]
fn requests_that_wait_without_a_worker_refuse_nobody() {
    runtime().block_on(async {
        let admission = Admission::start();
        let router = Router::new()
            .route("/wait", get(std::future::pending::<&'static str>))
            .layer(admission.layer());
        for _ in 0..10 {
            let waits =
                tourbillon::time::timeout(Duration::from_millis(1), request(&router, "/wait"));
            assert!(waits.await.is_err());
        }
        assert_eq!(admission.counts(Priority::Normal).arrived, 10);
        // Nothing waits for a worker, so nothing is refused.
        sleep(Duration::from_millis(300)).await;
        assert_eq!(admission.counts(Priority::Normal).refused, 0);
    });
}

/// An `Admission` outlives the runtime on which it was started.
#[test]
fn everything_is_admitted_when_the_runtime_that_measured_is_gone() {
    let first = runtime();
    let admission = first.block_on(async {
        let admission = Admission::start();
        let router = router(&admission);
        flood(&router, &["/work"], async {
            until("no request was refused", || admission.pressure() > 0.0).await;
        })
        .await;
        admission
    });
    drop(first);
    assert_eq!(admission.pressure(), 0.0);
    runtime().block_on(async {
        let router = router(&admission);
        let refused = admission.counts(Priority::Normal).refused;
        for _ in 0..20 {
            assert_eq!(status(&router, "/work").await, StatusCode::OK);
        }
        assert_eq!(admission.counts(Priority::Normal).refused, refused);
    });
}

/// The task that measures ends with the last handle and layer.
#[test]
fn nothing_is_left_when_the_last_handle_is_gone() {
    let runtime = runtime();
    let handle = runtime.handle().clone();
    runtime.block_on(async {
        let admission = Admission::start();
        let router = router(&admission);
        status(&router, "/work").await;
        drop(admission);
        assert_eq!(status(&router, "/work").await, StatusCode::OK);
        drop(router);
        until("the task is left", || {
            handle.metrics().num_alive_tasks() == 0
        })
        .await;
    });
}
