//! Signals, and programs that end and start again.

mod descriptors;
mod handlers;
mod interrupts;

use std::{
    fs::{self, File},
    io::{self, ErrorKind, Read, Write},
    net,
    os::fd::AsRawFd,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    thread,
    time::Duration,
};

use futures_lite::{AsyncReadExt, AsyncWriteExt, future::or};
use tourbillon::{
    net::{TcpListener, TcpStream},
    signal::{SignalKind, signal},
    task::JoinSet,
    time::sleep,
};
use tourbillon_sim::{
    Disk, Simulation, assert_sometimes, is_running, pause, random, restart, send_signal,
};

use crate::{
    maps::{Map, PAGE},
    network::{connect, echo, exchange},
};

const SECOND: Duration = Duration::from_secs(1);

/// All that listens for signals has a descriptor of one eventfd.
#[tourbillon_sim::test(seeds = 20)]
fn a_program_listens_for_signals(sim: &mut Simulation) {
    for name in ["a", "b"] {
        sim.client(name, || async {
            let _terminate = signal(SignalKind::terminate())?;
            let _hang_up = signal(SignalKind::hangup())?;
            io::Result::Ok(())
        });
    }
}

/// Waits until the program of a host has ended.
async fn has_ended(name: &str) {
    while is_running(name) {
        sleep(Duration::from_millis(5)).await;
    }
}

/// What the program of a host has left when it ends.
struct Left {
    _listener: net::TcpListener,
    _stream: net::TcpStream,
}

/// The end of a program closes what a `static` keeps, and stops its other threads.
#[tourbillon_sim::test(seeds = 100)]
fn a_program_that_has_ended_starts_again(sim: &mut Simulation) {
    static LEFT: Mutex<Vec<Left>> = Mutex::new(Vec::new());
    static TICKS: AtomicU64 = AtomicU64::new(0);
    sim.host("server", || async {
        let listener = net::TcpListener::bind("0.0.0.0:7")?;
        let (mut stream, _) = listener.accept()?;
        stream.read_exact(&mut [0; 4])?;
        stream.write_all(&std::process::id().to_ne_bytes())?;
        let left = Left {
            _listener: listener,
            _stream: stream,
        };
        LEFT.lock().unwrap().push(left);
        thread::spawn(|| {
            loop {
                TICKS.fetch_add(1, SeqCst);
                thread::sleep(Duration::from_millis(1));
            }
        });
        sleep(Duration::from_millis(20)).await;
        io::Result::Ok(())
    });
    sim.client("client", || async {
        let mut pids = Vec::new();
        for _ in 0..3 {
            let mut stream = connect("server", 7).await;
            stream.write_all(b"more").await?;
            let leaves_unread = random() % 2 == 0;
            if leaves_unread {
                stream.write_all(b"than").await?;
            }
            let mut pid = [0; 4];
            stream.read_exact(&mut pid).await?;
            pids.push(pid);
            let end = stream.read(&mut [0; 4]).await.map_err(|it| it.kind());
            assert_sometimes!(end == Ok(0), "the server ends the stream");
            assert_sometimes!(end == Err(ErrorKind::ConnectionReset), "it resets it");
            assert_eq!(end.is_err(), leaves_unread, "{end:?}");
            has_ended("server").await;
            let ticks = TICKS.load(SeqCst);
            sleep(Duration::from_millis(10)).await;
            assert_eq!(TICKS.load(SeqCst), ticks);
            let refused = TcpStream::connect(("server", 7)).await;
            let refused = refused.map(drop).map_err(|it| it.kind());
            assert_eq!(refused, Err(ErrorKind::ConnectionRefused));
            restart("server");
            assert!(is_running("server"));
        }
        pids.dedup();
        assert_eq!(pids.len(), 3, "each life is a process of its own");
        io::Result::Ok(())
    });
}

/// The simulation waits also for a client that has started again.
#[test]
fn a_client_that_starts_again_ends_again() {
    static LIVES: AtomicU64 = AtomicU64::new(0);
    for seed in 0..20 {
        let mut sim = Simulation::new(seed);
        sim.client("client", || async {
            let life = LIVES.fetch_add(1, SeqCst);
            sleep(Duration::from_millis(100 + 400 * life)).await;
        });
        sim.client("operator", || async {
            has_ended("client").await;
            restart("client");
            // One that runs goes on.
            restart("client");
        });
        let report = sim.run().unwrap();
        let took = report.simulated();
        assert!(
            took >= Duration::from_millis(600) && took < SECOND,
            "{took:?}"
        );
    }
}

