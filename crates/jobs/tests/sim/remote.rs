//! The client of a store on another host. A request crosses the simulated network as a number; its
//! content stays in the memory that the hosts share.

use std::{
    io,
    sync::{Arc, Mutex, OnceLock},
    time::Duration,
};

use futures_lite::{AsyncReadExt, AsyncWriteExt};
use tourbillon::{
    net::{TcpListener, TcpStream},
    time::{Instant, sleep, timeout},
};
use tourbillon_jobs::{
    NewJob, Time, When,
    job::{Job, Token},
    store::{
        Begin, Cancelled, Changed, Changes, Counts, DeadJobs, DeadPart, Deadline, Finish, Held,
        Kinds, Lease, Listing, Moved, Replaced, Scheduled, Span, Start, Store, StoreError,
    },
};

use crate::book::Book;

const PORT: u16 = 5432;
/// How long a client waits for an answer.
const PATIENCE: Duration = Duration::from_secs(1);

type Request = Box<dyn FnOnce(&mut Book, Time) + Send>;

/// Serves requests. Only the threads of the server's host lock the book.
pub async fn serve(book: Arc<Mutex<Book>>) -> io::Result<()> {
    let listener = TcpListener::bind(("0.0.0.0", PORT)).await?;
    loop {
        let (mut stream, _) = listener.accept().await?;
        let book = book.clone();
        tourbillon::spawn(async move {
            let mut number = [0; 8];
            if stream.read_exact(&mut number).await.is_err() {
                return;
            }
            let request = u64::from_le_bytes(number) as *mut Request;
            // SAFETY: the client made this box for the one request that it has sent.
            let request = unsafe { Box::from_raw(request) };
            {
                let (mut book, now) = (book.lock().unwrap(), Time::wall());
                book.end_leases(now);
                request(&mut book, now);
            }
            let _ = stream.write_all(&[1]).await;
        });
    }
}

/// A store on the host `db`.
pub struct Remote {
    /// A time of the store's clock, and when this host learnt it.
    learnt: Mutex<(Time, Instant)>,
    changed: Arc<Changed>,
}

impl Remote {
    pub async fn connect() -> Self {
        let changed = Arc::new(Changed::new());
        let of_task = Arc::downgrade(&changed);
        // The server tells nobody of changes, so look each second.
        tourbillon::spawn(async move {
            while let Some(changed) = of_task.upgrade() {
                changed.tell();
                drop(changed);
                sleep(Duration::from_secs(1)).await;
            }
        });
        let learnt = Mutex::new((Time::from_micros(0), Instant::now()));
        let remote = Self { learnt, changed };
        while remote.ask(|_, _| ()).await.is_err() {
            sleep(Duration::from_millis(10)).await;
        }
        remote
    }

    async fn ask<T: Send + Sync + 'static>(
        &self,
        request: impl FnOnce(&mut Book, Time) -> T + Send + 'static,
    ) -> Result<T, StoreError> {
        let failed = |why: &str| StoreError::Failed(Arc::new(io::Error::other(why.to_owned())));
        // A cell, and no lock: a host that crashes would keep the lock.
        let answer = Arc::new(OnceLock::new());
        let of_server = answer.clone();
        let request: Request = Box::new(move |book, now| {
            let _ = of_server.set((now, request(book, now)));
        });
        let sent = async {
            let mut stream = TcpStream::connect(("db", PORT)).await?;
            // If it does not arrive, it leaks: nobody knows whether it still will.
            let number = Box::into_raw(Box::new(request)) as u64;
            stream.write_all(&number.to_le_bytes()).await?;
            stream.read_exact(&mut [0]).await
        };
        match timeout(PATIENCE, sent).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return Err(failed(&error.to_string())),
            Err(_) => return Err(failed("no answer came in time")),
        }
        let answer = Arc::try_unwrap(answer).ok().and_then(OnceLock::into_inner);
        let (now, answer) = answer.expect("the server has answered");
        *self.learnt.lock().unwrap() = (now, Instant::now());
        Ok(answer)
    }
}

impl Store for Remote {
    async fn schedule(&self, jobs: Vec<NewJob>) -> Result<Vec<Scheduled>, StoreError> {
        self.ask(|book, now| jobs.into_iter().map(|it| book.schedule(now, it)).collect())
            .await
    }

