//! A clock that was ahead for a moment.

use std::{collections::HashSet, time::Duration};

use tourbillon::time::sleep;
use tourbillon_jobs::{
    Queue, Repeat, Time,
    job::Job,
    sqlite::Sqlite,
    store::{Scheduled, Start, Store, StoreError},
};

use crate::support::{self, Dir, HOUR, PATIENCE, node, run};

/// 73 years, in seconds.
const FAR: i64 = 73 * 365 * 24 * 3600;

/// A store whose clock tests can set.
trait Ahead {
    type Store: Store;

    /// Sets the clock this many seconds ahead, and opens the store anew.
    async fn set(&mut self, ahead: i64) -> Queue<Self::Store>;

    /// Returns how many keys the store keeps of jobs that are done.
    async fn kept(&self) -> i64;
}

/// The clock of the embedded store is that of this machine, which tests cannot set. So the other
/// way round: if the clock is put back, what was counted from it is later.
struct Embedded {
    dir: Dir,
    ahead: i64,
}

impl Embedded {
    fn new() -> Self {
        Self {
            dir: Dir::new(),
            ahead: 0,
        }
    }

    /// Opens the store, once the tasks of the queue before have ended.
    async fn open(&self) -> Sqlite {
        loop {
            match Sqlite::open(self.dir.store()) {
                Err(StoreError::InUse) => sleep(Duration::from_millis(5)).await,
                opened => return opened.unwrap(),
            }
        }
    }
}

impl Ahead for Embedded {
    type Store = Sqlite;

    async fn set(&mut self, ahead: i64) -> Queue<Sqlite> {
        drop(self.open().await);
        let base = rusqlite::Connection::open(self.dir.store()).unwrap();
        let later = "UPDATE jobs SET due = due + ?1, at = at + ?1, counted = counted + ?1
                     WHERE counted IS NOT NULL";
        let kept = "UPDATE kept SET until = until + ?1, counted = counted + ?1";
        for later in [later, kept] {
            base.execute(later, [(self.ahead - ahead) * 1_000_000])
                .unwrap();
        }
        drop(base);
        self.ahead = ahead;
        Queue::new(self.open().await)
    }

    async fn kept(&self) -> i64 {
        let base = rusqlite::Connection::open(self.dir.store()).unwrap();
        base.query_row("SELECT count(*) FROM kept", [], |row| row.get(0))
            .unwrap()
    }
}

/// Returns all jobs but those that run.
async fn jobs<S: Store>(queue: &Queue<S>) -> Vec<Job> {
    let mut jobs = Vec::new();
    for key in ["cron", "delay", "moved", "retry", "at"] {
        jobs.push(queue.get(key).await.unwrap().unwrap());
    }
    jobs
}

/// Leaves jobs behind whose times the clock has to do with: all but `at`.
async fn leave_behind<S: Store>(queue: &Queue<S>, at: Time) {
    let second = Duration::from_secs(1);
    let cron = Repeat::parse("* * * * * *", "UTC").unwrap();
    queue.schedule("cron", cron, "").await.unwrap();
    queue.schedule("delay", second, "").await.unwrap();
    queue.schedule("at", at, "").await.unwrap();
    let yearly = Repeat::parse("0 0 1 1 *", "UTC").unwrap();
    queue.schedule("moved", yearly, "").await.unwrap();
    queue.reschedule("moved", second).await.unwrap();
    // A node that ends while it runs an attempt, and while it holds the others.
    queue.schedule("retry", Duration::ZERO, "").await.unwrap();
    let store = queue.store();
    // A slow machine must not lose it here.
    let lease = store.register(second * 30).await.unwrap();
    let held = support::hold(&**store, lease.node, HOUR, 100).await;
    let retry = held.iter().find(|held| held.key == "retry").unwrap();
    let start = Start {
        key: "retry".into(),
        token: retry.token,
        wait: second,
    };
    let begun = store.begin(vec![start]).await.unwrap();
    assert_eq!(begun, [support::yes(1)]);
    // Others need not wait for the end of the lease for long.
    assert!(store.renew(lease.node, second).await.unwrap());
}

