//! The thread that owns the writing connection. It commits all waiting requests at once.

use std::sync::{Arc, mpsc::Receiver};

use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior, params};
use tokio::sync::oneshot;

use super::{
    holders::{self, Holder, Holders, Place},
    rows::{self, HELD, failed},
};
use crate::{
    job::{NewJob, Time, Token, When},
    store::{
        Begin, Cancelled, Changed, End, Finish, Held, Moved, Scheduled, Span, Start, StoreError,
    },
};

/// How many times one request counts again.
const PART: i64 = 2000;

/// How many requests one commit has at most.
const MOST: usize = 4096;

pub(super) type Reply<A> = oneshot::Sender<Result<A, StoreError>>;

pub(super) enum Request {
    Schedule(Vec<NewJob>, Reply<Vec<Scheduled>>),
    Reschedule(Vec<(String, When)>, Reply<Vec<Moved>>),
    Cancel(Vec<String>, Reply<Vec<Cancelled>>),
    Begin(Vec<Start>, Reply<Vec<Begin>>),
    Finish(Vec<Finish>, Reply<Vec<bool>>),
    /// Counts the times of jobs again that were counted from times after this place. Answers with
    /// the place after which there may be more.
    Recount(Place, Reply<Option<Place>>),
    Hold {
        node: i64,
        span: Span,
        most: usize,
        reply: Reply<Vec<Held>>,
    },
}

/// What a request did in a transaction that is not committed yet.
enum Outcome {
    Scheduled(Vec<Scheduled>),
    Moved(Vec<Moved>),
    Cancelled(Vec<Cancelled>),
    Begun(Vec<Begin>),
    Finished(Vec<bool>),
    Recounted(Option<Place>),
}

