//! What the requests change within a transaction.

use std::sync::Arc;

use rusqlite::{OptionalExtension, Transaction, params};

use super::{
    holders::{Holder, Holders, Lane, Place},
    rows,
};
use crate::{
    job::{NewJob, Repeat, Time, Token, When},
    row,
    store::{Begin, Cancelled, DeadJobs, End, Finish, Moved, Replaced, Scheduled, Start},
};

/// How many times one request counts again.
const PART: i64 = 2000;

/// The effects of a transaction that are applied or undone after its end.
#[derive(Default)]
pub(super) struct Done {
    /// Jobs that have no holder from now on: lane, time, key.
    pub(super) offered: Vec<(Lane, Time, String)>,
    /// The holders of attempts that ended, or whose jobs were moved or cancelled while they ran.
    /// They are put back if the commit fails.
    pub(super) ended: Vec<(String, Holder)>,
    /// The attempts that began, and the times of their jobs. They are undone if the commit fails.
    pub(super) begun: Vec<(String, Token, Time)>,
    /// The queues that were paused, or go on. They are as before if the commit fails.
    pub(super) paused: Vec<(String, bool)>,
}

/// A transaction that is not committed yet.
pub(super) struct Change<'a> {
    pub(super) base: &'a Transaction<'a>,
    pub(super) holders: &'a Holders,
    pub(super) done: &'a mut Done,
}

/// Takes a job from its holder. From here on no attempt begins, even before the commit. Returns
/// whether an attempt runs.
fn take_from_holder(change: &mut Change<'_>, key: &str) -> bool {
    let holder = change.holders.lock().by_key.remove(key);
    let Some(holder) = holder.filter(|holder| holder.running) else {
        return false;
    };
    change.done.ended.push((key.to_owned(), holder));
    true
}

/// Pauses a queue, or lets it go on. From here on no attempt of it begins, even before the commit.
pub(super) fn set_paused(
    change: &mut Change<'_>,
    (queue, is_paused): &(String, bool),
) -> rusqlite::Result<()> {
    let write = match is_paused {
        true => "INSERT INTO paused VALUES (?) ON CONFLICT DO NOTHING",
        false => "DELETE FROM paused WHERE queue = ?",
    };
    if change.base.prepare_cached(write)?.execute([queue])? == 1 {
        change.done.paused.push((queue.clone(), *is_paused));
        let mut holders = change.holders.lock();
        holders.set_paused(queue.clone(), *is_paused);
    }
    Ok(())
}

pub(super) fn cancel(change: &mut Change<'_>, key: &String) -> rusqlite::Result<Cancelled> {
    let mut remove = change
        .base
        .prepare_cached("DELETE FROM jobs WHERE key = ?")?;
    let found = remove.execute([key])? == 1;
    rows::free(change.base, key)?;
    let was_running = take_from_holder(change, key);
    Ok(match (found, was_running) {
        (false, _) => Cancelled::NotFound,
        (true, true) => Cancelled::WhileRunning,
        (true, false) => Cancelled::Cancelled,
    })
}

pub(super) fn schedule(change: &mut Change<'_>, new: &NewJob) -> rusqlite::Result<Scheduled> {
    let now = Time::wall();
    let Some(at) = new.when.resolve(now) else {
        return Ok(Scheduled::Never);
    };
    if let Some(at) = rows::kept(change.base, &new.key, now)? {
        return Ok(Scheduled::Exists { at });
    }
    if add(change, new, at, now)? {
        rows::free(change.base, &new.key)?;
        return Ok(Scheduled::Created { at });
    }
    let found = rows::find(change.base, &new.key)?;
    let at = found.ok_or(rusqlite::Error::QueryReturnedNoRows)?.at;
    Ok(Scheduled::Exists { at })
}

/// Adds a job that is due at `at`, unless there is one of its key. Returns whether it is added.
fn add(change: &mut Change<'_>, new: &NewJob, at: Time, now: Time) -> rusqlite::Result<bool> {
    let is_added = rows::insert(change.base, new, at, new.when.counted(now))?;
    if is_added {
        let lane = Lane {
            queue: new.queue.clone(),
            kind: new.kind.clone(),
            priority: new.priority,
        };
        change.done.offered.push((lane, at, new.key.clone()));
    }
    Ok(is_added)
}

