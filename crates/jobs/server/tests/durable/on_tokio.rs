//! The stores on servers, in a plain program for tokio.

use std::time::Duration;

use futures_lite::future::block_on;
use tokio::{runtime::Builder, sync::mpsc::unbounded_channel};
use tourbillon_jobs::Node;

use crate::{
    server::Server,
    shared::{connect, start},
    support::PATIENCE,
};

pub fn a_node_runs_jobs_on_tokio<S: Server>() {
    let Some(mut server) = start::<S>() else {
        return;
    };
    let port = server.port();
    let runtime = Builder::new_multi_thread().enable_time().build().unwrap();
    let (sender, mut ran) = unbounded_channel();
    let (queue, node) = runtime.block_on(async {
        let queue = connect::<S>(port).await;
        let node = Node::builder(queue.clone())
            .lease(Duration::from_secs(2))
            .start(move |attempt| {
                let sender = sender.clone();
                async move {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                    let _ = sender.send(attempt.key);
                    Ok(())
                }
            });
        (queue, node)
    });
    let mut next = || {
        let next = async { tokio::time::timeout(PATIENCE, ran.recv()).await };
        runtime.block_on(next).unwrap().unwrap()
    };
    runtime
        .block_on(queue.schedule("first", Duration::from_millis(5), ""))
        .unwrap();
    assert_eq!(next(), "first");
    // Connections are made again, also for callers without a runtime.
    server.crash().unwrap();
    while block_on(queue.schedule("second", Duration::ZERO, "")).is_err() {}
    while next() != "second" {}
    while block_on(queue.count()).map_or(1, |count| count.live) > 0 {}
    assert!(block_on(queue.get("second")).unwrap().is_none());
    assert!(block_on(node.stop(PATIENCE)));
}
