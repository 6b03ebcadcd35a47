//! The embedded store: a file of SQLite, for one process.
//!
//! One thread writes. It commits all requests that wait in one transaction, which SQLite syncs to
//! the disk. Other requests read at the same time, from a second connection.

mod changes;
mod hold;
mod holders;
mod lock;
mod rows;
mod writer;

use std::{
    fmt, mem,
    path::Path,
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{Sender, channel},
    },
    thread,
    time::Duration,
};

use rusqlite::{Connection, OpenFlags, params};
use tokio::sync::oneshot;
use tourbillon::runtime::with_all_cores;

use self::{
    changes::{Change, Chosen},
    holders::Holders,
    lock::Lock,
    rows::failed,
    writer::{Reply, Request, Writer, Writes},
};
use crate::{
    job::{Job, NewJob, State, Time, Token, When},
    keeper::{self, Process},
    recount, row,
    store::{
        Begin, Cancelled, Changed, Changes, Counts, DeadJobs, DeadPart, Deadline, Finish, Held,
        Kinds, Lease, Listing, Moved, Replaced, Scheduled, Span, Start, Store, StoreError,
    },
};

/// The embedded store.
///
/// Its clock is the machine's wall clock. Dropping the store waits until all requests that it has
/// received are done.
pub struct Sqlite {
    /// `None` only while the store is dropped.
    requests: Option<Sender<Request>>,
    writer: Option<thread::JoinHandle<()>>,
    reader: Arc<Reader>,
    holders: Arc<Holders>,
    changed: Arc<Changed>,
    process: Process,
}

/// The connection that reads. It may outlive the store, in a thread for blocking jobs.
struct Reader {
    base: Mutex<Connection>,
    /// Dropped after the connection.
    _lock: Lock,
}

impl fmt::Debug for Sqlite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sqlite").finish_non_exhaustive()
    }
}

