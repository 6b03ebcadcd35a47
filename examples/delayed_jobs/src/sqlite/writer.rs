//! The thread that owns the writing connection. It commits all waiting requests at once.

use std::sync::{Arc, mpsc::Receiver};

use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior, params};
use tokio::sync::oneshot;

use super::{
    holders::{Holder, Holders},
    rows::{self, COLUMNS, failed},
};
use crate::{
    job::{Job, NewJob, State, Time, Token, When},
    store::{Cancelled, Changed, End, Finish, Held, Moved, Scheduled, StoreError},
};

/// How many requests one commit has at most.
const MOST: usize = 4096;

pub(super) type Reply<A> = oneshot::Sender<Result<A, StoreError>>;

pub(super) enum Request {
    Schedule(Vec<NewJob>, Reply<Vec<Scheduled>>),
    Reschedule(Vec<(String, When)>, Reply<Vec<Moved>>),
    Cancel(Vec<String>, Reply<Vec<Cancelled>>),
    Finish(Vec<Finish>, Reply<Vec<bool>>),
    /// An attempt has begun. Nobody waits for this.
    Begun(String, Token),
    Hold {
        node: i64,
        window: std::time::Duration,
        most: usize,
        reply: Reply<Vec<Held>>,
    },
}

/// Sends the answer to a request, once it is known whether the commit succeeded.
type Answer = Box<dyn FnOnce(Result<(), StoreError>)>;

fn answer<A: 'static>(reply: Reply<A>, answer: A) -> Answer {
    // A caller that is gone needs no answer.
    Box::new(move |committed| drop(reply.send(committed.map(|()| answer))))
}

/// Makes the answer to a request that failed with the commit.
fn refusal<A: 'static>(reply: Reply<A>) -> Answer {
    Box::new(move |committed| {
        let error = committed.err().unwrap_or(StoreError::Closed);
        let _ = reply.send(Err(error));
    })
}

impl Request {
    /// Makes the answer to a request that was not applied.
    fn refuse(self) -> Option<Answer> {
        match self {
            Self::Schedule(_, reply) => Some(refusal(reply)),
            Self::Reschedule(_, reply) => Some(refusal(reply)),
            Self::Cancel(_, reply) => Some(refusal(reply)),
            Self::Finish(_, reply) => Some(refusal(reply)),
            Self::Hold { reply, .. } => Some(refusal(reply)),
            Self::Begun(..) => None,
        }
    }
}

pub(super) struct Writer {
    pub(super) base: Connection,
    pub(super) holders: Arc<Holders>,
    pub(super) changed: Arc<Changed>,
}

/// The effects of a transaction that are applied or undone after its end.
#[derive(Default)]
struct Done {
    answers: Vec<Answer>,
    /// Jobs that have no holder from now on.
    offered: Vec<(Time, String)>,
    /// The holders of attempts that ended. They are put back if the commit fails.
    ended: Vec<(String, Holder)>,
    begun: Vec<(String, Token)>,
}

impl Writer {
    /// Serves requests until all senders are gone.
    pub(super) fn run(mut self, requests: &Receiver<Request>) {
        // Whether the last commit failed.
        let mut is_short = false;
        while let Ok(first) = requests.recv() {
            let mut holds = Vec::new();
            let mut writes = Vec::new();
            let more = std::iter::from_fn(|| requests.try_recv().ok());
            for request in std::iter::once(first).chain(more).take(MOST) {
                match request {
                    Request::Hold { .. } => holds.push(request),
                    _ => writes.push(request),
                }
            }
            if is_short {
                // Schedules need room and may fail. Commit the other requests apart, so that they
                // succeed.
                let (adds, others) = writes
                    .into_iter()
                    .partition(|request| matches!(request, Request::Schedule(..)));
                writes = adds;
                self.write(others);
            }
            if !writes.is_empty() {
                is_short = !self.write(writes);
            }
            for hold in holds {
                if let Request::Hold {
                    node,
                    window,
                    most,
                    reply,
                } = hold
                {
                    let mut held = Vec::new();
                    let until = Time::wall().after(window);
                    let result = self.hold(node, until, most, &mut held);
                    let _ = reply.send(result.map(|()| held).map_err(failed));
                }
            }
        }
    }

    /// Applies requests in one transaction, and answers them after its commit. Returns whether it
    /// succeeded.
    fn write(&mut self, requests: Vec<Request>) -> bool {
        let mut done = Done::default();
        let mut requests = requests.into_iter();
        let committed = self.commit(&mut requests, &mut done).map_err(failed);
        // After an error, the other requests are not applied, and only get their answers.
        done.answers.extend(requests.filter_map(Request::refuse));

        let mut holders = self.holders.lock();
        let mut is_news = false;
        match &committed {
            Ok(()) => {
                for (at, key) in done.offered {
                    is_news |= holders.offer(at, key);
                }
            }
            Err(_) => {
                // Nodes may have dropped the tokens of these jobs already, so the jobs are read
                // again.
                holders.by_key.extend(done.ended);
                holders.read_again();
                is_news = true;
            }
        }
        drop(holders);
        for answer in done.answers {
            answer(committed.clone());
        }
        if committed.is_err() {
            // If this fails, too, so do the requests that follow.
            let _ = rows::empty_log(&self.base);
        }
        if is_news {
            self.changed.tell();
        }
        committed.is_ok()
    }

