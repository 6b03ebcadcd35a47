//! The store on Redis or Valkey, for many nodes on many machines.
//!
//! The store's clock is that of the server, as with PostgreSQL: a node learns the server's time
//! with the answers, and lets its own monotonic clock run on from there.
//!
//! The server has to sync each write to its disk before it answers, and must not evict keys:
//!
//! ```text
//! appendonly yes
//! appendfsync always
//! no-appendfsync-on-rewrite no
//! maxmemory-policy noeviction
//! ```
//!
//! All keys are on one server, because each change is one script; a cluster is not supported. A
//! replica may lag behind. If it takes over, everything that it had not received is lost, although
//! it was acknowledged: jobs, and the numbers of tokens.

mod address;
mod answers;
mod arguments;
mod clients;
mod connection;
mod pause;
mod prelude;
mod scripts;

use std::{fmt, sync::Arc, time::Duration};

use redis::{Script, ScriptInvocation, Value};

use self::{
    address::Address,
    answers::{array, bytes, flags, jobs, number, numbers, text, unknown},
    arguments::{exact, optional},
    connection::{Link, Listens},
    prelude::{CHANNEL, KEYS},
    scripts::Scripts,
};
use crate::{
    job::{Job, LOWEST_PRIORITY, NewJob, Time, Token, When, micros},
    recount::{self, ALLOWANCE},
    remote::{Aborts, Clock, listen},
    row,
    store::{
        Begin, Cancelled, Changed, Changes, Counts, DeadJobs, DeadPart, Deadline, End, Finish,
        Held, Kinds, Lease, Listing, Moved, Replaced, Scheduled, Span, Start, Store, StoreError,
    },
};

/// Maximum number of jobs that one script returns. During a script, the server does nothing else.
const PART: usize = 32;

/// The store on Redis 6 or newer, or on Valkey.
///
/// It has four connections. Lost ones are made again.
pub struct Redis {
    scripts: Scripts,
    /// For clients: schedule, move, cancel, list.
    clients: Link,
    /// For begins and for leases.
    begins: Link,
    /// For holds and ends, which have more data.
    holds: Link,
    changed: Arc<Changed>,
    clock: Clock,
    _listening: Aborts<()>,
}

impl fmt::Debug for Redis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redis").finish_non_exhaustive()
    }
}

impl Redis {
    /// Connects to a server. The store's keys begin with `{durable}:`, in the database that the
    /// URL names.
    ///
    /// `url` has the form `redis://USER:PASSWORD@HOST:PORT/DATABASE`, or
    /// `redis+unix:///PATH?db=DATABASE`. All but the host can be left out. With the feature `tls`,
    /// a URL that begins with `rediss://` encrypts the connections, and may have
    /// `?ssl_ca_certs=FILE&ssl_certfile=FILE&ssl_keyfile=FILE`: see `GUIDE.md`.
    ///
    /// # Errors
    ///
    /// Fails if the URL is wrong, if the server cannot be reached, with [`StoreError::Tls`] if the
    /// server is not the one that the URL means, with [`StoreError::Version`] if the store is of
    /// another version: see [`migrate`](Self::migrate), or with [`StoreError::Setting`] if its
    /// settings let it lose what it has acknowledged. They are checked again when a lost connection
    /// is made again.
    pub async fn connect(url: &str) -> Result<Self, StoreError> {
        Self::open(url, true).await
    }

    /// Connects to a server without checking its settings. Use this for a server that does not show
    /// them, or if the last moments before a crash of the server may be lost.
    ///
    /// # Errors
    ///
    /// Fails as [`connect`](Self::connect) does, but with any settings.
    pub async fn connect_unchecked(url: &str) -> Result<Self, StoreError> {
        Self::open(url, false).await
    }