impl Sqlite {
    /// Opens a store, and makes its file unless it exists.
    ///
    /// Only this user may read a file that is made here. The path may be a symbolic link. Files
    /// whose names begin with the file's own path are beside it: the log `-wal`, its index `-shm`,
    /// and `-lock`. Use a local file system: SQLite's log needs memory that its processes share.
    ///
    /// # Errors
    ///
    /// Fails if this or another process has the store open, under whatever name; if the file has
    /// hard links; if it is not a store; or if it cannot be read or written.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        Self::open_with_limit(path, None)
    }

    /// Opens a store whose file has at most `limit` bytes. When it is full, requests that need more
    /// room fail with [`StoreError::Full`]; ends of attempts still find room.
    ///
    /// # Errors
    ///
    /// Fails as [`open`](Self::open) does.
    pub fn open_with_limit(path: impl AsRef<Path>, limit: Option<u64>) -> Result<Self, StoreError> {
        let lock = Lock::new(path.as_ref())?;
        let mut base = connect(lock.path())?;
        // Each commit is synced before it is acknowledged.
        base.pragma_update(None, "synchronous", "FULL")
            .map_err(failed)?;
        with_room(&mut base, rows::make_tables)?;
        if let Some(limit) = limit {
            let page: i64 = base
                .pragma_query_value(None, "page_size", |row| row.get(0))
                .map_err(failed)?;
            let pages = i64::try_from(limit).unwrap_or(i64::MAX) / page;
            base.pragma_update_and_check(None, "max_page_count", pages.max(1), |_| Ok(()))
                .map_err(failed)?;
        }
        let epoch = with_room(&mut base, |base| rows::next_epoch(base).map_err(failed))?;
        let reader = Reader {
            base: Mutex::new(connect(lock.path())?),
            _lock: lock,
        };
        let paused = rows::paused(&base).map_err(failed)?;
        let holders = Arc::new(Holders::new(epoch, paused));
        let changed = Arc::new(Changed::new());
        let writer = Writer {
            base,
            holders: holders.clone(),
            changed: changed.clone(),
        };
        let (requests, receiver) = channel();
        let thread = thread::Builder::new().name("durable-sqlite".into());
        // A task may open the store. The thread serves all tasks, and not one core's.
        let writer = with_all_cores(|| thread.spawn(move || writer.run(&receiver)))
            .map_err(StoreError::failed)?;
        Ok(Self {
            requests: Some(requests),
            writer: Some(writer),
            reader: Arc::new(reader),
            holders,
            changed,
            process: Process::this(),
        })
    }

    fn send(&self, request: Request) -> Result<(), StoreError> {
        self.process.check()?;
        let requests = self.requests.as_ref().ok_or(StoreError::Closed)?;
        requests.send(request).map_err(|_| StoreError::Closed)
    }

    /// Sends a request to the writer, and waits for its answer.
    async fn ask<A>(&self, request: impl FnOnce(Reply<A>) -> Request) -> Result<A, StoreError> {
        let (reply, answer) = oneshot::channel();
        self.send(request(reply))?;
        answer.await.map_err(|_| StoreError::Closed)?
    }

    /// Has the writer make changes of a kind, and waits for their answers.
    async fn write<Q: Send + 'static, A: Send + 'static>(
        &self,
        requests: Vec<Q>,
        apply: fn(&mut Change<'_>, &Q) -> rusqlite::Result<A>,
    ) -> Result<Vec<A>, StoreError> {
        let writes = |reply| Request::Write(Writes::new(requests, apply, reply));
        self.ask(writes).await
    }

    /// Reads on a thread for blocking jobs.
    async fn read<A: Send + 'static>(
        &self,
        read: impl FnOnce(&Connection) -> rusqlite::Result<A> + Send + 'static,
    ) -> Result<A, StoreError> {
        self.process.check()?;
        let reader = self.reader.clone();
        let reading = keeper::here().spawn_blocking(move || {
            let reader = reader.base.lock().unwrap_or_else(PoisonError::into_inner);
            read(&reader).map_err(failed)
        });
        reading.await.map_err(|_| StoreError::Closed)?
    }

    /// Adds to a job from the file whether an attempt of it runs.
    fn complete(&self, mut job: Job) -> Job {
        if job.state == State::Waiting && self.holders.is_running(&job.key) {
            job.state = State::Running;
        }
        job
    }
}

fn connect(path: &Path) -> Result<Connection, StoreError> {
    // The connections are locked here, so SQLite need not lock them.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_CREATE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let base = Connection::open_with_flags(path, flags).map_err(failed)?;
    // A reader meets a lock only while the log is begun anew.
    base.busy_timeout(Duration::from_secs(10)).map_err(failed)?;
    base.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()))
        .map_err(failed)?;
    // Empty the log rarely: a page that several commits change is then written to the file once.
    // The log grows to 16 MB, which the next process reads after a crash.
    base.pragma_update_and_check(None, "wal_autocheckpoint", 4000, |_| Ok(()))
        .map_err(failed)?;
    base.pragma_update(None, "cache_size", -32_000)
        .map_err(failed)?;
    base.set_prepared_statement_cache_capacity(32);
    Ok(base)
}

/// Changes the file of a store that is being opened. After a crash, the log may be long, and the
/// disk full. Then the change may find room in the log if that is emptied.
fn with_room<A>(
    base: &mut Connection,
    change: impl Fn(&mut Connection) -> Result<A, StoreError>,
) -> Result<A, StoreError> {
    match change(base) {
        Err(StoreError::Version(version)) => Err(StoreError::Version(version)),
        Err(_) => {
            rows::empty_log(base).map_err(failed)?;
            change(base)
        }
        made => made,
    }
}

impl Drop for Sqlite {
    fn drop(&mut self) {
        if self.process.check().is_err() {
            // The file and its locks are the parent's, and so is the thread that writes.
            mem::forget((self.reader.clone(), self.writer.take()));
            return;
        }
        self.requests = None;
        if let Some(writer) = self.writer.take() {
            // A panic of the writer has closed the store already.
            let _ = writer.join();
        }
    }
}

