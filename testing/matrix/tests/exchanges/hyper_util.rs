use axum::{Router, routing::get};
use http_body_util::{BodyExt, Empty};
use hyper::{Request, body::Bytes, client::conn::http2};
use hyper_util::{
    client::legacy::Client,
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
    service::TowerToHyperService,
};
use tokio::net::{TcpListener, TcpStream};
use tourbillon_matrix::Case;

use crate::common;

pub fn cases() -> Vec<Case> {
    vec![
        Case::new(
            "hyper-util",
            "`client::legacy` with its `HttpConnector`",
            |_| client(),
        ),
        Case::new(
            "hyper-util",
            "`server::conn::auto` with `TokioIo`, HTTP/2",
            |_| server(),
        ),
    ]
}

fn router() -> Router {
    Router::new().route("/", get(|| async { "hello" }))
}

async fn client() {
    let addr = common::serve(router()).await;
    let client = Client::builder(TokioExecutor::new()).build_http::<Empty<Bytes>>();
    for _ in 0..2 {
        let uri = format!("http://{addr}/").parse().unwrap();
        let body = client.get(uri).await.unwrap().into_body();
        assert_eq!(body.collect().await.unwrap().to_bytes(), "hello");
    }
}

async fn server() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let server = auto::Builder::new(TokioExecutor::new());
        let service = TowerToHyperService::new(router());
        let _ = server.serve_connection(TokioIo::new(stream), service).await;
    });
    let stream = TokioIo::new(TcpStream::connect(addr).await.unwrap());
    let client = http2::handshake(TokioExecutor::new(), stream);
    let (mut sender, connection) = client.await.unwrap();
    tokio::spawn(connection);
    let request = Request::get(format!("http://{addr}/")).body(Empty::<Bytes>::new());
    let response = sender.send_request(request.unwrap()).await.unwrap();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(body, "hello");
}