    /// Makes the store, or brings one of an earlier version to this one.
    ///
    /// Programs that know only the earlier version, and have connected before, go on meanwhile and
    /// afterwards. They cannot connect any more once they have ended.
    ///
    /// # Errors
    ///
    /// Fails if the URL is wrong, if the server cannot be reached, or with [`StoreError::Version`]
    /// if the store is of a later version.
    pub async fn migrate(url: &str) -> Result<(), StoreError> {
        let address = Address::parse(url)?;
        let scripts = Scripts::new(CHANNEL);
        let answer = Link::new(&address, false, None)
            .run(prepare(&scripts.migrate).arg(StoreError::TABLES))
            .await?;
        match numbers(&answer)? {
            [StoreError::TABLES, _] => Ok(()),
            [version, _] => Err(StoreError::Version(version)),
        }
    }

    async fn open(url: &str, checks: bool) -> Result<Self, StoreError> {
        let address = Address::parse(url)?;
        let channel = format!("{CHANNEL}{}", address.info.redis_settings().db());
        let scripts = Scripts::new(&channel);
        let link = |listens| Link::new(&address, checks, listens);
        let clients = link(None);
        let answer = clients
            .run(prepare(&scripts.open).arg(StoreError::TABLES))
            .await?;
        let [version, now] = numbers(&answer)?;
        if version != StoreError::TABLES {
            return Err(StoreError::Version(version));
        }
        let changed = Arc::new(Changed::new());
        let listener = link(Some(Listens {
            channel,
            changed: changed.clone(),
        }));
        Ok(Self {
            scripts,
            clients,
            begins: link(None),
            holds: link(None),
            changed,
            clock: Clock::new(now),
            _listening: listen(listener),
        })
    }
}

/// Prepares a call of a script on the store's keys.
fn prepare(script: &Script) -> ScriptInvocation<'_> {
    let mut call = script.prepare_invoke();
    call.key(&KEYS[..]);
    call
}

impl Store for Redis {
    async fn schedule(&self, jobs: Vec<NewJob>) -> Result<Vec<Scheduled>, StoreError> {
        self.add(&jobs).await
    }

    async fn schedule_or_replace(&self, jobs: Vec<NewJob>) -> Result<Vec<Replaced>, StoreError> {
        self.replace(&jobs).await
    }

    async fn reschedule(&self, moves: Vec<(String, When)>) -> Result<Vec<Moved>, StoreError> {
        self.move_jobs(&moves).await
    }

    async fn cancel(&self, keys: Vec<String>) -> Result<Vec<Cancelled>, StoreError> {
        let answer = self
            .clients
            .run(prepare(&self.scripts.cancel).arg(&keys))
            .await?;
        let read = |value| {
            Ok(match number(value)? {
                0 => Cancelled::NotFound,
                1 => Cancelled::Cancelled,
                _ => Cancelled::WhileRunning,
            })
        };
        array(&answer)?.iter().map(read).collect()
    }

    async fn retry_dead(&self, which: DeadJobs) -> Result<DeadPart, StoreError> {
        self.change_dead(true, which).await
    }

    async fn discard_dead(&self, which: DeadJobs) -> Result<DeadPart, StoreError> {
        self.change_dead(false, which).await
    }

    async fn set_paused(&self, queue: String, is_paused: bool) -> Result<(), StoreError> {
        self.change_pause(&queue, is_paused).await
    }

    async fn paused(&self) -> Result<Vec<String>, StoreError> {
        self.all_paused().await
    }

    async fn get(&self, key: String) -> Result<Option<Job>, StoreError> {
        let answer = self
            .clients
            .run(prepare(&self.scripts.find).arg(key))
            .await?;
        Ok(jobs(&answer, row::job)?.pop())
    }

