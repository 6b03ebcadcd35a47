use backon::{FibonacciBuilder, Retryable};
use tourbillon::time::sleep;
use tourbillon_matrix::Case;

use crate::common::{BRIEF, done_at_third_call};

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
    let work = done_at_third_call();
    let delays = FibonacciBuilder::default().with_min_delay(BRIEF);
    assert_eq!(work.retry(delays).sleep(sleep).await, Ok("done"));
}
