//! Crates for tokio, each with a real exchange in a task of Tourbillon: as it is, and with
//! `enable_tokio`. Each case states its results, and the run checks them. `run.sh` runs all cases
//! and prints the table of `docs/guide/migrating.md`.

mod axum;
mod backon;
mod common;
mod deadpool;
mod hyper_rustls;
mod hyper_util;
mod lapin;
mod moka;
mod notify;
mod opentelemetry;
mod quinn;
mod quinn_runtime;
mod redis;
mod reqwest;
mod rumqttc;
mod sqlx;
mod together;
mod tokio_postgres;
mod tokio_retry;
mod tokio_stream;
mod tokio_tungstenite;
mod tokio_util;
mod tonic;
mod tower;

use std::process::ExitCode;

use ::axum::Router;
use tourbillon::net::TcpListener;

/// Serves a router in a task, with Tourbillon's own server.
fn serve(listener: TcpListener, router: Router) {
    tourbillon::spawn(tourbillon::axum::serve(listener, router).into_future());
}

/// The start of tokio's message where its runtime is missing.
const NO_REACTOR: &str = "there is no reactor running";

fn main() -> ExitCode {
    let modules = [
        axum::cases(),
        backon::cases(),
        deadpool::cases(),
        hyper_rustls::cases(),
        hyper_util::cases(),
        lapin::cases(),
        moka::cases(),
        notify::cases(),
        opentelemetry::cases(),
        quinn::cases(),
        quinn_runtime::cases(),
        redis::cases(),
        reqwest::cases(),
        rumqttc::cases(),
        sqlx::cases(),
        tokio_postgres::cases(),
        tokio_retry::cases(),
        tokio_stream::cases(),
        tokio_tungstenite::cases(),
        tokio_util::cases(),
        tonic::cases(),
        tower::cases(),
        together::cases(),
    ];
    tourbillon_matrix::run(modules.into_iter().flatten().collect())
}
