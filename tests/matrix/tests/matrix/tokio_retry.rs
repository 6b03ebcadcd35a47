use std::sync::atomic::{AtomicU32, Ordering};

use tokio_retry::{Retry, strategy::FixedInterval};
use tourbillon_matrix::Case;

use crate::{NO_REACTOR, common::BRIEF};

pub fn cases() -> Vec<Case> {
    vec![
        Case::new("tokio-retry", "two retries", |_| retry())
            .panics(NO_REACTOR)
            .because("it sleeps by tokio; or use backon"),
    ]
}

async fn retry() {
    let calls = AtomicU32::new(0);
    let work = || async {
        match calls.fetch_add(1, Ordering::Relaxed) {
            2 => Ok("done"),
            _ => Err("not yet"),
        }
    };
    assert_eq!(
        Retry::start(FixedInterval::new(BRIEF), work).await,
        Ok("done")
    );
}
