//! Polls have the budget of tokio's channels, so a loop over a channel that is always ready returns
//! to the runtime.

use std::{
    future::Future,
    pin::pin,
    task::{Context, Poll, Waker},
    time::Duration,
};

use tokio::{
    runtime::{Builder, LocalRuntime, Runtime},
    sync::mpsc::unbounded_channel,
    task::{
        JoinSet, LocalSet, block_in_place, consume_budget, coop::has_budget_remaining, spawn_local,
        unconstrained, yield_now,
    },
    time::timeout,
};

/// Receives from a channel that is always ready, without an end.
async fn busy() {
    let (sender, mut receiver) = unbounded_channel();
    while sender.send(()).is_ok() {
        receiver.recv().await;
    }
}

async fn is_ended_by_a_timeout() -> bool {
    timeout(Duration::from_millis(1), busy()).await.is_err()
}

/// Returns how many of 1,000 messages can be received in one poll.
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
    let multi = Runtime::new().unwrap();
    let current = Builder::new_current_thread().enable_all().build().unwrap();
    for runtime in [&multi, &current] {
        assert!(runtime.block_on(is_ended_by_a_timeout()));
        let task = runtime.spawn(is_ended_by_a_timeout());
        assert!(runtime.block_on(task).unwrap());
        let local = LocalSet::new();
        let task = local.spawn_local(is_ended_by_a_timeout());
        assert!(local.block_on(runtime, task).unwrap());
        let mut set = JoinSet::new();
        set.spawn_on(is_ended_by_a_timeout(), runtime.handle());
        assert!(runtime.block_on(set.join_next()).unwrap().unwrap());
    }
    let local = LocalRuntime::new().unwrap();
    assert!(local.block_on(async { spawn_local(is_ended_by_a_timeout()).await.unwrap() }));
}

/// Spends all units of the calling task, and returns how many there were.
async fn spend_all() -> u32 {
    let mut units = 0;
    while has_budget_remaining() {
        consume_budget().await;
        units += 1;
    }
    units
}

#[tokio::test]
async fn the_functions_of_the_budget_and_the_channels_spend_one() {
    yield_now().await;
    assert!((100..=128).contains(&spend_all().await));
    assert_eq!(received_in_one_poll().await, 0);
    yield_now().await;
    received_in_one_poll().await;
    assert!(!has_budget_remaining());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn what_blocks_has_no_budget() {
    let task = tokio::spawn(async {
        spend_all().await;
        let (sender, mut receiver) = unbounded_channel();
        sender.send(1).unwrap();
        // An executor that is no task never gets a new budget.
        block_in_place(|| pin!(receiver.recv()).poll(&mut Context::from_waker(Waker::noop())))
    });
    assert_eq!(task.await.unwrap(), Poll::Ready(Some(1)));
}

#[test]
fn a_thread_has_no_budget_after_block_on() {
    let runtime = Builder::new_current_thread().build().unwrap();
    runtime.block_on(spend_all());
    assert!(has_budget_remaining());
    let received = pin!(received_in_one_poll()).poll(&mut Context::from_waker(Waker::noop()));
    assert_eq!(received, Poll::Ready(1_000));
}

#[test]
fn each_poll_has_a_new_budget_and_blocking_jobs_have_none() {
    let runtime = Runtime::new().unwrap();
    let task = runtime.spawn(async {
        let first = received_in_one_poll().await;
        yield_now().await;
        (first, received_in_one_poll().await)
    });
    assert_eq!(runtime.block_on(task).unwrap(), (128, 128));
    let free = runtime.spawn(unconstrained(received_in_one_poll()));
    assert_eq!(runtime.block_on(free).unwrap(), 1_000);
    let job = runtime.spawn_blocking(|| {
        let mut cx = Context::from_waker(Waker::noop());
        pin!(received_in_one_poll()).poll(&mut cx)
    });
    assert_eq!(runtime.block_on(job).unwrap(), Poll::Ready(1_000));
}