pub(super) fn replace(change: &mut Change<'_>, new: &NewJob) -> rusqlite::Result<Replaced> {
    let now = Time::wall();
    let Some(at) = new.when.resolve(now) else {
        return Ok(Replaced::Never);
    };
    let other = cancel(change, &new.key)?;
    add(change, new, at, now)?;
    Ok(match other {
        Cancelled::NotFound => Replaced::Created { at },
        Cancelled::Cancelled => Replaced::Replaced { at },
        Cancelled::WhileRunning => Replaced::WhileRunning { at },
    })
}

pub(super) fn reschedule(
    change: &mut Change<'_>,
    (key, when): &(String, When),
) -> rusqlite::Result<Moved> {
    let now = Time::wall();
    let Some(at) = when.resolve(now) else {
        return Ok(Moved::Never);
    };
    let repeat = when.repeat();
    let mut update = change.base.prepare_cached(
        "UPDATE jobs SET due = ?2, at = ?2, attempts = 0, error = NULL, dead = 0,
             pattern = coalesce(?3, pattern), zone = coalesce(?4, zone), counted = ?5
         WHERE key = ?1 RETURNING queue, kind, priority",
    )?;
    let values = params![
        key,
        at.as_micros(),
        repeat.map(Repeat::pattern),
        repeat.map(Repeat::zone),
        when.counted(now).map(Time::as_micros),
    ];
    let Some(lane) = update.query_row(values, rows::lane).optional()? else {
        return Ok(Moved::NotFound);
    };
    let was_running = take_from_holder(change, key);
    change.done.offered.push((lane, at, key.to_owned()));
    Ok(match was_running {
        true => Moved::WhileRunning { at },
        false => Moved::Moved { at },
    })
}

/// A job that was dead when somebody looked, and why it was chosen.
pub(super) type Chosen = (String, Arc<DeadJobs>);

/// Makes a job due at once, if it is dead and of this kind and queue. It may be another one of the
/// same key. Returns whether it is made due.
pub(super) fn retry_dead(change: &mut Change<'_>, (key, which): &Chosen) -> rusqlite::Result<bool> {
    let now = Time::wall();
    // A job that is dead has no holder.
    let mut update = change.base.prepare_cached(
        "UPDATE jobs SET due = ?2, at = ?2, attempts = 0, error = NULL, dead = 0, counted = ?2
         WHERE key = ?1 AND dead = 1
             AND kind = coalesce(?3, kind) AND queue = coalesce(?4, queue)
         RETURNING queue, kind, priority",
    )?;
    let values = params![key, now.as_micros(), which.kind, which.queue];
    let Some(lane) = update.query_row(values, rows::lane).optional()? else {
        return Ok(false);
    };
    change.done.offered.push((lane, now, key.clone()));
    Ok(true)
}

/// Removes a job under the conditions of [`retry_dead`]. Returns whether it is removed.
pub(super) fn discard_dead(
    change: &mut Change<'_>,
    (key, which): &Chosen,
) -> rusqlite::Result<bool> {
    let mut remove = change.base.prepare_cached(
        "DELETE FROM jobs WHERE key = ?1 AND dead = 1
             AND kind = coalesce(?2, kind) AND queue = coalesce(?3, queue)",
    )?;
    Ok(remove.execute(params![key, which.kind, which.queue])? == 1)
}

