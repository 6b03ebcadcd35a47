use tokio_retry::{Retry, strategy::FixedInterval};
use tourbillon_matrix::Case;

use crate::{
    NO_REACTOR,
    common::{BRIEF, done_at_third_call},
};

pub fn cases() -> Vec<Case> {
    vec![
        Case::new("tokio-retry", "two retries", |_| retry())
            .panics(NO_REACTOR)
            .because("it sleeps by tokio; or use backon"),
    ]
}

async fn retry() {
    let work = done_at_third_call();
    assert_eq!(
        Retry::start(FixedInterval::new(BRIEF), work).await,
        Ok("done")
    );
}