async fn nothing_waits_for_a_time_far_ahead<A: Ahead>(mut clock: A) {
    let at = Time::wall().after(HOUR * 24 * 365 * 80);
    leave_behind(&clock.set(FAR).await, at).await;
    let queue = clock.set(0).await;
    let end = Time::wall().after(HOUR);
    let lease = Duration::from_secs(3);
    let (node, mut ran) = node(&queue, |node| node.lease(lease), |_| Ok(()));
    let mut rest = HashSet::from(["cron", "delay", "moved", "retry"]);
    let mut crons = 0;
    while !rest.is_empty() || crons < 2 {
        let attempt = ran.recv().await.unwrap();
        assert!(attempt.at < end, "{attempt:?}");
        // On a slow machine the node may lose its lease, and a job runs again.
        assert!(attempt.number > u32::from(attempt.key == "retry"));
        crons += u32::from(attempt.key == "cron");
        // The occurrence of a retry is still the one that has begun before.
        assert!(attempt.due < end || attempt.key == "retry");
        rest.remove(&*attempt.key);
    }
    let left = queue.get("at").await.unwrap().unwrap();
    assert_eq!((left.at, left.due), (at, at));
    assert!(node.stop(PATIENCE).await);
}

async fn a_clock_that_was_hours_ahead_changes_nothing<A: Ahead>(mut clock: A) {
    let at = Time::wall().after(HOUR * 24);
    leave_behind(&clock.set(2 * 3600).await, at).await;
    let queue = clock.set(0).await;
    let before = jobs(&queue).await;
    queue.store().recount().await.unwrap();
    assert_eq!(jobs(&queue).await, before);
}

/// How many keys are kept for longer than the one of the test: more than a node looks at at once.
const LONGER: i64 = 150;

/// Runs all jobs.
async fn done<S: Store>(queue: &Queue<S>) {
    let (node, _ran) = node(queue, |node| node, |_| Ok(()));
    support::live(queue, 0).await;
    assert!(node.stop(PATIENCE).await);
}

async fn a_key_is_kept_for_the_time_that_was_asked_for<A: Ahead>(mut clock: A) {
    // Others are kept for longer, and the clock was right as their jobs were done.
    let queue = clock.set(0).await;
    let longer = |number| {
        let job = support::new(format!("longer-{number}"), Duration::ZERO);
        job.unique_for(HOUR * 24 * 365 * 100)
    };
    let all = (0..LONGER).map(longer).collect();
    queue.store().schedule(all).await.unwrap();
    done(&queue).await;
    drop(queue);
    let queue = clock.set(FAR).await;
    let job = || support::new("unique", Duration::ZERO).unique_for(HOUR);
    queue.schedule_job(job()).await.unwrap();
    done(&queue).await;
    drop(queue);
    let queue = clock.set(0).await;
    // The clock was ahead, so the time begins again: as a client asks, and as a node looks.
    for _ in 0..2 {
        let made = queue.schedule_job(job()).await.unwrap();
        let Scheduled::Exists { at } = made else {
            panic!("{made:?}");
        };
        assert!(at < Time::wall().after(2 * HOUR), "{at:?}");
        queue.store().recount().await.unwrap();
        assert_eq!(clock.kept().await, LONGER + 1);
    }
    drop(queue);
    // Nothing stays of it after that.
    let queue = clock.set(2 * 3600).await;
    assert_eq!(clock.kept().await, LONGER + 1);
    queue.store().recount().await.unwrap();
    assert_eq!(clock.kept().await, LONGER);
    let made = queue.schedule_job(job()).await.unwrap();
    assert!(matches!(made, Scheduled::Created { .. }), "{made:?}");
}

#[test]
fn the_embedded_store_keeps_a_key_for_the_time_that_was_asked_for() {
    run(a_key_is_kept_for_the_time_that_was_asked_for(
        Embedded::new(),
    ));
}

#[test]
fn nothing_waits_in_the_embedded_store_for_a_time_far_ahead() {
    run(nothing_waits_for_a_time_far_ahead(Embedded::new()));
}

#[test]
fn a_clock_that_was_hours_ahead_changes_nothing_in_the_embedded_store() {
    run(a_clock_that_was_hours_ahead_changes_nothing(Embedded::new()));
}

#[cfg(feature = "postgres")]
mod postgres {
    use std::sync::Arc;

    use tokio::sync::{Semaphore, mpsc::unbounded_channel};
    use tourbillon_jobs::{Failure, Node, postgres::Postgres as PostgresStore};

    use super::*;
    use crate::{
        postgres::client,
        server::{Postgres, Server},
        shared::{connect, with_server},
    };

    impl Ahead for Postgres {
        type Store = PostgresStore;

        async fn set(&mut self, ahead: i64) -> Queue<PostgresStore> {
            PostgresStore::migrate(&Postgres::config(self.port()))
                .await
                .unwrap();
            let now = format!(
                "CREATE OR REPLACE FUNCTION durable_now() RETURNS bigint LANGUAGE sql VOLATILE AS
                 'SELECT floor(extract(epoch FROM clock_timestamp()) * 1000000)::bigint
                      + {ahead}::bigint * 1000000'"
            );
            client(self).await.batch_execute(&now).await.unwrap();
            connect::<Postgres>(self.port()).await
        }

