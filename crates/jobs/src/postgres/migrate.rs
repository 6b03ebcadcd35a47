//! Brings tables of an earlier version to this one, while programs use them.
//!
//! Each step is one statement, which does nothing if it was done before. So a migration that ended
//! anywhere is completed by the next one:
//!
//! | step | locks meanwhile | waits for |
//! |---|---|---|
//! | the columns, each | its table alone, for a moment | what uses this table, 5 s at most |
//! | the function | nothing that programs use | |
//! | the functions and the trigger of the leases | their table alone, for a moment | what uses this table, 5 s at most |
//! | an incomplete index is removed, the index is made, each | nothing that programs use | transactions that began before |
//! | the version | nothing that programs use | |
//! | the functions of clients | nothing that programs use | |
//! | kinds and kept keys are admitted, if no node of an earlier version has a lease; then the index of earlier versions is removed | the table of the leases, for a moment | transactions that began before |
//!
//! Programs of earlier versions leave alone what is new, and those of this one do not connect before
//! the version is written. `kinds.rs` says what keeps jobs that have kinds from earlier nodes.

use std::{str::FromStr, time::Duration};

use futures_lite::future::or;
use tourbillon::time::sleep;

use super::{
    Postgres,
    connection::{Link, Session},
    kinds::{self, FUNCTIONS},
    open::{check_version, make, version},
    pause, schedule,
    servers::Servers,
    tables::{END_FUNCTION, INDEXES, KEPT_CHECK},
    values::get,
};
use crate::{
    remote::{self, lost},
    store::StoreError,
};

/// How often a migration looks whether another one has ended, and whether its own session lives.
const LOOK: Duration = Duration::from_millis(500);

/// The number of the lock of the session that migrates. It is not that of those that make the
/// tables, as programs of version 1 wait for that one when they connect.
const MIGRATING: i64 = 0x6475_7261_626c_6532;

/// What the session of a migration relies on. To read a large table takes long, so only waits for
/// locks are limited: what waits for the lock of a table keeps others waiting, who would lose their
/// leases. The server ends the session, and so its lock, when its client has vanished. Older ones
/// notice this only between two statements.
const SESSION: &str = "
    SET statement_timeout = 0;
    SET lock_timeout = 5000;
    DO $$ BEGIN
        PERFORM set_config('client_connection_check_interval', '5s', false);
    EXCEPTION WHEN OTHERS THEN
        NULL;
    END $$";

/// Finds out whether the server still has the session `$1`, with its lock.
const IS_ALIVE: &str = "
    SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND pid = $1 AND granted)";

/// The columns of versions 2 to 5. Each statement locks one table only, so it
/// cannot wait in a circle with statements that use both.
const COLUMNS: [&str; 13] = [
    "ALTER TABLE durable_nodes ADD COLUMN IF NOT EXISTS counted bigint",
    "ALTER TABLE durable_jobs ADD COLUMN IF NOT EXISTS counted bigint",
    "ALTER TABLE durable_nodes ADD COLUMN IF NOT EXISTS version bigint NOT NULL DEFAULT 2",
    "ALTER TABLE durable_jobs ADD COLUMN IF NOT EXISTS kind text COLLATE \"C\" NOT NULL DEFAULT ''",
    "ALTER TABLE durable_jobs ADD COLUMN IF NOT EXISTS priority smallint NOT NULL DEFAULT 4",
    "ALTER TABLE durable_jobs
        ADD COLUMN IF NOT EXISTS queue text COLLATE \"C\" NOT NULL DEFAULT 'default'",
    "ALTER TABLE durable_version ADD COLUMN IF NOT EXISTS has_kinds boolean NOT NULL DEFAULT false",
    "ALTER TABLE durable_version ADD COLUMN IF NOT EXISTS paused text[] NOT NULL DEFAULT '{}'",
    "ALTER TABLE durable_version ADD COLUMN IF NOT EXISTS has_kept boolean NOT NULL DEFAULT false",
    "ALTER TABLE durable_jobs ADD COLUMN IF NOT EXISTS unique_for bigint",
    "ALTER TABLE durable_jobs ADD COLUMN IF NOT EXISTS until bigint",
    KEPT_CHECK,
    "ALTER TABLE durable_jobs ADD COLUMN IF NOT EXISTS traceparent text",
];