/// A server that answers each line after a second. `SIGTERM` ends it when the requests that are
/// under way have their answers.
async fn graceful() -> io::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let listener = TcpListener::bind("0.0.0.0:7").await?;
    let mut requests = JoinSet::new();
    loop {
        let accepted = select(listener.accept(), terminate.recv()).await;
        match accepted {
            Ok((mut stream, _)) => requests.spawn(async move {
                let mut request = [0; 4];
                stream.read_exact(&mut request).await?;
                sleep(SECOND).await;
                stream.write_all(&request).await
            }),
            Err(()) => break,
        };
    }
    drop(listener);
    while requests.join_next().await.is_some() {}
    Ok(())
}

/// Waits for the first one of two, and returns `Err` if it is the second one.
async fn select<T>(
    one: impl Future<Output = io::Result<T>>,
    other: impl Future<Output = io::Result<()>>,
) -> Result<T, ()> {
    let one = async { Ok(one.await.unwrap()) };
    let other = async { other.await.map_or(Err(()), |()| Err(())) };
    or(one, other).await
}

#[tourbillon_sim::test(seeds = 100)]
fn a_server_ends_gracefully(sim: &mut Simulation) {
    sim.host("server", graceful);
    sim.client("client", || async {
        for _ in 0..3 {
            let mut streams = Vec::new();
            for _ in 0..3 {
                let mut stream = connect("server", 7).await;
                stream.write_all(b"more").await?;
                streams.push(stream);
            }
            sleep(SECOND / 2).await;
            send_signal("server", SignalKind::terminate());
            for mut stream in streams {
                stream.read_exact(&mut [0; 4]).await?;
            }
            has_ended("server").await;
            restart("server");
        }
        io::Result::Ok(())
    });
}

/// A server that counts its requests on its disk, without any sync, and answers one with the count.
async fn counting() -> io::Result<()> {
    let mut options = File::options();
    let mut log = options.create(true).append(true).open("/data/log")?;
    // A process that is gone has no lock.
    // SAFETY: the call takes numbers.
    let locked = unsafe { libc::flock(log.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) };
    assert_eq!(locked, 0);
    let listener = TcpListener::bind("0.0.0.0:7").await?;
    let (mut stream, _) = listener.accept().await?;
    stream.read_exact(&mut [0; 4]).await?;
    log.write_all(b"1")?;
    stream
        .write_all(&[log.metadata()?.len().try_into().unwrap()])
        .await?;
    sleep(1_000 * SECOND).await;
    Ok(())
}

/// The system closes what a program has open that a signal ends, and its disk stays as it is.
#[tourbillon_sim::test(seeds = 100)]
fn a_server_is_killed(sim: &mut Simulation) {
    sim.disk("/data", Disk::new());
    sim.host("server", counting);
    sim.client("client", || async {
        for life in 1..=3 {
            let mut stream = connect("server", 7).await;
            stream.write_all(b"more").await?;
            let mut count = [0];
            stream.read_exact(&mut count).await?;
            assert_eq!(count, [life]);
            // Nobody accepts this one.
            let mut other = connect("server", 7).await;
            // The server does not read this.
            let leaves_unread = random() % 2 == 0;
            if leaves_unread {
                stream.write_all(b"than").await?;
            }
            sleep(SECOND).await;
            send_signal("server", libc::SIGKILL);
            assert!(!is_running("server"));
            let end = stream.read(&mut [0; 4]).await.map_err(|it| it.kind());
            assert_sometimes!(end == Ok(0), "its end of the stream comes");
            assert_eq!(end.is_err(), leaves_unread, "{end:?}");
            let end = other.read(&mut [0; 4]).await.map_err(|it| it.kind());
            assert_eq!(end, Err(ErrorKind::ConnectionReset));
            let refused = TcpStream::connect(("server", 7)).await;
            let refused = refused.map(drop).map_err(|it| it.kind());
            assert_eq!(refused, Err(ErrorKind::ConnectionRefused));
            // Without a process, it has no effect.
            send_signal("server", libc::SIGKILL);
            restart("server");
        }
        io::Result::Ok(())
    });
}