impl Request {
    /// Sends the answer, once it is known whether the commit succeeded. A caller that is gone needs
    /// none.
    fn answer(self, outcome: Result<Outcome, StoreError>) {
        fn send<A>(reply: Reply<A>, answer: Result<Option<A>, StoreError>) {
            // Each request has an outcome of its kind.
            let answer = answer.and_then(|answer| answer.ok_or(StoreError::Closed));
            let _ = reply.send(answer);
        }
        /// Takes the answers out of the outcome of this kind.
        macro_rules! of {
            ($kind:ident) => {
                outcome.map(|outcome| match outcome {
                    Outcome::$kind(answers) => Some(answers),
                    _ => None,
                })
            };
        }
        match self {
            Self::Schedule(_, reply) => send(reply, of!(Scheduled)),
            Self::Reschedule(_, reply) => send(reply, of!(Moved)),
            Self::Cancel(_, reply) => send(reply, of!(Cancelled)),
            Self::Begin(_, reply) => send(reply, of!(Begun)),
            Self::Finish(_, reply) => send(reply, of!(Finished)),
            Self::Recount(_, reply) => send(reply, of!(Recounted)),
            Self::Hold { reply, .. } => send(reply, outcome.map(|_| None)),
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
    outcomes: Vec<Outcome>,
    /// Jobs that have no holder from now on.
    offered: Vec<(Time, String)>,
    /// The holders of attempts that ended, or whose jobs were moved or cancelled while they ran.
    /// They are put back if the commit fails.
    ended: Vec<(String, Holder)>,
    /// The attempts that began, and the times of their jobs. They are undone if the commit fails.
    begun: Vec<(String, Token, Time)>,
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
                    Request::Recount(ref after, _) if self.has_none(after) => {
                        request.answer(Ok(Outcome::Recounted(None)));
                    }
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
                    span,
                    most,
                    reply,
                } = hold
                {
                    let mut held = Vec::new();
                    let result = self.hold(node, span, most, &mut held);
                    let _ = reply.send(result.map(|()| held).map_err(failed));
                }
            }
        }
    }

    /// Returns whether no time was counted after a place, so that there is nothing to write.
    fn has_none(&self, after: &Place) -> bool {
        let found = self.base.prepare_cached(rows::COUNTED);
        let exists =
            found.and_then(|mut found| found.exists(params![after.0.as_micros(), after.1, 1]));
        // The transaction reports an error.
        exists.is_ok_and(|exists| !exists)
    }

    /// Applies requests in one transaction, and answers them after its commit. If it fails, each
    /// request gets a transaction of its own, so that one for which there is no room does not
    /// refuse the others. Returns whether the first commit succeeded.
    fn write(&mut self, requests: Vec<Request>) -> bool {
        let error = match self.try_write(&requests) {
            Ok(outcomes) => {
                for (request, outcome) in requests.into_iter().zip(outcomes) {
                    request.answer(Ok(outcome));
                }
                return true;
            }
            Err(error) => error,
        };
        let is_alone = requests.len() == 1;
        for request in requests {
            let outcome = match is_alone {
                true => Err(error.clone()),
                false => self
                    .try_write(std::slice::from_ref(&request))
                    .and_then(|mut outcomes| outcomes.pop().ok_or(StoreError::Closed)),
            };
            request.answer(outcome);
        }
        false
    }

    /// Applies requests in one transaction. If it fails, nothing has changed.
    fn try_write(&mut self, requests: &[Request]) -> Result<Vec<Outcome>, StoreError> {
        let mut done = Done::default();
        let committed = self.commit(requests, &mut done).map_err(failed);

        let mut holders = self.holders.lock();
        let mut is_news = false;
        match &committed {
            Ok(()) => {
                for (at, key) in done.offered {
                    is_news |= holders.offer(at, key);
                }
            }
            Err(_) => {
                // Nodes may have dropped the tokens of the other jobs already, so the jobs are read
                // again.
                holders.put_back(done.ended);
                for (key, token, at) in done.begun {
                    holders.undo_begin(&key, token, at);
                }
                holders.read_again();
                is_news = true;
            }
        }
        drop(holders);
        if committed.is_err() {
            // If this fails, too, so do the requests that follow.
            let _ = rows::empty_log(&self.base);
        }
        if is_news {
            self.changed.tell();
        }
        committed.map(|()| done.outcomes)
    }

    /// Applies and commits requests, until one fails.
    fn commit(&mut self, requests: &[Request], done: &mut Done) -> rusqlite::Result<()> {
        let change = self
            .base
            .transaction_with_behavior(TransactionBehavior::Immediate)?;
        for request in requests {
            let outcome = apply(&change, &self.holders, request, done)?;
            done.outcomes.push(outcome);
        }
        change.commit()
    }

    /// Gives the earliest jobs of a span without a holder to a node, until it has `most` or there
    /// are no more.
    fn hold(
        &self,
        node: i64,
        span: Span,
        most: usize,
        held: &mut Vec<Held>,
    ) -> rusqlite::Result<()> {
        let now = Time::wall();
        let (first, until) = match span {
            Span::Due => (holders::start(), now),
            Span::Within(window) => (holders::behind(now), now.after(window)),
        };
        while held.len() < most {
            if self.hold_some(node, &first, until, most - held.len(), held)? {
                break;
            }
        }
        Ok(())
    }

    /// Does a part of [`hold`](Self::hold). Returns whether there are no more jobs.
    fn hold_some(
        &self,
        node: i64,
        first: &Place,
        until: Time,
        most: usize,
        held: &mut Vec<Held>,
    ) -> rusqlite::Result<bool> {
        // Read without the lock, so that others do not wait. Only this thread makes holders, so a
        // job without a holder still has none when the lock is taken again.
        let mut jobs = Vec::new();
        // First the jobs of places that were read before. These places may be out of date.
        let (places, unread) = {
            let holders = self.holders.lock();
            let earlier = holders.earlier.range(first.clone()..holders::behind(until));
            (
                earlier.take(most).cloned().collect::<Vec<_>>(),
                holders.unread(first),
            )
        };
        // Use one transaction for all reads, as each transaction locks the file.
        let reading = self.base.unchecked_transaction()?;
        let mut find = reading.prepare_cached(&format!(
            "SELECT {HELD} FROM jobs WHERE key = ?1 AND at = ?2 AND dead = 0"
        ))?;
        for (at, key) in &places {
            let found = find.query_row(params![key, at.as_micros()], rows::held);
            jobs.extend(found.optional()?);
        }
        // Then the others.
        let mut read = reading.prepare_cached(&format!(
            "SELECT {HELD} FROM jobs WHERE dead = 0 AND at <= ?1 AND (at, key) > (?2, ?3)
             ORDER BY at, key LIMIT ?4"
        ))?;
        let room = most - places.len();
        let range = params![
            until.as_micros(),
            unread.0.0.as_micros(),
            unread.0.1,
            i64::try_from(room).unwrap_or(i64::MAX)
        ];
        let before = jobs.len();
        for job in read.query_map(range, rows::held)? {
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
        let is_all = jobs.len() - before < room;
        let reached = match jobs[before..].last() {
            _ if is_all => Some(holders::behind(until)),
            last => last.map(|last| (last.at, last.key.clone())),
        };
        if let Some(reached) = reached {
            holders.has_read(unread, reached);
        }
        for mut job in jobs {
            if !holders.by_key.contains_key(&job.key) {
                job.token = holders.hold(node, &job.key, job.at, job.attempts);
                held.push(job);
            }
        }
        Ok(is_all)
    }
}

