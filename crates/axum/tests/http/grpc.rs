//! gRPC over HTTP/2: tonic's health service and its generated client.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use hyper::{Request, Response, body::Incoming, client::conn::http2::SendRequest};
use tonic::{Code, body::Body, service::Routes};
use tonic_health::{
    ServingStatus as Status,
    pb::{HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient},
    server::health_reporter,
};
use tourbillon::time::timeout;

use crate::{
    common::{PATIENCE, alarm, runtime},
    web::{Site, http2},
};

/// A connection of the form that tonic's clients take. Clones share it.
#[derive(Clone)]
struct Channel(SendRequest<Body>);

impl tower_service::Service<Request<Body>> for Channel {
    type Response = Response<Incoming>;
    type Error = hyper::Error;
    type Future = Pin<Box<dyn Future<Output = hyper::Result<Response<Incoming>>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<hyper::Result<()>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        Box::pin(self.0.send_request(request))
    }
}

fn about(service: &str) -> HealthCheckRequest {
    HealthCheckRequest {
        service: service.to_owned(),
    }
}

#[test]
fn health_is_checked_and_watched() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let (reporter, health) = health_reporter();
    let router = Routes::new(health).into_axum_router();
    let site = Site::start(&runtime, router);
    let (addr, url) = (site.addr, site.url(""));
    runtime.block_on(async {
        let channel = Channel(http2(addr).await);
        let mut client = HealthClient::with_origin(channel, url.parse().unwrap());
        let unknown = client.check(about("clock")).await.unwrap_err();
        assert_eq!(unknown.code(), Code::NotFound);
        reporter.set_service_status("clock", Status::Serving).await;
        let checked = client.check(about("clock")).await.unwrap().into_inner();
        assert_eq!(checked.status(), ServingStatus::Serving);

        // Each change arrives before the next is made.
        let mut other = client.clone();
        let mut changes = client.watch(about("clock")).await.unwrap().into_inner();
        let mut next = async || {
            let next = timeout(PATIENCE, changes.message()).await.unwrap();
            next.unwrap().unwrap().status()
        };
        assert_eq!(next().await, ServingStatus::Serving);
        for (status, seen) in [
            (Status::NotServing, ServingStatus::NotServing),
            (Status::Serving, ServingStatus::Serving),
        ] {
            reporter.set_service_status("clock", status).await;
            assert_eq!(next().await, seen);
            // This call runs beside the stream, on the same connection.
            let checked = other.check(about("clock")).await.unwrap().into_inner();
            assert_eq!(checked.status(), seen);
        }
        drop(changes);
        // This call is about the server itself. The stream that was given up does not delay it.
        let checked = client.check(about("")).await.unwrap().into_inner();
        assert_eq!(checked.status(), ServingStatus::Serving);
        timeout(PATIENCE, site.stop())
            .await
            .unwrap()
            .unwrap()
            .unwrap();
    });
}

#[test]
fn calls_of_many_tasks_share_a_connection() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let (_reporter, health) = health_reporter();
    let site = Site::start(&runtime, Routes::new(health).into_axum_router());
    let (addr, url) = (site.addr, site.url(""));
    runtime.block_on(async {
        let channel = Channel(http2(addr).await);
        let client = HealthClient::with_origin(channel, url.parse().unwrap());
        let calls = (0..100).map(|_| {
            let mut client = client.clone();
            tourbillon::spawn(async move {
                let checked = client.check(about("")).await.unwrap().into_inner();
                checked.status()
            })
        });
        for call in calls.collect::<Vec<_>>() {
            let status = timeout(PATIENCE, call).await.unwrap().unwrap();
            assert_eq!(status, ServingStatus::Serving);
        }
    });
}
