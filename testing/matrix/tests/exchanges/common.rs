//! Parts that several cases share.

use std::{
    future::{Ready, ready},
    net::SocketAddr,
    time::Duration,
};

use axum::Router;
use tokio::net::TcpListener;

/// A wait that tests have to cut short.
pub const AGES: Duration = Duration::from_secs(600);

/// A wait that tests sit out.
pub const BRIEF: Duration = Duration::from_millis(10);

/// Returns work that fails twice and then succeeds.
pub fn done_at_third_call() -> impl FnMut() -> Ready<Result<&'static str, &'static str>> {
    let mut calls = 0;
    move || {
        calls += 1;
        ready(if calls == 3 {
            Ok("done")
        } else {
            Err("not yet")
        })
    }
}

/// Binds a listener to a free port.
pub async fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    (listener, addr)
}

/// Serves a router in a task, with axum's own server.
pub async fn serve(router: Router) -> SocketAddr {
    let (listener, addr) = listen().await;
    tokio::spawn(axum::serve(listener, router).into_future());
    addr
}