/// Applies a request within a transaction.
fn apply(
    change: &Transaction<'_>,
    holders: &Holders,
    request: &Request,
    done: &mut Done,
) -> rusqlite::Result<Outcome> {
    Ok(match request {
        Request::Schedule(jobs, _) => {
            let answers = jobs.iter().map(|job| schedule(change, job, done));
            Outcome::Scheduled(answers.collect::<rusqlite::Result<_>>()?)
        }
        Request::Reschedule(moves, _) => {
            let answers = moves
                .iter()
                .map(|(key, when)| reschedule(change, holders, key, when, done));
            Outcome::Moved(answers.collect::<rusqlite::Result<_>>()?)
        }
        Request::Cancel(keys, _) => {
            let answers = keys.iter().map(|key| cancel(change, holders, key, done));
            Outcome::Cancelled(answers.collect::<rusqlite::Result<_>>()?)
        }
        Request::Finish(ends, _) => {
            let answers = ends.iter().map(|end| finish(change, holders, end, done));
            Outcome::Finished(answers.collect::<rusqlite::Result<_>>()?)
        }
        Request::Begin(starts, _) => {
            let answers = starts
                .iter()
                .map(|start| begin(change, holders, start, done));
            Outcome::Begun(answers.collect::<rusqlite::Result<_>>()?)
        }
        Request::Recount(after, _) => Outcome::Recounted(recount(change, holders, after, done)?),
        Request::Hold { .. } => unreachable!("these are apart"),
    })
}

/// Takes a job from its holder. From here on no attempt begins, even before the commit. Returns
/// whether an attempt runs.
fn take_from_holder(holders: &Holders, key: &str, done: &mut Done) -> bool {
    let holder = holders.lock().by_key.remove(key);
    let Some(holder) = holder.filter(|holder| holder.running) else {
        return false;
    };
    done.ended.push((key.to_owned(), holder));
    true
}

fn cancel(
    change: &Transaction<'_>,
    holders: &Holders,
    key: &str,
    done: &mut Done,
) -> rusqlite::Result<Cancelled> {
    let mut remove = change.prepare_cached("DELETE FROM jobs WHERE key = ?")?;
    let found = remove.execute([key])? == 1;
    let was_running = take_from_holder(holders, key, done);
    Ok(match (found, was_running) {
        (false, _) => Cancelled::NotFound,
        (true, true) => Cancelled::WhileRunning,
        (true, false) => Cancelled::Cancelled,
    })
}

fn schedule(
    change: &Transaction<'_>,
    new: &NewJob,
    done: &mut Done,
) -> rusqlite::Result<Scheduled> {
    let now = Time::wall();
    let Some(at) = new.when.resolve(now) else {
        return Ok(Scheduled::Never);
    };
    if rows::insert(change, new, at, new.when.counted(now))? {
        done.offered.push((at, new.key.clone()));
        return Ok(Scheduled::Created { at });
    }
    let found = rows::find(change)?.query_row([&new.key], rows::job)?;
    Ok(Scheduled::Exists { at: found.at })
}

