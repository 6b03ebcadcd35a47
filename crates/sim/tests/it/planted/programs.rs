//! Programs with a bug each, as people write them. `super::system` has what they need of a
//! simulation and of its runtime, so that other simulations can run the same programs.

use std::{
    collections::{HashMap, HashSet},
    future::{Future, poll_fn},
    io::{self, Write},
    task::{Poll, Waker},
    time::{Duration, SystemTime},
};

use super::system::{
    Arc, AsyncReadExt, AsyncWriteExt, AtomicBool, AtomicU64, Mutex, Notify, SeqCst, TcpListener,
    TcpStream, crash, fs, mount, now, random, restart, set_clock, sleep, spawn, sync_names,
    timeout,
};

/// A simulation that is described.
pub trait Sim {
    /// Adds a host.
    fn host<F, Fut>(&mut self, name: &'static str, start: F)
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = io::Result<()>> + 'static;

    /// Adds a host for whose end the simulation waits.
    fn client<F, Fut>(&mut self, name: &'static str, start: F)
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = io::Result<()>> + 'static;

    /// Has some of what is sent come hundreds of ms late.
    fn be_late(&mut self);

    /// Gives each host a disk at `/data`.
    fn have_disks(&mut self);
}

const PORT: u16 = 80;
/// The request for a value, in place of a new one.
const READ: u64 = u64::MAX;

/// Serves requests of 8 bytes by `answer`, with 8 bytes each. It ends by an error only.
async fn serve(answer: impl Fn(u64) -> u64 + Clone + Send + 'static) -> io::Result<()> {
    let listener = TcpListener::bind(("0.0.0.0", PORT)).await?;
    loop {
        let (mut stream, _) = listener.accept().await?;
        let answer = answer.clone();
        spawn(async move {
            let mut request = [0; 8];
            while stream.read_exact(&mut request).await.is_ok() {
                let answer = answer(u64::from_le_bytes(request)).to_le_bytes();
                if stream.write_all(&answer).await.is_err() {
                    break;
                }
            }
        });
    }
}

/// Connects, and tries again while the server does not listen yet.
async fn connect(name: &str) -> TcpStream {
    loop {
        match TcpStream::connect((name, PORT)).await {
            Ok(stream) => return stream,
            Err(_) => sleep(Duration::from_millis(1)).await,
        }
    }
}

async fn call(stream: &mut TcpStream, request: u64) -> io::Result<u64> {
    stream.write_all(&request.to_le_bytes()).await?;
    let mut answer = [0; 8];
    stream.read_exact(&mut answer).await?;
    Ok(u64::from_le_bytes(answer))
}

/// Waits for up to this many ms.
async fn a_while(ms: u64) {
    sleep(Duration::from_nanos(random() % (ms * 1_000_000))).await;
}

/// How many requests a batch has.
const BATCH: usize = 4;

/// Serves batches of requests: each request has a task of its own. It ends by an error only.
async fn serve_batches(handle: impl Fn(u64) + Clone + Send + 'static) -> io::Result<()> {
    let listener = TcpListener::bind(("0.0.0.0", PORT)).await?;
    loop {
        let (mut stream, _) = listener.accept().await?;
        let handle = handle.clone();
        spawn(async move {
            let mut requests = [0; BATCH];
            stream.read_exact(&mut requests).await?;
            let tasks = requests.map(|request| {
                let handle = handle.clone();
                spawn(async move { handle(request.into()) })
            });
            for task in tasks {
                task.await.unwrap();
            }
            stream.write_all(&requests).await
        });
    }
}

/// Sends a batch, and waits until the server has done it.
async fn send_batch(name: &str, mut requests: [u8; BATCH]) -> io::Result<()> {
    let mut server = connect(name).await;
    server.write_all(&requests).await?;
    server.read_exact(&mut requests).await.map(drop)
}

/// Two hosts have a third one add to a number, which does so by a load and a store.
pub fn two_hosts_lose_an_update(sim: &mut impl Sim) {
    let number = Arc::new(AtomicU64::new(0));
    let of_store = number.clone();
    sim.host("store", move || {
        let number = of_store.clone();
        serve_batches(move |request| {
            let seen = number.load(SeqCst);
            number.store(seen + request, SeqCst);
        })
    });
    let done = Arc::new(AtomicU64::new(0));
    for name in ["a", "b"] {
        let (done, number) = (done.clone(), number.clone());
        sim.client(name, move || {
            let (done, number) = (done.clone(), number.clone());
            async move {
                send_batch("store", [1; BATCH]).await?;
                if done.fetch_add(1, SeqCst) == 1 {
                    assert_eq!(number.load(SeqCst), 2 * BATCH as u64, "an update is lost");
                }
                Ok(())
            }
        });
    }
}

/// After a timeout, the client uses the connection on which the answer is still to come.
pub fn a_late_answer_is_taken_for_the_next_one(sim: &mut impl Sim) {
    sim.be_late();
    sim.host("server", || serve(|number| 2 * number));
    sim.client("client", || async {
        let mut server = connect("server").await;
        for number in 1..4 {
            let limit = Duration::from_millis(100);
            if let Ok(answer) = timeout(limit, call(&mut server, number)).await {
                assert_eq!(answer?, 2 * number, "the answer to another request");
            }
        }
        Ok(())
    });
}

/// A lock of which the holder may wait for something else.
#[derive(Default)]
struct Lock {
    is_taken: AtomicBool,
    freed: Notify,
}

impl Lock {
    async fn take(&self) {
        while self.is_taken.swap(true, SeqCst) {
            self.freed.notified().await;
        }
    }

    fn free(&self) {
        self.is_taken.store(false, SeqCst);
        self.freed.notify_one();
    }
}

/// The server reads the rest of a request with the lock. Then its peer crashes.
pub fn a_lock_is_kept_for_a_dead_connection(sim: &mut impl Sim) {
    sim.host("server", || async {
        let listener = TcpListener::bind(("0.0.0.0", PORT)).await?;
        let lock = Arc::new(Lock::default());
        loop {
            let (mut stream, _) = listener.accept().await?;
            let lock = lock.clone();
            spawn(async move {
                let mut part = [0; 4];
                while stream.read_exact(&mut part).await.is_ok() {
                    lock.take().await;
                    let rest = stream.read_exact(&mut part).await;
                    lock.free();
                    if rest.is_err() || stream.write_all(&[0; 8]).await.is_err() {
                        break;
                    }
                }
            });
        }
    });
    sim.host("a", || async {
        spawn(async {
            a_while(20).await;
            crash("a").await;
        });
        let mut server = connect("server").await;
        loop {
            server.write_all(&[1; 4]).await?;
            a_while(2).await;
            server.write_all(&[2; 4]).await?;
            server.read_exact(&mut [0; 8]).await?;
        }
    });
    sim.client("b", || async {
        sleep(Duration::from_millis(30)).await;
        let mut server = connect("server").await;
        let answer = timeout(Duration::from_secs(10), call(&mut server, 1)).await;
        answer.expect("the server hangs").map(drop)
    });
}

/// A store with a log. It answers when an entry and the name of the log are on its disk, or, with a
/// bug, before that.
pub fn a_store_crashes(sim: &mut impl Sim, syncs_log: bool, syncs_name: bool) {
    sim.have_disks();
    sim.host("store", move || async move {
        let log = "/data/log";
        mount("/data");
        let answer = move |request: u64| {
            let kept = fs::read(log).unwrap_or_default();
            if request != READ {
                let mut options = fs::OpenOptions::new();
                let mut file = options.create(true).append(true).open(log).unwrap();
                file.write_all(&request.to_le_bytes()).unwrap();
                if syncs_name {
                    sync_names("/data").unwrap();
                }
                if syncs_log {
                    file.sync_data().unwrap();
                }
            }
            kept.len() as u64 / 8
        };
        serve(answer).await
    });
    sim.client("client", || async {
        let mut store = connect("store").await;
        for number in 0..3 {
            call(&mut store, number).await?;
        }
        crash("store").await;
        restart("store").await;
        let kept = call(&mut connect("store").await, READ).await?;
        assert_eq!(kept, 3, "an acknowledged value is lost");
        Ok(())
    });
}

/// The primary answers before its backup has the value.
pub fn a_read_after_a_failover_is_stale(sim: &mut impl Sim) {
    let store = || {
        let value = Arc::new(AtomicU64::new(0));
        move |request| match request {
            READ => value.load(SeqCst),
            new => value.swap(new, SeqCst),
        }
    };
    sim.host("backup", move || serve(store()));
    sim.host("primary", || {
        serve(|value| {
            spawn(async move {
                let mut backup = connect("backup").await;
                call(&mut backup, value).await
            });
            value
        })
    });
    sim.client("client", || async {
        let mut primary = connect("primary").await;
        call(&mut primary, 7).await?;
        a_while(10).await;
        crash("primary").await;
        let mut backup = connect("backup").await;
        let kept = call(&mut backup, READ).await?;
        assert_eq!(kept, 7, "the backup has an old value");
        Ok(())
    });
}

/// The timer of a session looks whether the session is still the one that it is to end. Before it
/// removes it, another task has put a new one in its place.
pub fn a_timer_survives_its_session(sim: &mut impl Sim) {
    sim.client("host", || async {
        let sessions = Arc::new(Mutex::new(HashMap::from([("name", 1)])));
        let (of_timer, of_next) = (sessions.clone(), sessions.clone());
        let life = Duration::from_millis(100);
        let timer = spawn(async move {
            sleep(life).await;
            let is_mine = of_timer.lock().unwrap().get("name") == Some(&1);
            if is_mine {
                of_timer.lock().unwrap().remove("name");
            }
        });
        let next = spawn(async move {
            sleep(life).await;
            of_next.lock().unwrap().insert("name", 2);
        });
        timer.await.unwrap();
        next.await.unwrap();
        let found = sessions.lock().unwrap().get("name").copied();
        assert_eq!(found, Some(2), "the new session is gone");
        Ok(())
    });
}

/// A batch has two requests, and each once more, since a client was not sure that they came. The
/// server looks whether it knows a request, counts, and then notes that it knows it.
pub fn a_retry_counts_twice(sim: &mut impl Sim) {
    let count = Arc::new(AtomicU64::new(0));
    let of_server = count.clone();
    sim.host("server", move || {
        let (known, count) = (Arc::new(Mutex::new(HashSet::new())), of_server.clone());
        serve_batches(move |request| {
            let is_known = known.lock().unwrap().contains(&request);
            if !is_known {
                count.fetch_add(1, SeqCst);
                known.lock().unwrap().insert(request);
            }
        })
    });
    sim.client("client", move || {
        let count = count.clone();
        async move {
            send_batch("server", [1, 1, 2, 2]).await?;
            assert_eq!(count.load(SeqCst), 2, "one was counted twice");
            Ok(())
        }
    });
}

/// Two tasks take from an account for which each has looked.
pub fn two_workers_take_too_much(sim: &mut impl Sim) {
    sim.client("host", || async {
        let (account, taken) = (Arc::new(AtomicU64::new(10)), Arc::new(AtomicU64::new(0)));
        let tasks = [(); 2].map(|()| {
            let (account, taken) = (account.clone(), taken.clone());
            spawn(async move {
                if account.load(SeqCst) >= 10 {
                    account.fetch_sub(10, SeqCst);
                    taken.fetch_add(10, SeqCst);
                }
            })
        });
        for task in tasks {
            task.await.unwrap();
        }
        assert_eq!(taken.load(SeqCst), 10, "too much is taken");
        Ok(())
    });
}

/// An event whose future looks and then leaves its waker: a set in between wakes nobody.
#[derive(Default)]
pub struct Event {
    is_set: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

impl Event {
    pub fn set(&self) {
        self.is_set.store(true, SeqCst);
        if let Some(waker) = self.waker.lock().unwrap().take() {
            waker.wake();
        }
    }

    pub async fn wait(&self) {
        poll_fn(|cx| {
            if self.is_set.load(SeqCst) {
                return Poll::Ready(());
            }
            *self.waker.lock().unwrap() = Some(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }
}

pub fn a_wake_up_is_lost(sim: &mut impl Sim) {
    sim.client("host", || async {
        let event = Arc::new(Event::default());
        let of_task = event.clone();
        spawn(async move { of_task.set() });
        let waits = spawn(async move { event.wait().await });
        let ended = timeout(Duration::from_secs(10), waits).await;
        ended.expect("a wake-up is lost").unwrap();
        Ok(())
    });
}

/// Leases are over by the wall clock of the host that grants them.
pub fn a_step_of_the_clock_ends_a_lease(sim: &mut impl Sim) {
    const LEASE: Duration = Duration::from_secs(10);
    sim.host("locks", || {
        let until = Arc::new(Mutex::new(SystemTime::UNIX_EPOCH));
        serve(move |_| {
            let (now, mut until) = (now(), until.lock().unwrap());
            let is_free = *until <= now;
            if is_free {
                *until = now + LEASE;
            }
            u64::from(is_free)
        })
    });
    sim.client("operator", || async {
        a_while(20_000).await;
        set_clock("locks", now() + Duration::from_secs(60));
        Ok(())
    });
    let holders = Arc::new(AtomicU64::new(0));
    for name in ["a", "b"] {
        let holders = holders.clone();
        sim.client(name, move || {
            let holders = holders.clone();
            async move {
                let mut locks = connect("locks").await;
                for _ in 0..2 {
                    while call(&mut locks, 0).await? == 0 {
                        sleep(Duration::from_millis(500)).await;
                    }
                    let before = holders.fetch_add(1, SeqCst);
                    assert_eq!(before, 0, "two hosts have the lease");
                    // Well within the lease.
                    sleep(LEASE / 2).await;
                    holders.fetch_sub(1, SeqCst);
                }
                Ok(())
            }
        });
    }
}
