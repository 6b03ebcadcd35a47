use std::{net::SocketAddr, time::Duration};

use tokio_stream::wrappers::TcpListenerStream;
use tonic::{
    service::Routes,
    transport::{Channel, Endpoint, Server},
};
use tonic_health::{
    ServingStatus,
    pb::{HealthCheckRequest, health_client::HealthClient},
    server::health_reporter,
};
use tourbillon_matrix::Case;

use crate::common;

pub fn cases() -> Vec<Case> {
    vec![
        Case::new("tonic", "`Channel`: a call with a timeout", |_| async {
            call(serve().await).await;
        }),
        Case::new("tonic", "`transport::Server`", |_| async {
            call(own_server().await).await;
        }),
    ]
}

async fn routes() -> Routes {
    let (reporter, service) = health_reporter();
    reporter
        .set_service_status("", ServingStatus::Serving)
        .await;
    Routes::new(service)
}

/// Serves gRPC with axum's server.
async fn serve() -> SocketAddr {
    common::serve(routes().await.into_axum_router()).await
}

/// Connects. Calls have a timeout.
pub async fn connect(addr: SocketAddr) -> Channel {
    let endpoint = Endpoint::new(format!("http://{addr}")).unwrap();
    endpoint
        .timeout(Duration::from_secs(30))
        .connect()
        .await
        .unwrap()
}

async fn call(addr: SocketAddr) {
    check(connect(addr).await).await;
}

/// Serves gRPC with tonic's own server.
pub async fn own_server() -> SocketAddr {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let server = Server::builder().add_routes(routes().await);
    tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
    addr
}

/// Makes a call.
pub async fn check(channel: Channel) {
    let request = HealthCheckRequest {
        service: String::new(),
    };
    let response = HealthClient::new(channel).check(request).await.unwrap();
    assert_eq!(response.into_inner().status, ServingStatus::Serving as i32);
}
