//! The store on PostgreSQL, for many nodes on many machines.
//!
//! The store's clock is that of the server. No node's wall clock decides anything: a node learns
//! the server's time with each answer, and lets its own monotonic clock run on from there.

mod clients;
mod connection;
mod dead;
mod kinds;
mod migrate;
mod open;
mod pause;
mod rows;
mod schedule;
#[cfg(feature = "tls")]
mod secure;
mod servers;
mod tables;
mod values;

use std::{
    collections::{HashMap, HashSet},
    fmt,
    sync::{Arc, OnceLock},
    time::Duration,
};

use self::{
    connection::{Link, Parameters},
    values::{Attempt, Bounds, Ends, bounds, divide, get, names, soon},
};
use crate::{
    job::{Job, NewJob, Time, Token, When, micros},
    recount,
    remote::{Aborts, Clock},
    row::{self, Values},
    store::{
        Begin, Cancelled, Changed, Changes, Counts, DeadJobs, DeadPart, Deadline, End, Finish,
        Held, Kinds, Lease, Listing, Moved, Replaced, Scheduled, Span, Start, Store, StoreError,
    },
};

/// Limits how long a statement waits for rows that somebody has locked, in milliseconds. It may be
/// for many requests, of which only one is for such a row. Then the others are asked for without it.
const LOCKS: &str = "SET lock_timeout = 50";

/// Maximum number of jobs that one statement frees after the end of leases.
const PART: i64 = 2000;

/// Maximum number of jobs whose times are counted again before the thread of the node's timers does
/// something else. Each may have a pattern to parse.
const COUNTED: i64 = 100;

/// The store on PostgreSQL.
///
/// It has eight connections. Lost ones are made again. The server does the statements
/// of one connection one after the other, so what may wait has a connection of its own.
pub struct Postgres {
    /// For clients that schedule, or read a job.
    clients: Link,
    /// For clients that move and cancel, which may wait for locks.
    changes: Link,
    /// For lists and counts, which may read the whole table.
    lists: Link,
    /// For begins, so that they wait for no other request.
    begins: Link,
    /// For holds, which take longer than the others.
    holds: Link,
    /// For ends.
    ends: Link,
    /// For leases.
    leases: Link,
    changed: Arc<Changed>,
    clock: Clock,
    /// Whether the store takes jobs of all lanes, once this is known: see [`Postgres::has_kinds`].
    has_kinds: OnceLock<()>,
    /// Likewise whether it keeps the keys of jobs that are done.
    has_kept: OnceLock<()>,
    _listening: Aborts<()>,
}

impl fmt::Debug for Postgres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Postgres").finish_non_exhaustive()
    }
}

impl Postgres {
    /// Ends the lease of a node (0 for no node) and leases that ran out, and frees their jobs.
    async fn end(&self, link: &Link, node: i64) -> Result<(), StoreError> {
        loop {
            let left = link.query_one(rows::END, &[&node, &PART]).await?;
            if get::<i64>(&left, 0)? == 0 {
                return Ok(());
            }
        }
    }
}

impl Store for Postgres {
    async fn schedule(&self, jobs: Vec<NewJob>) -> Result<Vec<Scheduled>, StoreError> {
        self.add(jobs).await
    }

    async fn schedule_or_replace(&self, jobs: Vec<NewJob>) -> Result<Vec<Replaced>, StoreError> {
        self.replace(jobs).await
    }

    async fn reschedule(&self, moves: Vec<(String, When)>) -> Result<Vec<Moved>, StoreError> {
        self.move_jobs(moves).await
    }

    async fn cancel(&self, keys: Vec<String>) -> Result<Vec<Cancelled>, StoreError> {
        let found = self.changes.query(rows::CANCEL, &[&keys]).await?;
        let read = |row| Ok::<(String, bool), StoreError>((get(row, 0)?, get(row, 1)?));
        let mut found: HashMap<_, _> = found.iter().map(read).collect::<Result<_, _>>()?;
        let answer = |key| match found.remove(key) {
            None => Cancelled::NotFound,
            Some(true) => Cancelled::WhileRunning,
            Some(false) => Cancelled::Cancelled,
        };
        Ok(keys.iter().map(answer).collect())
    }

    async fn retry_dead(&self, which: DeadJobs) -> Result<DeadPart, StoreError> {
        self.change_dead(dead::RETRY, which).await
    }

    async fn discard_dead(&self, which: DeadJobs) -> Result<DeadPart, StoreError> {
        self.change_dead(dead::DISCARD, which).await
    }

    async fn locked(&self, keys: Vec<String>) -> Result<HashSet<String>, StoreError> {
        let found = self.changes.query(rows::LOCKED, &[&keys]).await?;
        found.iter().map(|row| get(row, 0)).collect()
    }

    async fn set_paused(&self, queue: String, is_paused: bool) -> Result<(), StoreError> {
        self.change_pause(&queue, is_paused).await
    }

