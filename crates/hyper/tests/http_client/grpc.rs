//! gRPC clients: tonic's `Channel` with our connectors, and generated clients over hyper-util's
//! client.

use std::{
    future::{IntoFuture, pending},
    net::SocketAddr,
    time::Duration,
};

use axum::{Router, routing::any};
use hyper::Uri;
use tonic::{
    Code, Status,
    body::Body,
    service::Routes,
    transport::{Certificate, Channel, ClientTlsConfig, Endpoint},
};
use tonic_health::{
    ServingStatus,
    pb::{HealthCheckRequest, health_check_response, health_client::HealthClient},
    server::{HealthReporter, health_reporter},
};
use tourbillon::{
    Runtime,
    net::{TcpListener, UnixListener},
    time::timeout,
};
use tourbillon_axum::{ListenerExt, serve};
use tourbillon_hyper::{FuturesIo, HttpConnector, TourbillonExecutor, UnixConnector};

use crate::{
    builder,
    common::{
        HOUR, PATIENCE, alarm, eventually,
        freed::{any_port_of_its_own, until_ok},
        message,
        panics::panics,
        process::alone,
        runtime,
        unix::Dir,
    },
    web::{SHORT, Site, tls::identity, without_tokio},
};

const SERVING: health_check_response::ServingStatus = health_check_response::ServingStatus::Serving;

/// Returns a router with the health service, and the reporter of its status.
fn health() -> (HealthReporter, Router) {
    let (reporter, service) = health_reporter();
    let router = Routes::new(service).into_axum_router();
    (reporter, without_tokio(router))
}

fn endpoint(addr: SocketAddr) -> Endpoint {
    let endpoint = Endpoint::from_shared(format!("http://{addr}")).unwrap();
    endpoint.executor(TourbillonExecutor::new())
}

async fn connect(endpoint: &Endpoint) -> Channel {
    let connecting = endpoint.connect_with_connector(HttpConnector::new());
    timeout(PATIENCE, connecting).await.unwrap().unwrap()
}

fn about(service: &str) -> HealthCheckRequest {
    HealthCheckRequest {
        service: service.to_owned(),
    }
}

/// Makes a call, and returns its status.
async fn check(client: &mut HealthClient<Channel>) -> Result<(), Status> {
    let checked = timeout(PATIENCE, client.check(about(""))).await.unwrap()?;
    assert_eq!(checked.into_inner().status(), SERVING);
    Ok(())
}

/// Starts a server whose address another one can take when it has ended.
fn restartable(runtime: &Runtime) -> Site {
    Site::at(runtime, any_port_of_its_own(), |listener, stop| {
        serve(listener, without_tokio(health().1)).with_graceful_shutdown(stop)
    })
}

#[test]
fn calls_and_streams_share_a_channel() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let (reporter, router) = health();
    let site = Site::start(&runtime, router);
    let addr = site.addr;
    runtime.block_on(async {
        let mut client = HealthClient::new(connect(&endpoint(addr)).await);
        let unknown = client.check(about("clock")).await.unwrap_err();
        assert_eq!(unknown.code(), Code::NotFound);
        reporter
            .set_service_status("clock", ServingStatus::NotServing)
            .await;
        let mut changes = client.watch(about("clock")).await.unwrap().into_inner();
        for status in [ServingStatus::Serving, ServingStatus::NotServing] {
            // Each change arrives before the next is made.
            timeout(PATIENCE, changes.message()).await.unwrap().unwrap();
            check(&mut client).await.unwrap();
            reporter.set_service_status("clock", status).await;
        }
        drop(changes);
        let calls = (0..100).map(|_| {
            let mut client = client.clone();
            tourbillon::spawn(async move { check(&mut client).await })
        });
        for call in calls.collect::<Vec<_>>() {
            timeout(PATIENCE, call).await.unwrap().unwrap().unwrap();
        }
        drop(client);
        timeout(PATIENCE, site.stop())
            .await
            .unwrap()
            .unwrap()
            .unwrap();
    });
}

#[test]
fn a_channel_connects_again_when_its_server_has_restarted() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let site = restartable(&runtime);
    let addr = site.addr;
    runtime.block_on(async {
        let channel = endpoint(addr).connect_with_connector_lazy(HttpConnector::new());
        let mut client = HealthClient::new(channel);
        check(&mut client).await.unwrap();
        timeout(PATIENCE, site.stop())
            .await
            .unwrap()
            .unwrap()
            .unwrap();
        check(&mut client).await.unwrap_err();
        let listener = until_ok(async || TcpListener::bind(addr).await).await;
        tourbillon::spawn(serve(listener, health().1).into_future());
        until_ok(async || check(&mut client).await).await;
    });
}

