//! The store on Redis.

use std::{collections::HashSet, time::Duration};

use tourbillon_jobs::{
    NewJob, Queue, QueueError, Time,
    redis::Redis as RedisStore,
    store::{Counts, End, Finish, Held, Kinds, Listing, Scheduled, Span, Store, StoreError},
};

use crate::{
    cases,
    server::{Redis, Server},
    shared::{LEASE, connect, on_server, start, tests, with_server},
    support::{self, HOUR, PATIENCE, live, node, run},
};

tests!(Redis);

/// Sends a command that the server has to obey.
#[track_caller]
pub fn command(server: &Redis, line: &str) {
    assert_eq!(server.command(line).unwrap(), "+OK\r\n", "{line}");
}

/// Runs a script on the server.
#[track_caller]
pub fn eval(server: &Redis, script: &str) {
    // A command has one line.
    let lines = script.lines().map(str::trim);
    let script: Vec<_> = lines.filter(|line| !line.starts_with("--")).collect();
    let answer = server.command(&format!("EVAL \"{}\" 0", script.join(" ")));
    assert_eq!(answer.unwrap(), "$-1\r\n");
}

/// Grants a lease, as a node of version 2 does.
const LEASE_OF_VERSION_2: &str = "
    local clock = redis.call('TIME')
    local node = redis.call('INCR', '{durable}:last')
    redis.call('ZADD', '{durable}:nodes', clock[1] * 1000000 + clock[2] + 60000000, node)";

#[test]
fn kinds_wait_until_nodes_of_earlier_versions_are_gone() {
    with_server(async |server: Redis| {
        let url = format!("redis://127.0.0.1:{}", server.port());
        eval(&server, "redis.call('SET', '{durable}:version', 2)");
        eval(&server, LEASE_OF_VERSION_2);
        RedisStore::migrate(&url).await.unwrap();
        let queue = Queue::new(RedisStore::connect(&url).await.unwrap());
        let (modern, mut ran) = node(&queue, |node| node.lease(LEASE), |_| Ok(()));
        queue.schedule("first", Duration::ZERO, "").await.unwrap();
        let first = ran.recv().await.unwrap();
        let mail = || NewJob::new("mail", HOUR, "").kind("mail");
        let refused = queue.schedule_job(mail()).await.unwrap_err();
        let is_told = matches!(refused, QueueError::Store(StoreError::EarlierNodes));
        assert!(is_told, "{refused}");
        let job = |key: &str| NewJob::new(key, HOUR, "");
        for job in [job("job").priority(0), job("job").queue("mails")] {
            let refused = queue.schedule_job(job).await.unwrap_err();
            let is_told = matches!(refused, QueueError::Store(StoreError::EarlierNodes));
            assert!(is_told, "{refused}");
        }
        let refused = queue.pause("default").await.unwrap_err();
        let is_told = matches!(refused, QueueError::Store(StoreError::EarlierNodes));
        assert!(is_told, "{refused}");
        // One of them gets another lease meanwhile.
        eval(&server, LEASE_OF_VERSION_2);

        // They end. From the first job with a kind on, none gets a lease.
        let ended = "for _, node in ipairs(redis.call('ZRANGE', '{durable}:nodes', 0, -1)) do
            if redis.call('SISMEMBER', '{durable}:modern', node) == 0 then
                redis.call('ZREM', '{durable}:nodes', node)
            end
        end";
        eval(&server, ended);
        queue.schedule_job(mail()).await.unwrap();
        queue.schedule_job(job("urgent").priority(0)).await.unwrap();
        queue
            .schedule_job(job("a mail").queue("mails"))
            .await
            .unwrap();
        let line = LEASE_OF_VERSION_2.replace('\n', " ");
        let answer = server.command(&format!("EVAL \"{line}\" 0")).unwrap();
        assert!(answer.contains("not an integer"), "{answer}");
        // The numbers go on.
        queue.schedule("later", Duration::ZERO, "").await.unwrap();
        assert!(ran.recv().await.unwrap().token > first.token);
        assert!(modern.stop(PATIENCE).await);
    });
}

/// Grants a lease, as a node of version 3 does where kinds are admitted.
const LEASE_OF_VERSION_3: &str = "
    local clock = redis.call('TIME')
    local node = redis.call('INCRBY', '{durable}:numbers', 1)
    redis.call('ZADD', '{durable}:nodes', clock[1] * 1000000 + clock[2] + 60000000, node)";

