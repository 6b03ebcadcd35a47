//! Requests that retry and discard dead jobs.

use axum::{
    Json,
    extract::{State, rejection::JsonRejection},
    response::{IntoResponse, Response},
};
use serde::Deserialize;
use tourbillon_jobs::{
    Queue,
    store::{DeadJobs, DeadPart, Store},
};

use crate::Refusal;

/// Which dead jobs a client chooses.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Chosen {
    #[serde(default)]
    search: String,
    kind: Option<String>,
    queue: Option<String>,
    after: Option<String>,
    /// Without it, as many as the library changes at most.
    #[serde(default)]
    limit: usize,
}

impl From<Chosen> for DeadJobs {
    fn from(chosen: Chosen) -> Self {
        Self {
            search: chosen.search,
            kind: chosen.kind,
            queue: chosen.queue,
            after: chosen.after,
            limit: chosen.limit,
        }
    }
}

fn part(part: DeadPart) -> Response {
    let body = serde_json::json!({ "changed": part.changed, "after": part.after });
    Json(body).into_response()
}

pub(super) async fn retry<S: Store>(
    State(queue): State<Queue<S>>,
    body: Result<Json<Chosen>, JsonRejection>,
) -> Result<Response, Refusal> {
    let Json(chosen) = body?;
    Ok(part(queue.retry_dead(chosen.into()).await?))
}

pub(super) async fn discard<S: Store>(
    State(queue): State<Queue<S>>,
    body: Result<Json<Chosen>, JsonRejection>,
) -> Result<Response, Refusal> {
    let Json(chosen) = body?;
    Ok(part(queue.discard_dead(chosen.into()).await?))
}
