//! Kinds, queues and priorities of jobs beside nodes of an earlier version, which know none, and
//! would run all jobs by their times.
//!
//! A node writes its version with its lease, so the leases of earlier versions are known. While
//! there is one, the store takes no job that has a kind, or another queue or priority than the
//! default. When there is none, `durable_admit_kinds` admits all these, for ever. From then on, a
//! trigger refuses leases to nodes of earlier versions. Both lock the table of the leases, so none
//! is granted in between. An admission needs the row of the version, too. If a transaction has it
//! locked, the admission fails at once, and the next request or node tries again.
//!
//! Keys that jobs keep after they are done are admitted likewise, by `durable_admit_kept`. A node of
//! version 3 would remove the key with the job.

use futures_lite::future::or;

use super::{
    Postgres,
    connection::Link,
    migrate::{lock, watch},
    servers::Servers,
    values::get,
};
use crate::store::StoreError;

/// Admits kinds if no node of an earlier version has a lease. Returns whether they are admitted.
const ADMIT: &str = "SELECT durable_admit_kinds()";

/// Likewise for keys that jobs keep after they are done.
const ADMIT_KEPT: &str = "SELECT durable_admit_kept()";

/// Finds out whether the index of earlier versions is there, and whether nobody needs it any more.
const HAS_OLD_INDEX: &str = "
    SELECT to_regclass('durable_jobs_free') IS NOT NULL, (SELECT has_kinds FROM durable_version)";

/// Makes the functions of the current schema, in a transaction, and the trigger. The tables must be
/// there.
///
/// `durable_admit_kinds` has the rights of its owner, as nodes may not change the version. It
/// admits kinds only if that is right, whoever calls it. A caller that keeps its transaction open
/// keeps nodes from renewing their leases.
pub(super) const FUNCTIONS: &str = "
    SELECT set_config('search_path', quote_ident(nspname) || ', pg_temp', true)
        FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE c.oid = to_regclass('durable_jobs');
    CREATE OR REPLACE FUNCTION durable_admit_kinds() RETURNS boolean
        LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
    BEGIN
        IF (SELECT has_kinds FROM durable_version) THEN
            RETURN true;
        END IF;
        IF EXISTS (SELECT FROM durable_nodes WHERE version < 3) THEN
            RETURN false;
        END IF;
        -- A transaction may have the row locked for long, such as one that pauses a queue. Fail
        -- then, rather than wait for it while no lease can be renewed.
        PERFORM FROM durable_version FOR UPDATE NOWAIT;
        -- A lease may be granted now. Look once more when none can be.
        LOCK TABLE durable_nodes IN SHARE ROW EXCLUSIVE MODE;
        IF EXISTS (SELECT FROM durable_nodes WHERE version < 3) THEN
            RETURN false;
        END IF;
        UPDATE durable_version SET has_kinds = true;
        RETURN true;
    END $$;
    CREATE OR REPLACE FUNCTION durable_refuse_lease() RETURNS trigger
        LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
    BEGIN
        IF NEW.version < 3 AND (SELECT has_kinds FROM durable_version) THEN
            RAISE EXCEPTION 'a node of this version knows no kinds of jobs; upgrade it'
                USING ERRCODE = '55000';
        END IF;
        IF (SELECT has_kept FROM durable_version) THEN
            RAISE EXCEPTION 'a node of this version keeps no keys of jobs; upgrade it'
                USING ERRCODE = '55000';
        END IF;
        RETURN NEW;
    END $$;
    CREATE OR REPLACE FUNCTION durable_admit_kept() RETURNS boolean
        LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
    BEGIN
        IF (SELECT has_kept FROM durable_version) THEN
            RETURN true;
        END IF;
        IF EXISTS (SELECT FROM durable_nodes WHERE version < 4) THEN
            RETURN false;
        END IF;
        -- As above.
        PERFORM FROM durable_version FOR UPDATE NOWAIT;
        LOCK TABLE durable_nodes IN SHARE ROW EXCLUSIVE MODE;
        IF EXISTS (SELECT FROM durable_nodes WHERE version < 4) THEN
            RETURN false;
        END IF;
        UPDATE durable_version SET has_kinds = true, has_kept = true;
        RETURN true;
    END $$;
    DROP TRIGGER IF EXISTS durable_refuse_lease ON durable_nodes;
    CREATE TRIGGER durable_refuse_lease BEFORE INSERT ON durable_nodes
        FOR EACH ROW WHEN (NEW.version < 4) EXECUTE FUNCTION durable_refuse_lease();";

impl Postgres {
    /// Returns whether the store takes jobs that have kinds, or queues or priorities of their own.
    pub(super) async fn has_kinds(&self) -> Result<bool, StoreError> {
        if self.has_kinds.get().is_some() {
            return Ok(true);
        }
        // This may wait for a table, so not for the lock of a row.
        let has = get(&self.holds.query_one(ADMIT, &[]).await?, 0)?;
        if has {
            // Another caller may have learned it at the same time.
            let _ = self.has_kinds.set(());
        }
        Ok(has)
    }
}

impl Postgres {
    /// Returns whether the store keeps the keys of jobs that are done.
    pub(super) async fn has_kept(&self) -> Result<bool, StoreError> {
        if self.has_kept.get().is_some() {
            return Ok(true);
        }
        let has = get(&self.holds.query_one(ADMIT_KEPT, &[]).await?, 0)?;
        if has {
            // As above.
            let _ = (self.has_kept.set(()), self.has_kinds.set(()));
        }
        Ok(has)
    }
}

/// Admits what a statement says, unless a transaction is in the way. Nodes try it again.
async fn admit(link: &Link, statement: &'static str) -> Result<bool, StoreError> {
    match link.query_one(statement, &[]).await {
        Ok(admitted) => get(&admitted, 0),
        Err(StoreError::Locked) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Ends a migration: admits kinds if no node of an earlier version has a lease, and then removes
/// the index that only these need.
pub(super) async fn complete(link: &Link, servers: Servers) -> Result<(), StoreError> {
    let found = link.query_one(HAS_OLD_INDEX, &[]).await?;
    let (has_index, mut has_kinds): (bool, bool) = (get(&found, 0)?, get(&found, 1)?);
    if !has_kinds {
        has_kinds = admit(link, ADMIT).await?;
    }
    // Nodes of version 3 may go on without it. Whoever admits kept keys admits kinds.
    has_kinds |= admit(link, ADMIT_KEPT).await?;
    if has_index && has_kinds {
        let (session, process) = lock(link).await?;
        let drop = async {
            // Like the index of a migration, this waits for transactions, and keeps nobody waiting.
            session.execute("SET lock_timeout = 0").await?;
            session
                .execute("DROP INDEX CONCURRENTLY IF EXISTS durable_jobs_free")
                .await
        };
        or(drop, watch(servers, process)).await?;
    }
    Ok(())
}