#[test]
fn keys_are_kept_when_nodes_of_earlier_versions_are_gone() {
    with_server(async |server: Redis| {
        let url = format!("redis://127.0.0.1:{}", server.port());
        eval(&server, include_str!("version_3/redis.lua"));
        eval(&server, LEASE_OF_VERSION_3);
        RedisStore::migrate(&url).await.unwrap();
        let queue = Queue::new(RedisStore::connect(&url).await.unwrap());
        let (newest, mut ran) = node(&queue, |node| node.lease(LEASE), |_| Ok(()));
        let job = |key: &str| NewJob::new(key, Duration::ZERO, "").priority(0);
        let unique = || job("unique").unique_for(HOUR);
        let refused = queue.schedule_job(unique()).await.unwrap_err();
        let is_told = matches!(refused, QueueError::Store(StoreError::EarlierNodes));
        assert!(is_told, "{refused}");
        // What version 3 knows is taken.
        queue.schedule_job(job("first")).await.unwrap();
        let first = loop {
            let attempt = ran.recv().await.unwrap();
            if attempt.key == "first" {
                break attempt;
            }
        };
        // The earlier ones end. From then on, none gets a lease.
        let ended = "for _, node in ipairs(redis.call('ZRANGE', '{durable}:nodes', 0, -1)) do
            if redis.call('SISMEMBER', '{durable}:newest', node) == 0 then
                redis.call('ZREM', '{durable}:nodes', node)
            end
        end";
        eval(&server, ended);
        queue.schedule_job(unique()).await.unwrap();
        let line = LEASE_OF_VERSION_3.replace('\n', " ");
        let answer = server.command(&format!("EVAL \"{line}\" 0")).unwrap();
        assert!(answer.contains("not an integer"), "{answer}");
        // The numbers go on.
        loop {
            let attempt = ran.recv().await.unwrap();
            if attempt.key == "unique" {
                break assert!(attempt.token > first.token);
            }
        }
        let is_done = async { while queue.get("unique").await.unwrap().is_some() {} };
        support::soon("for the end of the job", is_done).await;
        let again = queue.schedule_job(unique()).await.unwrap();
        assert!(matches!(again, Scheduled::Exists { .. }), "{again:?}");
        assert!(newest.stop(PATIENCE).await);
    });
}

#[test]
fn a_job_that_an_earlier_version_adds_over_a_kept_key_keeps_none() {
    on_server(async |server: Redis, queue| {
        let run_all = async || {
            let (node, _ran) = node(&queue, |node| node, |_| Ok(()));
            support::live(&queue, 0).await;
            assert!(node.stop(PATIENCE).await);
        };
        let job = NewJob::new("job", Duration::ZERO, "").unique_for(HOUR);
        queue.schedule_job(job).await.unwrap();
        run_all().await;
        let made = queue.schedule("job", HOUR, "").await.unwrap();
        assert!(matches!(made, Scheduled::Exists { .. }), "{made:?}");
        // Version 3 does not look whether the key is kept.
        let old = "redis.call('HSET', '{durable}:jobs', 'job', cmsgpack.pack(7, 7, 0, false, false,
                false, false, false, false, false, false, '', 4, 'default'))
            redis.call('HSET', '{durable}:payloads', 'job', '')
            redis.call('ZADD', '{durable}:keys', 0, 'job')
            redis.call('ZADD', '{durable}:free', 7, 'job')";
        eval(&server, old);
        assert_eq!(queue.count().await.unwrap().live, 1);
        run_all().await;
        let made = queue.schedule("job", HOUR, "").await.unwrap();
        assert!(matches!(made, Scheduled::Created { .. }), "{made:?}");
    });
}

#[test]
fn a_client_of_an_earlier_version_stops_no_node() {
    on_server(async |server: Redis, queue| {
        for key in ["cancelled", "moved", "stays"] {
            let job = NewJob::new(key, HOUR, "").kind("mail").priority(1);
            queue.schedule_job(job).await.unwrap();
        }
        // Version 2 knows no lanes. It packs none of their parts, so a job that it moves has the
        // default ones.
        let old = "redis.call('HDEL', '{durable}:jobs', 'cancelled')
            redis.call('HDEL', '{durable}:payloads', 'cancelled')
            redis.call('ZREM', '{durable}:keys', 'cancelled')
            redis.call('HSET', '{durable}:jobs', 'moved',
                cmsgpack.pack(7, 7, 0, false, false, false, false, false, false, false, false))
            redis.call('ZADD', '{durable}:free', 7, 'moved')";
        eval(&server, old);
        queue.reschedule("stays", Duration::ZERO).await.unwrap();
        let (node, mut ran) = node(&queue, |node| node, |_| Ok(()));
        let attempt = ran.recv().await.unwrap();
        assert_eq!((&*attempt.key, &*attempt.kind), ("moved", ""));
        let store = queue.store();
        let lease = store.register(HOUR).await.unwrap().node;
        let within = Span::Within(2 * HOUR);
        let mail = Kinds::only(["mail"]);
        for span in [Span::Due, within] {
            let held = store.hold(lease, span, "default", &mail, 10).await.unwrap();
            let keys: Vec<_> = held.iter().map(|job| job.key.as_str()).collect();
            let expected: &[&str] = if span == within { &[] } else { &["stays"] };
            assert_eq!(keys, expected);
        }
        live(&queue, 1).await;
        assert!(node.stop(PATIENCE).await);
    });
}

