use std::{
    convert::Infallible,
    future::{Ready, pending, ready},
    time::Instant,
};

use tourbillon_matrix::Case;
use tower::{
    Service, ServiceExt,
    buffer::Buffer,
    limit::{ConcurrencyLimit, RateLimit, rate::Rate},
    retry::{Policy, Retry},
    service_fn,
    timeout::{Timeout, error::Elapsed},
};

use crate::common::BRIEF;

pub fn cases() -> Vec<Case> {
    vec![
        Case::new(
            "tower",
            "`Retry`, `ConcurrencyLimit`, `Buffer::pair`",
            |_| retry(),
        )
        .and(|_| limit())
        .and(|_| pair()),
        Case::new("tower", "`Timeout`, `RateLimit`, `Buffer::new`", |_| {
            timeout()
        })
        .and(|_| rate())
        .and(|_| buffer()),
    ]
}

async fn double(number: u32) -> Result<u32, Infallible> {
    Ok(2 * number)
}

/// A policy that retries with the next number, at most this many times.
#[derive(Clone)]
struct Next(u32);

impl<E> Policy<u32, u32, E> for Next {
    type Future = Ready<()>;

    fn retry(&mut self, request: &mut u32, result: &mut Result<u32, E>) -> Option<Ready<()>> {
        self.0 = self.0.checked_sub(1)?;
        *request += 1;
        result.is_err().then(|| ready(()))
    }

    fn clone_request(&mut self, request: &u32) -> Option<u32> {
        Some(*request)
    }
}

async fn retry() {
    let picky = service_fn(async |number| {
        if number < 3 {
            Err("too small")
        } else {
            Ok(number)
        }
    });
    assert_eq!(Retry::new(Next(5), picky).oneshot(1).await, Ok(3));
    assert_eq!(
        Retry::new(Next(1), picky).oneshot(1).await,
        Err("too small")
    );
}

async fn limit() {
    let mut limited = ConcurrencyLimit::new(service_fn(double), 1);
    let first = limited.ready().await.unwrap().call(1);
    let mut other = limited.clone();
    let second = tokio::spawn(async move { other.ready().await.unwrap().call(2).await });
    assert_eq!(first.await.unwrap(), 2);
    assert_eq!(second.await.unwrap().unwrap(), 4);
}

async fn pair() {
    let (buffer, worker) = Buffer::pair(service_fn(double), 4);
    tokio::spawn(worker);
    assert_eq!(buffer.oneshot(1).await.unwrap(), 2);
}

async fn timeout() {
    let silent = service_fn(|()| pending::<Result<(), Infallible>>());
    let error = Timeout::new(silent, BRIEF).oneshot(()).await.unwrap_err();
    assert!(error.is::<Elapsed>());
}

async fn rate() {
    let start = Instant::now();
    let mut limited = RateLimit::new(service_fn(double), Rate::new(1, BRIEF));
    for number in 0..3 {
        assert_eq!(
            limited.ready().await.unwrap().call(number).await,
            Ok(2 * number)
        );
    }
    assert!(start.elapsed() >= 2 * BRIEF);
}

async fn buffer() {
    let buffer = Buffer::new(service_fn(double), 4);
    assert_eq!(buffer.oneshot(1).await.unwrap(), 2);
}
