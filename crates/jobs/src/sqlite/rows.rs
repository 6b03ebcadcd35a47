//! The tables, and the rows of jobs.

use std::sync::Arc;

use rusqlite::{
    Connection, ErrorCode, OptionalExtension, Row, named_params, params, types::FromSql,
};

use super::holders::Lane;
use crate::{
    batch::MOST_BYTES,
    job::{Job, NewJob, Repeat, Time, micros},
    recount,
    row::{self, Get, Values as _},
    store::{DEAD_LOOKS, DeadJobs, StoreError},
};

const TABLES: &str = "
CREATE TABLE jobs (
    key TEXT PRIMARY KEY NOT NULL,
    payload BLOB NOT NULL,
    due INTEGER NOT NULL,
    at INTEGER NOT NULL,
    attempts INTEGER NOT NULL,
    pattern TEXT,
    zone TEXT,
    error TEXT,
    dead INTEGER NOT NULL,
    counted INTEGER,
    kind TEXT NOT NULL DEFAULT '',
    priority INTEGER NOT NULL DEFAULT 4,
    queue TEXT NOT NULL DEFAULT 'default',
    unique_for INTEGER,
    traceparent TEXT
) WITHOUT ROWID, STRICT;
CREATE INDEX jobs_by_lane ON jobs (queue, kind, priority, at) WHERE dead = 0;
CREATE INDEX jobs_dead ON jobs (key) WHERE dead = 1;
CREATE TABLE epoch (epoch INTEGER NOT NULL) STRICT;
INSERT INTO epoch VALUES (0);
CREATE INDEX jobs_counted ON jobs (counted, key) WHERE counted IS NOT NULL AND dead = 0;
CREATE TABLE paused (queue TEXT PRIMARY KEY NOT NULL) WITHOUT ROWID, STRICT;
";

/// The keys that jobs keep after they are done.
const KEPT: &str = "
CREATE TABLE kept (
    key TEXT PRIMARY KEY NOT NULL,
    until INTEGER NOT NULL,
    counted INTEGER NOT NULL
) WITHOUT ROWID, STRICT;
CREATE INDEX kept_until ON kept (until);
CREATE INDEX kept_counted ON kept (counted);
";

/// Brings tables of version 1 to version 2, which has what the clock showed when a time was
/// counted. Of the times that are there, this is unknown.
const FROM_1: &str = "
ALTER TABLE jobs ADD COLUMN counted INTEGER;
CREATE INDEX jobs_counted ON jobs (counted, key) WHERE counted IS NOT NULL AND dead = 0;
";

/// Brings tables of version 2 to version 3, which has kinds, priorities and queues of jobs, and
/// the queues that are paused.
const FROM_2: &str = "
ALTER TABLE jobs ADD COLUMN kind TEXT NOT NULL DEFAULT '';
ALTER TABLE jobs ADD COLUMN priority INTEGER NOT NULL DEFAULT 4;
ALTER TABLE jobs ADD COLUMN queue TEXT NOT NULL DEFAULT 'default';
DROP INDEX jobs_by_time;
CREATE INDEX jobs_by_lane ON jobs (queue, kind, priority, at) WHERE dead = 0;
CREATE TABLE paused (queue TEXT PRIMARY KEY NOT NULL) WITHOUT ROWID, STRICT;
";

/// Brings tables of version 3 to version 4, with [`KEPT`].
const FROM_3: &str = "
ALTER TABLE jobs ADD COLUMN unique_for INTEGER;
";

/// Brings tables of version 4 to version 5, with trace contexts.
const FROM_4: &str = "
ALTER TABLE jobs ADD COLUMN traceparent TEXT;
";

/// The columns of [`row::job`]. Whether an attempt runs is not in the file.
const COLUMNS: &str = "key, payload, due, at, attempts, pattern, zone, error, dead, 0, kind, \
                       priority, queue, traceparent";

/// The columns of [`row::held`]. The token is not in the file.
pub(super) const HELD: &str = "key, due, at, attempts, pattern, zone, length(payload), 0, kind, \
                               priority, queue, traceparent";

/// Finds jobs, in order, which were counted from times after `?1`, or from `?1` and have keys after
/// `?2`. `?3`: how many at most.
pub(super) const COUNTED: &str = "
    SELECT key, at, counted, attempts, pattern, zone FROM jobs
    WHERE dead = 0 AND counted >= ?1 AND (counted, key) > (?1, ?2)
    ORDER BY counted, key LIMIT ?3";