    async fn paused(&self) -> Result<Vec<String>, StoreError> {
        self.all_paused().await
    }

    async fn get(&self, key: String) -> Result<Option<Job>, StoreError> {
        let found = self.clients.query(rows::FIND, &[&key]).await?;
        found.first().map(row::job).transpose()
    }

    async fn list(&self, listing: Listing) -> Result<Vec<Job>, StoreError> {
        let after = listing.after.unwrap_or_default();
        let limit = i64::try_from(listing.limit).unwrap_or(i64::MAX);
        let most = i32::try_from(listing.beginning).unwrap_or(i32::MAX);
        let found = self
            .lists
            .query(
                rows::LIST,
                &[
                    &listing.search,
                    &after,
                    &listing.dead,
                    &limit,
                    &most,
                    &listing.kind,
                    &listing.queue,
                ],
            )
            .await?;
        let read = |found| Ok(row::job(found)?.cut(listing.beginning));
        found.iter().map(read).collect()
    }

    async fn count(&self) -> Result<Counts, StoreError> {
        let found = self.lists.query_one(rows::COUNT, &[]).await?;
        let count =
            |column| Ok::<_, StoreError>(u64::try_from(get::<i64>(&found, column)?).unwrap_or(0));
        Ok(Counts {
            live: count(0)?,
            dead: count(1)?,
        })
    }

    async fn register(&self, length: Duration) -> Result<Lease, StoreError> {
        let length = micros(length);
        let found = self.leases.query_one(rows::REGISTER, &[&length]).await?;
        self.clock.learn(get(&found, 1)?);
        Ok(Lease {
            node: get(&found, 0)?,
            runs_out: true,
        })
    }

    async fn renew(&self, node: i64, length: Duration) -> Result<bool, StoreError> {
        let found = self
            .leases
            .query(rows::RENEW, &[&node, &micros(length)])
            .await?;
        let Some(row) = found.first() else {
            return Ok(false);
        };
        self.clock.learn(get(row, 0)?);
        Ok(true)
    }

    async fn free_others(&self) -> Result<(), StoreError> {
        // So that clients need not wait for this. After an error, the next call does it.
        let _ = self.has_kinds().await;
        let _ = self.has_kept().await;
        self.end(&self.holds, 0).await
    }

    async fn release(&self, node: i64) -> Result<(), StoreError> {
        self.end(&self.leases, node).await
    }

