use std::net::SocketAddr;

use axum::Router;
use http_body_util::{BodyExt, Empty};
use hyper::{Request, body::Bytes, client::conn::http2};
use hyper_util::{
    client::legacy::{Client, connect::Connect},
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
    service::TowerToHyperService,
};
use tourbillon::{
    hyper::{HttpConnector, TourbillonExecutor, TourbillonTimer},
    net::TcpStream,
};
use tourbillon_matrix::Case;

use crate::{NO_REACTOR, common};

pub fn cases() -> Vec<Case> {
    vec![
        Case::new(
            "hyper-util",
            "`client::legacy` with its `HttpConnector`",
            |_| async {
                let client = Client::builder(TokioExecutor::new()).build_http();
                exchange(client).await;
            },
        )
        .panics(NO_REACTOR)
        .because("its connector uses tokio's sockets; use the next row"),
        Case::new(
            "hyper-util",
            "`client::legacy` with `tourbillon::hyper::HttpConnector`",
            |_| async {
                let mut builder = Client::builder(TourbillonExecutor::new());
                builder.pool_timer(TourbillonTimer::new());
                exchange(builder.build(HttpConnector::new())).await;
            },
        )
        .because("with the feature `client`"),
        Case::new(
            "hyper-util",
            "`server::conn::auto` with `TokioIo`, HTTP/2",
            |_| tokio_server(),
        )
        .panics(NO_REACTOR)
        .because("use `tourbillon::net` and `tourbillon::hyper`"),
        Case::new(
            "hyper-util",
            "`server::conn::auto` with `TourbillonExecutor`, HTTP/2",
            |_| own_server(),
        ),
    ]
}

fn router() -> Router {
    Router::new().route("/", axum::routing::get(|| async { "hello" }))
}

async fn exchange<C>(client: Client<C, Empty<Bytes>>)
where
    C: Connect + Clone + Send + Sync + 'static,
{
    let addr = common::serve(router()).await;
    for _ in 0..2 {
        let uri = format!("http://{addr}/").parse().unwrap();
        let response = client.get(uri).await.unwrap();
        assert_eq!(
            response.into_body().collect().await.unwrap().to_bytes(),
            "hello"
        );
    }
}

async fn tokio_server() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    tourbillon::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let service = TowerToHyperService::new(router());
        let server = auto::Builder::new(TokioExecutor::new());
        let _ = server.serve_connection(TokioIo::new(stream), service).await;
    });
    ask(addr).await;
}

async fn own_server() {
    let (listener, addr) = common::listen().await;
    tourbillon::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let service = TowerToHyperService::new(router());
        let server = auto::Builder::new(TourbillonExecutor::new());
        let _ = server.serve_connection(stream, service).await;
    });
    ask(addr).await;
}

/// Sends a request with HTTP/2 from a Tourbillon socket.
async fn ask(addr: SocketAddr) {
    let stream = TcpStream::connect(addr).await.unwrap();
    let client = http2::handshake(TourbillonExecutor::new(), stream);
    let (mut sender, connection) = client.await.unwrap();
    tourbillon::spawn(connection);
    let request = Request::get(format!("http://{addr}/")).body(Empty::<Bytes>::new());
    let response = sender.send_request(request.unwrap()).await.unwrap();
    assert_eq!(
        response.into_body().collect().await.unwrap().to_bytes(),
        "hello"
    );
}
