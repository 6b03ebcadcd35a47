//! A handler that blocks is reported by its method and route.

use std::{
    net::SocketAddr,
    sync::mpsc::{Receiver, channel},
    thread,
    time::Duration,
};

use axum::{
    Router,
    body::Body,
    extract::{Path, Request},
    http::StatusCode,
    routing::{any, get, post},
};
use tourbillon::{
    Runtime,
    net::TcpListener,
    runtime::{Builder, Stall},
    task::Label,
};
use tourbillon_axum::{RouteLabels, serve};
use tower_service::Service;

use crate::{
    common::{PATIENCE, alarm, net::ANY_PORT},
    web::{Client, page::request},
};

/// How long the handlers block, well beyond the threshold.
const BLOCKED: Duration = Duration::from_millis(300);

fn router() -> Router {
    let orders = Router::new().route(
        "/{id}",
        post(|Path(_): Path<u32>| async { thread::sleep(BLOCKED) }),
    );
    Router::new()
        .route("/invoice", get(|| async { thread::sleep(BLOCKED) }))
        .route("/any", any(|| async { thread::sleep(BLOCKED) }))
        .nest("/orders", orders)
        .fallback(|| async { thread::sleep(BLOCKED) })
}

fn runtime(workers: usize) -> (Runtime, Receiver<Stall>) {
    let (sender, stalls) = channel();
    let runtime = Builder::new()
        .worker_threads(workers)
        .stall_threshold(Duration::from_millis(50))
        .on_stall(move |stall| _ = sender.send(stall.clone()))
        .build()
        .unwrap();
    (runtime, stalls)
}

/// Returns the label of the next stall of a connection that is over. `None` if its job is not
/// known: on a busy machine, the peer may come too late to see it. Shorter stalls than those of the
/// handlers are left out: the machine may stop a worker that does not block.
fn label(stalls: &Receiver<Stall>) -> Option<Option<&'static str>> {
    loop {
        let stall = stalls.recv_timeout(PATIENCE).expect("it is reported");
        if stall.is_running || stall.elapsed < BLOCKED / 2 {
            continue;
        }
        match stall.job {
            Some(job) if job.name.contains("connection") => break Some(job.label),
            Some(_) => {}
            None => break None,
        }
    }
}

/// The requests have connections of their own, so that no poll has two of them.
fn check(addr: SocketAddr, stalls: &Receiver<Stall>) {
    let requests = [
        ("GET", "/invoice", Some("GET /invoice")),
        ("POST", "/orders/7", Some("POST /orders/{id}")),
        ("HEAD", "/invoice", Some("HEAD /invoice")),
        ("GET", "/invoice", Some("GET /invoice")),
        // One that is not standard has no place in a label, nor in those of later requests.
        ("BREW", "/any", Some("/any")),
        ("GET", "/any", Some("GET /any")),
        ("BREW", "/any", Some("/any")),
        ("GET", "/nothing", None),
    ];
    for (method, path, expected) in requests {
        let label = loop {
            let mut client = Client::connect(addr);
            client.send(&request(method, path, &["connection: close"]));
            client.end();
            if let Some(label) = label(stalls) {
                break label;
            }
        };
        assert_eq!(label, expected);
    }
}

#[test]
fn a_handler_that_blocks_is_reported_by_its_route() {
    let _alarm = alarm();
    // With two workers, a peer reports it; with one, the worker itself.
    for workers in [1, 2] {
        let (runtime, stalls) = runtime(workers);
        let listener = runtime.block_on(TcpListener::bind(ANY_PORT)).unwrap();
        let addr = listener.local_addr().unwrap();
        runtime.spawn(async move { serve(listener, router()).await });
        check(addr, &stalls);
    }
}

#[test]
fn a_router_that_became_something_else_has_labels_by_the_layer() {
    let _alarm = alarm();
    let (runtime, stalls) = runtime(1);
    let listener = runtime.block_on(TcpListener::bind(ANY_PORT)).unwrap();
    let addr = listener.local_addr().unwrap();
    let router = router().layer(RouteLabels);
    let service = router.into_make_service_with_connect_info::<SocketAddr>();
    runtime.spawn(async move { serve(listener, service).await });
    check(addr, &stalls);
}

#[test]
fn made_up_methods_use_up_no_labels() {
    let _alarm = alarm();
    let (runtime, _stalls) = runtime(1);
    // On each route, twice as long together as all labels of a process may be.
    let methods = (0..2048).map(|number| format!("{number:X>1024}"));
    let mut router = Router::new()
        .route("/get", get(|| async {}))
        .route("/any", any(|| async {}))
        .layer(RouteLabels);
    for method in methods {
        let expected = [
            ("/get", StatusCode::METHOD_NOT_ALLOWED),
            ("/any", StatusCode::OK),
        ];
        for (path, expected) in expected {
            let request = Request::builder().method(&*method).uri(path);
            let request = request.body(Body::empty()).unwrap();
            let response = runtime.block_on(Service::call(&mut router, request));
            assert_eq!(response.unwrap().status(), expected);
        }
    }
    // If there were too many, a further label of this length would have another text.
    let one_more = "x".repeat(1024);
    assert_eq!(Label::new(&one_more).text(), one_more);
}
