//! The HTTP API.

use std::time::Duration;

use axum::{
    Router,
    body::Body,
    http::{HeaderName, Method, Request, StatusCode, header},
};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tourbillon_axum::SameOrigin;
use tourbillon_cron::jiff::Timestamp;
use tourbillon_jobs::{Failure, Node};
use tourbillon_jobs_server as api;
use tower_service::Service;

use crate::support::{HOUR, PATIENCE, live, node, on_file, waiting};

/// Calls a router without a socket.
async fn call(
    router: &mut Router,
    method: Method,
    path: &str,
    body: Option<Value>,
) -> (StatusCode, Value) {
    let mut request = Request::builder()
        .method(method)
        .uri(path)
        .header(header::HOST, "localhost");
    if body.is_some() {
        request = request.header(header::CONTENT_TYPE, "application/json");
    }
    let body = body.map_or_else(Body::empty, |body| Body::from(body.to_string()));
    let answer = router.call(request.body(body).unwrap()).await.unwrap();
    let status = answer.status();
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    (status, serde_json::from_slice(&body).unwrap())
}

#[test]
fn queues_are_paused_and_go_on() {
    on_file(async |queue| {
        let mut router = api::router(queue.clone());
        let (status, body) = call(&mut router, Method::GET, "/paused", None).await;
        assert_eq!((status, body), (StatusCode::OK, json!([])));
        for (path, name) in [("/paused/mails", "mails"), ("/paused/a/b%20c", "a/b c")] {
            let (status, body) = call(&mut router, Method::PUT, path, None).await;
            assert_eq!((status, body), (StatusCode::OK, json!({ "paused": true })));
            let (_, body) = call(&mut router, Method::GET, "/paused", None).await;
            assert_eq!(body, json!([name]));
            assert_eq!(queue.paused().await.unwrap(), [name]);
            let (status, body) = call(&mut router, Method::DELETE, path, None).await;
            assert_eq!((status, body), (StatusCode::OK, json!({ "paused": false })));
            assert!(queue.paused().await.unwrap().is_empty());
        }
        let (status, body) = call(&mut router, Method::PUT, "/paused/a%0Ab", None).await;
        assert_eq!(status, StatusCode::BAD_REQUEST);
        assert!(body["error"].as_str().unwrap().contains("queue"), "{body}");
    });
}

#[test]
fn dead_jobs_are_retried_and_discarded() {
    on_file(async |queue| {
        let mut router = api::router(queue.clone());
        let (node, _ran) = node(&queue, |node| node, |_| Err(Failure::give_up("bad")));
        for number in 0..5 {
            let key = format!("job-{number}");
            queue.schedule(key, Duration::ZERO, "").await.unwrap();
        }
        live(&queue, 0).await;
        assert!(node.stop(PATIENCE).await);
        for (path, body, expected) in [
            (
                "retry",
                json!({ "limit": 2 }),
                json!({ "changed": 2, "after": "job-1" }),
            ),
            (
                "retry",
                json!({ "kind": "mail" }),
                json!({ "changed": 0, "after": null }),
            ),
            (
                "discard",
                json!({ "search": "3" }),
                json!({ "changed": 1, "after": null }),
            ),
            (
                "retry",
                json!({ "after": "job-2", "queue": "default" }),
                json!({ "changed": 1, "after": null }),
            ),
            ("discard", json!({}), json!({ "changed": 1, "after": null })),
        ] {
            let path = format!("/dead/{path}");
            let answer = call(&mut router, Method::POST, &path, Some(body)).await;
            assert_eq!(answer, (StatusCode::OK, expected));
        }
        let (_, counts) = call(&mut router, Method::GET, "/counts", None).await;
        assert_eq!(counts, json!({ "live": 3, "dead": 0 }));
        for path in ["/dead/retry", "/dead/discard"] {
            let bad = json!({ "state": "dead" });
            let (status, body) = call(&mut router, Method::POST, path, Some(bad)).await;
            assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{body}");
            // A form of another site can send no JSON, and a page of one is refused.
            let (status, _) = call(&mut router, Method::POST, path, None).await;
            assert_eq!(status, StatusCode::UNSUPPORTED_MEDIA_TYPE);
            let foreign = Request::post(path)
                .header(header::HOST, "localhost")
                .header(header::ORIGIN, "http://example.org")
                .header(header::CONTENT_TYPE, "application/json");
            let answer = router.call(foreign.body(Body::from("{}")).unwrap()).await;
            assert_eq!(answer.unwrap().status(), StatusCode::FORBIDDEN);
        }
    });
}