fn reschedule(
    change: &Transaction<'_>,
    holders: &Holders,
    key: &str,
    when: &When,
    done: &mut Done,
) -> rusqlite::Result<Moved> {
    let now = Time::wall();
    let Some(at) = when.resolve(now) else {
        return Ok(Moved::Never);
    };
    let repeat = when.repeat();
    let mut update = change.prepare_cached(
        "UPDATE jobs SET due = ?2, at = ?2, attempts = 0, error = NULL, dead = 0,
             pattern = coalesce(?3, pattern), zone = coalesce(?4, zone), counted = ?5
         WHERE key = ?1",
    )?;
    let found = update.execute(params![
        key,
        at.as_micros(),
        repeat.map(|repeat| repeat.pattern()),
        repeat.map(|repeat| repeat.zone()),
        when.counted(now).map(Time::as_micros),
    ])?;
    if found == 0 {
        return Ok(Moved::NotFound);
    }
    let was_running = take_from_holder(holders, key, done);
    done.offered.push((at, key.to_owned()));
    Ok(match was_running {
        true => Moved::WhileRunning { at },
        false => Moved::Moved { at },
    })
}

/// Counts times again that were counted from later times than the clock shows. Returns the place
/// after which there may be more.
fn recount(
    change: &Transaction<'_>,
    holders: &Holders,
    after: &Place,
    done: &mut Done,
) -> rusqlite::Result<Option<Place>> {
    let now = Time::wall();
    let mut read = change.prepare_cached(rows::COUNTED)?;
    let range = params![after.0.as_micros(), after.1, PART];
    let found = read.query_map(range, rows::counted)?;
    let found = found.collect::<rusqlite::Result<Vec<_>>>()?;
    let mut update = change.prepare_cached(
        "UPDATE jobs SET at = ?2, due = CASE WHEN attempts = 0 THEN ?2 ELSE due END, counted = ?3
         WHERE key = ?1",
    )?;
    for job in &found {
        // The end of an attempt that runs counts its time anew.
        if holders.is_running(&job.key) {
            continue;
        }
        let (at, counted) = job.again(now);
        update.execute(params![
            job.key,
            at.as_micros(),
            counted.map(Time::as_micros)
        ])?;
        take_from_holder(holders, &job.key, done);
        done.offered.push((at, job.key.clone()));
    }
    let is_full = i64::try_from(found.len()) == Ok(PART);
    let last = found.last().filter(|_| is_full);
    Ok(last.map(|last| (last.counted, last.key.clone())))
}

/// Begins an attempt if its token is the job's and the job is due. Writes its number, and when the
/// next attempt may begin.
fn begin(
    change: &Transaction<'_>,
    holders: &Holders,
    start: &Start,
    done: &mut Done,
) -> rusqlite::Result<Begin> {
    let Start { key, token, wait } = start;
    let now = Time::wall();
    let again = now.after(*wait);
    let (number, at) = match holders.begin(key, *token, now, again) {
        Ok(begun) => begun,
        Err(answer) => return Ok(answer),
    };
    done.begun.push((key.clone(), *token, at));
    let mut update = change.prepare_cached(
        "UPDATE jobs SET at = ?2, attempts = ?3, counted = ?4 WHERE key = ?1 RETURNING payload",
    )?;
    let values = params![key, again.as_micros(), number, now.as_micros()];
    let payload = update.query_row(values, |row| row.get(0))?;
    Ok(Begin::Yes { number, payload })
}

/// Ends an attempt. Returns whether its token was the job's.
fn finish(
    change: &Transaction<'_>,
    holders: &Holders,
    finish: &Finish,
    done: &mut Done,
) -> rusqlite::Result<bool> {
    let Finish { key, token, end } = finish;
    let holder = {
        let mut holders = holders.lock();
        match holders.by_key.get(key) {
            Some(holder) if holder.token == *token => holders.by_key.remove(key),
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
            remove.execute([key])?;
        }
        End::Next { at, counted, error } => {
            let mut update = change.prepare_cached(
                "UPDATE jobs SET due = ?2, at = ?2, attempts = 0, error = ?3, counted = ?4
                 WHERE key = ?1",
            )?;
            update.execute(params![key, at.as_micros(), error, counted.as_micros()])?;
            done.offered.push((*at, key.clone()));
        }
        End::Retry { delay, error } => {
            let now = Time::wall();
            let at = now.after(*delay);
            let mut update = change.prepare_cached(
                "UPDATE jobs SET at = ?2, attempts = ?3, error = ?4, counted = ?5 WHERE key = ?1",
            )?;
            update.execute(params![
                key,
                at.as_micros(),
                attempts,
                error,
                now.as_micros()
            ])?;
            done.offered.push((at, key.clone()));
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
