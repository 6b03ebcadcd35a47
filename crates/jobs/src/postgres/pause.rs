//! Queues that are paused: an array in the row of the version, as nodes may read that, and only the
//! functions here may change it.
//!
//! A begin that has not seen a pause must not be committed after the pause is acknowledged. So each
//! begin takes a shared lock before it reads the array, and has it until its commit. Whoever pauses
//! a queue calls `jobs_pause` again after the commit. The second call gets the lock alone for a
//! moment, so it waits for all begins that may not have seen the pause, and for no later ones.

use tourbillon::time::{Instant, sleep};

use super::{Postgres, values::get};
use crate::{batch, queue::MAX_QUEUE, remote, store::StoreError};

/// The number of the lock that each begin shares.
const BEGINNING: i64 = 0x6475_7261_626c_6533;

/// Pauses a queue. `$1`: its name. Answers with `true` if it was not paused.
const PAUSE: &str = "SELECT jobs_pause($1)";

/// Lets a queue go on. `$1`: its name.
const RESUME: &str = "SELECT jobs_resume($1)";

/// Returns the queues that are paused.
const PAUSED: &str = "SELECT paused FROM durable_version";

/// Returns the statements that make the functions, in a transaction. The tables must be there.
pub(super) fn functions() -> String {
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
         BEGIN
             IF queue IS NULL OR octet_length(convert_to(queue, 'UTF8'))
                 NOT BETWEEN 1 AND {MAX_QUEUE} THEN
                 RAISE EXCEPTION 'the name of a queue has 1 to {MAX_QUEUE} bytes'
                     USING ERRCODE = '22023';
             END IF;
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
             PERFORM pg_advisory_lock({BEGINNING});
             PERFORM pg_advisory_unlock({BEGINNING});
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
        if is_paused && !self.has_kinds().await? {
            return Err(StoreError::EarlierNodes);
        }
        let change = match is_paused {
            true => PAUSE,
            false => RESUME,
        };
        let until = Instant::now() + batch::LOCKED;
        loop {
            match self.changes.query_one(change, &[&queue]).await {
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