impl Store for Sqlite {
    async fn schedule(&self, jobs: Vec<NewJob>) -> Result<Vec<Scheduled>, StoreError> {
        let adds = |reply| Request::Write(Writes::new(jobs, changes::schedule, reply).adding());
        self.ask(adds).await
    }

    async fn schedule_or_replace(&self, jobs: Vec<NewJob>) -> Result<Vec<Replaced>, StoreError> {
        let adds = |reply| Request::Write(Writes::new(jobs, changes::replace, reply).adding());
        self.ask(adds).await
    }

    async fn reschedule(&self, moves: Vec<(String, When)>) -> Result<Vec<Moved>, StoreError> {
        self.write(moves, changes::reschedule).await
    }

    async fn cancel(&self, keys: Vec<String>) -> Result<Vec<Cancelled>, StoreError> {
        self.write(keys, changes::cancel).await
    }

    async fn retry_dead(&self, which: DeadJobs) -> Result<DeadPart, StoreError> {
        self.change_dead(which, changes::retry_dead).await
    }

    async fn discard_dead(&self, which: DeadJobs) -> Result<DeadPart, StoreError> {
        self.change_dead(which, changes::discard_dead).await
    }

    async fn set_paused(&self, queue: String, is_paused: bool) -> Result<(), StoreError> {
        let change = vec![(queue, is_paused)];
        self.write(change, changes::set_paused).await.map(drop)
    }

    async fn paused(&self) -> Result<Vec<String>, StoreError> {
        self.read(rows::paused).await
    }

    async fn get(&self, key: String) -> Result<Option<Job>, StoreError> {
        let found = self.read(move |base| rows::find(base, &key)).await?;
        Ok(found.map(|job| self.complete(job)))
    }

    async fn list(&self, listing: Listing) -> Result<Vec<Job>, StoreError> {
        let most = listing.beginning;
        let found = self
            .read(move |base| {
                // Write the condition as a constant, so that SQLite can use the index of dead jobs.
                let dead = match listing.dead {
                    Some(true) => "dead = 1",
                    Some(false) => "dead = 0",
                    None => "true",
                };
                let mut read = base.prepare_cached(&format!(
                    "SELECT key, coalesce(substr(payload, 1, ?4), x''), due, at, attempts, pattern,
                         zone, substr(error, 1, ?4), dead, 0, kind, priority,
                         queue, traceparent
                     FROM jobs
                     WHERE {dead} AND key > ?1 AND instr(key, ?2) > 0
                         AND kind = coalesce(?5, kind) AND queue = coalesce(?6, queue)
                     ORDER BY key LIMIT ?3"
                ))?;
                let limit = i64::try_from(listing.limit).unwrap_or(i64::MAX);
                let after = listing.after.unwrap_or_default();
                let most = i64::try_from(most).unwrap_or(i64::MAX);
                let (kind, queue) = (listing.kind, listing.queue);
                let range = params![after, listing.search, limit, most, kind, queue];
                let jobs = read.query_map(range, |found| row::job(found))?;
                jobs.collect::<rusqlite::Result<Vec<_>>>()
            })
            .await?;
        let found = found.into_iter().map(|job| self.complete(job).cut(most));
        Ok(found.collect())
    }

    async fn count(&self) -> Result<Counts, StoreError> {
        self.read(|base| {
            let count = |condition: &str| -> rusqlite::Result<u64> {
                let count: i64 = base
                    .prepare_cached(&format!("SELECT count(*) FROM jobs WHERE {condition}"))?
                    .query_row([], |row| row.get(0))?;
                Ok(u64::try_from(count).unwrap_or(0))
            };
            Ok(Counts {
                live: count("dead = 0")?,
                dead: count("dead = 1")?,
            })
        })
        .await
    }

    async fn register(&self, _length: Duration) -> Result<Lease, StoreError> {
        self.process.check()?;
        Ok(Lease {
            node: self.holders.lock().register(),
            // The holders are in this process. They end with it.
            runs_out: false,
        })
    }

