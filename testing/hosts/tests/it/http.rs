//! axum, and the client of hyper-util.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

use axum::{Router, routing::get};
use http_body_util::{BodyExt, Empty};
use hyper::body::Bytes;
use hyper_util::{client::legacy::Client, rt::TokioExecutor};
use tokio::{net::TcpListener, time::sleep};
use tourbillon_sim::Simulation;

#[tourbillon_sim::test(seeds = 20)]
fn axum_serves_the_client_of_hyper(sim: &mut Simulation) {
    sim.host("server", || async {
        let count = Arc::new(AtomicU64::new(0));
        let answer = move || async move {
            sleep(Duration::from_millis(10)).await;
            count.fetch_add(1, SeqCst).to_string()
        };
        let listener = TcpListener::bind("0.0.0.0:80").await?;
        axum::serve(listener, Router::new().route("/", get(answer))).await?;
        io::Result::Ok(())
    });
    sim.client("client", || async {
        let client = Client::builder(TokioExecutor::new()).build_http::<Empty<Bytes>>();
        let url: hyper::Uri = "http://server/".parse().unwrap();
        while client.get(url.clone()).await.is_err() {
            sleep(Duration::from_millis(1)).await;
        }
        let tasks = [(); 5].map(|()| {
            let (client, url) = (client.clone(), url.clone());
            tokio::spawn(async move {
                let answer = client.get(url).await.unwrap();
                let body = answer.into_body().collect().await.unwrap().to_bytes();
                String::from_utf8(body.to_vec())
                    .unwrap()
                    .parse::<u64>()
                    .unwrap()
            })
        });
        let mut numbers = Vec::new();
        for task in tasks {
            numbers.push(task.await.unwrap());
        }
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), 5, "each is counted once: {numbers:?}");
    });
}