#[test]
fn a_job_is_replaced() {
    on_file(async |queue| {
        let mut router = api::router(queue.clone());
        let mut ask =
            async |body: Value| call(&mut router, Method::POST, "/jobs", Some(body)).await;
        let at = "2100-01-31T12:00:00.000000Z";
        for (status, payload) in [(StatusCode::CREATED, "a"), (StatusCode::OK, "b")] {
            let job = json!({ "key": "k", "payload": payload, "at": at, "replace": true });
            let (answered, body) = ask(job).await;
            let created = status == StatusCode::CREATED;
            let expected = json!({
                "created": created, "replaced": !created, "running": false, "at": at,
            });
            assert_eq!((answered, body), (status, expected));
            let found = queue.get("k").await.unwrap().unwrap();
            assert_eq!(found.payload, payload.as_bytes());
        }
        let (node, gate, mut ran, _ends) = waiting(&queue, |node| node, |_| Ok(()));
        ask(json!({ "key": "k", "in": "0s", "replace": true })).await;
        ran.recv().await.unwrap();
        let (status, body) = ask(json!({ "key": "k", "at": at, "replace": true })).await;
        let expected = json!({ "created": false, "replaced": true, "running": true, "at": at });
        assert_eq!((status, body), (StatusCode::OK, expected));
        gate.add_permits(1);
        assert!(node.stop(PATIENCE).await);
        let (_, body) = ask(json!({ "key": "k", "at": at, "replace": false })).await;
        assert_eq!(body, json!({ "created": false, "at": at }));
    });
}

#[test]
fn a_key_stays_taken() {
    on_file(async |queue| {
        let mut router = api::router(queue.clone());
        let mut ask =
            async |body: Value| call(&mut router, Method::POST, "/jobs", Some(body)).await;
        let (node, mut ran) = node(&queue, |node| node, |_| Ok(()));
        let job = json!({ "key": "k", "in": "0s", "unique_for": "1h" });
        assert_eq!(ask(job.clone()).await.0, StatusCode::CREATED);
        ran.recv().await.unwrap();
        live(&queue, 0).await;
        let (status, body) = ask(job).await;
        assert_eq!((status, &body["created"]), (StatusCode::OK, &json!(false)));
        // It says when the key is free.
        let free: Timestamp = body["at"].as_str().unwrap().parse().unwrap();
        assert!(
            free.as_second() > Timestamp::now().as_second() + 60,
            "{body}"
        );
        let bad = json!({ "key": "other", "in": "0s", "unique_for": "soon" });
        let (status, body) = ask(bad).await;
        assert_eq!(status, StatusCode::BAD_REQUEST);
        assert!(
            body["error"].as_str().unwrap().contains("unique_for"),
            "{body}"
        );
        assert!(node.stop(PATIENCE).await);
    });
}

