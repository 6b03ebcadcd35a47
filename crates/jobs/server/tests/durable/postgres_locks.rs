//! Rows and tables that other sessions of PostgreSQL have locked.

use std::{collections::HashSet, time::Duration};

use futures_lite::future::zip;
use tourbillon::time::sleep;
use tourbillon_jobs::{
    QueueError,
    job::Token,
    store::{Cancelled, DeadJobs, Kinds, Listing, Moved, Scheduled, Span, Store, StoreError},
};

use crate::{
    postgres::client,
    server::{Postgres, Server},
    shared::{LEASE, connect, on_server},
    support::{self, HOUR, PATIENCE, begun, fails_by_key, live, node, waiting},
};

#[test]
fn a_job_that_was_locked_when_the_node_looked_is_not_forgotten() {
    on_server(async |server: Postgres, queue| {
        let other = client(&server).await;
        for key in ["locked", "free"] {
            queue.schedule(key, Duration::ZERO, "").await.unwrap();
        }
        let lock = "BEGIN; SELECT FROM durable_jobs WHERE key = 'locked' FOR UPDATE";
        other.batch_execute(lock).await.unwrap();
        // By itself, the node looks again after five minutes.
        let (node, mut ran) = node(&queue, |node| node.window(HOUR), |_| Ok(()));
        assert_eq!(ran.recv().await.unwrap().key, "free");
        live(&queue, 1).await;
        // Let it look at what it is told of as it starts.
        sleep(2 * LEASE).await;
        // Nobody tells of a rollback.
        other.batch_execute("ROLLBACK").await.unwrap();
        assert_eq!(ran.recv().await.unwrap().key, "locked");
        live(&queue, 0).await;
        assert!(node.stop(PATIENCE).await);
    });
}

#[test]
fn a_locked_job_keeps_no_other_kind_waiting() {
    on_server(async |server: Postgres, queue| {
        let (store, other) = (queue.store(), client(&server).await);
        // Those of the kind `a` are due before and after that of `b`.
        let jobs = "
            INSERT INTO durable_jobs (key, payload, due, at, kind)
            SELECT n, '', n, n, CASE n WHEN 2 THEN 'b' ELSE 'a' END
            FROM generate_series(1, 1000) AS n";
        other.batch_execute(jobs).await.unwrap();
        let lock = "BEGIN; SELECT FROM durable_jobs WHERE key = '1' FOR UPDATE";
        other.batch_execute(lock).await.unwrap();
        let node = store.register(HOUR).await.unwrap().node;
        let mut looks = 0;
        loop {
            let held = store
                .hold(node, Span::Due, "default", &Kinds::All, 1)
                .await
                .unwrap();
            looks += 1;
            assert!(looks < 500, "jobs of one kind only");
            if held[0].kind == "b" {
                break;
            }
        }
    });
}

#[test]
fn a_locked_dead_job_is_left_alone() {
    on_server(async |server: Postgres, queue| {
        let other = client(&server).await;
        let jobs = "
            INSERT INTO durable_jobs (key, payload, due, at, dead)
            SELECT n, '', n, n, true FROM generate_series(1, 9) AS n";
        other.batch_execute(jobs).await.unwrap();
        let lock = "BEGIN; SELECT FROM durable_jobs WHERE key IN ('3', '7') FOR UPDATE";
        other.batch_execute(lock).await.unwrap();
        let few = || DeadJobs {
            limit: 5,
            ..DeadJobs::default()
        };
        // Those are skipped, and the next call goes on behind them.
        let part = queue.retry_dead(few()).await.unwrap();
        assert_eq!((part.changed, part.after.as_deref()), (4, Some("5")));
        let after = part.after;
        let part = queue.discard_dead(DeadJobs { after, ..few() }).await;
        let part = part.unwrap();
        assert_eq!((part.changed, part.after), (3, None));
        // One that lives when its lock ends is not dead any more.
        let change = "UPDATE durable_jobs SET dead = false WHERE key = '3'; COMMIT";
        other.batch_execute(change).await.unwrap();
        let part = queue.discard_dead(few()).await.unwrap();
        assert_eq!((part.changed, part.after), (1, None));
        let counts = queue.count().await.unwrap();
        assert_eq!((counts.live, counts.dead), (5, 0));
    });
}