impl Postgres {
    /// Makes the tables, or brings those of an earlier version to this one. Their names begin with
    /// `durable_`.
    ///
    /// Also makes the functions `jobs_schedule` and `jobs_schedule_or_replace`, by which clients add
    /// jobs in transactions of their own: see `SQL.md` in this package.
    ///
    /// Does nothing if all this is of this version. Otherwise programs that know only the
    /// earlier version, and have connected before, go on meanwhile and afterwards. They cannot
    /// connect any more once they have ended. Do not start any meanwhile: they would keep others
    /// waiting. To change the tables takes some seconds for millions of jobs, and waits for all
    /// transactions of the database that began before, such as that of a backup. If another program
    /// migrates, this waits for its end.
    ///
    /// Only the user of this call needs the right to make tables. For programs with a
    /// [`Queue`](crate::Queue) or nodes, another user is enough who has the rights of `worker`. For
    /// clients that only add jobs by the function, those of `client` are enough, and `operator` may
    /// pause queues and let them go on:
    ///
    /// ```sql
    /// GRANT SELECT, INSERT, UPDATE, DELETE ON durable_jobs, durable_nodes TO worker;
    /// GRANT SELECT ON durable_version TO worker;
    /// GRANT USAGE ON SEQUENCE durable_numbers TO worker;
    /// GRANT EXECUTE ON FUNCTION jobs_schedule, jobs_schedule_or_replace TO client;
    /// GRANT EXECUTE ON FUNCTION jobs_pause, jobs_resume TO operator;
    /// ```
    ///
    /// # Errors
    ///
    /// Fails if the configuration is wrong, if no server can be reached, if this user may not make or
    /// change tables, with [`StoreError::Version`] if the tables are of a later version, if a
    /// transaction has locked a table for 5 s, or if the connection is lost. The steps are
    /// independent, and the version of the tables changes in the last one: call this again, and it
    /// goes on.
    pub async fn migrate(config: &str) -> Result<(), StoreError> {
        let servers = Servers::from_str(config)?;
        remote::inside(Self::migrate_by(servers)).await
    }

    async fn migrate_by(servers: Servers) -> Result<(), StoreError> {
        let link = Link::new(servers.clone(), SESSION, None);
        if version(&link).await?.is_none() {
            make(&link).await?;
        }
        if is_earlier(&link).await? {
            // This would fail only after the tables are of this version.
            if let Some(obstacle) = schedule::obstacle(&link).await? {
                return Err(lost(&format!("{obstacle}; nothing was changed")));
            }
            upgrade(&link, servers.clone()).await?;
        }
        // Later versions have other functions, which must stay.
        check_version(&link).await?;
        schedule::install(&link).await?;
        kinds::complete(&link, servers).await
    }
}

/// Returns whether the tables are of an earlier version.
async fn is_earlier(link: &Link) -> Result<bool, StoreError> {
    let version = version(link).await?;
    Ok(version.is_some_and(|version| version < StoreError::TABLES))
}

/// Brings tables of an earlier version to this one, unless another program does it.
async fn upgrade(link: &Link, servers: Servers) -> Result<(), StoreError> {
    let (session, process) = lock(link).await?;
    // Another program may have done it.
    if !is_earlier(link).await? {
        return Ok(());
    }
    or(steps(&session), watch(servers, process)).await
}

/// Waits until no other program migrates. Returns a session that keeps others from it until it
/// ends, and the number of its process.
pub(super) async fn lock(link: &Link) -> Result<(Session, i32), StoreError> {
    let look = format!("SELECT pg_try_advisory_lock({MIGRATING}), pg_backend_pid()");
    let session = link.session().await?;
    loop {
        let found = session.query(&look).await?;
        let found = found.first().ok_or(StoreError::Closed)?;
        if get(found, 0)? {
            let process = get(found, 1)?;
            return Ok((session, process));
        }
        sleep(LOOK).await;
    }
}

/// Looks for the process of a session by a connection of its own, and fails when it has ended. A
/// step of a migration may take long, so a session whose connection died silently has no time
/// limit.
pub(super) async fn watch(servers: Servers, process: i32) -> Result<(), StoreError> {
    let other = Link::new(servers, "", None);
    loop {
        if !get::<bool>(&other.query_one(IS_ALIVE, &[&process]).await?, 0)? {
            return Err(lost("the server has ended the session of the migration"));
        }
        sleep(LOOK).await;
    }
}

async fn steps(session: &Session) -> Result<(), StoreError> {
    for column in COLUMNS {
        session.execute(column).await?;
    }
    session.execute(END_FUNCTION).await?;
    // A session that has failed ends with its transaction.
    session
        .execute(&format!("BEGIN; {FUNCTIONS} {} COMMIT", pause::functions()))
        .await?;
    // What follows keeps nobody waiting while it waits.
    session.execute("SET lock_timeout = 0").await?;
    for (name, index) in INDEXES {
        make_index(session, name, index).await?;
    }
    session
        .execute("UPDATE durable_version SET version = 5")
        .await?;
    // The connection is also that of the statements that follow.
    session.execute("SET lock_timeout = 5000").await
}

/// Makes an index, unless it is there and complete.
async fn make_index(session: &Session, name: &str, index: &str) -> Result<(), StoreError> {
    let has_index =
        format!("SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass('{name}')");
    loop {
        let found = session.query(&has_index).await?;
        match found.first().map(|row| get(row, 0)).transpose()? {
            Some(true) => return Ok(()),
            Some(false) => {
                session
                    .execute(&format!("DROP INDEX CONCURRENTLY {name}"))
                    .await?
            }
            None => {
                // If the server undoes it, it leaves an incomplete index.
                let create = format!("CREATE INDEX CONCURRENTLY IF NOT EXISTS {index}");
                session.execute(&create).await?;
            }
        }
    }
}
