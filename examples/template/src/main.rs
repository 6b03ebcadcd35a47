//! Reminders over HTTP.

mod reminders;

use std::{env, io, time::Duration};

use axum::{
    Json, Router,
    extract::{Path, State},
    http::{StatusCode, header},
    response::IntoResponse,
    routing::{get, post},
};
use reminders::Reminders;
use tourbillon::{Handle, net::TcpListener, signal};

#[tourbillon::main]
async fn main() -> io::Result<()> {
    let address = env::args().nth(1);
    let address = address.as_deref().unwrap_or("127.0.0.1:8080");
    let listener = TcpListener::bind(address).await?;
    println!("http://{}", listener.local_addr()?);
    tourbillon_axum::serve(listener, router())
        .with_graceful_shutdown(async { signal::ctrl_c().await.unwrap_or(()) })
        .await
}

fn router() -> Router {
    Router::new()
        .route("/reminders/{number}", post(add).delete(cancel))
        .route("/due", get(due))
        .route("/metrics", get(metrics))
        .with_state(Reminders::default())
}

/// Arms a reminder whose text is the body, after a number of seconds.
async fn add(State(reminders): State<Reminders>, Path(secs): Path<u32>, text: String) -> String {
    let number = reminders.add(Duration::from_secs(secs.into()), text);
    number.to_string()
}

async fn cancel(State(reminders): State<Reminders>, Path(number): Path<u64>) -> StatusCode {
    match reminders.cancel(number) {
        true => StatusCode::NO_CONTENT,
        false => StatusCode::NOT_FOUND,
    }
}

/// Lists the reminders that are due, oldest first.
async fn due(State(reminders): State<Reminders>) -> Json<Vec<String>> {
    Json(reminders.due())
}

async fn metrics() -> impl IntoResponse {
    let text = tourbillon_exporters::prometheus(&Handle::current().metrics());
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text)
}

#[cfg(test)]
mod tests {
    use axum::{
        body::{Body, to_bytes},
        http::Request,
    };
    use tourbillon::time::sleep;
    use tower::ServiceExt;

    use super::*;

    /// Sends a request without a socket, and returns the body of the response.
    async fn ask(router: &Router, method: &str, path: &str, body: &'static str) -> String {
        let request = Request::builder().method(method).uri(path);
        let request = request.body(Body::from(body)).unwrap();
        let response = router.clone().oneshot(request).await.unwrap();
        assert!(response.status().is_success(), "{}", response.status());
        let bytes = to_bytes(response.into_body(), usize::MAX).await.unwrap();
        String::from_utf8(bytes.to_vec()).unwrap()
    }

    #[tourbillon::test(start_paused = true)]
    async fn a_request_arms_a_reminder() {
        let router = router();
        assert_eq!(ask(&router, "POST", "/reminders/3600", "tea").await, "0");
        assert_eq!(ask(&router, "GET", "/due", "").await, "[]");
        sleep(Duration::from_secs(3601)).await;
        assert_eq!(ask(&router, "GET", "/due", "").await, "[\"tea\"]");
    }

    #[tourbillon::test(start_paused = true)]
    async fn the_metrics_count_the_reminders() {
        let router = router();
        ask(&router, "POST", "/reminders/3600", "tea").await;
        let text = ask(&router, "GET", "/metrics", "").await;
        assert!(text.contains("tourbillon_timers_pending"), "{text}");
    }
}