/// Counts times again that were counted from later times than the clock shows. Returns the place
/// after which there may be more.
pub(super) fn recount(change: &mut Change<'_>, after: &Place) -> rusqlite::Result<Option<Place>> {
    let now = Time::wall();
    let mut read = change.base.prepare_cached(rows::COUNTED)?;
    let range = params![after.0.as_micros(), after.1, PART];
    let found = read.query_map(range, |found| row::counted(found))?;
    let found = found.collect::<rusqlite::Result<Vec<_>>>()?;
    let mut update = change.base.prepare_cached(
        "UPDATE jobs SET at = ?2, due = CASE WHEN attempts = 0 THEN ?2 ELSE due END, counted = ?3
         WHERE key = ?1 RETURNING queue, kind, priority",
    )?;
    for job in &found {
        // The end of an attempt that runs counts its time anew.
        if change.holders.is_running(&job.key) {
            continue;
        }
        let (at, counted) = job.again(now);
        let values = params![job.key, at.as_micros(), counted.map(Time::as_micros)];
        let lane = update.query_row(values, rows::lane)?;
        take_from_holder(change, &job.key);
        change.done.offered.push((lane, at, job.key.clone()));
    }
    let is_full = i64::try_from(found.len()) == Ok(PART);
    let last = found.last().filter(|_| is_full);
    Ok(last.map(|last| (last.counted, last.key.clone())))
}

/// Forgets keys that are free again. Returns whether there may be more.
pub(super) fn sweep(change: &mut Change<'_>, (): &()) -> rusqlite::Result<bool> {
    rows::sweep(change.base, Time::wall(), PART)
}

/// Begins an attempt if its token is the job's and the job is due. Writes its number, and when the
/// next attempt may begin.
pub(super) fn begin(change: &mut Change<'_>, start: &Start) -> rusqlite::Result<Begin> {
    let Start { key, token, wait } = start;
    let now = Time::wall();
    let again = now.after(*wait);
    let (number, at) = match change.holders.begin(key, *token, now, again) {
        Ok(begun) => begun,
        Err(answer) => return Ok(answer),
    };
    change.done.begun.push((key.clone(), *token, at));
    let mut update = change.base.prepare_cached(
        "UPDATE jobs SET at = ?2, attempts = ?3, counted = ?4 WHERE key = ?1 RETURNING payload",
    )?;
    let values = params![key, again.as_micros(), number, now.as_micros()];
    let payload = update.query_row(values, |row| row.get(0))?;
    Ok(Begin::Yes { number, payload })
}

/// Ends an attempt. Returns whether its token was the job's.
pub(super) fn finish(change: &mut Change<'_>, finish: &Finish) -> rusqlite::Result<bool> {
    let Finish { key, token, end } = finish;
    let holder = {
        let mut holders = change.holders.lock();
        match holders.by_key.get(key) {
            Some(holder) if holder.token == *token => holders.by_key.remove(key),
            _ => None,
        }
    };
    let Some(holder) = holder else {
        return Ok(false);
    };
    let (lane, attempts) = (holder.lane.clone(), holder.attempts);
    change.done.ended.push((key.clone(), holder));
    match end {
        End::Done => {
            let mut remove = change
                .base
                .prepare_cached("DELETE FROM jobs WHERE key = ? RETURNING unique_for")?;
            let unique_for = remove.query_row([key], |row| row.get(0)).optional()?;
            rows::keep(change.base, key, unique_for.flatten(), Time::wall())?;
        }
        End::Next { at, counted, error } => {
            let mut update = change.base.prepare_cached(
                "UPDATE jobs SET due = ?2, at = ?2, attempts = 0, error = ?3, counted = ?4
                 WHERE key = ?1",
            )?;
            update.execute(params![key, at.as_micros(), error, counted.as_micros()])?;
            change.done.offered.push((lane, *at, key.clone()));
        }
        End::Retry { delay, .. } | End::Snooze { delay } => {
            let (attempts, error) = match end {
                End::Retry { error, .. } => (attempts, Some(error)),
                _ => (attempts.saturating_sub(1), None),
            };
            let now = Time::wall();
            let at = now.after(*delay);
            let mut update = change.base.prepare_cached(
                "UPDATE jobs SET at = ?2, attempts = ?3, error = coalesce(?4, error), counted = ?5
                 WHERE key = ?1",
            )?;
            update.execute(params![
                key,
                at.as_micros(),
                attempts,
                error,
                now.as_micros()
            ])?;
            change.done.offered.push((lane, at, key.clone()));
        }
        End::Dead { error } => {
            let mut update = change.base.prepare_cached(
                "UPDATE jobs SET dead = 1, attempts = ?2, error = ?3 WHERE key = ?1",
            )?;
            update.execute(params![key, attempts, error])?;
        }
    }
    Ok(true)
}
