//! Queues that are paused: an array in the row of the version, as nodes may read that, and only the
//! functions here may change it.
//!
//! A begin that has not seen a pause must not be committed after the pause is acknowledged. So each
//! begin takes a shared lock before it reads the array, and has it until its commit. Whoever pauses
//! a queue calls `jobs_pause` again after the commit. The second call waits until those have ended
//! that have the lock at its begin: they are the begins that may not have seen the pause. It takes
//! no lock itself, so it keeps no later begin waiting, and leaves nothing behind if it is aborted.

use tourbillon::time::{Instant, sleep};

use super::{Postgres, schedule::is_queue, values::get};
use crate::{batch, remote, store::StoreError};

/// The number of the lock that each begin shares.
const BEGINNING: i64 = 0x6475_7261_626c_6533;

/// For how many seconds `jobs_pause` waits for a begin before it fails, and is called again.
const WAIT: u8 = 3;

/// Pauses a queue. `$1`: its name. Answers with `true` if it was not paused.
const PAUSE: &str = "SELECT jobs_pause($1)";

/// Lets a queue go on. `$1`: its name.
const RESUME: &str = "SELECT jobs_resume($1)";

/// Returns the queues that are paused.
const PAUSED: &str = "SELECT paused FROM durable_version";

/// Returns the statements that make the functions, in a transaction. The tables must be there.
pub(super) fn functions() -> String {
    // As the view shows the two halves of the number.
    let is_begin = format!(
        "locktype = 'advisory' AND classid = {} AND objid = {} AND objsubid = 1
             AND database = (SELECT oid FROM pg_database WHERE datname = current_database())",
        BEGINNING >> 32,
        BEGINNING & 0xffff_ffff,
    );
    let is_queue = is_queue();
    format!(
        "CREATE OR REPLACE FUNCTION durable_paused() RETURNS text[]
             LANGUAGE plpgsql VOLATILE AS $$
         DECLARE
             names text[];
         BEGIN
             PERFORM pg_advisory_xact_lock_shared({BEGINNING});
             -- A statement of its own sees what was committed before it, and not only what was
             -- before the statement that calls this.
             SELECT paused INTO names FROM durable_version;
             RETURN names;
         END $$;
         CREATE OR REPLACE FUNCTION jobs_pause(queue text) RETURNS boolean
             LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
         DECLARE
             begins text[];
             until timestamptz;
         BEGIN
             {is_queue}
             IF NOT (SELECT has_kinds FROM durable_version) THEN
                 RAISE EXCEPTION
                     'nodes of an earlier version know no pauses; upgrade or stop them'
                     USING ERRCODE = '55000';
             END IF;
             UPDATE durable_version SET paused = array_append(paused, jobs_pause.queue)
                 WHERE jobs_pause.queue <> ALL (paused);
             IF FOUND THEN
                 RETURN true;
             END IF;
             -- Wait for the begins that may not have seen it.
             SELECT coalesce(array_agg(virtualtransaction), '{{}}') INTO begins FROM pg_locks
                 WHERE {is_begin} AND granted AND pid <> pg_backend_pid();
             until := clock_timestamp() + interval '{WAIT} s';
             WHILE EXISTS (SELECT FROM pg_locks
                 WHERE {is_begin} AND virtualtransaction = ANY (begins)) LOOP
                 IF clock_timestamp() > until THEN
                     RAISE EXCEPTION 'a transaction that begins jobs has not ended for {WAIT} s'
                         USING ERRCODE = '55P03';
                 END IF;
                 PERFORM pg_sleep(0.005);
             END LOOP;
             RETURN false;
         END $$;
         CREATE OR REPLACE FUNCTION jobs_resume(queue text) RETURNS boolean
             LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
         BEGIN
             UPDATE durable_version SET paused = array_remove(paused, jobs_resume.queue)
                 WHERE jobs_resume.queue = ANY (paused);
             IF FOUND THEN
                 NOTIFY durable_jobs;
             END IF;
             RETURN FOUND;
         END $$;
         REVOKE EXECUTE ON FUNCTION jobs_pause, jobs_resume FROM public;"
    )
}

impl Postgres {
    /// Pauses a queue, or lets it go on.
    pub(super) async fn change_pause(
        &self,
        queue: &str,
        is_paused: bool,
    ) -> Result<(), StoreError> {
        let statement = match is_paused {
            true => PAUSE,
            false => RESUME,
        };
        let change = async || {
            if is_paused && !self.has_kinds().await? {
                return Err(StoreError::EarlierNodes);
            }
            self.changes.query_one(statement, &[&queue]).await
        };
        let until = Instant::now() + batch::LOCKED;
        loop {
            match change().await {
                // The second call waits for begins.
                Ok(answer) if is_paused && get(&answer, 0)? => {}
                Ok(_) => return Ok(()),
                // A transaction of somebody changes it, too, or a begin takes long.
                Err(StoreError::Locked) if Instant::now() < until => {
                    remote::inside(sleep(batch::FIRST)).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Returns the queues that are paused.
    pub(super) async fn all_paused(&self) -> Result<Vec<String>, StoreError> {
        let mut names: Vec<String> = get(&self.clients.query_one(PAUSED, &[]).await?, 0)?;
        names.sort();
        Ok(names)
    }
}
