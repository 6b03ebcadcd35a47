use std::sync::atomic::{AtomicU32, Ordering};

use backon::{FibonacciBuilder, Retryable};
use tourbillon::time::sleep;
use tourbillon_matrix::Case;

use crate::common::BRIEF;

pub fn cases() -> Vec<Case> {
    vec![
        Case::new(
            "backon",
            "two retries, with `.sleep(tourbillon::time::sleep)`",
            |_| retry(),
        )
        .because("its default feature `tokio-sleep` needs the companion"),
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
    let delays = FibonacciBuilder::default().with_min_delay(BRIEF);
    assert_eq!(work.retry(delays).sleep(sleep).await, Ok("done"));
}
