//! One program that uses several crates at once: clients send numbers over WebSockets, whose server
//! asks a gateway over HTTP. The gateway asks a gRPC service whether it may answer, then Redis, and
//! then PostgreSQL.

use std::time::Duration;

use axum::{
    BoxError, Router,
    error_handling::HandleErrorLayer,
    extract::{Path, State},
    http::StatusCode,
    routing::get,
};
use futures::{SinkExt, StreamExt};
use redis::{AsyncCommands, aio::MultiplexedConnection};
use sqlx::PgPool;
use tokio::net::TcpListener;
use tokio::{task::JoinSet, time::timeout};
use tokio_tungstenite::{accept_async, connect_async, tungstenite::Message};
use tonic::transport::Channel;
use tourbillon_matrix::{Addresses, Case, Program};
use tower::{ServiceBuilder, timeout::TimeoutLayer};

use crate::{
    common::{AGES, BRIEF},
    redis as redis_case, sqlx as sqlx_case, tonic as tonic_case,
};

pub fn cases() -> Vec<Case> {
    vec![
        Case::new(
            "together",
            "WebSockets, `axum::serve` with tower's `Timeout`, reqwest, tonic, redis and sqlx \
             (PostgreSQL) in one program",
            exchange,
        )
        .needs(Program::Postgres)
        .needs(Program::Redis),
    ]
}

async fn exchange(addresses: Addresses) {
    let permits = tonic_case::own_server().await;
    let gateway = gateway(Gateway {
        permits: tonic_case::connect(permits).await,
        cache: redis_case::connect(addresses.of(Program::Redis)).await,
        database: sqlx_case::connect(addresses).await,
    })
    .await;
    let sockets = sockets(gateway.clone()).await;

    // The second round finds its answers in the cache.
    for _ in 0..2 {
        let clients: JoinSet<()> = (0..8).map(|first| client(sockets.clone(), first)).collect();
        timeout(Duration::from_secs(30), clients.join_all())
            .await
            .expect("answers in time");
    }
    let silent = reqwest::get(format!("{gateway}/silent")).await.unwrap();
    assert_eq!(silent.status(), StatusCode::GATEWAY_TIMEOUT);
}

#[derive(Clone)]
struct Gateway {
    permits: Channel,
    cache: MultiplexedConnection,
    database: PgPool,
}

/// Starts the gateway with axum's own server, and returns its URL.
async fn gateway(gateway: Gateway) -> String {
    let in_time = |limit| {
        let late = |_: BoxError| async { StatusCode::GATEWAY_TIMEOUT };
        ServiceBuilder::new()
            .layer(HandleErrorLayer::new(late))
            .layer(TimeoutLayer::new(limit))
    };
    let silent = || async { tokio::time::sleep(AGES).await };
    let router = Router::new()
        .route("/double/{number}", get(double).layer(in_time(AGES)))
        .route("/silent", get(silent).layer(in_time(BRIEF)))
        .with_state(gateway);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    tokio::spawn(axum::serve(listener, router).into_future());
    format!("http://{addr}")
}

async fn double(State(mut gateway): State<Gateway>, Path(number): Path<i64>) -> String {
    tonic_case::check(gateway.permits).await;
    let key = format!("double {number}");
    let known: Option<i64> = gateway.cache.get(&key).await.unwrap();
    let double = match known {
        Some(double) => double,
        None => {
            let double = sqlx_case::double(&gateway.database, number).await;
            let () = gateway.cache.set(&key, double).await.unwrap();
            double
        }
    };
    double.to_string()
}

/// Starts the server for WebSockets, and returns its URL.
async fn sockets(gateway: String) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let client = reqwest::Client::new();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            tokio::spawn(answer(stream, client.clone(), gateway.clone()));
        }
    });
    format!("ws://{addr}/")
}

async fn answer(stream: tokio::net::TcpStream, client: reqwest::Client, gateway: String) {
    let mut socket = accept_async(stream).await.unwrap();
    while let Some(Ok(Message::Text(number))) = socket.next().await {
        let response = client
            .get(format!("{gateway}/double/{number}"))
            .send()
            .await
            .unwrap();
        let text = response.error_for_status().unwrap().text().await.unwrap();
        socket.send(Message::text(text)).await.unwrap();
    }
}

async fn client(url: String, first: i64) {
    let (mut socket, _) = connect_async(url).await.unwrap();
    for number in first..first + 4 {
        socket
            .send(Message::text(number.to_string()))
            .await
            .unwrap();
        let answer = socket.next().await.unwrap().unwrap();
        assert_eq!(answer, Message::text((2 * number).to_string()));
    }
    socket.close(None).await.unwrap();
}