#[test]
fn a_locked_job_keeps_no_other_request_waiting() {
    on_server(async |server: Postgres, queue| {
        let other = client(&server).await;
        for number in 0..20 {
            let key = format!("job-{number}");
            queue.schedule(key, HOUR, "").await.unwrap();
        }
        let lock = "BEGIN; SELECT FROM durable_jobs WHERE key IN ('job-7', 'job-11') FOR UPDATE";
        other.batch_execute(lock).await.unwrap();
        let ask = |number: usize| {
            let (cancels, moves) = (queue.clone(), queue.clone());
            let key = format!("job-{number}");
            tourbillon::spawn(async move {
                match number % 2 {
                    0 => moves.reschedule(key, 2 * HOUR).await.map(|moved| {
                        assert!(matches!(moved, Moved::Moved { .. }), "{moved:?}");
                    }),
                    _ => cancels.cancel(key).await.map(|cancelled| {
                        assert_eq!(cancelled, Cancelled::Cancelled);
                    }),
                }
            })
        };
        let mut asked: Vec<_> = (0..20).map(|number| Some(ask(number))).collect();
        let locked = asked[7].take().unwrap();
        let refused = asked[11].take().unwrap();
        // Meanwhile all others are answered, in the same call and later.
        for request in asked.into_iter().flatten() {
            request.await.unwrap().unwrap();
        }
        let made = queue.schedule("another", HOUR, "").await.unwrap();
        assert!(matches!(made, Scheduled::Created { .. }));
        assert_eq!(queue.cancel("another").await.unwrap(), Cancelled::Cancelled);
        assert_eq!(
            queue
                .list(Listing {
                    limit: 20,
                    ..Listing::default()
                })
                .await
                .unwrap()
                .len(),
            12
        );
        // A caller that is gone needs nothing more.
        refused.abort();
        assert!(!locked.is_finished());
        other.batch_execute("ROLLBACK").await.unwrap();
        locked.await.unwrap().unwrap();
        assert!(queue.get("job-7").await.unwrap().is_none());
    });
}

#[test]
fn a_locked_key_whose_time_is_over_keeps_no_other_request_waiting() {
    on_server(async |server: Postgres, queue| {
        let other = client(&server).await;
        let over = "
            INSERT INTO durable_jobs (key, payload, due, at, dead, unique_for, until, counted)
            SELECT key, '', 0, 0, true, 1, 1, 0 FROM unnest(ARRAY['free', 'locked']) AS n (key)";
        other.batch_execute(over).await.unwrap();
        queue.schedule("live", HOUR, "").await.unwrap();
        let lock = "BEGIN; SELECT FROM durable_jobs WHERE key IN ('live', 'locked') FOR UPDATE";
        other.batch_execute(lock).await.unwrap();
        // A job that is there is only looked at.
        let made = queue.schedule("live", HOUR, "").await.unwrap();
        assert!(matches!(made, Scheduled::Exists { .. }), "{made:?}");
        let keys = ["free", "locked", "new"];
        let jobs = keys.map(|key| support::new(key, HOUR));
        let refused = queue.store().schedule(jobs.into()).await;
        assert!(matches!(refused, Err(StoreError::Locked)), "{refused:?}");
        assert!(queue.get("new").await.unwrap().is_none());
        let mut asked = keys.map(|key| {
            let queue = queue.clone();
            Some(tourbillon::spawn(async move {
                queue.schedule(key, HOUR, "").await
            }))
        });
        let locked = asked[1].take().unwrap();
        for request in asked.into_iter().flatten() {
            let made = request.await.unwrap().unwrap();
            assert!(matches!(made, Scheduled::Created { .. }), "{made:?}");
        }
        assert!(!locked.is_finished());
        other.batch_execute("ROLLBACK").await.unwrap();
        let made = locked.await.unwrap().unwrap();
        assert!(matches!(made, Scheduled::Created { .. }), "{made:?}");
        assert_eq!(queue.count().await.unwrap().live, 4);
    });
}