        async fn kept(&self) -> i64 {
            let count = "SELECT count(*) FROM durable_jobs WHERE until IS NOT NULL";
            let found = client(self).await.query_one(count, &[]).await;
            found.unwrap().get(0)
        }
    }

    #[test]
    fn postgres_keeps_a_key_for_the_time_that_was_asked_for() {
        with_server::<Postgres>(a_key_is_kept_for_the_time_that_was_asked_for);
    }

    #[test]
    fn nothing_waits_in_postgres_for_a_time_far_ahead() {
        with_server::<Postgres>(nothing_waits_for_a_time_far_ahead);
    }

    #[test]
    fn a_clock_that_was_hours_ahead_changes_nothing_in_postgres() {
        with_server::<Postgres>(a_clock_that_was_hours_ahead_changes_nothing);
    }

    #[test]
    fn a_clock_that_is_not_set_changes_nothing() {
        with_server(async |mut server: Postgres| {
            let at = Time::wall().after(HOUR * 24);
            leave_behind(&server.set(0).await, at).await;
            // A machine without a battery begins in the past.
            let queue = server.set(-50 * 365 * 24 * 3600).await;
            let before = jobs(&queue).await;
            queue.store().recount().await.unwrap();
            assert_eq!(jobs(&queue).await, before);
        });
    }

    #[test]
    fn a_cron_job_that_runs_while_the_clock_is_put_back_goes_on() {
        with_server(async |mut server: Postgres| {
            let queue = server.set(FAR).await;
            let cron = Repeat::parse("* * * * * *", "UTC").unwrap();
            queue.schedule("cron", cron, "").await.unwrap();
            let gate = Arc::new(Semaphore::new(0));
            let (sender, mut ran) = unbounded_channel();
            let opened = gate.clone();
            let node = Node::builder(queue).start(move |attempt| {
                let _ = sender.send(attempt.due);
                let gate = opened.clone();
                async move { gate.acquire().await.map(drop).map_err(Failure::retry) }
            });
            let end = Time::wall().after(HOUR);
            assert!(ran.recv().await.unwrap() > end);
            drop(server.set(0).await);
            gate.add_permits(1);
            while ran.recv().await.unwrap() > end {}
            assert!(node.stop(PATIENCE).await);
        });
    }
}

#[cfg(feature = "redis")]
mod redis {
    use std::pin::pin;

    use futures_lite::future::poll_once;
    use tourbillon_jobs::{
        redis::Redis as RedisStore,
        store::{End, Finish},
    };

    use super::*;
    use crate::{
        redis::{command, eval},
        server::{Redis, Server},
        shared::{connect, with_server},
    };

    /// libfaketime does not run with Debian's redis-server, so this is as in the embedded store.
    struct Shifted {
        server: Redis,
        ahead: i64,
    }

    const SHIFT: &str = "
        for _, key in ipairs(redis.call('HKEYS', '{durable}:jobs')) do
            local job = {cmsgpack.unpack(redis.call('HGET', '{durable}:jobs', key))}
            if job[11] then
                job[1], job[2], job[11] = job[1] + LATER, job[2] + LATER, job[11] + LATER
                redis.call('HSET', '{durable}:jobs', key, cmsgpack.pack(unpack(job)))
                redis.call('ZADD', '{durable}:free', 'XX', job[2], key)
            end
        end
        for _, set in ipairs({'nodes', 'granted', 'kept', 'begun'}) do
            set = '{durable}:' .. set
            for _, node in ipairs(redis.call('ZRANGE', set, 0, -1)) do
                redis.call('ZINCRBY', set, LATER, node)
            end
        end
        local latest = redis.call('GET', '{durable}:latest')
        if latest then
            redis.call('SET', '{durable}:latest', string.format('%.0f', latest + LATER))
        end";

    impl Ahead for Shifted {
        type Store = RedisStore;

        async fn set(&mut self, ahead: i64) -> Queue<RedisStore> {
            let later = (self.ahead - ahead) * 1_000_000;
            eval(&self.server, &SHIFT.replace("LATER", &later.to_string()));
            self.ahead = ahead;
            connect::<Redis>(self.server.port()).await
        }

        async fn kept(&self) -> i64 {
            let answer = self.server.command("ZCARD {durable}:kept").unwrap();
            answer.trim_matches([':', '\r', '\n']).parse().unwrap()
        }
    }