    /// Applies and commits requests, until one fails.
    fn commit(
        &mut self,
        requests: &mut impl Iterator<Item = Request>,
        done: &mut Done,
    ) -> rusqlite::Result<()> {
        let change = self
            .base
            .transaction_with_behavior(TransactionBehavior::Immediate)?;
        for request in requests {
            apply(&change, &self.holders, request, done)?;
        }
        mark(&change, &self.holders, &done.begun)?;
        change.commit()
    }

    /// Gives the earliest jobs without a holder to a node, until it has `most` or there are no
    /// more.
    fn hold(
        &self,
        node: i64,
        until: Time,
        most: usize,
        held: &mut Vec<Held>,
    ) -> rusqlite::Result<()> {
        while held.len() < most {
            if self.hold_some(node, until, most - held.len(), held)? {
                break;
            }
        }
        Ok(())
    }

    /// Does a part of [`hold`](Self::hold). Returns whether there are no more jobs.
    fn hold_some(
        &self,
        node: i64,
        until: Time,
        most: usize,
        held: &mut Vec<Held>,
    ) -> rusqlite::Result<bool> {
        // Read without the lock, so that beginning attempts do not wait. Only this thread makes
        // holders, so a job without a holder still has none when the lock is taken again.
        let mut jobs = Vec::new();
        // First the jobs before the horizon. Their places may be out of date.
        let (places, from) = {
            let holders = self.holders.lock();
            let due = holders.earlier.iter().take_while(|place| place.0 <= until);
            (
                due.take(most).cloned().collect::<Vec<_>>(),
                holders.horizon.clone(),
            )
        };
        // Use one transaction for all reads, as each transaction locks the file.
        let reading = self.base.unchecked_transaction()?;
        let mut find = rows::find(&reading)?;
        for (at, key) in &places {
            let found = find.query_row([key], rows::job).optional()?;
            jobs.extend(found.filter(|job| job.at == *at && job.state != State::Dead));
        }
        // Then those behind it.
        let mut read = reading.prepare_cached(&format!(
            "SELECT {COLUMNS} FROM jobs WHERE dead = 0 AND at <= ?1 AND (at, key) > (?2, ?3)
             ORDER BY at, key LIMIT ?4"
        ))?;
        let room = most - places.len();
        let range = params![
            until.as_micros(),
            from.0.as_micros(),
            from.1,
            i64::try_from(room).unwrap_or(i64::MAX)
        ];
        let before = jobs.len();
        for job in read.query_map(range, rows::job)? {
            jobs.push(job?);
        }

        let mut holders = self.holders.lock();
        // The node may have been released since it asked. Then no release would free these jobs.
        if !holders.may_hold(node) {
            return Ok(true);
        }
        for place in &places {
            holders.earlier.remove(place);
        }
        // If the horizon was put back meanwhile, the next call reads these jobs again.
        let is_all = holders.horizon == from && jobs.len() - before < room;
        if is_all {
            let end = (Time::from_micros(until.as_micros() + 1), String::new());
            holders.horizon = from.max(end);
        } else if holders.horizon == from && room > 0 {
            holders.horizon = jobs.last().map_or(from, |job| (job.at, job.key.clone()));
        }
        for job in jobs {
            if !holders.by_key.contains_key(&job.key) {
                let token = holders.hold(node, &job.key, job.at, job.attempts);
                held.push(Held { job, token });
            }
        }
        Ok(is_all)
    }
}

/// Applies a request within a transaction.
fn apply(
    change: &Transaction<'_>,
    holders: &Holders,
    request: Request,
    done: &mut Done,
) -> rusqlite::Result<()> {
    match request {
        Request::Schedule(jobs, reply) => {
            let answers = jobs.into_iter().map(|job| schedule(change, job, done));
            let answers = answers.collect();
            settle(done, reply, answers)
        }
        Request::Reschedule(moves, reply) => {
            let answers = moves
                .into_iter()
                .map(|(key, when)| reschedule(change, holders, key, &when, done));
            let answers = answers.collect();
            settle(done, reply, answers)
        }
        Request::Cancel(keys, reply) => {
            let answers = keys.iter().map(|key| cancel(change, holders, key));
            let answers = answers.collect();
            settle(done, reply, answers)
        }
        Request::Finish(ends, reply) => {
            let answers = ends
                .into_iter()
                .map(|end| finish(change, holders, end, done));
            let answers = answers.collect();
            settle(done, reply, answers)
        }
        Request::Begun(key, token) => {
            done.begun.push((key, token));
            Ok(())
        }
        Request::Hold { .. } => unreachable!("these are apart"),
    }
}

