//! A store of jobs in memory, as a server has it: each request is one step, by the server's clock.

use std::{collections::BTreeMap, time::Duration};

use tourbillon_jobs::{
    NewJob, Time,
    job::{Job, State, Token},
    store::{
        Begin, Cancelled, Counts, End, Finish, Held, Kinds, Lease, Moved, Scheduled, Span, Start,
    },
};

struct Row {
    new: NewJob,
    due: Time,
    at: Time,
    attempts: u32,
    error: Option<String>,
    dead: bool,
    /// The lease of the holder, and its token.
    holder: Option<(i64, Token)>,
    running: bool,
}

impl Row {
    fn take(&mut self) {
        self.holder = None;
        self.running = false;
    }
}

#[derive(Default)]
pub struct Book {
    jobs: BTreeMap<String, Row>,
    leases: BTreeMap<i64, Time>,
    /// The last lease or token.
    last: i64,
}

impl Book {
    /// Ends the leases that have run out. Comes before each request.
    pub fn end_leases(&mut self, now: Time) {
        self.leases.retain(|_, until| *until > now);
        for row in self.jobs.values_mut() {
            if row
                .holder
                .is_some_and(|(node, _)| !self.leases.contains_key(&node))
            {
                row.take();
            }
        }
    }

    pub fn schedule(&mut self, now: Time, new: NewJob) -> Scheduled {
        if let Some(row) = self.jobs.get(&new.key) {
            return Scheduled::Exists { at: row.at };
        }
        let Some(at) = new.when.resolve(now) else {
            return Scheduled::Never;
        };
        let row = Row {
            due: at,
            at,
            attempts: 0,
            error: None,
            dead: false,
            holder: None,
            running: false,
            new,
        };
        self.jobs.insert(row.new.key.clone(), row);
        Scheduled::Created { at }
    }

    pub fn reschedule(&mut self, now: Time, key: &str, when: &tourbillon_jobs::When) -> Moved {
        let Some(row) = self.jobs.get_mut(key) else {
            return Moved::NotFound;
        };
        let Some(at) = when.resolve(now) else {
            return Moved::Never;
        };
        let was_running = row.running;
        row.take();
        (row.due, row.at, row.attempts, row.dead) = (at, at, 0, false);
        match was_running {
            true => Moved::WhileRunning { at },
            false => Moved::Moved { at },
        }
    }

    pub fn cancel(&mut self, key: &str) -> Cancelled {
        match self.jobs.remove(key) {
            None => Cancelled::NotFound,
            Some(row) if row.running => Cancelled::WhileRunning,
            Some(_) => Cancelled::Cancelled,
        }
    }

    pub fn get(&self, key: &str) -> Option<Job> {
        let row = self.jobs.get(key)?;
        Some(Job {
            key: key.into(),
            kind: row.new.kind.clone(),
            queue: row.new.queue.clone(),
            priority: row.new.priority,
            payload: row.new.payload.clone(),
            due: row.due,
            at: row.at,
            attempts: row.attempts,
            repeat: row.new.when.repeat().cloned(),
            error: row.error.clone(),
            state: match (row.dead, row.running) {
                (true, _) => State::Dead,
                (_, true) => State::Running,
                _ => State::Waiting,
            },
            traceparent: row.new.traceparent.clone(),
        })
    }

    pub fn count(&self) -> Counts {
        let dead = self.jobs.values().filter(|row| row.dead).count() as u64;
        let live = self.jobs.len() as u64 - dead;
        Counts { live, dead }
    }

    pub fn register(&mut self, now: Time, length: Duration) -> Lease {
        self.last += 1;
        self.leases.insert(self.last, now.after(length));
        Lease {
            node: self.last,
            runs_out: true,
        }
    }

    pub fn renew(&mut self, now: Time, node: i64, length: Duration) -> bool {
        let lease = self.leases.get_mut(&node);
        lease.map(|until| *until = now.after(length)).is_some()
    }

    pub fn release(&mut self, now: Time, node: i64) {
        self.leases.remove(&node);
        self.end_leases(now);
    }

    pub fn hold(
        &mut self,
        now: Time,
        node: i64,
        span: Span,
        queue: &str,
        kinds: &Kinds,
        most: usize,
    ) -> Vec<Held> {
        if !self.leases.contains_key(&node) {
            return Vec::new();
        }
        let fits = |row: &Row| {
            let is_in_span = match span {
                Span::Due => row.at <= now,
                Span::Above(priority) => row.at <= now && row.new.priority < priority,
                Span::Within(time) => row.at > now && row.at <= now.after(time),
            };
            let is_of_kind = match kinds {
                Kinds::All => true,
                Kinds::Only(kinds) => kinds.contains(&row.new.kind),
            };
            !row.dead && row.holder.is_none() && row.new.queue == queue && is_in_span && is_of_kind
        };
        let mut found: Vec<_> = self.jobs.values_mut().filter(|row| fits(row)).collect();
        found.sort_by_key(|row| (row.new.priority, row.at));
        found.truncate(most);
        let hold = |row: &mut Row| {
            self.last += 1;
            let token = Token(self.last);
            row.holder = Some((node, token));
            Held {
                key: row.new.key.clone(),
                kind: row.new.kind.clone(),
                queue: row.new.queue.clone(),
                priority: row.new.priority,
                due: row.due,
                at: row.at,
                attempts: row.attempts,
                repeat: row.new.when.repeat().cloned(),
                size: row.new.payload.len(),
                token,
                traceparent: row.new.traceparent.clone(),
            }
        };
        found.into_iter().map(hold).collect()
    }

    /// Returns the job that has this token.
    fn held(&mut self, key: &str, token: Token) -> Option<&mut Row> {
        let row = self.jobs.get_mut(key)?;
        row.holder.is_some_and(|(_, of)| of == token).then_some(row)
    }

    pub fn give_back(&mut self, key: &str, token: Token) {
        if let Some(row) = self.held(key, token) {
            row.take();
        }
    }

    pub fn begin(&mut self, now: Time, start: &Start) -> Begin {
        match self.held(&start.key, start.token) {
            None => Begin::No,
            Some(row) if row.at > now => Begin::Early,
            Some(row) => {
                row.attempts += 1;
                row.at = now.after(start.wait);
                row.running = true;
                Begin::Yes {
                    number: row.attempts,
                    payload: row.new.payload.clone(),
                }
            }
        }
    }

    pub fn is_current(&mut self, key: &str, token: Token) -> bool {
        self.held(key, token).is_some()
    }

    pub fn finish(&mut self, now: Time, finish: Finish) -> bool {
        let Some(row) = self.held(&finish.key, finish.token) else {
            return false;
        };
        row.take();
        match finish.end {
            End::Done => _ = self.jobs.remove(&finish.key),
            End::Next { at, error, .. } => {
                (row.due, row.at, row.attempts, row.error) = (at, at, 0, error);
            }
            End::Retry { delay, error } => (row.at, row.error) = (now.after(delay), Some(error)),
            End::Snooze { delay } => {
                row.attempts -= 1;
                row.at = now.after(delay);
            }
            End::Dead { error } => (row.dead, row.error) = (true, Some(error)),
        }
        true
    }
}