#[test]
fn a_list_that_waits_keeps_no_client_waiting_and_no_lease() {
    on_server(async |server: Postgres, queue| {
        let other = client(&server).await;
        let lease = queue.store().register(HOUR).await.unwrap();
        // Only reads of this table wait for this lock, and so does what changes it.
        let lock = "BEGIN; LOCK TABLE durable_jobs IN ACCESS EXCLUSIVE MODE";
        other.batch_execute(lock).await.unwrap();
        let lists = queue.clone();
        let list = tourbillon::spawn(async move { lists.list(Listing::default()).await });
        let refused = queue.schedule("job", HOUR, "");
        let renewed = queue.store().renew(lease.node, HOUR);
        let (refused, renewed) = zip(refused, renewed).await;
        assert!(renewed.unwrap());
        // The client gave up after its own limit, not with the list.
        let is_locked = matches!(refused, Err(QueueError::Store(StoreError::Locked)));
        assert!(is_locked, "{refused:?}");
        // The statement of the list ended, and its connection did not.
        let error = list.await.unwrap().unwrap_err().to_string();
        assert!(error.contains("statement timeout"), "{error}");
        other.batch_execute("ROLLBACK").await.unwrap();
        assert_eq!(queue.count().await.unwrap().live, 0);
    });
}

#[test]
fn a_locked_job_of_a_lease_that_is_over_keeps_no_other_one_from_the_nodes() {
    on_server(async |server: Postgres, queue| {
        let (store, other) = (queue.store(), client(&server).await);
        for key in ["free", "locked"] {
            queue.schedule(key, HOUR, "").await.unwrap();
        }
        let hold = async || {
            let node = store.register(HOUR).await.unwrap().node;
            let held = support::hold(&**store, node, 2 * HOUR, 10).await;
            let keys = held.into_iter().map(|held| held.key);
            (node, keys.collect::<Vec<_>>())
        };
        let (node, held) = hold().await;
        assert_eq!(held.len(), 2);
        let lock = "BEGIN; SELECT FROM durable_jobs WHERE key = 'locked' FOR UPDATE";
        other.batch_execute(lock).await.unwrap();
        store.release(node).await.unwrap();
        store.free_others().await.unwrap();
        assert_eq!(hold().await.1, ["free"]);
        other.batch_execute("ROLLBACK").await.unwrap();
        store.free_others().await.unwrap();
        assert_eq!(hold().await.1, ["locked"]);
    });
}

#[test]
fn a_locked_job_keeps_no_other_one_from_being_given_back() {
    on_server(async |server: Postgres, queue| {
        let (store, other) = (queue.store(), client(&server).await);
        for number in 0..40 {
            let key = format!("job-{number}");
            queue.schedule(key, Duration::ZERO, "").await.unwrap();
        }
        let node = store.register(HOUR).await.unwrap().node;
        let held = support::hold(&**store, node, HOUR, 100).await;
        let tokens: Vec<_> = held
            .into_iter()
            .map(|held| (held.key, held.token))
            .collect();
        assert_eq!(tokens.len(), 40);
        let locked: Vec<_> = tokens
            .iter()
            .filter(|one| one.0 == "job-7")
            .cloned()
            .collect();
        let lock = "BEGIN; SELECT FROM durable_jobs WHERE key = 'job-7' FOR UPDATE";
        other.batch_execute(lock).await.unwrap();
        // One that is stale is not the node's any more, and so is not left to it.
        let stale = vec![("job-8".to_owned(), Token(0))];
        let left = store.give_back([tokens, stale].concat()).await.unwrap();
        assert_eq!(left, locked);
        // All others are free, and the connection of the holds is, too.
        let next = store.register(HOUR).await.unwrap().node;
        assert_eq!(support::hold(&**store, next, HOUR, 100).await.len(), 39);
        assert_eq!(store.are_current(locked.clone()).await.unwrap(), [true]);
        other.batch_execute("ROLLBACK").await.unwrap();
        assert!(store.give_back(locked.clone()).await.unwrap().is_empty());
        assert_eq!(store.are_current(locked).await.unwrap(), [false]);
    });
}