/// Reads a lane from `queue, kind, priority`.
pub(super) fn lane(row: &Row<'_>) -> rusqlite::Result<Lane> {
    Ok(Lane {
        queue: row.get(0)?,
        kind: row.get(1)?,
        priority: row.priority(2)?,
    })
}

/// Finds the lane of the queue `?1` after the kind `?2` and the priority `?3`, of a job that is not
/// dead: first in this kind. A comparison of both columns at once would read all jobs of the lane
/// before, as SQLite begins with these.
pub(super) const NEXT_LANE: &str = "
    SELECT * FROM (
        SELECT queue, kind, priority FROM jobs
        WHERE dead = 0 AND queue = ?1 AND kind = ?2 AND priority > ?3
        ORDER BY priority LIMIT 1)
    UNION ALL SELECT * FROM (
        SELECT queue, kind, priority FROM jobs
        WHERE dead = 0 AND queue = ?1 AND kind > ?2
        ORDER BY kind, priority LIMIT 1)
    LIMIT 1";

/// Returns the lanes of all jobs of a queue that are not dead. Few steps in the index find each.
pub(super) fn lanes(base: &Connection, queue: &str) -> rusqlite::Result<Vec<Lane>> {
    let mut lanes: Vec<Lane> = Vec::new();
    let mut next = base.prepare_cached(NEXT_LANE)?;
    loop {
        let (kind, priority) = match lanes.last() {
            Some(lane) => (lane.kind.as_str(), i64::from(lane.priority)),
            None => ("", -1),
        };
        let found = next
            .query_row(params![queue, kind, priority], lane)
            .optional()?;
        match found {
            Some(lane) => lanes.push(lane),
            None => return Ok(lanes),
        }
    }
}

/// Returns the queues that are paused, in their order.
pub(super) fn paused(base: &Connection) -> rusqlite::Result<Vec<String>> {
    let mut read = base.prepare_cached("SELECT queue FROM paused ORDER BY queue")?;
    let found = read.query_map([], |row| row.get(0))?;
    found.collect()
}

/// Makes the tables unless they exist, and brings those of an earlier version to this one.
pub(super) fn make_tables(base: &mut Connection) -> Result<(), StoreError> {
    let version: i64 = base
        .pragma_query_value(None, "user_version", |row| row.get(0))
        .map_err(failed)?;
    let make = match version {
        StoreError::TABLES => return Ok(()),
        0 => &[TABLES, KEPT][..],
        1 => &[FROM_1, FROM_2, FROM_3, KEPT, FROM_4],
        2 => &[FROM_2, FROM_3, KEPT, FROM_4],
        3 => &[FROM_3, KEPT, FROM_4],
        4 => &[FROM_4],
        other => return Err(StoreError::Version(other)),
    };
    let change = base.transaction().map_err(failed)?;
    for step in make {
        change.execute_batch(step).map_err(failed)?;
    }
    change
        .pragma_update(None, "user_version", StoreError::TABLES)
        .map_err(failed)?;
    change.commit().map_err(failed)
}

/// Begins another epoch, and returns its number.
pub(super) fn next_epoch(base: &mut Connection) -> rusqlite::Result<i64> {
    // Commit with a call of its own: the implicit commit of a statement that returns rows may fail
    // unnoticed.
    let change = base.transaction()?;
    let next = "UPDATE epoch SET epoch = epoch + 1 RETURNING epoch";
    let epoch = change.query_row(next, [], |row| row.get(0))?;
    change.commit()?;
    Ok(epoch)
}

impl row::Row for Row<'_> {
    type Error = rusqlite::Error;
}

impl<T: FromSql> Get<T> for Row<'_> {
    fn at(&self, column: usize) -> rusqlite::Result<T> {
        self.get(column)
    }
}

/// Adds a job that is due at `at`, counted from `counted`, unless its key is taken. Returns whether
/// it was added.
pub(super) fn insert(
    base: &Connection,
    job: &NewJob,
    at: Time,
    counted: Option<Time>,
) -> rusqlite::Result<bool> {
    let mut statement = base.prepare_cached(
        "INSERT INTO jobs VALUES
             (:key, :payload, :at, :at, 0, :pattern, :zone, NULL, 0, :counted, :kind,
              :priority, :queue, :unique_for, :traceparent)
         ON CONFLICT DO NOTHING",
    )?;
    let added = statement.execute(named_params! {
        ":key": job.key,
        ":payload": job.payload,
        ":at": at.as_micros(),
        ":pattern": job.when.repeat().map(Repeat::pattern),
        ":zone": job.when.repeat().map(Repeat::zone),
        ":counted": counted.map(Time::as_micros),
        ":kind": job.kind,
        ":priority": job.priority,
        ":queue": job.queue,
        ":unique_for": job.kept().map(micros),
        ":traceparent": job.traceparent,
    })?;
    Ok(added == 1)
}