#[test]
fn jobs_are_scheduled_listed_moved_and_cancelled() {
    on_file(async |queue| {
        let mut router = api::router(queue);
        let at = "2100-01-31T12:00:00.000001Z";
        let job = json!({ "key": "mail/1", "payload": "hello", "at": at });
        let (status, body) = call(&mut router, Method::POST, "/jobs", Some(job.clone())).await;
        assert_eq!(
            (status, &body),
            (StatusCode::CREATED, &json!({ "created": true, "at": at }))
        );
        let (status, body) = call(&mut router, Method::POST, "/jobs", Some(job)).await;
        assert_eq!((status, &body["created"]), (StatusCode::OK, &json!(false)));

        let (status, body) = call(&mut router, Method::GET, "/jobs/mail/1", None).await;
        assert_eq!(status, StatusCode::OK);
        assert_eq!(
            body,
            json!({
                "key": "mail/1", "payload": "hello", "state": "waiting", "attempts": 0,
                "at": at, "due": at, "priority": 4, "queue": "default",
            })
        );
        let cron = json!({ "key": "report", "cron": "0 9 * * *", "zone": "Europe/Paris" });
        call(&mut router, Method::POST, "/jobs", Some(cron)).await;
        let (_, body) = call(
            &mut router,
            Method::GET,
            "/jobs?search=rep&state=live",
            None,
        )
        .await;
        assert_eq!(body[0]["zone"], "Europe/Paris");
        assert_eq!(body.as_array().unwrap().len(), 1);
        let (_, body) = call(&mut router, Method::GET, "/counts", None).await;
        assert_eq!(body, json!({ "live": 2, "dead": 0 }));

        let kind = json!({ "key": "kind", "kind": "mail", "in": "1h" });
        call(&mut router, Method::POST, "/jobs", Some(kind)).await;
        for (kind, key) in [("mail", "kind"), ("", "mail/1")] {
            let path = format!("/jobs?kind={kind}");
            let (_, body) = call(&mut router, Method::GET, &path, None).await;
            assert_eq!(body[0]["key"], key);
            let shown = body[0].get("kind").and_then(Value::as_str);
            assert_eq!(shown.unwrap_or_default(), kind);
        }
        let urgent = json!({ "key": "urgent", "priority": 0, "in": "1h" });
        call(&mut router, Method::POST, "/jobs", Some(urgent)).await;
        let (_, body) = call(&mut router, Method::GET, "/jobs/urgent", None).await;
        assert_eq!(body["priority"], 0);
        let mail = json!({ "key": "in mails", "queue": "mails", "in": "1h" });
        call(&mut router, Method::POST, "/jobs", Some(mail)).await;
        let (_, body) = call(&mut router, Method::GET, "/jobs?queue=mails", None).await;
        assert_eq!(
            (&body[0]["key"], &body[0]["queue"]),
            (&json!("in mails"), &json!("mails"))
        );
        assert_eq!(body.as_array().unwrap().len(), 1);
        for bad in [
            json!({ "key": "k", "queue": "", "in": "1h" }),
            json!({ "key": "k", "kind": "k".repeat(129), "in": "1h" }),
            json!({ "key": "k", "priority": 10, "in": "1h" }),
        ] {
            let (status, body) = call(&mut router, Method::POST, "/jobs", Some(bad)).await;
            assert_eq!(status, StatusCode::BAD_REQUEST, "{body}");
        }

        let later = json!({ "in": "1h" });
        let (status, body) = call(&mut router, Method::PATCH, "/jobs/mail/1", Some(later)).await;
        assert_eq!((status, &body["running"]), (StatusCode::OK, &json!(false)));
        let (status, body) = call(&mut router, Method::DELETE, "/jobs/mail/1", None).await;
        assert_eq!(
            (status, body),
            (StatusCode::OK, json!({ "running": false }))
        );
        let (status, body) = call(&mut router, Method::DELETE, "/jobs/mail/1", None).await;
        assert_eq!(status, StatusCode::NOT_FOUND);
        assert_eq!(body, json!({ "error": "there is no such job" }));
    });
}

