//! How PostgreSQL does the statements that look for jobs.

use tokio_postgres::Client;
use tourbillon_jobs::store::{DeadJobs, Kinds, Span, Store};

use crate::{postgres::client, server::Postgres, shared::on_server, support::HOUR};

/// Returns the last statement of a session of the store, which is like this.
async fn last(client: &Client, like: &str) -> String {
    let last = "
        SELECT query FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND query LIKE $1";
    let found = client.query(last, &[&like]).await.unwrap();
    assert_eq!(found.len(), 1, "one session does this");
    found[0].get(0)
}

/// Returns how the server does a statement, for each mode of its plans.
async fn plans(client: &Client, statement: &str, values: &str) -> Vec<(&'static str, String)> {
    let mut plans = Vec::new();
    for mode in ["force_custom_plan", "force_generic_plan"] {
        let prepare = format!("SET plan_cache_mode = {mode}; PREPARE look AS {statement}");
        client.batch_execute(&prepare).await.unwrap();
        let explain = format!("EXPLAIN EXECUTE look({values})");
        let plan = client.query(&explain, &[]).await.unwrap();
        let plan: Vec<String> = plan.iter().map(|row| row.get(0)).collect();
        client.batch_execute("DEALLOCATE look").await.unwrap();
        plans.push((mode, plan.join("\n")));
    }
    plans
}

/// Returns the last statement of the store's session that looks for jobs.
async fn last_look(client: &Client) -> String {
    last(client, "%generate_series%durable_jobs%").await
}

/// Checks that a statement reads free jobs in the order of the index, and only this part of it.
async fn reads_the_index(client: &Client, statement: &str, values: &str) {
    for (mode, plan) in plans(client, statement, values).await {
        assert!(plan.contains("using durable_jobs_lane"), "{plan}");
        let is_bound = |line: &str| line.contains("Index Cond:") && line.contains("priority");
        assert!(plan.lines().any(is_bound), "{mode}: {plan}");
        for bad in [
            "Seq Scan on durable_jobs",
            "Bitmap Index Scan on durable_jobs_lane",
            "Sort Key: j.at",
        ] {
            assert!(!plan.contains(bad), "{mode}: {bad}: {plan}");
        }
    }
}

#[test]
fn a_look_for_jobs_reads_only_those_that_it_takes() {
    on_server(async |server: Postgres, queue| {
        let (store, other) = (queue.store(), client(&server).await);
        let node = store.register(HOUR).await.unwrap().node;
        // Most jobs are of one kind and one priority, and due.
        let jobs = "
            INSERT INTO durable_jobs (key, payload, due, at, kind, priority)
            SELECT n, '', n, n, CASE n % 10 WHEN 0 THEN 'mail' ELSE '' END,
                CASE n % 7 WHEN 0 THEN 0 ELSE 4 END
            FROM generate_series(1, 20000) AS n";
        let due = "-4000000000000000, 0";
        for make in [jobs, "ANALYZE durable_jobs"] {
            other.batch_execute(make).await.unwrap();
            for (kinds, value) in [
                (Kinds::All, "NULL"),
                (Kinds::only(["", "mail"]), "'{\"\",mail}'"),
                (Kinds::only(["mail"]), "'mail'"),
            ] {
                store
                    .hold(node, Span::Above(1), "default", &kinds, 1)
                    .await
                    .unwrap();
                let values = format!("{node}, {due}, 100, {value}, 9, 'default'");
                reads_the_index(&other, &last_look(&other).await, &values).await;
            }
            for (kinds, value) in [(Kinds::All, "NULL"), (Kinds::only(["mail"]), "'{mail}'")] {
                store.skipped(Span::Due, "default", &kinds).await.unwrap();
                let values = format!("{due}, {value}, 9, 'default'");
                reads_the_index(&other, &last_look(&other).await, &values).await;
            }
        }
    });
}

#[test]
fn a_part_of_the_dead_jobs_is_found_by_their_index() {
    on_server(async |server: Postgres, queue| {
        let other = client(&server).await;
        // Most jobs are dead, or few are.
        let jobs = "
            INSERT INTO durable_jobs (key, payload, due, at, kind, dead)
            SELECT lpad(n::text, 9, '0'), '', n, n, CASE n % 10 WHEN 0 THEN 'mail' ELSE '' END,
                n % 50 > 0
            FROM generate_series(1, 100000) AS n";
        let revive = "UPDATE durable_jobs SET dead = false WHERE key > '000001000'";
        for make in [jobs, revive] {
            other.batch_execute(make).await.unwrap();
            other.batch_execute("ANALYZE durable_jobs").await.unwrap();
            let few = || DeadJobs {
                search: "no key".into(),
                ..DeadJobs::default()
            };
            queue.retry_dead(few()).await.unwrap();
            let retry = last_change(&other, "UPDATE").await;
            queue.discard_dead(few()).await.unwrap();
            let discard = last_change(&other, "DELETE").await;
            for (statement, change) in [(retry, "Update"), (discard, "Delete")] {
                for values in ["'', '', NULL, NULL, 500", "'9', '17', 'mail', 'default', 3"] {
                    finds_dead_jobs(&other, &statement, values, change).await;
                }
            }
        }
    });
}

/// Returns the last statement of the store's session that changes dead jobs.
async fn last_change(client: &Client, change: &str) -> String {
    last(client, &format!("%changed AS (%{change}%durable_jobs%")).await
}

/// Checks that a statement reads dead jobs by their index, in its order, and changes them by keys.
async fn finds_dead_jobs(client: &Client, statement: &str, values: &str, change: &str) {
    for (mode, plan) in plans(client, statement, values).await {
        assert!(plan.contains("Scan using durable_jobs_dead"), "{plan}");
        assert!(
            plan.contains(&format!("{change} on durable_jobs")),
            "{plan}"
        );
        assert!(!plan.contains("Seq Scan on durable_jobs"), "{mode}: {plan}");
    }
}
