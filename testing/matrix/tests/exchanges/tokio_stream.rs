use std::{pin::pin, time::Instant};

use tokio_stream::{StreamExt, wrappers::ReceiverStream};
use tourbillon_matrix::Case;

use crate::common::BRIEF;

pub fn cases() -> Vec<Case> {
    vec![
        Case::new("tokio-stream", "`ReceiverStream`, `map`, `take`", |_| {
            wrappers()
        }),
        Case::new("tokio-stream", "`timeout`, `throttle`", |_| timeout()).and(|_| throttle()),
    ]
}

async fn wrappers() {
    let (sender, receiver) = tokio::sync::mpsc::channel(1);
    tokio::spawn(async move {
        for number in 0.. {
            if sender.send(number).await.is_err() {
                break;
            }
        }
    });
    let doubled = ReceiverStream::new(receiver)
        .map(|number| 2 * number)
        .take(4);
    assert_eq!(doubled.collect::<Vec<u32>>().await, [0, 2, 4, 6]);
}

async fn timeout() {
    let mut silent = pin!(tokio_stream::pending::<()>().timeout(BRIEF));
    assert!(silent.next().await.unwrap().is_err());
}

async fn throttle() {
    let start = Instant::now();
    let throttled = tokio_stream::iter(0..3).throttle(BRIEF);
    assert_eq!(throttled.collect::<Vec<u32>>().await, [0, 1, 2]);
    assert!(start.elapsed() >= 2 * BRIEF);
}
