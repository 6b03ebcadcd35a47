//! Trace contexts over HTTP, in SQL and of commands, and beside programs of version 4, which know
//! none.

use std::fs;

use axum::{
    Router,
    body::Body,
    http::{Request, StatusCode, header},
};
use serde_json::{Value, json};
use tourbillon_jobs_server as api;
use tower_service::Service;

use crate::{
    program::{into, post, start_in},
    support::{Dir, eventually, on_file},
};

pub const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
pub const OTHER: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00";

/// Adds a job over HTTP, in a request with these headers.
async fn add(router: &mut Router, job: Value, traces: &[&str]) -> StatusCode {
    let mut request = Request::builder()
        .method("POST")
        .uri("/jobs")
        .header(header::HOST, "localhost")
        .header(header::CONTENT_TYPE, "application/json");
    for trace in traces {
        request = request.header("traceparent", *trace);
    }
    let request = request.body(Body::from(job.to_string())).unwrap();
    router.call(request).await.unwrap().status()
}

#[test]
fn a_request_has_the_trace_in_its_header_or_in_its_body() {
    on_file(async |queue| {
        let mut router = api::router(queue.clone());
        // A later version may have more flags, and more behind them.
        let later = format!("01{}03-more", &TRACE[2..53]);
        let too_long = format!("{TRACE}-more");
        for (key, body, headers, expected) in [
            ("plain", None, &[][..], None),
            ("header", None, &[TRACE], Some(TRACE)),
            ("body", Some(TRACE), &[], Some(TRACE)),
            ("both", Some(OTHER), &[TRACE], Some(OTHER)),
            ("later", None, &[&later], Some(TRACE)),
            // W3C wants these to count as none.
            ("two", None, &[TRACE, OTHER], None),
            ("too long", None, &[&too_long], None),
            ("wrong", None, &["wrong"], None),
        ] {
            let mut job = json!({ "key": key, "in": "1h" });
            if let Some(trace) = body {
                job["traceparent"] = trace.into();
            }
            let status = add(&mut router, job, headers).await;
            assert_eq!(status, StatusCode::CREATED, "{key}");
            let found = queue.get(key).await.unwrap().unwrap();
            assert_eq!(found.traceparent.as_deref(), expected, "{key}");
        }
        // The occurrences of a cron job are no part of the request.
        for (key, body, expected) in [("cron", None, None), ("field", Some(OTHER), Some(OTHER))] {
            let job = json!({ "key": key, "cron": "0 0 1 1 *", "traceparent": body });
            let status = add(&mut router, job, &[TRACE]).await;
            assert_eq!(status, StatusCode::CREATED, "{key}");
            let found = queue.get(key).await.unwrap().unwrap();
            assert_eq!(found.traceparent.as_deref(), expected, "{key}");
        }
        let job = json!({ "key": "k", "in": "1h", "traceparent": "wrong" });
        let status = add(&mut router, job, &[TRACE]).await;
        assert_eq!(status, StatusCode::BAD_REQUEST);
    });
}

