//! Several servers of PostgreSQL.

use std::{fs, time::Duration};

use tokio_postgres::Client;
use tourbillon::{task::block_in_place, time::sleep};
use tourbillon_jobs::{
    Queue,
    postgres::Postgres as Store,
    store::{Cancelled, Listing, Store as _},
};

use crate::{
    postgres::client,
    server::{Postgres, Server},
    shared::start,
    support::{HOUR, PATIENCE, live, node, run, soon, works},
};

/// Returns a configuration that names these servers.
fn config(servers: &[&Postgres]) -> String {
    let ports: Vec<_> = servers.iter().map(|one| one.port().to_string()).collect();
    let hosts = vec!["127.0.0.1"; ports.len()].join(",");
    let rest = "user=postgres dbname=postgres target_session_attrs=read-write";
    format!("host={hosts} port={} {rest}", ports.join(","))
}

/// Starts a server, and a standby of it, without which the server acknowledges no commit.
fn pair() -> Option<(Postgres, Postgres)> {
    let mut primary = start::<Postgres>()?;
    primary.write("pg_hba.conf", "host all,replication all 127.0.0.1/32 trust");
    primary.crash().unwrap();
    let mut standby = start::<Postgres>()?;
    standby.halt();
    fs::remove_dir_all(standby.data()).unwrap();
    let mut copy = standby.command("pg_basebackup").unwrap();
    let from = format!("host=127.0.0.1 port={} user=postgres", primary.port());
    let copied = copy
        .args([
            "--write-recovery-conf",
            "--checkpoint=fast",
            "-d",
            &from,
            "-D",
        ])
        .arg(standby.data())
        .status()
        .unwrap();
    assert!(copied.success());
    standby.crash().unwrap();
    primary.settings.push("synchronous_standby_names=*".into());
    primary.crash().unwrap();
    Some((primary, standby))
}

#[test]
fn nodes_go_on_with_a_standby_that_is_promoted() {
    let Some((mut primary, standby)) = pair() else {
        return;
    };
    run(async {
        for servers in [[&primary, &standby], [&standby, &primary]] {
            let config = config(&servers);
            Store::migrate(&config).await.unwrap();
            works(&Queue::new(Store::connect(&config).await.unwrap())).await;
        }
        let queue = Queue::new(
            Store::connect(&config(&[&primary, &standby]))
                .await
                .unwrap(),
        );
        let lease = Duration::from_secs(2);
        let (node, mut ran) = node(&queue, |node| node.lease(lease).window(HOUR), |_| Ok(()));
        queue.schedule("first", Duration::ZERO, "").await.unwrap();
        assert_eq!(ran.recv().await.unwrap().key, "first");
        live(&queue, 0).await;
        queue
            .schedule("before", Duration::from_secs(3), "")
            .await
            .unwrap();
        block_in_place(|| primary.halt());
        let other = client(&standby).await;
        let promoted = other.query_one("SELECT pg_promote()", &[]).await.unwrap();
        assert!(promoted.get::<_, bool>(0));
        // What the first server has acknowledged is there, and is not early.
        let before = ran.recv().await.unwrap();
        assert_eq!(before.key, "before");
        while queue
            .schedule("after", Duration::from_millis(50), "")
            .await
            .is_err()
        {}
        // It may run twice: its end may have been lost.
        while ran.recv().await.unwrap().key != "after" {}
        live(&queue, 0).await;
        assert!(node.stop(PATIENCE).await);
    });
}

/// Ends the connections that have read jobs. None of them is being made.
const ENDS: &str = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
    WHERE pid <> pg_backend_pid() AND query LIKE '%FROM durable_jobs%'";

#[test]
fn a_store_stays_with_the_server_that_it_used_last() {
    let Some(mut first) = start::<Postgres>() else {
        return;
    };
    let second = start::<Postgres>().unwrap();
    run(async {
        let both = config(&[&first, &second]);
        for server in [&first, &second] {
            Store::migrate(&Postgres::config(server.port()))
                .await
                .unwrap();
        }
        let queue = Queue::new(Store::connect(&both).await.unwrap());
        queue.schedule("on the first", HOUR, "").await.unwrap();
        block_in_place(|| first.halt());
        while queue.schedule("on the second", HOUR, "").await.is_err() {}
        let other = client(&second).await;
        listens(&other).await;
        // An earlier primary is back, and takes writes, too.
        block_in_place(|| first.crash().unwrap());
        for _ in 0..3 {
            // These are two connections.
            other.query_one(ENDS, &[]).await.unwrap();
            let listed = loop {
                let listing = Listing {
                    limit: 10,
                    ..Listing::default()
                };
                if let Ok(listed) = queue.store().list(listing).await {
                    break listed;
                }
            };
            assert_eq!(listed[0].key, "on the second");
            let found = loop {
                if let Ok(found) = queue.get("on the second").await {
                    break found;
                }
            };
            assert!(found.is_some());
        }
    });
}

#[test]
fn all_connections_of_a_store_meet_at_one_server() {
    let Some(mut first) = start::<Postgres>() else {
        return;
    };
    let second = start::<Postgres>().unwrap();
    run(async {
        let both = config(&[&first, &second]);
        let one = |server: &Postgres| Postgres::config(server.port());
        for server in [&first, &second] {
            Store::migrate(&one(server)).await.unwrap();
        }
        let queue = Queue::new(Store::connect(&both).await.unwrap());
        let list = async || {
            let listing = Listing {
                limit: 10,
                ..Listing::default()
            };
            queue.store().list(listing).await
        };
        queue.schedule("on the first", HOUR, "").await.unwrap();
        block_in_place(|| first.halt());
        // These are three connections, and a fourth one listens.
        while queue.schedule("on the second", HOUR, "").await.is_err() {}
        while list().await.is_err() {}
        while queue.cancel("none").await.is_err() {}
        let at_second = client(&second).await;
        listens(&at_second).await;
        block_in_place(|| first.crash().unwrap());
        let at_first = client(&first).await;

        // The second server lets nobody in for a while, and one connection is lost.
        let rule = async |rule: &str, is_open: bool| {
            second.write("pg_hba.conf", &format!("host all all 127.0.0.1/32 {rule}"));
            let reload = "SELECT pg_reload_conf()";
            at_second.query_one(reload, &[]).await.unwrap();
            while Store::connect(&one(&second)).await.is_ok() != is_open {}
        };
        rule("reject", false).await;
        assert!(queue.get("on the second").await.unwrap().is_some());
        let ends = format!("{ENDS} AND query LIKE '%WHERE j.key = $1%'");
        let ended = at_second.query_one(&ends, &[]).await.unwrap();
        assert_eq!(ended.get::<_, i64>(0), 1);
        let found = loop {
            if let Ok(found) = queue.get("on the first").await {
                break found;
            }
        };
        assert!(found.is_some());
        rule("trust", true).await;

        // The others follow.
        assert_eq!(list().await.unwrap()[0].key, "on the first");
        let cancelled = queue.cancel("on the first").await.unwrap();
        assert_eq!(cancelled, Cancelled::Cancelled);
        listens(&at_first).await;
    });
}

/// Waits until a connection listens, which asks for nothing from time to time.
async fn listens(other: &Client) {
    let looks = "SELECT count(*) FROM pg_stat_activity
        WHERE backend_type = 'client backend' AND state = 'idle' AND query = ''";
    let listens = async {
        while other.query_one(looks, &[]).await.unwrap().get::<_, i64>(0) == 0 {
            sleep(Duration::from_millis(50)).await;
        }
    };
    soon("for a connection that listens", listens).await;
}
