//! Servers of PostgreSQL with settings, roles and addresses of all kinds.

use std::{collections::BTreeMap, net::TcpListener, process::Command};

use tourbillon_jobs::{Queue, postgres::Postgres as Store, store::Store as _};

use crate::{
    postgres::{client, with_client},
    server::{Postgres, Server},
    shared::{connect, on_server, start, with_server},
    support::{HOUR, run, works},
};

/// Connects, and returns the text of the error.
async fn error(config: &str) -> String {
    match Store::connect(config).await {
        Ok(_) => panic!("{config} leads to a server"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn the_defaults_of_the_server_decide_nothing() {
    with_client(async |server, other| {
        drop(connect::<Postgres>(server.port()).await);
        // What the sessions go by when they change a job.
        let seen = "
            CREATE TABLE seen (name text, value text);
            CREATE FUNCTION see() RETURNS trigger LANGUAGE plpgsql AS $$
            BEGIN
                INSERT INTO seen SELECT name, current_setting(name, true) FROM unnest(array[
                    'transaction_isolation', 'synchronous_commit', 'lock_timeout',
                    'statement_timeout', 'idle_in_transaction_session_timeout']) AS name;
                RETURN NULL;
            END $$;
            CREATE TRIGGER see AFTER INSERT ON durable_jobs EXECUTE FUNCTION see();
            ALTER ROLE postgres SET default_transaction_isolation = 'serializable';
            ALTER ROLE postgres SET default_transaction_read_only = on;
            ALTER ROLE postgres SET synchronous_commit = off;
            ALTER ROLE postgres SET lock_timeout = '7ms';
            ALTER ROLE postgres SET statement_timeout = '2s';
            ALTER ROLE postgres SET idle_in_transaction_session_timeout = '1ms';";
        other.batch_execute(seen).await.unwrap();
        let queue = connect::<Postgres>(server.port()).await;
        works(&queue).await;
        let found = other.query("SELECT name, value FROM seen", &[]).await;
        let found: BTreeMap<String, String> = found
            .unwrap()
            .iter()
            .map(|row| (row.get(0), row.get(1)))
            .collect();
        let found: Vec<_> = found
            .iter()
            .map(|(k, v)| (k.as_str(), v.as_str()))
            .collect();
        assert_eq!(
            found,
            [
                ("idle_in_transaction_session_timeout", "0"),
                ("lock_timeout", "50ms"),
                ("statement_timeout", "8s"),
                ("synchronous_commit", "on"),
                ("transaction_isolation", "read committed"),
            ]
        );
    });
}

#[test]
fn a_statement_that_the_server_has_undone_is_repeated() {
    on_server(async |server: Postgres, queue| {
        let other = client(&server).await;
        // A sequence keeps its number although the statement is undone.
        let fails = "
            CREATE SEQUENCE tries;
            CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$
            BEGIN
                IF nextval('tries') % 3 <> 0 THEN
                    RAISE EXCEPTION 'could not serialize' USING ERRCODE = '40001';
                END IF;
                RETURN NULL;
            END $$;
            CREATE TRIGGER fail AFTER INSERT OR UPDATE OR DELETE ON durable_jobs
                FOR EACH ROW EXECUTE FUNCTION fail();";
        other.batch_execute(fails).await.unwrap();
        works(&queue).await;
    });
}

#[test]
fn errors_say_what_the_server_said() {
    with_server(async |server: Postgres| {
        let config = |part: &str| format!("host=127.0.0.1 port={} {part}", server.port());
        let missing = error(&config("user=postgres dbname=missing")).await;
        assert!(
            missing.contains("database \"missing\" does not exist"),
            "{missing}"
        );
        let nobody = error(&config("user=nobody dbname=postgres")).await;
        assert!(
            nobody.contains("role \"nobody\" does not exist"),
            "{nobody}"
        );
        let queue = connect::<Postgres>(server.port()).await;
        let other = client(&server).await;
        let refuses = "ALTER TABLE durable_jobs ADD CONSTRAINT small CHECK (length(key) < 4)";
        other.batch_execute(refuses).await.unwrap();
        let refused = queue.schedule("a long key", HOUR, "").await.unwrap_err();
        let refused = refused.to_string();
        assert!(
            refused.contains("violates check constraint \"small\""),
            "{refused}"
        );
    });
}

#[test]
fn a_role_with_rights_on_the_tables_is_enough() {
    with_client(async |server, other| {
        let role = "
            CREATE ROLE worker LOGIN;
            REVOKE CREATE ON SCHEMA public FROM public;";
        other.batch_execute(role).await.unwrap();
        let worker = format!(
            "host=127.0.0.1 port={} user=worker dbname=postgres",
            server.port()
        );
        // There are no tables yet, and this role may not make any.
        let missing = error(&worker).await;
        assert!(missing.contains("has no tables"), "{missing}");
        let refused = Store::migrate(&worker).await.unwrap_err().to_string();
        assert!(
            refused.contains("permission denied for schema public"),
            "{refused}"
        );
        Store::migrate(&Postgres::config(server.port()))
            .await
            .unwrap();
        // Somebody else makes the tables meanwhile.
        Store::migrate(&Postgres::config(server.port()))
            .await
            .unwrap();
        let rights = "
            GRANT SELECT, INSERT, UPDATE, DELETE ON durable_jobs, durable_nodes TO worker;
            GRANT SELECT ON durable_version TO worker;
            GRANT USAGE ON SEQUENCE durable_numbers TO worker;";
        other.batch_execute(rights).await.unwrap();
        // Nothing is left to do, so this needs no further rights.
        Store::migrate(&worker).await.unwrap();
        let queue = Queue::new(Store::connect(&worker).await.unwrap());
        works(&queue).await;
        assert_eq!(queue.count().await.unwrap().live, 0);
        assert!(
            queue
                .store()
                .list(Default::default())
                .await
                .unwrap()
                .is_empty()
        );
    });
}

#[test]
fn the_program_makes_the_tables_and_ends() {
    let Some(server) = start::<Postgres>() else {
        return;
    };
    let made = Command::new(env!("CARGO_BIN_EXE_delayed_jobs"))
        .args(["--migrate", "--postgres", &Postgres::config(server.port())])
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
    run(async {
        let other = client(&server).await;
        let found = other
            .query("SELECT version FROM durable_version", &[])
            .await;
        assert_eq!(found.unwrap().len(), 1);
    });
}

#[test]
fn each_host_is_tried_and_a_standby_is_passed_over() {
    let Some(mut standby) = start::<Postgres>() else {
        return;
    };
    let server = start::<Postgres>().unwrap();
    run(async {
        // Make it a standby, which follows no primary.
        let other = client(&standby).await;
        let signal = "COPY (SELECT '') TO PROGRAM 'cat > standby.signal'";
        other.batch_execute(signal).await.unwrap();
    });
    standby.crash().unwrap();
    // Nobody accepts its connections.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = silent.local_addr().unwrap().port();
    run(async {
        let rest = "user=postgres dbname=postgres connect_timeout=1";
        let (down, standby) = (1, standby.port());
        let alone = error(&format!("host=127.0.0.1 port={standby} {rest}")).await;
        assert!(alone.contains("standby"), "{alone}");
        let all = format!("{down},{silent},{standby}");
        let none = error(&format!(
            "host=127.0.0.1,127.0.0.1,localhost port={all} {rest}"
        ))
        .await;
        for part in ["port 1: ", "refused", "does not answer", "standby"] {
            assert!(none.contains(part), "{part}: {none}");
        }
        let hosts = "127.0.0.1,127.0.0.1,localhost,127.0.0.1";
        let config = format!("host={hosts} port={all},{} {rest}", server.port());
        Store::migrate(&config).await.unwrap();
        works(&Queue::new(Store::connect(&config).await.unwrap())).await;
        let config = format!("hostaddr={hosts} port={all},{}", server.port());
        let config = config.replace("localhost", "127.0.0.1");
        Store::connect(&format!("{config} {rest}")).await.unwrap();
        let uneven = error(&format!("host={hosts} port=1,2 {rest}")).await;
        assert!(uneven.contains("port"), "{uneven}");
    });
}
