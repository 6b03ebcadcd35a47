//! Programs of several hosts with a bug each, as people write them. A seed must find it.

use std::{
    collections::HashMap,
    fs::{self, File},
    io::{self, Write},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    time::{Duration, SystemTime},
};

use futures_lite::{AsyncReadExt, AsyncWriteExt};
use tourbillon::{
    net::{TcpListener, TcpStream},
    sync::Notify,
    time::{sleep, timeout},
};
use tourbillon_sim::{Disk, Network, Simulation, crash, random, restart, set_clock};

use crate::network::connect;

const PORT: u16 = 80;

/// Serves requests of 8 bytes by `answer`, with 8 bytes each. It ends by an error only.
async fn serve(answer: impl Fn(u64) -> u64 + Clone + Send + 'static) -> io::Result<()> {
    let listener = TcpListener::bind(("0.0.0.0", PORT)).await?;
    loop {
        let (mut stream, _) = listener.accept().await?;
        let answer = answer.clone();
        tourbillon::spawn(async move {
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

async fn call(stream: &mut TcpStream, request: u64) -> io::Result<u64> {
    stream.write_all(&request.to_le_bytes()).await?;
    let mut answer = [0; 8];
    stream.read_exact(&mut answer).await?;
    Ok(u64::from_le_bytes(answer))
}

/// A network that makes some segments late by 200 ms.
fn lossy() -> Network {
    let mut network = Network::new();
    network.loss(0.05);
    network
}

/// Waits for up to this many ms.
async fn a_while(ms: u64) {
    sleep(Duration::from_nanos(random() % (ms * 1_000_000))).await;
}

/// Two hosts add to a number of a third one by a read and a write.
#[tourbillon_sim::test(seeds = 10_000)]
#[should_panic(expected = "an update is lost")]
fn two_hosts_lose_an_update(sim: &mut Simulation) {
    const READ: u64 = u64::MAX;
    let number = Arc::new(AtomicU64::new(0));
    sim.host("store", move || {
        let number = number.clone();
        serve(move |request| match request {
            READ => number.load(SeqCst),
            value => number.swap(value, SeqCst),
        })
    });
    let done = Arc::new(AtomicU64::new(0));
    for name in ["a", "b"] {
        let done = done.clone();
        sim.client(name, move || {
            let done = done.clone();
            async move {
                let mut store = connect("store", PORT).await;
                let seen = call(&mut store, READ).await?;
                call(&mut store, seen + 1).await?;
                if done.fetch_add(1, SeqCst) == 1 {
                    assert_eq!(call(&mut store, READ).await?, 2, "an update is lost");
                }
                io::Result::Ok(())
            }
        });
    }
}

/// After a timeout, the client uses the connection on which the answer is still to come.
#[tourbillon_sim::test(seeds = 10_000)]
#[should_panic(expected = "the answer to another request")]
fn a_late_answer_is_taken_for_the_next_one(sim: &mut Simulation) {
    sim.network(lossy());
    sim.host("server", || serve(|number| 2 * number));
    sim.client("client", || async {
        let mut server = connect("server", PORT).await;
        for number in 1..4 {
            let limit = Duration::from_millis(100);
            if let Ok(answer) = timeout(limit, call(&mut server, number)).await {
                assert_eq!(answer?, 2 * number, "the answer to another request");
            }
        }
        io::Result::Ok(())
    });
}

/// The client asks again if no answer comes in time, though the server may have done it.
#[tourbillon_sim::test(seeds = 10_000)]
#[should_panic(expected = "one was counted twice")]
fn a_retry_counts_twice(sim: &mut Simulation) {
    sim.network(lossy());
    let number = Arc::new(AtomicU64::new(0));
    let of_server = number.clone();
    sim.host("server", move || {
        let number = of_server.clone();
        serve(move |by| number.fetch_add(by, SeqCst))
    });
    sim.client("client", move || {
        let number = number.clone();
        async move {
            for _ in 0..3 {
                let attempt = || async { call(&mut connect("server", PORT).await, 1).await };
                let limit = Duration::from_millis(100);
                while timeout(limit, attempt()).await.is_err() {}
            }
            assert!(number.load(SeqCst) <= 3, "one was counted twice");
        }
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
#[tourbillon_sim::test(seeds = 10_000)]
#[should_panic(expected = "the server hangs")]
fn a_lock_is_kept_for_a_dead_connection(sim: &mut Simulation) {
    sim.host("server", || async {
        let listener = TcpListener::bind(("0.0.0.0", PORT)).await?;
        let lock = Arc::new(Lock::default());
        loop {
            let (mut stream, _) = listener.accept().await?;
            let lock = lock.clone();
            tourbillon::spawn(async move {
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
        #[allow(unreachable_code, reason = "the type of the loop's errors")]
        io::Result::Ok(())
    });
    sim.host("a", || async {
        tourbillon::spawn(async {
            a_while(20).await;
            crash("a");
        });
        let mut server = connect("server", PORT).await;
        loop {
            server.write_all(&[1; 4]).await?;
            a_while(2).await;
            server.write_all(&[2; 4]).await?;
            server.read_exact(&mut [0; 8]).await?;
        }
        #[allow(unreachable_code, reason = "the type of the loop's errors")]
        io::Result::Ok(())
    });
    sim.client("b", || async {
        sleep(Duration::from_millis(30)).await;
        let mut server = connect("server", PORT).await;
        let answer = timeout(Duration::from_secs(10), call(&mut server, 1)).await;
        answer.expect("the server hangs").map(drop)
    });
}

/// The primary answers before its backup has the value.
#[tourbillon_sim::test(seeds = 10_000)]
#[should_panic(expected = "the backup has an old value")]
fn a_read_after_a_failover_is_stale(sim: &mut Simulation) {
    const READ: u64 = u64::MAX;
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
            tourbillon::spawn(async move {
                let mut backup = connect("backup", PORT).await;
                call(&mut backup, value).await
            });
            value
        })
    });
    sim.client("client", || async {
        let mut primary = connect("primary", PORT).await;
        call(&mut primary, 7).await?;
        a_while(10).await;
        crash("primary");
        let mut backup = connect("backup", PORT).await;
        assert_eq!(
            call(&mut backup, READ).await?,
            7,
            "the backup has an old value"
        );
        io::Result::Ok(())
    });
}

/// The timer of a session that was closed ends the next one of the same name.
#[tourbillon_sim::test(seeds = 10_000)]
#[should_panic(expected = "the new session is gone")]
async fn a_timer_survives_its_session() {
    let sessions = Arc::new(Mutex::new(HashMap::new()));
    let open = |number: u64| {
        sessions.lock().unwrap().insert("name", number);
        let sessions = sessions.clone();
        let end = move || {
            sessions.lock().unwrap().remove("name");
        };
        tourbillon::after(Duration::from_millis(100), end);
    };
    open(1);
    a_while(200).await;
    sessions.lock().unwrap().remove("name");
    open(2);
    a_while(90).await;
    let found = sessions.lock().unwrap().get("name").copied();
    assert_eq!(found, Some(2), "the new session is gone");
}

/// Leases are over by the wall clock of the host that grants them.
#[tourbillon_sim::test(seeds = 10_000)]
#[should_panic(expected = "two hosts have the lease")]
fn a_step_of_the_clock_ends_a_lease(sim: &mut Simulation) {
    const LEASE: Duration = Duration::from_secs(10);
    sim.host("locks", || {
        let until = Arc::new(Mutex::new(SystemTime::UNIX_EPOCH));
        serve(move |_| {
            let (now, mut until) = (SystemTime::now(), until.lock().unwrap());
            let is_free = *until <= now;
            if is_free {
                *until = now + LEASE;
            }
            u64::from(is_free)
        })
    });
    sim.client("operator", || async {
        a_while(20_000).await;
        set_clock("locks", SystemTime::now() + Duration::from_secs(60));
    });
    let holders = Arc::new(AtomicU64::new(0));
    for name in ["a", "b"] {
        let holders = holders.clone();
        sim.client(name, move || {
            let holders = holders.clone();
            async move {
                let mut locks = connect("locks", PORT).await;
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
                io::Result::Ok(())
            }
        });
    }
}

/// A store with a log. It answers when an entry and the name of the log are on its disk, or, with a
/// bug, before that.
fn a_store_crashes(sim: &mut Simulation, syncs_log: bool, syncs_name: bool) {
    const READ: u64 = u64::MAX;
    sim.disk("/data", Disk::new());
    sim.host("store", move || {
        let log = "/data/log";
        serve(move |request| {
            let kept = fs::read(log).unwrap_or_default();
            if request != READ {
                let mut file = File::options().create(true).append(true).open(log).unwrap();
                file.write_all(&request.to_le_bytes()).unwrap();
                if syncs_name {
                    File::open("/data").unwrap().sync_all().unwrap();
                }
                if syncs_log {
                    file.sync_data().unwrap();
                }
            }
            kept.len() as u64 / 8
        })
    });
    sim.client("client", || async {
        let mut store = connect("store", PORT).await;
        for number in 0..3 {
            call(&mut store, number).await?;
        }
        crash("store");
        restart("store");
        let kept = call(&mut connect("store", PORT).await, READ).await?;
        assert_eq!(kept, 3, "an acknowledged value is lost");
        io::Result::Ok(())
    });
}

#[tourbillon_sim::test(seeds = 10_000)]
#[should_panic(expected = "an acknowledged value is lost")]
fn a_sync_is_missing(sim: &mut Simulation) {
    a_store_crashes(sim, false, true);
}

#[tourbillon_sim::test(seeds = 10_000)]
#[should_panic(expected = "an acknowledged value is lost")]
fn a_sync_of_the_directory_is_missing(sim: &mut Simulation) {
    a_store_crashes(sim, true, false);
}

#[tourbillon_sim::test(seeds = 100)]
fn a_store_that_syncs_loses_nothing(sim: &mut Simulation) {
    a_store_crashes(sim, true, true);
}