    async fn list(&self, listing: Listing) -> Result<Vec<Job>, StoreError> {
        let dead = match listing.dead {
            None => "",
            Some(false) => "0",
            Some(true) => "1",
        };
        let mut after = listing.after.unwrap_or_default();
        let mut found = Vec::new();
        while found.len() < listing.limit {
            // Ask for at most `PART` jobs at once, as each may have a large payload.
            let room = (listing.limit - found.len()).min(PART);
            let mut call = prepare(&self.scripts.list);
            call.arg(&listing.search).arg(&after).arg(dead).arg(room);
            call.arg(listing.beginning.min(1 << 30));
            call.arg(i32::from(listing.kind.is_some()));
            call.arg(listing.kind.as_deref().unwrap_or_default());
            call.arg(i32::from(listing.queue.is_some()));
            call.arg(listing.queue.as_deref().unwrap_or_default());
            let answer = self.clients.run(&call).await?;
            let [reached, part] = array(&answer)? else {
                return Err(unknown());
            };
            found.extend(jobs(part, row::job)?);
            after = text(reached)?;
            if after.is_empty() {
                break;
            }
        }
        Ok(found)
    }

    async fn count(&self) -> Result<Counts, StoreError> {
        let answer = self.clients.run(&prepare(&self.scripts.count)).await?;
        let [all, dead] = numbers(&answer)?;
        let count = |number| u64::try_from(number).unwrap_or(0);
        Ok(Counts {
            live: count(all - dead),
            dead: count(dead),
        })
    }

    async fn register(&self, length: Duration) -> Result<Lease, StoreError> {
        let answer = self
            .begins
            .run(prepare(&self.scripts.register).arg(micros(length)))
            .await?;
        let [node, now] = numbers(&answer)?;
        self.clock.learn(now);
        Ok(Lease {
            node,
            runs_out: true,
        })
    }

    async fn renew(&self, node: i64, length: Duration) -> Result<bool, StoreError> {
        let mut call = prepare(&self.scripts.renew);
        let answer = self.begins.run(call.arg(node).arg(micros(length))).await?;
        let [is_renewed, now] = numbers(&answer)?;
        self.clock.learn(now);
        Ok(is_renewed == 1)
    }

    async fn free_others(&self) -> Result<(), StoreError> {
        self.release(0).await
    }

    async fn release(&self, node: i64) -> Result<(), StoreError> {
        let mut call = prepare(&self.scripts.end);
        call.arg(node);
        while number(&self.begins.run(&call).await?)? == 1 {}
        Ok(())
    }

    async fn hold(
        &self,
        node: i64,
        span: Span,
        queue: &str,
        kinds: &Kinds,
        most: usize,
    ) -> Result<Vec<Held>, StoreError> {
        let (after, within, lowest) = match span {
            Span::Due => ("", 0, LOWEST_PRIORITY.into()),
            Span::Above(priority) => ("", 0, i32::from(priority) - 1),
            Span::Within(window) => ("0", micros(window), LOWEST_PRIORITY.into()),
        };
        let mut all = Vec::new();
        while all.len() < most {
            let room = (most - all.len()).min(PART);
            let mut call = prepare(&self.scripts.hold);
            call.arg(node).arg(after).arg(within).arg(room).arg(lowest);
            call.arg(queue);
            match kinds {
                Kinds::All => call.arg(1),
                Kinds::Only(kinds) => call.arg(0).arg(&kinds[..]),
            };
            let answer = self.holds.run(&call).await?;
            let [dropped, part] = array(&answer)? else {
                return Err(unknown());
            };
            let part = jobs(part, row::held)?;
            // The script has taken these entries out, so there may be jobs behind them.
            let read = part.len() + usize::try_from(number(dropped)?).unwrap_or(0);
            let is_all = read < room;
            all.extend(part);
            if is_all {
                break;
            }
        }
        Ok(all)
    }

    async fn give_back(
        &self,
        jobs: Vec<(String, Token)>,
    ) -> Result<Vec<(String, Token)>, StoreError> {
        for part in jobs.chunks(PART) {
            let mut call = prepare(&self.scripts.give_back);
            for (key, token) in part {
                call.arg(key).arg(token.0);
            }
            self.holds.run(&call).await?;
        }
        Ok(Vec::new())
    }

