//! Exchanges by unmodified crates, on Tourbillon under tokio's name. Most are those of
//! `tests/matrix`. Three modules are of their own, since the others use parts of Tourbillon that
//! need tokio.

#[path = "../../../../tests/matrix/tests/matrix/common.rs"]
#[allow(
    dead_code,
    reason = "shared with another program, which uses all of it"
)]
mod common;
#[path = "../../../../tests/matrix/tests/matrix/deadpool.rs"]
mod deadpool;
mod hyper_util;
#[path = "../../../../tests/matrix/tests/matrix/lapin.rs"]
mod lapin;
#[path = "../../../../tests/matrix/tests/matrix/moka.rs"]
mod moka;
#[path = "../../../../tests/matrix/tests/matrix/notify.rs"]
mod notify;
#[path = "../../../../tests/matrix/tests/matrix/opentelemetry.rs"]
mod opentelemetry;
#[path = "../../../../tests/matrix/tests/matrix/quinn.rs"]
mod quinn;
#[path = "../../../../tests/matrix/tests/matrix/redis.rs"]
mod redis;
#[path = "../../../../tests/matrix/tests/matrix/reqwest.rs"]
mod reqwest;
#[path = "../../../../tests/matrix/tests/matrix/rumqttc.rs"]
mod rumqttc;
#[path = "../../../../tests/matrix/tests/matrix/sqlx.rs"]
mod sqlx;
mod tokio_postgres;
#[path = "../../../../tests/matrix/tests/matrix/tokio_retry.rs"]
mod tokio_retry;
#[path = "../../../../tests/matrix/tests/matrix/tokio_stream.rs"]
mod tokio_stream;
mod tokio_util;
#[path = "../../../../tests/matrix/tests/matrix/tower.rs"]
mod tower;

use std::process::ExitCode;

use axum::Router;
use tourbillon::net::TcpListener;

/// Not used here: all exchanges have to work.
const NO_REACTOR: &str = "there is no reactor running";

/// Serves a router in a task, with axum's own server.
fn serve(listener: TcpListener, router: Router) {
    let listener = listener.into_std().expect("a socket of the system");
    let listener = tokio::net::TcpListener::from_std(listener).expect("it is nonblocking");
    tokio::spawn(axum::serve(listener, router).into_future());
}

fn main() -> ExitCode {
    let modules = [
        deadpool::cases(),
        hyper_util::cases(),
        lapin::cases(),
        moka::cases(),
        notify::cases(),
        opentelemetry::cases(),
        quinn::cases(),
        redis::cases(),
        reqwest::cases(),
        rumqttc::cases(),
        sqlx::cases(),
        tokio_postgres::cases(),
        tokio_retry::cases(),
        tokio_stream::cases(),
        tokio_util::cases(),
        tower::cases(),
    ];
    tourbillon_matrix::run(modules.into_iter().flatten().collect())
}