/// Returns until when a key is kept, if the clock shows `now`. If the clock was far ahead when the
/// job was done, the time begins now.
pub(super) fn kept(base: &Connection, key: &str, now: Time) -> rusqlite::Result<Option<Time>> {
    let mut find = base.prepare_cached("SELECT until, counted FROM kept WHERE key = ?")?;
    let found = find.query_row([key], |row| Ok((row.get(0)?, row.get(1)?)));
    let Some((until, counted)) = found.optional()? else {
        return Ok(None);
    };
    let (until, counted) = (Time::from_micros(until), Time::from_micros(counted));
    let again = recount::latest(now).filter(|latest| counted > *latest);
    let until = match again {
        Some(_) => now.after(until.since(counted)),
        None => until,
    };
    Ok((until > now).then_some(until))
}

/// Keeps the key of a job that is done, if it is to be kept. The job has been removed.
pub(super) fn keep(
    base: &Connection,
    key: &str,
    unique_for: Option<i64>,
    now: Time,
) -> rusqlite::Result<()> {
    let Some(time) = unique_for else {
        return Ok(());
    };
    let now = now.as_micros();
    let mut keep = base.prepare_cached("INSERT OR REPLACE INTO kept VALUES (?, ?, ?)")?;
    keep.execute(params![key, now.saturating_add(time), now])?;
    Ok(())
}

/// Frees a key.
pub(super) fn free(base: &Connection, key: &str) -> rusqlite::Result<()> {
    let mut free = base.prepare_cached("DELETE FROM kept WHERE key = ?")?;
    free.execute([key]).map(drop)
}

/// Returns whether [`sweep`] would find something.
pub(super) fn is_swept(base: &Connection, now: Time) -> rusqlite::Result<bool> {
    let mut find = base.prepare_cached(
        "SELECT NOT EXISTS (SELECT 1 FROM kept WHERE until <= ?1)
             AND NOT EXISTS (SELECT 1 FROM kept WHERE counted > ?2)",
    )?;
    let latest = recount::latest(now).map_or(i64::MAX, Time::as_micros);
    find.query_row(params![now.as_micros(), latest], |row| row.get(0))
}

/// Forgets keys that are free again, at most `most`, and counts the times of others from now, if the
/// clock was far ahead. Returns whether there may be more.
pub(super) fn sweep(base: &Connection, now: Time, most: i64) -> rusqlite::Result<bool> {
    let mut forget = base.prepare_cached(
        "DELETE FROM kept WHERE key IN (SELECT key FROM kept WHERE until <= ?1 LIMIT ?2)",
    )?;
    let forgotten = forget.execute(params![now.as_micros(), most])?;
    let mut counted = 0;
    if let Some(latest) = recount::latest(now) {
        let mut again = base.prepare_cached(
            "UPDATE kept SET until = ?1 + until - counted, counted = ?1
             WHERE key IN (SELECT key FROM kept WHERE counted > ?2 LIMIT ?3)",
        )?;
        counted = again.execute(params![now.as_micros(), latest.as_micros(), most])?;
    }
    Ok(forgotten + counted > 0)
}

/// Finds a job by its key.
pub(super) fn find(base: &Connection, key: &str) -> rusqlite::Result<Option<Job>> {
    let mut find = base.prepare_cached(&format!("SELECT {COLUMNS} FROM jobs WHERE key = ?"))?;
    find.query_row([key], |found| row::job(found)).optional()
}

/// Finds dead jobs after the key `?1`, at most `?2`, by their index.
const DEAD: &str = "
    SELECT key, kind, queue, length(payload) FROM jobs WHERE dead = 1 AND key > ?1 ORDER BY key LIMIT ?2";