    async fn renew(&self, _node: i64, _length: Duration) -> Result<bool, StoreError> {
        Ok(true)
    }

    async fn release(&self, node: i64) -> Result<(), StoreError> {
        let any = self.holders.lock().release(node);
        if any {
            self.changed.tell();
        }
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
        let request = |reply| Request::Hold {
            node,
            span,
            queue: queue.to_owned(),
            kinds: kinds.clone(),
            most,
            reply,
        };
        self.ask(request).await
    }

    async fn give_back(
        &self,
        jobs: Vec<(String, Token)>,
    ) -> Result<Vec<(String, Token)>, StoreError> {
        let mut holders = self.holders.lock();
        let mut any = false;
        for (key, token) in jobs {
            any |= holders.give_back(key, token);
        }
        drop(holders);
        if any {
            self.changed.tell();
        }
        Ok(Vec::new())
    }

    async fn begin(&self, attempts: Vec<Start>) -> Result<Vec<Begin>, StoreError> {
        self.write(attempts, changes::begin).await
    }

    async fn are_current(&self, attempts: Vec<(String, Token)>) -> Result<Vec<bool>, StoreError> {
        let holders = self.holders.lock();
        let is_current = |(key, token): &(String, Token)| {
            let holder = holders.by_key.get(key);
            holder.is_some_and(|holder| holder.token == *token)
        };
        Ok(attempts.iter().map(is_current).collect())
    }

    async fn finish(&self, attempts: Vec<Finish>) -> Result<Vec<bool>, StoreError> {
        self.write(attempts, changes::finish).await
    }

    async fn recount(&self) -> Result<(), StoreError> {
        // A disk without room for the one may have some for the other.
        let swept = self.sweep().await;
        self.count_again().await?;
        swept
    }

    fn changes(&self) -> Changes {
        self.changed.receiver()
    }

    fn now(&self) -> Time {
        Time::wall()
    }

    fn deadline(&self, at: Time) -> Deadline {
        Deadline::Wall(at.into())
    }
}

impl Sqlite {
    /// Changes a part of the dead jobs. The look for them keeps the writer from nothing. What it
    /// found may have changed before the writer does this, so each change has the conditions, too.
    async fn change_dead(
        &self,
        which: DeadJobs,
        change: fn(&mut Change<'_>, &Chosen) -> rusqlite::Result<bool>,
    ) -> Result<DeadPart, StoreError> {
        let which = Arc::new(which);
        let wanted = which.clone();
        let (keys, after) = self.read(move |base| rows::dead(base, &wanted)).await?;
        let chosen: Vec<Chosen> = keys.into_iter().map(|key| (key, which.clone())).collect();
        if chosen.is_empty() {
            return Ok(DeadPart { changed: 0, after });
        }
        let answers = self.write(chosen, change).await?;
        let changed = answers.into_iter().map(u64::from).sum();
        Ok(DeadPart { changed, after })
    }

    /// Forgets keys that are free again: see [`Store::recount`].
    async fn sweep(&self) -> Result<(), StoreError> {
        let is_swept = |base: &Connection| rows::is_swept(base, Time::wall());
        while !self.read(is_swept).await? {
            if !self.write(vec![()], changes::sweep).await?.contains(&true) {
                break;
            }
        }
        Ok(())
    }

    /// Counts times of jobs again: see [`Store::recount`].
    async fn count_again(&self) -> Result<(), StoreError> {
        let Some(latest) = recount::latest(Time::wall()) else {
            return Ok(());
        };
        let mut after = Some((latest, String::new()));
        while let Some(place) = after {
            let asked = vec![place.clone()];
            let writes = |reply| Writes::new(asked, changes::recount, reply);
            let answers = self.ask(|reply| Request::Recount(place, writes(reply)));
            after = answers.await?.pop().flatten();
        }
        Ok(())
    }
}
