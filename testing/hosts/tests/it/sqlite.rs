//! SQLite on a disk, in a host that crashes.

use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering::SeqCst},
    },
    time::Duration,
};

use rusqlite::Connection;
use tokio::time::sleep;
use tourbillon_sim::{Disk, Simulation, crash, random, restart};

/// How often the host crashes.
const CRASHES: usize = 3;

/// A host adds rows, and looks after each start whether those are there whose transactions have
/// ended.
fn adds_rows(sim: &mut Simulation, settings: &'static str) {
    sim.disk("/data", Disk::new());
    let ended = Arc::new(AtomicI64::new(0));
    sim.host("store", move || {
        let ended = ended.clone();
        async move {
            let store = Connection::open("/data/rows.db")?;
            store.execute_batch(settings)?;
            store.execute_batch("CREATE TABLE IF NOT EXISTS rows (number INTEGER PRIMARY KEY)")?;
            let check: String = store.query_row("PRAGMA integrity_check", [], |row| row.get(0))?;
            assert_eq!(check, "ok", "the file is broken");
            let kept: Option<i64> =
                store.query_row("SELECT max(number) FROM rows", [], |row| row.get(0))?;
            let mut last = kept.unwrap_or(0);
            assert!(last >= ended.load(SeqCst), "a row is lost");
            loop {
                last += 1;
                store.execute("INSERT INTO rows VALUES (?)", [last])?;
                ended.store(last, SeqCst);
                sleep(Duration::from_micros(random() % 2_000)).await;
            }
            #[expect(unreachable_code, reason = "it says what errors are")]
            Ok::<_, rusqlite::Error>(())
        }
    });
    sim.client("operator", || async {
        for _ in 0..CRASHES {
            sleep(Duration::from_micros(random() % 20_000)).await;
            crash("store");
            restart("store");
        }
        sleep(Duration::from_millis(20)).await;
        Ok::<_, String>(())
    });
}

#[tourbillon_sim::test(seeds = 50)]
fn sqlite_keeps_its_rows_with_a_journal(sim: &mut Simulation) {
    adds_rows(
        sim,
        "PRAGMA journal_mode = DELETE; PRAGMA synchronous = EXTRA",
    );
}

#[tourbillon_sim::test(seeds = 50)]
fn sqlite_keeps_its_rows_with_a_write_ahead_log(sim: &mut Simulation) {
    adds_rows(sim, "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL");
}

#[tourbillon_sim::test(seeds = 1_000)]
#[should_panic(expected = "a row is lost")]
fn sqlite_without_syncs_loses_rows(sim: &mut Simulation) {
    adds_rows(
        sim,
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL",
    );
}