#[test]
fn tonic_wraps_the_connector_with_its_own_tls() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let (acceptor, pem, _) = identity();
    let site = Site::with(&runtime, |listener, stop| {
        let listener = listener.handshake(move |stream| {
            let accepted = acceptor.accept(stream);
            async { Ok(FuturesIo::new(accepted.await?)) }
        });
        serve(listener, health().1).with_graceful_shutdown(stop)
    });
    let uri = format!("https://localhost:{}", site.addr.port());
    let tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(pem));
    let endpoint = Endpoint::from_shared(uri).unwrap();
    let endpoint = endpoint.executor(TourbillonExecutor::new());
    let endpoint = endpoint.tls_config(tls).unwrap();
    let mut connector = HttpConnector::new();
    connector.enforce_http(false);
    runtime.block_on(async {
        let channel = endpoint.connect_with_connector(connector).await.unwrap();
        check(&mut HealthClient::new(channel)).await.unwrap();
    });
}

#[test]
fn a_unix_socket_serves_a_channel() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let dir = Dir::new();
    let path = dir.path("grpc");
    runtime.block_on(async {
        let listener = UnixListener::bind(&path).unwrap();
        tourbillon::spawn(serve(listener, health().1).into_future());
        let endpoint = Endpoint::from_static("http://localhost");
        let endpoint = endpoint.executor(TourbillonExecutor::new());
        let channel = endpoint.connect_with_connector(UnixConnector::new(&path));
        check(&mut HealthClient::new(channel.await.unwrap()))
            .await
            .unwrap();
    });
}

#[test]
fn our_timeout_bounds_a_call() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let silent = Router::new().fallback(any(pending::<()>));
    let site = Site::start(&runtime, silent);
    runtime.block_on(async {
        let mut client = HealthClient::new(connect(&endpoint(site.addr)).await);
        assert!(timeout(SHORT, client.check(about(""))).await.is_err());
    });
}

/// Options that use tokio's timers panic, as the page on clients says. The test runs in a process
/// of its own, since it panics.
#[test]
fn options_of_tokios_timers_panic() {
    alone(|| {
        let _alarm = alarm();
        let runtime = runtime(2);
        let site = Site::start(&runtime, health().1);
        let addr = site.addr;
        // The caller's task makes the connection, and panics.
        for endpoint in [
            endpoint(addr).connect_timeout(HOUR),
            endpoint(addr).http2_keep_alive_interval(HOUR),
            endpoint(addr).rate_limit(1, HOUR),
        ] {
            let connecting = runtime.spawn(async move { connect(&endpoint).await });
            let ended = runtime.block_on(connecting);
            assert!(no_reactor(ended.unwrap_err()));
        }
        // The channel's task makes the call. When the task ends, the caller gets an error.
        let limited: [(Endpoint, Option<Duration>); 2] = [
            (endpoint(addr).timeout(HOUR), None),
            (endpoint(addr), Some(HOUR)),
        ];
        for (endpoint, limit) in limited {
            let before = panics(&runtime);
            let call = runtime.block_on(async {
                let mut client = HealthClient::new(connect(&endpoint).await);
                let mut request = tonic::Request::new(about(""));
                if let Some(limit) = limit {
                    request.set_timeout(limit);
                }
                client.check(request).await
            });
            assert!(call.is_err());
            eventually("the panic is counted", || panics(&runtime) == before + 1);
        }
    });
}

/// Returns whether a task ended by tokio's panic.
fn no_reactor(error: tourbillon::JoinError) -> bool {
    let panic = error.into_panic();
    message(&*panic).contains("there is no reactor running")
}

#[test]
fn a_generated_client_works_over_hyper_utils_client() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let site = restartable(&runtime);
    let addr = site.addr;
    let client = builder()
        .http2_only(true)
        .http2_keep_alive_interval(HOUR)
        .build::<_, Body>(HttpConnector::new());
    let origin: Uri = site.url("").parse().unwrap();
    runtime.block_on(async {
        let mut generated = HealthClient::with_origin(client, origin);
        for _ in 0..2 {
            let checked = timeout(PATIENCE, generated.check(about(""))).await.unwrap();
            assert_eq!(checked.unwrap().into_inner().status(), SERVING);
        }
        timeout(PATIENCE, site.stop())
            .await
            .unwrap()
            .unwrap()
            .unwrap();
        // The client also connects again.
        let listener = until_ok(async || TcpListener::bind(addr).await).await;
        tourbillon::spawn(serve(listener, health().1).into_future());
        until_ok(async || generated.check(about("")).await.map(drop)).await;
    });
}
