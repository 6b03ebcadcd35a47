//! A program for tokio-console to watch, until it is killed. Its argument is the address at which
//! console-subscriber listens.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use tokio::{
    sync::Semaphore,
    task::{Builder, yield_now},
    time::{interval, sleep},
};
use tracing_subscriber::prelude::*;

#[tokio::main(worker_threads = 2)]
async fn main() {
    let addr: SocketAddr = std::env::args().nth(1).unwrap().parse().unwrap();
    let layer = console_subscriber::ConsoleLayer::builder()
        .server_addr(addr)
        .publish_interval(Duration::from_millis(100))
        .spawn();
    tracing_subscriber::registry().with(layer).init();
    let permits = Arc::new(Semaphore::new(1));
    let named = Builder::new();
    // It is polled six times, and then waits for ever.
    let yields = async {
        for _ in 0..5 {
            yield_now().await;
        }
        std::future::pending::<()>().await;
    };
    named.name("yields five times").spawn(yields).unwrap();
    let ticks = async {
        loop {
            sleep(Duration::from_millis(20)).await;
        }
    };
    named.name("sleeps again and again").spawn(ticks).unwrap();
    let ticks = async {
        let mut interval = interval(Duration::from_millis(20));
        loop {
            interval.tick().await;
        }
    };
    named.name("ticks again and again").spawn(ticks).unwrap();
    let kept = permits.clone().acquire_owned().await.unwrap();
    let waits = async move {
        let _permit = permits.acquire().await;
    };
    let waits = named.name("waits for a permit").spawn(waits).unwrap();
    waits.await.unwrap();
    drop(kept);
}