/// A look finds all jobs, also if a client of version 2 has cancelled one of them.
#[test]
fn a_job_that_an_earlier_client_cancelled_ends_no_look() {
    on_server(async |server: Redis, queue| {
        for number in 0..40 {
            let job = NewJob::new(format!("job/{number}"), Duration::ZERO, "").kind("mail");
            queue.schedule_job(job).await.unwrap();
        }
        let old = "redis.call('HDEL', '{durable}:jobs', 'job/0')
            redis.call('HDEL', '{durable}:payloads', 'job/0')
            redis.call('ZREM', '{durable}:keys', 'job/0')";
        eval(&server, old);
        let store = queue.store();
        let lease = store.register(HOUR).await.unwrap().node;
        let mail = Kinds::only(["mail"]);
        let held = store
            .hold(lease, Span::Due, "default", &mail, 64)
            .await
            .unwrap();
        assert_eq!(held.len(), 39);
    });
}

#[test]
fn settings_that_could_lose_jobs_are_refused() {
    with_server(async |server: Redis| {
        let url = format!("redis://127.0.0.1:{}", server.port());
        let queue = Queue::new(RedisStore::connect(&url).await.unwrap());
        for (setting, wrong, right) in [
            ("appendonly", "no", "yes"),
            ("appendfsync", "everysec", "always"),
            ("no-appendfsync-on-rewrite", "yes", "no"),
            ("maxmemory-policy", "allkeys-lru", "noeviction"),
        ] {
            command(&server, &format!("CONFIG SET {setting} {wrong}"));
            let error = RedisStore::connect(&url).await.unwrap_err();
            assert!(
                matches!(
                    &error,
                    StoreError::Setting { name, value, needed }
                        if (*name, value.as_str(), *needed) == (setting, wrong, right)
                ),
                "{error}"
            );
            RedisStore::connect_unchecked(&url).await.unwrap();
            // They are checked again when the connection is made again.
            server.command("CLIENT KILL TYPE normal").unwrap();
            let refused = loop {
                match queue.count().await {
                    Err(QueueError::Store(StoreError::Setting { name, .. })) => break name,
                    // The end of the connection.
                    Err(_) => {}
                    Ok(counts) => panic!("{counts:?}"),
                }
            };
            assert_eq!(refused, setting);
            command(&server, &format!("CONFIG SET {setting} {right}"));
            queue.count().await.unwrap();
        }
    });
}

#[test]
fn a_server_without_memory_refuses_and_loses_nothing() {
    on_server(async |server: Redis, queue| {
        let delay = Duration::from_secs(2);
        let job = async |key| queue.schedule(key, delay, vec![1; 1000]).await;
        job("job-0").await.unwrap();
        command(&server, "CONFIG SET maxmemory 4mb");
        let (node, mut ran) = cases::fill_and_run(&queue, 1, delay).await;
        while let Err(error) = job("there is room").await {
            assert!(
                matches!(error, QueueError::Store(StoreError::Full)),
                "{error}"
            );
        }
        assert_eq!(ran.recv().await.unwrap().key, "there is room");
        assert!(node.stop(PATIENCE).await);
    });
}

#[test]
fn a_server_with_a_full_disk_loses_nothing() {
    if start::<Redis>().is_none() {
        return;
    }
    // Its log may not grow beyond 300 KiB.
    let limit = "trap '' XFSZ; ulimit -S -f 600; exec \"$0\" \"$@\"";
    let mut server = Redis::start_by(&["sh", "-c", limit]).unwrap();
    run(async {
        let queue = connect::<Redis>(server.port()).await;
        let mut acknowledged = 0;
        loop {
            let job = queue.schedule(format!("job-{acknowledged}"), HOUR, vec![1; 1000]);
            match job.await {
                Ok(_) => acknowledged += 1,
                // The server has ended.
                Err(QueueError::Store(StoreError::Failed(_))) => break,
                Err(error) => panic!("{error}"),
            }
        }
        assert!(acknowledged > 20, "{acknowledged}");
        // It starts again, and there is room.
        tourbillon::task::block_in_place(|| server.crash().unwrap());
        for number in 0..acknowledged {
            let job = queue.get(format!("job-{number}")).await.unwrap();
            assert!(job.is_some(), "job-{number}");
        }
        queue.schedule("there is room", HOUR, "").await.unwrap();
    });
}

