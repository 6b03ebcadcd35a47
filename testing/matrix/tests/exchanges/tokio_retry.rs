use tokio_retry::{Retry, strategy::FixedInterval};
use tourbillon_matrix::Case;

use crate::common::{BRIEF, done_at_third_call};

pub fn cases() -> Vec<Case> {
    vec![Case::new("tokio-retry", "two retries", |_| retry())]
}

async fn retry() {
    let work = done_at_third_call();
    assert_eq!(
        Retry::start(FixedInterval::new(BRIEF), work).await,
        Ok("done")
    );
}