    async fn schedule_or_replace(&self, _: Vec<NewJob>) -> Result<Vec<Replaced>, StoreError> {
        unimplemented!("these programs replace no job")
    }

    async fn reschedule(&self, moves: Vec<(String, When)>) -> Result<Vec<Moved>, StoreError> {
        self.ask(move |book, now| {
            let moves = moves.iter();
            moves
                .map(|(key, when)| book.reschedule(now, key, when))
                .collect()
        })
        .await
    }

    async fn cancel(&self, keys: Vec<String>) -> Result<Vec<Cancelled>, StoreError> {
        self.ask(move |book, _| keys.iter().map(|key| book.cancel(key)).collect())
            .await
    }

    async fn retry_dead(&self, _: DeadJobs) -> Result<DeadPart, StoreError> {
        unimplemented!("these programs retry no dead jobs")
    }

    async fn discard_dead(&self, _: DeadJobs) -> Result<DeadPart, StoreError> {
        unimplemented!("these programs discard no dead jobs")
    }

    async fn set_paused(&self, _: String, _: bool) -> Result<(), StoreError> {
        unimplemented!("these programs pause no queue")
    }

    async fn paused(&self) -> Result<Vec<String>, StoreError> {
        Ok(Vec::new())
    }

    async fn get(&self, key: String) -> Result<Option<Job>, StoreError> {
        self.ask(move |book, _| book.get(&key)).await
    }

    async fn list(&self, _: Listing) -> Result<Vec<Job>, StoreError> {
        unimplemented!("these programs list no jobs")
    }

    async fn count(&self) -> Result<Counts, StoreError> {
        self.ask(|book, _| book.count()).await
    }

    async fn register(&self, length: Duration) -> Result<Lease, StoreError> {
        self.ask(move |book, now| book.register(now, length)).await
    }

    async fn renew(&self, node: i64, length: Duration) -> Result<bool, StoreError> {
        self.ask(move |book, now| book.renew(now, node, length))
            .await
    }

    async fn release(&self, node: i64) -> Result<(), StoreError> {
        self.ask(move |book, now| book.release(now, node)).await
    }

    async fn hold(
        &self,
        node: i64,
        span: Span,
        queue: &str,
        kinds: &Kinds,
        most: usize,
    ) -> Result<Vec<Held>, StoreError> {
        let (queue, kinds) = (queue.to_owned(), kinds.clone());
        self.ask(move |book, now| book.hold(now, node, span, &queue, &kinds, most))
            .await
    }

    async fn give_back(
        &self,
        jobs: Vec<(String, Token)>,
    ) -> Result<Vec<(String, Token)>, StoreError> {
        self.ask(move |book, _| {
            for (key, token) in &jobs {
                book.give_back(key, *token);
            }
            Vec::new()
        })
        .await
    }

    async fn begin(&self, attempts: Vec<Start>) -> Result<Vec<Begin>, StoreError> {
        self.ask(move |book, now| attempts.iter().map(|it| book.begin(now, it)).collect())
            .await
    }

    async fn are_current(&self, attempts: Vec<(String, Token)>) -> Result<Vec<bool>, StoreError> {
        self.ask(move |book, _| {
            let attempts = attempts.iter();
            attempts
                .map(|(key, token)| book.is_current(key, *token))
                .collect()
        })
        .await
    }

    async fn finish(&self, attempts: Vec<Finish>) -> Result<Vec<bool>, StoreError> {
        self.ask(|book, now| {
            attempts
                .into_iter()
                .map(|it| book.finish(now, it))
                .collect()
        })
        .await
    }

    // The server's clock is never put back.
    async fn recount(&self) -> Result<(), StoreError> {
        Ok(())
    }

    fn changes(&self) -> Changes {
        self.changed.receiver()
    }

    fn now(&self) -> Time {
        let (time, at) = *self.learnt.lock().unwrap();
        time.after(at.elapsed())
    }

    fn deadline(&self, at: Time) -> Deadline {
        let (time, learnt) = *self.learnt.lock().unwrap();
        Deadline::Monotonic(learnt + at.since(time))
    }
}