/// Prepares the answer to a request that was applied, or that failed.
fn settle<A: 'static>(
    done: &mut Done,
    reply: Reply<A>,
    result: rusqlite::Result<A>,
) -> rusqlite::Result<()> {
    match result {
        Ok(found) => {
            done.answers.push(answer(reply, found));
            Ok(())
        }
        Err(error) => {
            done.answers.push(refusal(reply));
            Err(error)
        }
    }
}

fn cancel(change: &Transaction<'_>, holders: &Holders, key: &str) -> rusqlite::Result<Cancelled> {
    let mut remove = change.prepare_cached("DELETE FROM jobs WHERE key = ?")?;
    let found = remove.execute([key])? == 1;
    // From here on no attempt begins, even before the commit.
    let holder = holders.lock().by_key.remove(key);
    Ok(match holder {
        _ if !found => Cancelled::NotFound,
        Some(Holder { running: true, .. }) => Cancelled::WhileRunning,
        _ => Cancelled::Cancelled,
    })
}

fn schedule(change: &Transaction<'_>, new: NewJob, done: &mut Done) -> rusqlite::Result<Scheduled> {
    let Some(at) = new.when.resolve(Time::wall()) else {
        return Ok(Scheduled::Never);
    };
    let job = Job {
        key: new.key,
        payload: new.payload,
        due: at,
        at,
        attempts: 0,
        repeat: new.when.repeat().cloned(),
        error: None,
        state: State::Waiting,
    };
    if rows::insert(change, &job)? {
        done.offered.push((at, job.key));
        return Ok(Scheduled::Created { at });
    }
    let found = rows::find(change)?.query_row([&job.key], rows::job)?;
    Ok(Scheduled::Exists { at: found.at })
}

fn reschedule(
    change: &Transaction<'_>,
    holders: &Holders,
    key: String,
    when: &When,
    done: &mut Done,
) -> rusqlite::Result<Moved> {
    let Some(at) = when.resolve(Time::wall()) else {
        return Ok(Moved::Never);
    };
    let repeat = when.repeat();
    let mut update = change.prepare_cached(
        "UPDATE jobs SET due = ?2, at = ?2, attempts = 0, error = NULL, dead = 0,
             pattern = coalesce(?3, pattern), zone = coalesce(?4, zone)
         WHERE key = ?1",
    )?;
    let found = update.execute(params![
        key,
        at.as_micros(),
        repeat.map(|repeat| repeat.pattern()),
        repeat.map(|repeat| repeat.zone()),
    ])?;
    if found == 0 {
        return Ok(Moved::NotFound);
    }
    // From here on no attempt at the old time begins, even before the commit.
    let holder = holders.lock().by_key.remove(&key);
    done.offered.push((at, key));
    Ok(match holder {
        Some(Holder { running: true, .. }) => Moved::WhileRunning { at },
        _ => Moved::Moved { at },
    })
}

/// Ends an attempt. Returns whether its token was the job's.
fn finish(
    change: &Transaction<'_>,
    holders: &Holders,
    finish: Finish,
    done: &mut Done,
) -> rusqlite::Result<bool> {
    let Finish { key, token, end } = finish;
    let holder = {
        let mut holders = holders.lock();
        match holders.by_key.get(&key) {
            Some(holder) if holder.token == token => holders.by_key.remove(&key),
            _ => None,
        }
    };
    let Some(holder) = holder else {
        return Ok(false);
    };
    let attempts = holder.attempts;
    done.ended.push((key.clone(), holder));
    match end {
        End::Done => {
            let mut remove = change.prepare_cached("DELETE FROM jobs WHERE key = ?")?;
            remove.execute([&key])?;
        }
        End::Next { at, error } => {
            let mut update = change.prepare_cached(
                "UPDATE jobs SET due = ?2, at = ?2, attempts = 0, error = ?3 WHERE key = ?1",
            )?;
            update.execute(params![key, at.as_micros(), error])?;
            done.offered.push((at, key));
        }
        End::Retry { delay, error } => {
            let at = Time::wall().after(delay);
            let mut update = change.prepare_cached(
                "UPDATE jobs SET at = ?2, attempts = ?3, error = ?4 WHERE key = ?1",
            )?;
            update.execute(params![key, at.as_micros(), attempts, error])?;
            done.offered.push((at, key));
        }
        End::Dead { error } => {
            let mut update = change.prepare_cached(
                "UPDATE jobs SET dead = 1, attempts = ?2, error = ?3 WHERE key = ?1",
            )?;
            update.execute(params![key, attempts, error])?;
        }
    }
    Ok(true)
}

/// Writes the numbers of attempts that began and have not ended.
fn mark(
    change: &Transaction<'_>,
    holders: &Holders,
    begun: &[(String, Token)],
) -> rusqlite::Result<()> {
    let mut update = change.prepare_cached("UPDATE jobs SET attempts = ?2 WHERE key = ?1")?;
    for (key, token) in begun {
        let attempts = match holders.lock().by_key.get(key) {
            Some(holder) if holder.token == *token => holder.attempts,
            _ => continue,
        };
        update.execute(params![key, attempts])?;
    }
    Ok(())
}
