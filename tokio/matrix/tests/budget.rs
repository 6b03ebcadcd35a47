//! What a loop over a channel that is always ready means for a timeout.

use std::time::Duration;

use tokio::{task::consume_budget, time::timeout};

#[tokio::test]
async fn a_timeout_ends_a_loop_that_takes_from_the_budget() {
    let (sender, mut receiver) = tokio::sync::mpsc::unbounded_channel();
    let looping = async {
        while sender.send(()).is_ok() {
            receiver.recv().await;
            consume_budget().await;
        }
    };
    assert!(timeout(Duration::from_millis(1), looping).await.is_err());
}
