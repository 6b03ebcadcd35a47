//! Exchanges by unmodified crates for tokio, on Tourbillon under tokio's name. Prints a table of
//! those that work.

mod common;
mod deadpool;
mod hyper_util;
mod lapin;
mod moka;
mod notify;
mod opentelemetry;
mod quinn;
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
        tokio_tungstenite::cases(),
        tokio_util::cases(),
        tonic::cases(),
        tower::cases(),
        together::cases(),
    ];
    tourbillon_matrix::run(modules.into_iter().flatten().collect())
}