#[test]
fn a_script_that_the_server_forgot_is_sent_again() {
    on_server(async |server: Redis, queue| {
        queue.schedule("one", HOUR, "").await.unwrap();
        command(&server, "SCRIPT FLUSH");
        queue.schedule("two", HOUR, "").await.unwrap();
        assert_eq!(queue.count().await.unwrap().live, 2);
    });
}

#[test]
fn each_database_has_its_jobs() {
    with_server(async |server: Redis| {
        let socket = server.socket();
        let url = format!("redis+unix://{}", socket.display());
        let first = Queue::new(RedisStore::connect(&url).await.unwrap());
        let url = format!("redis://127.0.0.1:{}/1", server.port());
        let second = Queue::new(RedisStore::connect(&url).await.unwrap());
        first.schedule("job", HOUR, "").await.unwrap();
        let counts = second.count().await.unwrap();
        assert_eq!(counts, Counts { live: 0, dead: 0 });
        // Nodes of the second one learn of its jobs.
        let (node, mut ran) = node(&second, |node| node, |_| Ok(()));
        second.schedule("job", LEASE, "").await.unwrap();
        ran.recv().await.unwrap();
        live(&second, 0).await;
        assert!(first.get("job").await.unwrap().is_some());
        assert!(node.stop(PATIENCE).await);
    });
}

#[test]
fn requests_of_several_scripts_are_complete() {
    on_server(async |_server: Redis, queue| {
        let store = queue.store();
        let keys: Vec<String> = (0..1100).map(|number| format!("job-{number:04}")).collect();
        let jobs = keys
            .iter()
            .map(|key| support::new(key.clone(), Duration::ZERO));
        store.schedule(jobs.collect()).await.unwrap();
        // A hold, and the end of its lease.
        let hold = async || {
            let node = store.register(HOUR).await.unwrap().node;
            let held = support::hold(&**store, node, HOUR, 1000).await;
            (node, held)
        };
        let (one, first) = hold().await;
        assert_eq!(first.len(), 1000);
        assert_eq!(hold().await.1.len(), 100);
        store.release(one).await.unwrap();
        let (_, second) = hold().await;
        let names = |held: &[Held]| -> HashSet<String> {
            held.iter().map(|held| held.key.clone()).collect()
        };
        assert_eq!(names(&first), names(&second));
        // Its tokens are stale.
        let finish = |held: &Held| Finish {
            key: held.key.clone(),
            token: held.token,
            end: End::Done,
        };
        let ends = first.iter().map(finish).collect();
        assert!(!store.finish(ends).await.unwrap().contains(&true));
        // A list.
        let list = async |search: &str, limit| -> Vec<String> {
            let listing = Listing {
                search: search.into(),
                limit,
                ..Listing::default()
            };
            let found = queue.list(listing).await.unwrap();
            found.into_iter().map(|job| job.key).collect()
        };
        assert_eq!(list("", 2000).await, keys);
        assert_eq!(list("", 300).await, keys[..300]);
        assert_eq!(list("99", 2000).await.len(), 20);
        assert_eq!(list("1099", 2000).await, keys[1099..]);
    });
}

#[test]
fn times_beyond_53_bits_are_rounded_up() {
    on_server(async |_server: Redis, queue| {
        for micros in [(1 << 53) - 1, (1 << 53) + 1, (1 << 60) + 7] {
            let asked = Time::from_micros(micros);
            let made = queue.schedule(micros.to_string(), asked, "").await.unwrap();
            let Scheduled::Created { at } = made else {
                panic!("{made:?}");
            };
            assert!(
                at >= asked && at.since(asked) < Duration::from_millis(1),
                "{at:?}"
            );
            let job = queue.get(micros.to_string()).await.unwrap().unwrap();
            assert_eq!(job.at, at);
        }
        // The end of time is far enough.
        let far = queue.schedule("far", Time::from_micros(i64::MAX), "").await;
        assert!(matches!(far, Ok(Scheduled::Created { .. })), "{far:?}");
        let far = queue.schedule("later", Duration::MAX, "").await;
        assert!(matches!(far, Ok(Scheduled::Created { .. })), "{far:?}");
    });
}
