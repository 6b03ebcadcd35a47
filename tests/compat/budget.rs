//! Polls by this runtime have tokio's budget.

use std::{
    future::Future,
    pin::pin,
    sync::mpsc,
    task::{Context, Poll, Waker},
    time::Duration,
};

use tokio::sync::mpsc::unbounded_channel;
use tourbillon::time::timeout;

use crate::with_companion;

/// Receives from a channel that is always ready, without an end.
async fn busy() {
    let (sender, mut receiver) = unbounded_channel();
    while sender.send(()).is_ok() {
        receiver.recv().await;
    }
}

/// Returns how many messages can be received in one poll.
async fn received_in_one_poll() -> usize {
    let (sender, mut receiver) = unbounded_channel();
    (0..1_000).for_each(|_| sender.send(()).unwrap());
    let mut cx = Context::from_waker(Waker::noop());
    let mut received = 0;
    while let Poll::Ready(Some(())) = receiver.poll_recv(&mut cx) {
        received += 1;
    }
    received
}

#[test]
fn a_timeout_ends_a_loop_over_a_channel_that_is_always_ready() {
    let runtime = with_companion();
    let looping = || async { timeout(Duration::from_millis(1), busy()).await };
    assert!(runtime.block_on(looping()).is_err());
    let task = runtime.spawn(looping());
    assert!(runtime.block_on(task).unwrap().is_err());
    let task = runtime.spawn_pinned(looping);
    assert!(runtime.block_on(task).unwrap().is_err());
}

#[test]
fn each_poll_has_a_new_budget() {
    let runtime = with_companion();
    // tokio's budget is 128. Setting it uses one unit.
    let in_task = runtime.spawn(async {
        let first = received_in_one_poll().await;
        tourbillon::task::yield_now().await;
        (first, received_in_one_poll().await)
    });
    assert_eq!(runtime.block_on(in_task).unwrap(), (127, 127));
    for _ in 0..2 {
        assert_eq!(runtime.block_on(received_in_one_poll()), 127);
    }
}

#[test]
fn callbacks_and_blocking_jobs_have_no_budget() {
    let runtime = with_companion();
    let all = || {
        let mut cx = Context::from_waker(Waker::noop());
        pin!(received_in_one_poll()).poll(&mut cx)
    };
    let (sender, receiver) = mpsc::channel();
    // The worker's last poll has used up its budget.
    let using_up = runtime.spawn(received_in_one_poll());
    runtime.block_on(using_up).unwrap();
    for _ in 0..4 {
        let sender = sender.clone();
        runtime.after(Duration::ZERO, move || sender.send(all()).unwrap());
    }
    (0..4).for_each(|_| assert_eq!(receiver.recv(), Ok(Poll::Ready(1_000))));
    let job = runtime.spawn_blocking(all);
    assert_eq!(runtime.block_on(job).unwrap(), Poll::Ready(1_000));
}

#[test]
fn a_block_on_leaves_no_budget_behind() {
    let runtime = with_companion();
    runtime.block_on(received_in_one_poll());
    let mut cx = Context::from_waker(Waker::noop());
    let after = pin!(received_in_one_poll()).poll(&mut cx);
    assert_eq!(after, Poll::Ready(1_000));
}

#[test]
fn a_block_on_within_another_keeps_the_outer_budget() {
    let (outer, inner) = (with_companion(), with_companion());
    let received = outer.block_on(async {
        inner.block_on(received_in_one_poll());
        tourbillon::task::yield_now().await;
        received_in_one_poll().await
    });
    assert_eq!(received, 127);
}