#[test]
fn a_command_gets_the_trace_of_its_job() {
    let dir = Dir::new();
    let result = dir.join("result");
    let command = r#"echo "$JOB_KEY ${TRACEPARENT-none} ${TRACESTATE-none} ${BAGGAGE-none}""#;
    let command = into(command, &result);
    // The program itself may run in a trace.
    let own = [
        ("TRACEPARENT", OTHER),
        ("TRACESTATE", "own=1"),
        ("BAGGAGE", "own=1"),
    ];
    let (_program, addr, _stdout) = start_in(&dir, &["--exec", &command], &own);
    for (key, field, expected) in [
        ("with", format!(r#","traceparent":"{TRACE}""#), TRACE),
        ("without", String::new(), "none"),
    ] {
        post(&addr, &format!(r#"{{"key":"{key}","in":"0s"{field}}}"#));
        eventually("the command has run", || result.exists());
        let said = fs::read_to_string(&result).unwrap();
        assert_eq!(said, format!("{key} {expected} none none\n"));
        fs::remove_file(&result).unwrap();
    }
}

#[cfg(feature = "postgres")]
mod postgres {
    use std::time::Duration;

    use tokio_postgres::{Client, SimpleQueryMessage, error::SqlState};
    use tourbillon::time::sleep;
    use tourbillon_jobs::{
        NewJob, Queue,
        postgres::Postgres as Tables,
        store::{Begin, End, Finish, Store as _},
    };

    use super::*;
    use crate::{
        postgres::{client, with_client},
        server::{Postgres, Server},
        shared::connect,
        support::{self, HOUR, PATIENCE, live, node, soon, start},
    };

    async fn trace(queue: &Queue<Tables>, key: &str) -> Option<String> {
        queue.get(key).await.unwrap().unwrap().traceparent
    }

    #[test]
    fn a_transaction_gives_its_job_a_trace() {
        with_client(async |server, other| {
            let queue = connect::<Postgres>(server.port()).await;
            let call = async |call: &str| other.query_one(&format!("SELECT {call}"), &[]).await;
            for (function, key) in [
                ("jobs_schedule", "added"),
                ("jobs_schedule_or_replace", "placed"),
            ] {
                let with =
                    format!("{function}('{key}', delay => '1 hour', traceparent => '{TRACE}')");
                call(&with).await.unwrap();
                assert_eq!(trace(&queue, key).await.as_deref(), Some(TRACE));
                for bad in [
                    "",
                    "wrong",
                    "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
                    "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
                    "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
                    "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
                    "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
                ] {
                    let with = format!("{function}('bad', traceparent => '{bad}')");
                    let error = call(&with).await.unwrap_err();
                    assert_eq!(
                        error.code(),
                        Some(&SqlState::INVALID_PARAMETER_VALUE),
                        "{bad}"
                    );
                }
            }
            for (with, expected) in [(format!("'{OTHER}'"), Some(OTHER)), ("NULL".into(), None)] {
                let replace = format!("jobs_schedule_or_replace('placed', traceparent => {with})");
                call(&replace).await.unwrap();
                assert_eq!(trace(&queue, "placed").await.as_deref(), expected);
            }
        });
    }

    #[test]
    fn a_key_that_is_kept_has_no_trace() {
        with_client(async |server, other| {
            let queue = connect::<Postgres>(server.port()).await;
            let (node, _ran) = node(&queue, |node| node, |_| Ok(()));
            let job = NewJob::new("kept", Duration::ZERO, "").unique_for(HOUR);
            queue.schedule_job(job.traceparent(TRACE)).await.unwrap();
            live(&queue, 0).await;
            // A client of version 4 that takes the key would leave what is there.
            let kept = "SELECT traceparent FROM durable_jobs WHERE key = 'kept'";
            let kept: Option<String> = other.query_one(kept, &[]).await.unwrap().get(0);
            assert_eq!(kept, None);
            assert!(node.stop(PATIENCE).await);
        });
    }

    /// What a node of version 4 asks for to run a job, but for what it does not change.
    const NODE_OF_VERSION_4: [&str; 4] = [
        "UPDATE durable_nodes SET until = durable_now() + 60000000 WHERE node = 77",
        "UPDATE durable_jobs j SET node = 77, token = nextval('durable_numbers')
         WHERE key = 'theirs' RETURNING j.key, j.queue",
        "UPDATE durable_jobs SET running = true, attempts = attempts + 1 WHERE key = 'theirs'",
        "DELETE FROM durable_jobs WHERE key = 'theirs' AND running AND node = 77",
    ];

    /// Adds a job as a client of version 4 does, if its key is kept: it knows no trace.
    const CLIENT_OF_VERSION_4: &str = "
        INSERT INTO durable_jobs (key, payload, due, at, pattern, zone, counted, kind,
            priority, queue, unique_for)
        VALUES ('theirs', '', 0, 0, NULL, NULL, NULL, '', 4, 'default', NULL)";

    /// Prepares the statements of a program of version 4 that has connected.
    async fn of_version_4(server: &Postgres) -> (Client, Vec<tokio_postgres::Statement>) {
        let client = client(server).await;
        let lease = "INSERT INTO durable_nodes VALUES (77, durable_now() + 60000000, NULL, 4)";
        client.batch_execute(lease).await.unwrap();
        let mut prepared = Vec::new();
        for statement in [CLIENT_OF_VERSION_4].iter().chain(&NODE_OF_VERSION_4) {
            prepared.push(client.prepare(statement).await.unwrap());
        }
        (client, prepared)
    }

    /// What programs of version 4 prepare to add and replace jobs, and to end them.
    const OF_VERSION_4: [(&str, &str); 3] = [
        ("adds", include_str!("version_4/schedule.sql")),
        ("replaces", include_str!("version_4/replace.sql")),
        ("ends", include_str!("version_4/done.sql")),
    ];

    #[test]
    fn programs_of_version_4_leave_the_trace_of_another_job() {
        with_client(async |server: Postgres, other| {
            other
                .batch_execute(include_str!("version_4/postgres.sql"))
                .await
                .unwrap();
            for (name, statement) in OF_VERSION_4 {
                let prepare = format!("PREPARE {name} AS {statement}");
                other.batch_execute(&prepare).await.unwrap();
            }
            let lease = "
                DELETE FROM durable_jobs;
                INSERT INTO durable_nodes VALUES (77, durable_now() + 3600000000, NULL, 4)";
            other.batch_execute(lease).await.unwrap();
            Tables::migrate(&Postgres::config(server.port()))
                .await
                .unwrap();
            // Returns whether the statement has changed something.
            let execute = async |name: &str, values: &str| {
                let execute = format!("EXECUTE {name} ({values})");
                let rows = other.simple_query(&execute).await.unwrap();
                rows.iter()
                    .any(|it| matches!(it, SimpleQueryMessage::Row(_)))
            };
            // A job without anything, in an hour.
            let plain = |key: &str| {
                format!(
                    r#"'{{{key}}}', '{{""}}', '{{3600000000}}', '{{t}}', '{{NULL}}', '{{NULL}}', 0,
                        '{{NULL}}', '{{""}}', '{{4}}', '{{default}}', '{{NULL}}'"#
                )
            };
            let queue = connect::<Postgres>(server.port()).await;
            // 1. What replaces a job has the trace of that.
            let job = NewJob::new("replaced", 2 * HOUR, "").traceparent(TRACE);
            queue.schedule_job(job).await.unwrap();
            assert!(execute("replaces", &plain("replaced")).await);
            assert_eq!(trace(&queue, "replaced").await.as_deref(), Some(TRACE));
            // A client of this version puts that right.
            let job = NewJob::new("replaced", 2 * HOUR, "");
            queue.schedule_or_replace(job).await.unwrap();
            assert_eq!(trace(&queue, "replaced").await, None);
            // 2. So has what takes a key that was kept, but only if version 4 has ended its job.
            let store = &**queue.store();
            for (key, expected) in [("ours", None), ("theirs", Some(TRACE))] {
                let job = NewJob::new(key, Duration::ZERO, "").traceparent(TRACE);
                let job = job.unique_for(Duration::from_millis(1));
                queue.schedule_job(job).await.unwrap();
                let held = support::hold(store, 77, HOUR, 10).await;
                let [held] = &held[..] else {
                    panic!("{held:?}");
                };
                let begun = store.begin(vec![start(key, held.token)]).await.unwrap();
                assert!(matches!(begun[0], Begin::Yes { .. }), "{begun:?}");
                if key == "theirs" {
                    let ended = format!("'{{{key}}}', '{{{}}}'", held.token);
                    assert!(execute("ends", &ended).await);
                } else {
                    let finish = Finish {
                        key: key.into(),
                        token: held.token,
                        end: End::Done,
                    };
                    assert_eq!(store.finish(vec![finish]).await.unwrap(), [true]);
                }
                soon("for a key to be free", async {
                    while !execute("adds", &plain(key)).await {
                        sleep(Duration::from_millis(5)).await;
                    }
                })
                .await;
                assert_eq!(trace(&queue, key).await.as_deref(), expected, "{key}");
                queue.cancel(key).await.unwrap();
            }
        });
    }

    #[test]
    fn programs_of_version_4_go_on_beside_traces() {
        with_client(async |server: Postgres, other| {
            other
                .batch_execute(include_str!("version_4/postgres.sql"))
                .await
                .unwrap();
            let grants = "
                DELETE FROM durable_jobs;
                CREATE ROLE shop LOGIN;
                GRANT EXECUTE ON FUNCTION jobs_schedule, jobs_schedule_or_replace TO shop;";
            other.batch_execute(grants).await.unwrap();
            let (client, prepared) = of_version_4(&server).await;
            let goes_on = async || {
                for statement in &prepared {
                    assert_eq!(client.execute(statement, &[]).await.unwrap(), 1);
                }
            };
            goes_on().await;
            Tables::migrate(&Postgres::config(server.port()))
                .await
                .unwrap();
            goes_on().await;
            // The job is taken although a node of version 4 has a lease, which may run it.
            let queue = connect::<Postgres>(server.port()).await;
            let job = NewJob::new("job", Duration::ZERO, "").traceparent(TRACE);
            queue.schedule_job(job).await.unwrap();
            let held = support::hold(&**queue.store(), 77, HOUR, 10).await;
            assert_eq!(held[0].traceparent.as_deref(), Some(TRACE));
            let begun = queue.store().begin(vec![start("job", held[0].token)]).await;
            assert!(matches!(begun.unwrap()[0], Begin::Yes { .. }));
            other
                .batch_execute("DELETE FROM durable_nodes")
                .await
                .unwrap();
            queue.cancel("job").await.unwrap();
            // A node of version 4 still gets a lease.
            let lease = "INSERT INTO durable_nodes VALUES (78, durable_now() + 60000000, NULL, 4)";
            other.batch_execute(lease).await.unwrap();
            let (node, mut ran) = node(&queue, |node| node, |_| Ok(()));
            // Those who could execute the functions still can.
            for name in ["jobs_schedule", "jobs_schedule_or_replace"] {
                let call = format!(
                    "SET ROLE shop; SELECT {name}('{name}', traceparent => '{TRACE}'); RESET ROLE"
                );
                other.batch_execute(&call).await.unwrap();
                let attempt = ran.recv().await.unwrap();
                assert_eq!(attempt.key, name);
                assert_eq!(attempt.traceparent.as_deref(), Some(TRACE));
            }
            assert!(node.stop(PATIENCE).await);
        });
    }
}

#[cfg(feature = "redis")]
mod redis {
    use std::time::Duration;

    use tourbillon_jobs::{NewJob, Queue, redis::Redis as Keys};

    use super::*;
    use crate::{
        redis::eval,
        server::{Redis, Server},
        shared::with_server,
        support::{HOUR, PATIENCE, node},
    };

    #[test]
    fn a_job_that_version_4_has_written_has_no_trace() {
        with_server(async |server: Redis| {
            let url = format!("redis://127.0.0.1:{}", server.port());
            eval(&server, include_str!("version_4/redis.lua"));
            Keys::migrate(&url).await.unwrap();
            let queue = Queue::new(Keys::connect(&url).await.unwrap());
            let job = |key: &str| NewJob::new(key, HOUR, "").traceparent(TRACE);
            queue.schedule_job(job("ours")).await.unwrap();
            queue.schedule_job(job("theirs")).await.unwrap();
            // What `reschedule` of version 4 does: it writes what it knows.
            let moves = "
                local packed = redis.call('HGET', '{durable}:jobs', 'theirs')
                local fields = {cmsgpack.unpack(packed)}
                redis.call('HSET', '{durable}:jobs', 'theirs',
                    cmsgpack.pack(unpack(fields, 1, 15)))";
            eval(&server, moves);
            let (node, mut ran) = node(&queue, |node| node, |_| Ok(()));
            for (key, expected) in [("ours", Some(TRACE)), ("theirs", None)] {
                queue.reschedule(key, Duration::ZERO).await.unwrap();
                let attempt = loop {
                    let attempt = ran.recv().await.unwrap();
                    if attempt.key == key {
                        break attempt;
                    }
                    assert_eq!(attempt.traceparent, None);
                };
                assert_eq!(attempt.traceparent.as_deref(), expected);
            }
            assert!(node.stop(PATIENCE).await);
        });
    }
}