/// A program may get a signal before its main thread has begun.
#[tourbillon_sim::test(seeds = 100)]
fn a_signal_comes_before_the_program(sim: &mut Simulation) {
    sim.client("a", || async {
        send_signal("b", libc::SIGKILL);
        sleep(SECOND).await;
        assert!(!is_running("b"));
        for signal in [libc::SIGTERM, libc::SIGKILL] {
            let ends = thread::spawn(move || {
                while !is_running("b") {
                    thread::yield_now();
                }
                send_signal("b", signal);
            });
            restart("b");
            ends.join().unwrap();
            sleep(SECOND).await;
            assert!(!is_running("b"));
        }
    });
    sim.host("b", std::future::pending::<()>);
}

/// What a program writes by a shared map is in the file, however the program ends.
#[tourbillon_sim::test(seeds = 50)]
fn the_next_life_reads_what_a_map_wrote(sim: &mut Simulation) {
    static READ: AtomicU64 = AtomicU64::new(0);
    sim.disk("/data", Disk::new());
    sim.host("server", || async {
        let mut options = File::options();
        let options = options.read(true).write(true).create(true);
        let file = options.open("/data/file")?;
        file.set_len(PAGE as u64)?;
        let read = fs::read("/data/file")?[0];
        READ.store(read.into(), SeqCst);
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let mut map = Map::new(&file, 0, PAGE, access, libc::MAP_SHARED)?;
        map.bytes(PAGE as u64)[0] += 1;
        // The program does not unmap it.
        std::mem::forget(map);
        if read % 2 == 0 {
            sleep(1_000 * SECOND).await;
        }
        io::Result::Ok(())
    });
    sim.client("client", || async {
        for life in 0..4 {
            sleep(SECOND).await;
            assert_eq!(READ.load(SeqCst), life);
            send_signal("server", libc::SIGKILL);
            assert!(!is_running("server"));
            restart("server");
        }
    });
}

/// A signal may end a program wherever it is.
#[tourbillon_sim::test(seeds = 150)]
fn a_server_is_killed_at_any_moment(sim: &mut Simulation) {
    sim.host("server", echo);
    sim.client("client", || async {
        for _ in 0..3 {
            let mut stream = connect("server", 7).await;
            let fault = tourbillon::spawn(async {
                sleep(Duration::from_nanos(random() % 1_000_000)).await;
                send_signal("server", SignalKind::terminate());
                sleep(Duration::from_nanos(random() % 1_000_000)).await;
                restart("server");
            });
            let mut answered = 0;
            // Unlike after a crash, the client learns of it.
            while exchange(&mut stream, b"number").await.is_ok() {
                answered += 1;
            }
            assert_sometimes!(answered == 0, "the signal comes before the first answer");
            assert_sometimes!(answered > 1, "the signal comes later");
            fault.await.unwrap();
        }
    });
}

/// Each process has its own count of a signal, and its own handler.
#[tourbillon_sim::test(seeds = 100)]
fn a_signal_is_for_one_process(sim: &mut Simulation) {
    static HEARD: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];
    for (place, name) in ["one", "other"].into_iter().enumerate() {
        sim.host(name, move || async move {
            let mut hang_up = signal(SignalKind::hangup())?;
            let listener = TcpListener::bind("0.0.0.0:7").await?;
            loop {
                hang_up.recv().await?;
                HEARD[place].fetch_add(1, SeqCst);
                drop(listener.accept().await?);
            }
            #[allow(unreachable_code, reason = "the type of the errors")]
            io::Result::Ok(())
        });
    }
    sim.client("client", || async {
        let heard = |place: usize| HEARD[place].load(SeqCst);
        for round in 1..=3 {
            for (place, name) in ["one", "other"].into_iter().enumerate() {
                // It listens for the signal before it listens for connections.
                let mut stream = connect(name, 7).await;
                send_signal(name, SignalKind::hangup());
                // The answer comes after the signal alone.
                assert_eq!(stream.read(&mut [0]).await?, 0);
                assert_eq!(
                    (heard(place), heard(1 - place)),
                    (round, round - u64::from(place == 0))
                );
            }
            // A new life does not handle the signal before it listens for it, and begins anew.
            send_signal("one", SignalKind::interrupt());
            restart("one");
            sleep(SECOND).await;
        }
        io::Result::Ok(())
    });
}

