use axum::{Router, routing::get};
use tokio::time::sleep;
use tourbillon_matrix::Case;

use crate::common::{AGES, BRIEF, serve};

pub fn cases() -> Vec<Case> {
    vec![Case::new(
        "reqwest",
        "HTTP/1.1, and a request that times out",
        |_| exchange(),
    )]
}

async fn exchange() {
    let silent = || async {
        sleep(AGES).await;
        "too late"
    };
    let router = Router::new()
        .route("/", get(|| async { "hello" }))
        .route("/silent", get(silent));
    let addr = serve(router).await;
    let client = reqwest::Client::new();
    for _ in 0..2 {
        let response = client.get(format!("http://{addr}/")).send().await.unwrap();
        assert_eq!(response.text().await.unwrap(), "hello");
    }
    let request = client.get(format!("http://{addr}/silent")).timeout(BRIEF);
    assert!(request.send().await.unwrap_err().is_timeout());
}