    async fn begin(&self, attempts: Vec<Start>) -> Result<Vec<Begin>, StoreError> {
        let mut call = prepare(&self.scripts.begin);
        for Start { key, token, wait } in &attempts {
            call.arg(key).arg(token.0).arg(micros(*wait));
        }
        let answer = self.begins.run(&call).await?;
        let (now, answers) = array(&answer)?.split_first().ok_or_else(unknown)?;
        let read = |value: &Value| {
            Ok(match value {
                Value::Int(-1) => Begin::Early,
                Value::Int(-2) => Begin::Paused,
                Value::Int(_) => Begin::No,
                _ => match array(value)? {
                    [attempts, payload] => Begin::Yes {
                        number: u32::try_from(number(attempts)?).unwrap_or(1),
                        payload: bytes(payload)?.to_vec(),
                    },
                    _ => return Err(unknown()),
                },
            })
        };
        let answers: Vec<_> = answers
            .iter()
            .map(read)
            .collect::<Result<_, StoreError>>()?;
        if answers.contains(&Begin::Early) {
            // Some timers fired before their time by the server's clock. So learn its time anew.
            self.clock.learn_anew(number(now)?);
        } else {
            self.clock.learn(number(now)?);
        }
        Ok(answers)
    }

    async fn are_current(&self, attempts: Vec<(String, Token)>) -> Result<Vec<bool>, StoreError> {
        let mut call = prepare(&self.scripts.current);
        for (key, token) in &attempts {
            call.arg(key).arg(token.0);
        }
        flags(&self.holds.run(&call).await?)
    }

    async fn finish(&self, attempts: Vec<Finish>) -> Result<Vec<bool>, StoreError> {
        let mut call = prepare(&self.scripts.finish);
        for Finish { key, token, end } in &attempts {
            let mut from = None;
            let (kind, time, error) = match end {
                End::Done => ("done", 0, None),
                End::Next { at, counted, error } => {
                    from = Some(counted.as_micros());
                    ("next", exact(at.as_micros()), error.as_deref())
                }
                End::Retry { delay, error } => ("retry", micros(*delay), Some(error.as_str())),
                End::Snooze { delay } => ("snooze", micros(*delay), None),
                End::Dead { error } => ("dead", 0, Some(error.as_str())),
            };
            call.arg(key)
                .arg(token.0)
                .arg(kind)
                .arg(time)
                .arg(error.unwrap_or_default())
                .arg(i32::from(error.is_some()))
                .arg(optional(from));
        }
        flags(&self.holds.run(&call).await?)
    }

    async fn recount(&self) -> Result<(), StoreError> {
        // A server that refuses the one may do the other.
        let counted = self.count_again().await;
        let sweep = prepare(&self.scripts.sweep);
        while number(&self.holds.run(&sweep).await?)? == 1 {}
        counted
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

impl Redis {
    /// Counts times of jobs again: see [`Store::recount`].
    async fn count_again(&self) -> Result<(), StoreError> {
        let (mut search, mut after) = (String::new(), String::new());
        // The latest time that need not be counted again.
        let mut latest = 0;
        loop {
            let mut call = prepare(&self.scripts.counted);
            call.arg(micros(ALLOWANCE)).arg(&after).arg(&search);
            let answer = self.holds.run(&call).await?;
            let [now, found_by, reached, found, other] = array(&answer)? else {
                return Err(unknown());
            };
            let found_by = number(found_by)?;
            if found_by == 0 {
                return Ok(());
            }
            search = found_by.to_string();
            let now = Time::from_micros(number(now)?);
            if recount::latest(now).is_none() {
                return Ok(());
            }
            latest = latest.max(number(other)?).max(now.as_micros());
            for part in jobs(found, row::counted)?.chunks(PART) {
                let mut call = prepare(&self.scripts.recount);
                for job in part {
                    let (at, counted) = job.again(now);
                    call.arg(&job.key)
                        .arg(job.at.as_micros())
                        .arg(job.counted.as_micros())
                        .arg(exact(at.as_micros()))
                        .arg(optional(counted.map(Time::as_micros)));
                }
                self.holds.run(&call).await?;
            }
            after = text(reached)?;
            if after.is_empty() {
                let mut call = prepare(&self.scripts.recounted);
                self.holds.run(call.arg(search).arg(latest)).await?;
                return Ok(());
            }
        }
    }
}