/// Finds a part of the dead jobs. Returns their keys, and the key that it has reached, unless there
/// are no more.
pub(super) fn dead(
    base: &Connection,
    which: &DeadJobs,
) -> rusqlite::Result<(Vec<String>, Option<String>)> {
    let mut read = base.prepare_cached(DEAD)?;
    let after = which.after.as_deref().unwrap_or_default();
    let looks = i64::try_from(DEAD_LOOKS).unwrap_or(i64::MAX);
    let mut rows = read.query(params![after, looks])?;
    let mut found = Vec::new();
    let (mut seen, mut last, mut bytes) = (0, String::new(), 0);
    let is_of =
        |wanted: &Option<String>, text: &str| wanted.as_ref().is_none_or(|wanted| wanted == text);
    while let Some(row) = rows.next()? {
        seen += 1;
        let key: String = row.get(0)?;
        let (kind, queue) = (row.get_ref(1)?.as_str()?, row.get_ref(2)?.as_str()?);
        let is_wanted = is_of(&which.kind, kind) && is_of(&which.queue, queue);
        if is_wanted && key.contains(&which.search) {
            // The writer writes all of a row anew, and others wait for it.
            bytes += row.get::<_, u32>(3)? as usize;
            if bytes > MOST_BYTES && !found.is_empty() {
                return Ok((found, Some(last)));
            }
            found.push(key.clone());
            if found.len() == which.most() {
                return Ok((found, Some(key)));
            }
        }
        last = key;
    }
    Ok((found, (seen == DEAD_LOOKS).then_some(last)))
}

/// Puts the log into the file, so that the next commit overwrites the log from its start. A full
/// disk may have room for that commit then.
pub(super) fn empty_log(base: &Connection) -> rusqlite::Result<()> {
    base.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()))
}

/// Converts an error of SQLite.
pub(super) fn failed(error: rusqlite::Error) -> StoreError {
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => StoreError::Full,
        Some(
            ErrorCode::ConstraintViolation
            | ErrorCode::ParameterOutOfRange
            | ErrorCode::TooBig
            | ErrorCode::TypeMismatch,
        ) => StoreError::Refused(Arc::new(error)),
        _ => StoreError::failed(error),
    }
}

#[cfg(test)]
mod tests {
    use rusqlite::StatementStatus;

    use super::*;

    #[test]
    fn a_part_of_the_dead_jobs_is_found_by_their_index() {
        let base = Connection::open_in_memory().unwrap();
        base.execute_batch(TABLES).unwrap();
        let explain = format!("EXPLAIN QUERY PLAN {DEAD}");
        let plan: String = base
            .query_row(&explain, params!["", 1], |row| row.get(3))
            .unwrap();
        assert_eq!(plan, "SEARCH jobs USING INDEX jobs_dead (key>?)");
        base.execute_batch(
            "WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n LIMIT 4000)
             INSERT INTO jobs (key, payload, due, at, attempts, dead, kind)
             SELECT printf('%05d', n), x'', 1, 1, 0, n > 1000, n % 2 FROM n",
        )
        .unwrap();
        // A look ends, also if its filter leaves out all that it reads.
        let mut which = DeadJobs {
            search: "no key".into(),
            limit: 2,
            ..DeadJobs::default()
        };
        for reached in [Some("02000"), Some("03000"), Some("04000"), None] {
            let (found, after) = dead(&base, &which).unwrap();
            assert_eq!((found.len(), after.as_deref()), (0, reached));
            which.after = after;
        }
        which.search.clear();
        which.kind = Some("1".into());
        let (found, after) = dead(&base, &which).unwrap();
        assert_eq!(found, ["01001", "01003"]);
        assert_eq!(after.unwrap(), "01003");
    }

    #[test]
    fn a_step_to_the_next_lane_reads_no_other_job() {
        let base = Connection::open_in_memory().unwrap();
        base.execute_batch(TABLES).unwrap();
        let lanes = [("", 0), ("", 4), ("", 9), ("b", 4), ("c", 0), ("c", 9)];
        let jobs = "
            WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n LIMIT 3000)
            INSERT INTO jobs (key, payload, due, at, attempts, dead, kind, priority, queue)
            SELECT ?1 || ?2 || ?3 || n, x'', 1, 1, 0, 0, ?1, ?2, ?3 FROM n";
        for queue in ["a", "default", "e"] {
            for (kind, priority) in lanes {
                base.execute(jobs, params![kind, priority, queue]).unwrap();
            }
        }
        let found = super::lanes(&base, "default").unwrap();
        assert!(found.is_sorted());
        let found = found.iter().map(|lane| (&*lane.kind, lane.priority));
        assert!(found.eq(lanes));
        assert!(super::lanes(&base, "d").unwrap().is_empty());
        let before = lanes.map(|(kind, priority)| (kind, i64::from(priority)));
        for (kind, priority) in [("", -1)].into_iter().chain(before) {
            let mut next = base.prepare(NEXT_LANE).unwrap();
            let values = params!["default", kind, priority];
            next.query_row(values, lane).optional().unwrap();
            let steps = next.get_status(StatementStatus::VmStep);
            assert!(steps < 200, "{kind} {priority}: {steps}");
        }
    }
}