    async fn hold(
        &self,
        node: i64,
        span: Span,
        queue: &str,
        kinds: &Kinds,
        most: usize,
    ) -> Result<Vec<Held>, StoreError> {
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        let bounds = bounds(span);
        let all = names(kinds);
        let (hold, kinds): (_, &(dyn tokio_postgres::types::ToSql + Sync)) = match kinds {
            // What most nodes have, so it has a cheaper statement.
            Kinds::Only(kinds) if kinds.len() == 1 => (rows::HOLD_KIND, &kinds[0]),
            _ => (rows::HOLD, &all),
        };
        let values: Parameters<'_> = &[
            &node,
            &bounds.after,
            &bounds.within,
            &most,
            kinds,
            &bounds.lowest,
            &queue,
        ];
        let found = self.holds.query(hold, values).await?;
        found.iter().map(row::held).collect()
    }

    async fn skipped(&self, span: Span, queue: &str, kinds: &Kinds) -> Result<bool, StoreError> {
        let names = names(kinds);
        let Bounds {
            after,
            within,
            lowest,
        } = bounds(span);
        let values: Parameters<'_> = &[&after, &within, &names, &lowest, &queue];
        get(&self.holds.query_one(rows::SKIPPED, values).await?, 0)
    }

    async fn give_back(
        &self,
        jobs: Vec<(String, Token)>,
    ) -> Result<Vec<(String, Token)>, StoreError> {
        let (keys, tokens) = divide(jobs.iter().map(|(key, token)| (key, token)));
        let found = self.holds.query(rows::GIVE_BACK, &[&keys, &tokens]).await?;
        let mut locked = Vec::new();
        for row in &found {
            if let Some(key) = get(row, 0)? {
                locked.push((key, Token(get(row, 1)?)));
            }
        }
        Ok(locked)
    }

    async fn begin(&self, attempts: Vec<Start>) -> Result<Vec<Begin>, StoreError> {
        let (keys, tokens) = divide(attempts.iter().map(|one| (&one.key, &one.token)));
        let waits: Vec<i64> = attempts.iter().map(|start| micros(start.wait)).collect();
        let found = self
            .begins
            .query(rows::BEGIN, &[&keys, &tokens, &waits])
            .await?;
        let mut begun = HashMap::new();
        for row in &found {
            let attempt: Attempt = (get(row, 0)?, Token(get(row, 1)?));
            let payload: Vec<u8> = get(row, 4)?;
            begun.insert(attempt, (row.attempts(2)?, payload));
            self.clock.learn(get(row, 3)?);
        }
        let mut still = HashMap::new();
        if begun.len() < attempts.len() {
            for row in &self.begins.query(rows::STILL, &[&keys, &tokens]).await? {
                let attempt: Attempt = (get(row, 0)?, Token(get(row, 1)?));
                still.insert(attempt, get(row, 2)?);
            }
        }
        let mut answer = |start: &Start| {
            let attempt: Attempt = (start.key.clone(), start.token);
            match begun.remove(&attempt) {
                Some((number, payload)) => Begin::Yes { number, payload },
                None => match still.get(&attempt) {
                    Some(true) => Begin::Paused,
                    Some(false) => Begin::Early,
                    None => Begin::No,
                },
            }
        };
        let answers: Vec<_> = attempts.iter().map(&mut answer).collect();
        if answers.contains(&Begin::Early) {
            // Some timers fired before their time by the server's clock. So learn its time anew.
            let now = self.begins.query_one(rows::NOW, &[]).await?;
            self.clock.learn_anew(get(&now, 0)?);
        }
        Ok(answers)
    }

    async fn are_current(&self, attempts: Vec<(String, Token)>) -> Result<Vec<bool>, StoreError> {
        let (keys, tokens) = divide(attempts.iter().map(|(key, token)| (key, token)));
        let found = self.holds.query(rows::STILL, &[&keys, &tokens]).await?;
        let still = values::attempts(&found)?;
        Ok(attempts.iter().map(|one| still.contains(one)).collect())
    }

    async fn finish(&self, attempts: Vec<Finish>) -> Result<Vec<bool>, StoreError> {
        let mut done = (Vec::new(), Vec::new());
        let mut again = Ends::default();
        for finish in &attempts {
            match finish.end {
                End::Done => {
                    done.0.push(finish.key.as_str());
                    done.1.push(finish.token.0);
                }
                _ => again.push(finish),
            }
        }
        let mut accepted = HashSet::new();
        if !done.0.is_empty() {
            let found = self.ends.query(rows::DONE, &[&done.0, &done.1]).await?;
            accepted.extend(values::attempts(&found)?);
        }
        if !again.keys.is_empty() {
            let found = self
                .ends
                .query(
                    rows::AGAIN,
                    &[
                        &again.keys,
                        &again.tokens,
                        &again.times,
                        &again.are_delays,
                        &again.errors,
                        &again.ends,
                        &soon(),
                        &again.counted,
                    ],
                )
                .await;
            let found = found.map_err(|error| match done.0.is_empty() {
                true => error,
                false => error.in_part(),
            })?;
            accepted.extend(values::attempts(&found)?);
        }
        let is_accepted = |end: &Finish| accepted.contains(&(end.key.clone(), end.token));
        Ok(attempts.iter().map(is_accepted).collect())
    }

    async fn recount(&self) -> Result<(), StoreError> {
        let allowance = micros(recount::ALLOWANCE);
        loop {
            let most: Parameters<'_> = &[&COUNTED, &allowance, &recount::UNSET.as_micros()];
            let swept = self.holds.query_one(rows::SWEEP, most).await?;
            if get::<i64>(&swept, 0)? < COUNTED && get::<i64>(&swept, 1)? < COUNTED {
                break;
            }
        }
        // The job before the next part.
        let mut after = (i64::MAX, String::new());
        loop {
            let found = self
                .holds
                .query(rows::COUNTED, &[&allowance, &after.0, &after.1, &COUNTED])
                .await?;
            let Some(first) = found.first() else {
                return Ok(());
            };
            let now = Time::from_micros(get(first, 6)?);
            if recount::latest(now).is_none() {
                return Ok(());
            }
            let jobs: Vec<_> = found.iter().map(row::counted).collect::<Result<_, _>>()?;
            let keys: Vec<_> = jobs.iter().map(|job| job.key.as_str()).collect();
            let (old, old_counted): (Vec<i64>, Vec<i64>) = jobs
                .iter()
                .map(|job| (job.at.as_micros(), job.counted.as_micros()))
                .unzip();
            let (new, counted): (Vec<i64>, Vec<Option<i64>>) = jobs
                .iter()
                .map(|job| job.again(now))
                .map(|(at, counted)| (at.as_micros(), counted.map(Time::as_micros)))
                .unzip();
            // Those that are locked, or change at present, are left for the next call.
            self.holds
                .query(
                    rows::RECOUNT,
                    &[&keys, &old, &old_counted, &new, &counted, &soon()],
                )
                .await?;
            if let Some(last) = jobs.last() {
                after = (last.counted.as_micros(), last.key.clone());
            }
        }
    }

    fn changes(&self) -> Changes {
        self.changed.receiver()
    }

    fn now(&self) -> Time {
        self.clock.now()
    }

    fn deadline(&self, at: Time) -> Deadline {
        self.clock.deadline(at)
    }
}