    /// Runs a test on a server, or skips the test.
    fn with_shifted(test: impl AsyncFnOnce(Shifted)) {
        with_server(async |server| test(Shifted { server, ahead: 0 }).await);
    }

    #[test]
    fn redis_keeps_a_key_for_the_time_that_was_asked_for() {
        with_shifted(a_key_is_kept_for_the_time_that_was_asked_for);
    }

    #[test]
    fn nothing_waits_in_redis_for_a_time_far_ahead() {
        with_shifted(nothing_waits_for_a_time_far_ahead);
    }

    #[test]
    fn a_clock_that_was_hours_ahead_changes_nothing_in_redis() {
        with_shifted(a_clock_that_was_hours_ahead_changes_nothing);
    }

    #[test]
    fn a_time_that_redis_gets_amid_a_search_is_found_by_the_next_one() {
        with_shifted(async |mut server| {
            let queue = server.set(FAR).await;
            // Jobs whose times nobody has counted, in two parts of the search.
            let at = Time::wall().after(HOUR);
            let new = (0..600).map(|number| support::new(format!("later-{number:03}"), at));
            queue.store().schedule(new.collect()).await.unwrap();
            // Jobs of the first part, which run.
            let cron = Repeat::parse("* * * * * *", "UTC").unwrap();
            queue.schedule("cron", cron, "").await.unwrap();
            queue.schedule("delay", Duration::ZERO, "").await.unwrap();
            let lease = queue.store().register(HOUR).await.unwrap();
            let mut held = Vec::new();
            while held.len() < 2 {
                held.extend(support::hold(&**queue.store(), lease.node, Duration::ZERO, 10).await);
            }
            for job in &held {
                let start = Start {
                    wait: HOUR,
                    ..support::start(&job.key, job.token)
                };
                // The cron job's time may not have come yet by the clock of the server.
                while queue.store().begin(vec![start.clone()]).await.unwrap() != [support::yes(1)] {
                    sleep(Duration::from_millis(5)).await;
                }
            }
            let far = queue.store().now().after(Duration::from_secs(FAR as u64));

            let queue = server.set(0).await;
            let store = queue.store();
            // Connects, and ends before it looks at anything.
            eval(
                &server.server,
                "redis.call('RENAME', '{durable}:latest', 'aside')",
            );
            store.recount().await.unwrap();
            eval(
                &server.server,
                "redis.call('RENAME', 'aside', '{durable}:latest')",
            );
            let mut search = pin!(store.recount());
            command(&server.server, "CONFIG RESETSTAT");
            assert!(poll_once(&mut search).await.is_none());
            let has_run = || server.server.command("INFO commandstats").unwrap();
            while !has_run().contains("evalsha:calls=1,") {
                sleep(Duration::from_millis(5)).await;
            }
            // The first part is read. A node that has not learned of the step ends an attempt, and
            // the lease of another one is over.
            let cron = held.iter().find(|job| job.key == "cron").unwrap();
            let end = Finish {
                key: "cron".into(),
                token: cron.token,
                end: End::Next {
                    at: far.after(Duration::from_secs(1)),
                    counted: far,
                    error: None,
                },
            };
            assert_eq!(store.finish(vec![end]).await.unwrap(), [true]);
            store.release(lease.node).await.unwrap();
            search.await.unwrap();

            store.recount().await.unwrap();
            let soon = Time::wall().after(2 * HOUR);
            for key in ["cron", "delay"] {
                let job = queue.get(key).await.unwrap().unwrap();
                assert!(job.at < soon, "{job:?}");
            }
            // The next one finds nothing, and then nobody needs to search any more.
            store.recount().await.unwrap();
            let idle = "assert(not redis.call('HGET', '{durable}:search', 'number'))
                local now = redis.call('TIME')[1] * 1000000
                assert(now + 1000000 > tonumber(redis.call('GET', '{durable}:latest')))";
            eval(&server.server, idle);
        });
    }

    #[test]
    fn a_lease_that_version_1_has_ended_leaves_nothing_behind() {
        with_shifted(async |server| {
            let queue = connect::<Redis>(server.server.port()).await;
            let lease = queue.store().register(HOUR).await.unwrap();
            // Version 1 knows only this key, and the clock is put back.
            let ended = "redis.call('ZREM', '{durable}:nodes', NODE)
                redis.call('ZINCRBY', '{durable}:granted', 1e9, NODE)";
            eval(
                &server.server,
                &ended.replace("NODE", &lease.node.to_string()),
            );
            queue.store().free_others().await.unwrap();
            let none = "assert(redis.call('ZCARD', '{durable}:granted') == 0)";
            eval(&server.server, none);
        });
    }
}
