//! Requests of clients that add jobs, replace them and move them.

use std::collections::{HashMap, HashSet};

use super::{
    Postgres, rows,
    values::{Jobs, Times, get, soon},
};
use crate::{
    job::{NewJob, Time, When, micros},
    recount::ALLOWANCE,
    remote::time,
    store::{Moved, Replaced, Scheduled, Store, StoreError},
};

/// Adds jobs in place of those of their keys. It has the parameters of
/// [`SCHEDULE`](rows::SCHEDULE). No key may occur twice. Returns of each job whether the other one
/// ran, or NULL if there was none, also if one that is done has kept the key.
/// A job of a key that somebody adds meanwhile is left alone, and is not in the answer.
///
/// Rows are locked in the order of their keys, as in [`CANCEL`](rows::CANCEL), and then added in
/// this order.
pub(super) const REPLACE: &str = "
    WITH n AS MATERIALIZED (
             SELECT n.key, n.payload, n.pattern, n.zone, n.kind, n.priority, n.queue, n.unique_for,
                 n.traceparent,
                 CASE WHEN n.is_delay THEN c.now + n.time ELSE n.time END AS at,
                 CASE WHEN n.is_delay THEN c.now ELSE n.counted END AS counted
             FROM (SELECT durable_now() AS now) AS c,
                 unnest($1::text[], $2::bytea[], $3::bigint[], $4::boolean[], $5::text[],
                     $6::text[], $8::bigint[], $9::text[], $10::smallint[], $11::text[],
                     $12::bigint[], $13::text[]) AS n
                     (key, payload, time, is_delay, pattern, zone, counted, kind, priority, queue,
                         unique_for, traceparent)),
         old AS MATERIALIZED (
             SELECT key, running, until FROM durable_jobs WHERE key = ANY($1) ORDER BY key FOR UPDATE),
         replaced AS (
             UPDATE durable_jobs j
             SET payload = n.payload, due = n.at, at = n.at, attempts = 0, pattern = n.pattern,
                 zone = n.zone, error = NULL, dead = false, node = NULL, token = NULL,
                 running = false, counted = n.counted, kind = n.kind, priority = n.priority,
                 queue = n.queue, unique_for = n.unique_for, until = NULL,
                 traceparent = n.traceparent
             FROM n, old WHERE n.key = old.key AND j.key = old.key
             RETURNING j.key, j.at, CASE WHEN old.until IS NULL THEN old.running END AS running),
         added AS (
             INSERT INTO durable_jobs (key, payload, due, at, pattern, zone, counted, kind,
                 priority, queue, unique_for, traceparent)
             SELECT n.key, n.payload, n.at, n.at, n.pattern, n.zone, n.counted, n.kind,
                 n.priority, n.queue, n.unique_for, n.traceparent
             FROM n WHERE NOT EXISTS (SELECT FROM old WHERE old.key = n.key COLLATE \"C\")
             ORDER BY n.key COLLATE \"C\"
             ON CONFLICT DO NOTHING
             RETURNING key, at)
    SELECT key, at, running, CASE WHEN at <= (SELECT durable_now()) + $7
        THEN pg_notify('durable_jobs', '') END
    FROM (SELECT key, at, running FROM replaced
          UNION ALL SELECT key, at, NULL FROM added) AS done";

impl Postgres {
    /// Fails if nodes of earlier versions have leases, which would run these jobs otherwise than as
    /// they ask for.
    async fn check_nodes(&self, jobs: &[NewJob]) -> Result<(), StoreError> {
        let is_admitted = match jobs.iter().map(NewJob::version).max() {
            Some(4) => self.has_kept().await?,
            Some(3) => self.has_kinds().await?,
            _ => true,
        };
        is_admitted.then_some(()).ok_or(StoreError::EarlierNodes)
    }

    /// Adds jobs. If a key occurs twice, only its first job is added.
    pub(super) async fn add(&self, jobs: Vec<NewJob>) -> Result<Vec<Scheduled>, StoreError> {
        self.check_nodes(&jobs).await?;
        let now = self.now();
        let mut keys = HashSet::new();
        let mut new = Jobs::default();
        let mut are_asked = Vec::new();
        for job in &jobs {
            let time = time(&job.when, now);
            are_asked.push(time.is_some());
            if let Some(time) = time
                && keys.insert(job.key.as_str())
            {
                new.push(job, time);
            }
        }
        let added = self
            .clients
            .query(rows::SCHEDULE, &new.values(&soon()))
            .await?;
        let read = |row| Ok::<(String, i64), StoreError>((get(row, 0)?, get(row, 1)?));
        let mut added: HashMap<_, _> = added.iter().map(read).collect::<Result<_, _>>()?;
        let mut answers = Vec::with_capacity(jobs.len());
        for (job, is_asked) in jobs.iter().zip(are_asked) {
            // The answer for this key may be that of a later job of the batch.
            if !is_asked {
                answers.push(Scheduled::Never);
                continue;
            }
            answers.push(match added.remove(&job.key) {
                Some(at) => Scheduled::Created {
                    at: Time::from_micros(at),
                },
                None => {
                    // The other job may be done by now.
                    let at = self.taken(&job.key).await?;
                    Scheduled::Exists {
                        at: at.unwrap_or(now),
                    }
                }
            });
        }
        Ok(answers)
    }

    /// Returns until when a key is taken.
    async fn taken(&self, key: &str) -> Result<Option<Time>, StoreError> {
        let allowance = micros(ALLOWANCE);
        let found = self.clients.query(rows::TAKEN, &[&key, &allowance]).await;
        let found = found.map_err(StoreError::in_part)?;
        let at = found.first().map(|row| get(row, 0)).transpose()?;
        Ok(at.map(Time::from_micros))
    }

    /// Adds jobs in place of those of their keys.
    pub(super) async fn replace(&self, jobs: Vec<NewJob>) -> Result<Vec<Replaced>, StoreError> {
        self.check_nodes(&jobs).await?;
        let mut answers = vec![Replaced::Never; jobs.len()];
        let now = self.now();
        let mut rest: Vec<_> = (0..jobs.len()).collect();
        let mut is_first = true;
        // A statement has each key once. If it occurs again, another statement follows.
        while !rest.is_empty() {
            let mut numbers = HashMap::new();
            let mut later = Vec::new();
            let mut new = Jobs::default();
            for number in rest {
                let job = &jobs[number];
                if numbers.contains_key(job.key.as_str()) {
                    later.push(number);
                } else if let Some(time) = time(&job.when, now) {
                    numbers.insert(job.key.as_str(), number);
                    new.push(job, time);
                }
            }
            let found = self.changes.query(REPLACE, &new.values(&soon())).await;
            let found = found.map_err(|error| match is_first {
                true => error,
                false => error.in_part(),
            })?;
            is_first = false;
            for row in &found {
                let at = Time::from_micros(get(row, 1)?);
                if let Some(number) = numbers.remove(get::<&str>(row, 0)?) {
                    answers[number] = match get(row, 2)? {
                        None => Replaced::Created { at },
                        Some(false) => Replaced::Replaced { at },
                        Some(true) => Replaced::WhileRunning { at },
                    };
                }
            }
            // Somebody has added the others while the statement ran, which then did not see them.
            later.extend(numbers.into_values());
            later.sort_unstable();
            rest = later;
        }
        Ok(answers)
    }

    /// Makes jobs due at other times.
    pub(super) async fn move_jobs(
        &self,
        moves: Vec<(String, When)>,
    ) -> Result<Vec<Moved>, StoreError> {
        let mut answers = vec![Moved::NotFound; moves.len()];
        let now = self.now();
        let mut rest: Vec<_> = moves.iter().enumerate().collect();
        let mut is_first = true;
        // A statement moves each job once. If a key occurs again, another statement follows.
        while !rest.is_empty() {
            let mut numbers = HashMap::new();
            let mut later = Vec::new();
            let (mut keys, mut times) = (Vec::new(), Times::default());
            for (number, (key, when)) in rest {
                if numbers.contains_key(key.as_str()) {
                    later.push((number, &moves[number]));
                } else if let Some(time) = time(when, now) {
                    numbers.insert(key.as_str(), number);
                    keys.push(key.as_str());
                    times.push(when, time);
                } else {
                    answers[number] = Moved::Never;
                }
            }
            rest = later;
            let found = self
                .changes
                .query(
                    rows::RESCHEDULE,
                    &[
                        &keys,
                        &times.micros,
                        &times.are_delays,
                        &times.patterns,
                        &times.zones,
                        &soon(),
                        &times.counted,
                    ],
                )
                .await;
            let found = found.map_err(|error| match is_first {
                true => error,
                false => error.in_part(),
            })?;
            is_first = false;
            for row in &found {
                let at = Time::from_micros(get(row, 1)?);
                if let Some(&number) = numbers.get(get::<&str>(row, 0)?) {
                    answers[number] = match get(row, 2)? {
                        true => Moved::WhileRunning { at },
                        false => Moved::Moved { at },
                    };
                }
            }
        }
        Ok(answers)
    }
}
