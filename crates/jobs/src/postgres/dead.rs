//! Retries and discards dead jobs, a part with each statement.
//!
//! A statement finds jobs by the index of the dead ones, in the order of their keys, and locks
//! them. It skips those that somebody has locked: they are amid another change. A job may change
//! between the look and the lock. So the lock has all conditions once more, which the server checks
//! on the row as it is then.

use super::{Parameters, Postgres, values::get};
use crate::{
    batch::MOST_BYTES,
    store::{DEAD_LOOKS, DeadJobs, DeadPart, StoreError},
};

/// The start of a statement, up to the change of the jobs in `old`. `$1` to `$5`: text in the key,
/// key before, only which kind and queue, how many jobs at most. It reads 1,000 dead jobs at most.
/// A key that is kept counts as one of them, as there may be many. It takes 8 MiB of payloads at
/// most, or one job: the server removes them piece by piece.
///
/// The inner limit is written out, so that the server knows how few jobs it reads. So each plan
/// takes the index of the dead ones, unless the table is small.
macro_rules! old {
    () => {
        "
    WITH found AS MATERIALIZED (
             SELECT s.key, s.bytes FROM (
                 SELECT j.key, j.kind, j.queue, j.until, octet_length(j.payload) AS bytes
                 FROM durable_jobs j
                 WHERE j.dead AND j.key > $2 ORDER BY j.key LIMIT 1000) AS s
             WHERE s.until IS NULL AND strpos(s.key, $1) > 0
                 AND ($3::text IS NULL OR s.kind = $3) AND ($4::text IS NULL OR s.queue = $4)
             ORDER BY s.key LIMIT $5),
         part AS MATERIALIZED (
             SELECT f.key FROM (
                 SELECT key, bytes, sum(bytes) OVER (ORDER BY key) AS sum FROM found) AS f
             WHERE f.sum <= 8388608 OR f.sum = f.bytes),
         old AS MATERIALIZED (
             SELECT j.key FROM durable_jobs j
             WHERE j.key = ANY (ARRAY(SELECT key FROM part)) AND j.dead AND j.until IS NULL
                 AND ($3::text IS NULL OR j.kind = $3) AND ($4::text IS NULL OR j.queue = $4)
             ORDER BY j.key FOR UPDATE SKIP LOCKED),"
    };
}

/// The end of a statement. Answers with the number of jobs in `changed`, and with the key that the
/// look has reached, or NULL if there are no more.
macro_rules! reached {
    () => {
        "
    SELECT (SELECT count(*) FROM changed),
        CASE WHEN (SELECT count(*) FROM found) = $5
                OR (SELECT count(*) FROM part) < (SELECT count(*) FROM found)
                THEN (SELECT max(key) FROM part)
            ELSE (SELECT j.key FROM durable_jobs j WHERE j.dead AND j.key > $2
                  ORDER BY j.key LIMIT 1 OFFSET 999) END"
    };
}

/// Makes dead jobs due at once. It has the parameters of `old`.
pub(super) const RETRY: &str = concat!(
    old!(),
    "
         changed AS (
             UPDATE durable_jobs j
             SET due = c.now, at = c.now, attempts = 0, error = NULL, dead = false, node = NULL,
                 token = NULL, running = false, counted = c.now
             FROM (SELECT durable_now() AS now) AS c
             WHERE j.key = ANY (ARRAY(SELECT key FROM old)) AND j.dead AND j.until IS NULL
             RETURNING 1)",
    reached!(),
    ",
        CASE WHEN EXISTS (SELECT FROM changed) THEN pg_notify('durable_jobs', '')::text END"
);

/// Removes dead jobs. It has the parameters of `old`.
pub(super) const DISCARD: &str = concat!(
    old!(),
    "
         changed AS (
             DELETE FROM durable_jobs j
             WHERE j.key = ANY (ARRAY(SELECT key FROM old)) AND j.dead AND j.until IS NULL
             RETURNING 1)",
    reached!()
);

/// The statements have these numbers written out.
const _: () = assert!(DEAD_LOOKS == 1000 && MOST_BYTES == 8_388_608);

impl Postgres {
    /// Changes a part of the dead jobs by one of the statements.
    pub(super) async fn change_dead(
        &self,
        change: &'static str,
        which: DeadJobs,
    ) -> Result<DeadPart, StoreError> {
        let after = which.after.as_deref().unwrap_or_default();
        let most = i64::try_from(which.most()).unwrap_or(i64::MAX);
        let values: Parameters<'_> = &[&which.search, &after, &which.kind, &which.queue, &most];
        // It may change large jobs, so moves and cancels of others do not wait for it.
        let found = self.lists.query_one(change, values).await?;
        Ok(DeadPart {
            changed: u64::try_from(get::<i64>(&found, 0)?).unwrap_or(0),
            after: get(&found, 1)?,
        })
    }
}