#[test]
fn a_busy_node_gives_jobs_back_although_one_is_locked() {
    on_server(async |server: Postgres, queue| {
        let other = client(&server).await;
        let (busy, gate, mut begins, _) = waiting(&queue, |node| node.concurrency(20), |_| Ok(()));
        // It takes all of them, and begins half of them.
        let mut rest: HashSet<_> = (0..40).map(|number| format!("job-{number}")).collect();
        let new = rest
            .iter()
            .map(|key| support::new(key.clone(), Duration::ZERO));
        queue.store().schedule(new.collect()).await.unwrap();
        for _ in 0..20 {
            assert!(rest.remove(&begins.recv().await.unwrap().key));
        }
        // If this is late, the node has given all of them back before.
        let locked = rest.iter().next().unwrap().clone();
        let lock = format!("BEGIN; SELECT FROM durable_jobs WHERE key = '{locked}' FOR UPDATE");
        other.batch_execute(&lock).await.unwrap();
        // The lock stays until the other node has run all the others.
        let idle = connect::<Postgres>(server.port()).await;
        let (idle, mut ran) = node(&idle, |node| node, |_| Ok(()));
        for _ in 0..19 {
            let key = ran.recv().await.unwrap().key;
            assert!(key != locked && rest.remove(&key), "{key}");
        }
        let made = queue.schedule("unrelated", HOUR, "").await.unwrap();
        assert!(matches!(made, Scheduled::Created { .. }));
        other.batch_execute("ROLLBACK").await.unwrap();
        assert_eq!(ran.recv().await.unwrap().key, locked);
        queue.cancel("unrelated").await.unwrap();
        gate.add_permits(20);
        live(&queue, 0).await;
        assert!(busy.stop(PATIENCE).await && idle.stop(PATIENCE).await);
    });
}

#[test]
fn ends_of_locked_jobs_keep_no_other_end_waiting() {
    on_server(async |server: Postgres, queue| {
        let other = client(&server).await;
        let (node, gate, _, mut ends) = waiting(&queue, |node| node, fails_by_key);
        let keys = (0..40).map(|number| format!("locked-{number}"));
        for key in keys.chain(["done".into(), "fails".into()]) {
            queue.schedule(key, Duration::ZERO, "").await.unwrap();
        }
        begun(&node, 42).await;
        let lock = "BEGIN; SELECT FROM durable_jobs WHERE key LIKE 'locked%' FOR UPDATE";
        other.batch_execute(lock).await.unwrap();
        gate.add_permits(42);
        // The locks stay until the others have ended.
        let mut first = [ends.recv().await.unwrap(), ends.recv().await.unwrap()];
        first.sort();
        let expected = ["done", "fails"].map(|key| (key.to_owned(), Some(true)));
        assert_eq!(first, expected);
        other.batch_execute("ROLLBACK").await.unwrap();
        for _ in 0..40 {
            assert_eq!(ends.recv().await.unwrap().1, Some(true));
        }
        live(&queue, 0).await;
        assert!(node.stop(PATIENCE).await);
    });
}

#[test]
fn locked_jobs_keep_no_other_time_from_being_counted_again() {
    on_server(async |server: Postgres, queue| {
        let other = client(&server).await;
        // Many jobs have the same time, as those of one request.
        let far = "
            INSERT INTO durable_jobs (key, payload, due, at, counted)
            SELECT n, '', c.far, c.far, c.far + n % 10
            FROM generate_series(1, 2500) AS n,
                (SELECT durable_now() + 1000000000000) AS c (far);";
        other.batch_execute(far).await.unwrap();
        let lock = "BEGIN; SELECT FROM durable_jobs ORDER BY counted DESC LIMIT 250 FOR UPDATE";
        other.batch_execute(lock).await.unwrap();
        queue.store().recount().await.unwrap();
        let left = async || {
            let left = "SELECT count(*) FROM durable_jobs WHERE counted > durable_now()";
            let row = other.query_one(left, &[]).await.unwrap();
            row.get::<_, i64>(0)
        };
        assert_eq!(left().await, 250);
        other.batch_execute("ROLLBACK").await.unwrap();
        queue.store().recount().await.unwrap();
        assert_eq!(left().await, 0);
    });
}