#[test]
fn wrong_requests_say_what_is_wrong() {
    on_file(async |queue| {
        let mut router = api::router(queue);
        for (body, part) in [
            (json!({ "key": "k" }), "give one of"),
            (
                json!({ "key": "k", "in": "1s", "at": "2100-01-01T00:00:00Z" }),
                "give one of",
            ),
            (json!({ "key": "k", "in": "soon" }), "`in`"),
            (json!({ "key": "k", "at": "noon" }), "`at`"),
            (json!({ "key": "k", "cron": "61 * * * *" }), "`cron`"),
            (json!({ "key": "", "in": "1s" }), "a key has"),
        ] {
            let (status, answer) = call(&mut router, Method::POST, "/jobs", Some(body)).await;
            assert_eq!(status, StatusCode::BAD_REQUEST);
            let error = answer["error"].as_str().unwrap();
            assert!(error.contains(part), "{error}");
        }
        let (status, _) = call(&mut router, Method::GET, "/jobs?state=asleep", None).await;
        assert_eq!(status, StatusCode::BAD_REQUEST);
        // A misspelt name would leave something out.
        let wrong = json!({ "key": "k", "in": "1s", "paylod": "text" });
        let (status, answer) = call(&mut router, Method::POST, "/jobs", Some(wrong)).await;
        assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY);
        let error = answer["error"].as_str().unwrap();
        assert!(error.contains("`paylod`"), "{error}");
        let wrong = json!({ "in": "1s", "zones": "UTC" });
        let (status, _) = call(&mut router, Method::PATCH, "/jobs/k", Some(wrong)).await;
        assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY);
        let (status, answer) = call(&mut router, Method::GET, "/jobs?serach=k", None).await;
        assert_eq!(status, StatusCode::BAD_REQUEST);
        let error = answer["error"].as_str().unwrap();
        assert!(error.contains("`serach`"), "{error}");
        let (_, counts) = call(&mut router, Method::GET, "/counts", None).await;
        assert_eq!(counts, json!({ "live": 0, "dead": 0 }));
    });
}

#[test]
fn pages_of_other_sites_read_and_change_nothing() {
    const OWN: &str = "127.0.0.1:8080";
    on_file(async |queue| {
        queue.schedule("key", HOUR, "secret").await.unwrap();
        let guard = SameOrigin::new().allow_host("jobs.example").unwrap();
        let mut router = api::router_for(queue.clone(), guard);
        let mut ask = async |method: Method, path: &str, headers: &[(HeaderName, &str)]| {
            let mut request = Request::builder().method(method.clone()).uri(path);
            for (name, value) in headers {
                request = request.header(name, *value);
            }
            let body = Body::from(match method {
                Method::POST if path.starts_with("/dead") => "{}",
                Method::POST => r#"{"in": "2h", "key": "other"}"#,
                _ => r#"{"in": "2h"}"#,
            });
            let request = request.header(header::CONTENT_TYPE, "application/json");
            let answer = router.call(request.body(body).unwrap()).await.unwrap();
            let status = answer.status();
            let body = answer.into_body().collect().await.unwrap().to_bytes();
            (status, String::from_utf8(body.to_vec()).unwrap())
        };
        let all = [
            (Method::GET, "/"),
            (Method::GET, "/jobs"),
            (Method::GET, "/jobs/key"),
            (Method::GET, "/counts"),
            (Method::GET, "/nothing"),
            (Method::POST, "/jobs"),
            (Method::POST, "/dead/retry"),
            (Method::POST, "/dead/discard"),
            (Method::PATCH, "/jobs/key"),
            (Method::DELETE, "/jobs/key"),
        ];
        let site = HeaderName::from_static("sec-fetch-site");
        for (method, path) in all.clone() {
            for (headers, expected) in [
                // A name that its owner lets resolve to this server.
                (
                    vec![
                        (header::HOST, "evil.example:8080"),
                        (header::ORIGIN, "http://evil.example:8080"),
                    ],
                    StatusCode::MISDIRECTED_REQUEST,
                ),
                (
                    vec![(header::HOST, "evil.example:8080")],
                    StatusCode::MISDIRECTED_REQUEST,
                ),
                (vec![], StatusCode::MISDIRECTED_REQUEST),
                (
                    vec![
                        (header::HOST, OWN),
                        (header::ORIGIN, "http://elsewhere.example"),
                    ],
                    StatusCode::FORBIDDEN,
                ),
                (
                    vec![(header::HOST, OWN), (header::ORIGIN, "null")],
                    StatusCode::FORBIDDEN,
                ),
                (
                    vec![
                        (header::HOST, OWN),
                        (header::ORIGIN, "http://127.0.0.1:8080"),
                        (header::ORIGIN, "http://elsewhere.example"),
                    ],
                    StatusCode::FORBIDDEN,
                ),
                (
                    vec![(header::HOST, OWN), (site.clone(), "cross-site")],
                    StatusCode::FORBIDDEN,
                ),
            ] {
                let (status, body) = ask(method.clone(), path, &headers).await;
                assert_eq!(status, expected, "{method} {path} {headers:?}");
                assert!(!body.contains("secret"), "{body}");
            }
        }
        assert_eq!(queue.count().await.unwrap().live, 1);
        for own in [OWN, "localhost", "jobs.example"] {
            let origin = format!("http://{own}");
            let headers = [(header::HOST, own), (header::ORIGIN, &*origin)];
            let (status, body) = ask(Method::GET, "/jobs/key", &headers).await;
            assert_eq!(status, StatusCode::OK);
            assert!(body.contains("secret"), "{body}");
        }
        for (method, path) in all {
            let headers = [
                (header::HOST, "jobs.example"),
                // A proxy has added TLS.
                (header::ORIGIN, "https://jobs.example"),
                (site.clone(), "same-origin"),
            ];
            let (status, _) = ask(method, path, &headers).await;
            assert_eq!(status.is_success(), path != "/nothing", "{path}: {status}");
        }
    });
}