#[tourbillon_sim::test(seeds = 15)]
fn a_program_is_stopped_and_goes_on(sim: &mut Simulation) {
    static TICKS: AtomicU64 = AtomicU64::new(0);
    sim.host("server", || async {
        loop {
            sleep(Duration::from_millis(1)).await;
            TICKS.fetch_add(1, SeqCst);
        }
    });
    sim.client("client", || async {
        let goes_on = || async {
            let before = TICKS.load(SeqCst);
            sleep(Duration::from_millis(50)).await;
            TICKS.load(SeqCst) > before
        };
        assert!(goes_on().await);
        send_signal("server", libc::SIGSTOP);
        assert!(!goes_on().await);
        send_signal("server", libc::SIGCONT);
        assert!(goes_on().await);
        send_signal("server", libc::SIGTSTP);
        // This one waits until the program goes on, and then ends it.
        send_signal("server", libc::SIGTERM);
        assert!(!goes_on().await && is_running("server"));
        send_signal("server", libc::SIGCONT);
        assert!(!is_running("server"));
        restart("server");
        assert!(goes_on().await);
        send_signal("server", libc::SIGSTOP);
        send_signal("server", libc::SIGKILL);
        assert!(!is_running("server"));
        restart("server");
        assert!(goes_on().await);
        // Of a pause, `SIGCONT` is not the end.
        pause("server", Duration::from_millis(200));
        send_signal("server", libc::SIGCONT);
        assert!(!goes_on().await);
        sleep(Duration::from_millis(200)).await;
        assert!(goes_on().await);
    });
}

/// A program ends itself, and no destructor runs.
#[tourbillon_sim::test(seeds = 50)]
fn a_program_kills_itself(sim: &mut Simulation) {
    static DROPS: AtomicU64 = AtomicU64::new(0);
    struct Counts;
    impl Drop for Counts {
        fn drop(&mut self) {
            DROPS.fetch_add(1, SeqCst);
        }
    }
    sim.host("server", || async {
        let _counts = Counts;
        sleep(Duration::from_millis(random() % 3)).await;
        match random() % 4 {
            // SAFETY: the calls take numbers.
            0 => _ = unsafe { libc::kill(libc::getpid(), libc::SIGTERM) },
            // SAFETY: as above.
            1 => _ = unsafe { libc::raise(libc::SIGUSR1) },
            // SAFETY: as above.
            2 => _ = unsafe { libc::killpg(libc::getpgrp(), libc::SIGTERM) },
            _ => send_signal("server", libc::SIGQUIT),
        }
        unreachable!("the process has ended");
    });
    sim.client("client", || async {
        for _ in 0..3 {
            has_ended("server").await;
            assert_eq!(DROPS.load(SeqCst), 0);
            restart("server");
        }
    });
}

#[tourbillon_sim::test]
#[should_panic(expected = "`sigwait` is not simulated")]
fn a_program_must_not_wait_for_signals_by_the_c_library(sim: &mut Simulation) {
    sim.host("server", || async {
        // SAFETY: all bytes of a set may be zero, and both are there.
        unsafe {
            let (set, mut number) = (std::mem::zeroed(), 0);
            libc::sigwait(&set, &mut number);
        }
    });
}

/// A signal of the real system would be one for the real process.
#[test]
fn a_program_must_not_send_real_signals() {
    type Call = fn() -> i64;
    let calls: [(&str, Call); 4] = [
        // SAFETY: the call takes a number.
        ("`alarm`", || unsafe { libc::alarm(1_000) }.into()),
        ("`setitimer`", || {
            // SAFETY: all bytes may be zero, and the old one is not asked for.
            unsafe {
                let none = std::mem::zeroed();
                libc::setitimer(libc::ITIMER_REAL, &none, std::ptr::null_mut()).into()
            }
        }),
        ("`sigqueue`", || {
            let value = libc::sigval {
                sival_ptr: std::ptr::null_mut(),
            };
            // SAFETY: without a signal, the call looks whether there is such a process.
            unsafe { libc::sigqueue(libc::getpid(), 0, value) }.into()
        }),
        ("`tkill` by its number", || {
            // SAFETY: as above.
            unsafe { libc::syscall(libc::SYS_tkill, libc::gettid(), 0) }
        }),
    ];
    for (name, call) in calls {
        let mut sim = Simulation::new(1);
        sim.host("server", move || async move { _ = call() });
        let failure = sim.run().unwrap_err().to_string();
        let expected = format!("{name} is not simulated");
        assert!(failure.contains(&expected), "{failure}");
    }
}

#[tourbillon_sim::test]
#[should_panic(expected = "there is no signal 34 in a simulation")]
fn a_signal_is_a_standard_one(sim: &mut Simulation) {
    sim.host("server", || async { send_signal("server", 34) });
}