#[test]
fn a_list_of_large_jobs_is_small() {
    on_file(async |queue| {
        let mut router = api::router(queue.clone());
        // In JSON, each of these bytes takes six.
        let payload = "\u{1}".repeat(1 << 20);
        for number in 0..20 {
            let key = format!("large-{number}");
            queue.schedule(key, HOUR, &*payload).await.unwrap();
        }
        queue
            .schedule("small", HOUR, "\u{e4}".repeat(128))
            .await
            .unwrap();
        let (_, body) = call(&mut router, Method::GET, "/jobs?limit=1000", None).await;
        let jobs = body.as_array().unwrap();
        assert_eq!(jobs.len(), 21);
        for job in jobs {
            let (payload, is_large) = (job["payload"].as_str().unwrap(), job["key"] != "small");
            assert_eq!(payload.len(), 256);
            assert_eq!(job.get("cut").is_some(), is_large, "{job}");
        }
        assert!(body.to_string().len() < 40_000);
        let (_, body) = call(&mut router, Method::GET, "/jobs/large-0", None).await;
        assert_eq!(body["payload"], payload);
    });
}

#[test]
fn a_dead_job_runs_again() {
    on_file(async |queue| {
        let node = Node::builder(queue.clone())
            .start(|_| async { Err(Failure::give_up("<b>no use</b>")) });
        let mut router = api::router(queue.clone());
        let job = json!({ "key": "k", "in": "0s" });
        call(&mut router, Method::POST, "/jobs", Some(job)).await;
        live(&queue, 0).await;
        let (_, body) = call(&mut router, Method::GET, "/jobs?state=dead", None).await;
        assert_eq!(
            (&body[0]["state"], &body[0]["error"]),
            (&json!("dead"), &json!("<b>no use</b>"))
        );
        let later = json!({ "in": "1h" });
        call(&mut router, Method::PATCH, "/jobs/k", Some(later)).await;
        let (_, body) = call(&mut router, Method::GET, "/jobs/k", None).await;
        assert_eq!(body["state"], "waiting");
        assert!(node.stop(PATIENCE).await);
    });
}
