//! Thousands of signals interrupt every system call that can be interrupted: no timer fires early,
//! nothing is lost, and no caller sees an error.

use std::{
    io::{self, Read, Write},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use futures_lite::{AsyncReadExt, AsyncWriteExt};
use tourbillon::{
    Runtime, Timer,
    net::{TcpListener, TcpStream, UdpSocket, UnixStream},
    runtime::Builder,
    signal::{SignalKind, signal},
    time::{BootInstant, interval, sleep, timeout},
    timer::Outcome,
};

use crate::common::{
    HOUR, PATIENCE, alarm, eventually, process::alone, timers::none_early, timers::reporter,
};

static HANDLED: AtomicUsize = AtomicUsize::new(0);

extern "C" fn handler(_: libc::c_int) {
    HANDLED.fetch_add(1, SeqCst);
}

/// Installs the handler for a signal. The kernel does not restart system calls that the signal
/// interrupts.
fn interrupts(signal: libc::c_int) {
    // SAFETY: zeroes are a valid sigaction, without flags; the handler only adds to an atomic.
    let set = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as extern "C" fn(libc::c_int) as libc::sighandler_t;
        libc::sigaction(signal, &action, std::ptr::null_mut())
    };
    assert_eq!(set, 0);
}

/// A storm of signals to all threads of the process, until this is dropped.
struct Storm {
    stop: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Storm {
    fn begin() -> Self {
        interrupts(libc::SIGUSR2);
        interrupts(libc::SIGALRM);
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = thread::spawn(move || {
            // SAFETY: the call takes no pointers. The thread does not signal itself.
            let own = unsafe { libc::gettid() };
            while !stopped.load(SeqCst) {
                for thread in std::fs::read_dir("/proc/self/task").unwrap().flatten() {
                    let name = thread.file_name();
                    let tid: libc::pid_t = name.to_str().unwrap().parse().unwrap();
                    if tid != own {
                        // SAFETY: the call takes numbers. For a thread that has ended, it is an
                        // error.
                        unsafe {
                            libc::syscall(libc::SYS_tgkill, libc::getpid(), tid, libc::SIGUSR2);
                        }
                    }
                }
                thread::sleep(Duration::from_micros(50));
            }
        });
        // The system sends another signal, to any of the threads.
        every(Duration::from_micros(300));
        Self {
            stop,
            thread: Some(thread),
        }
    }
}

impl Drop for Storm {
    fn drop(&mut self) {
        every(Duration::ZERO);
        self.stop.store(true, SeqCst);
        self.thread.take().unwrap().join().unwrap();
    }
}

/// Makes the system send `SIGALRM` with this period, or never if the period is zero.
fn every(period: Duration) {
    let period = libc::timeval {
        tv_sec: 0,
        tv_usec: period.as_micros() as libc::suseconds_t,
    };
    let timer = libc::itimerval {
        it_interval: period,
        it_value: period,
    };
    // SAFETY: `timer` lives through the call, and the old one is not asked for.
    let set = unsafe { libc::setitimer(libc::ITIMER_REAL, &timer, std::ptr::null_mut()) };
    assert_eq!(set, 0);
}

/// Runs timers of each kind, from many threads.
fn timers(runtime: &Runtime) {
    let (sender, receiver) = mpsc::channel();
    let _entered = runtime.enter();
    for i in 0..1_000_u32 {
        let asked = Instant::now() + Duration::from_micros(u64::from(i) * 50);
        tourbillon::at(asked, reporter(&sender, asked));
    }
    none_early(&receiver, 1_000);
    let boot = BootInstant::now() + Duration::from_millis(5);
    let (told, tells) = mpsc::channel();
    Timer::at_boot(boot).start_with(move |how| {
        told.send((how, BootInstant::now() >= boot)).unwrap();
    });
    let fired = tells.recv_timeout(PATIENCE).unwrap();
    assert_eq!(fired, (Outcome::Fired, true));
}

async fn waits() {
    for micros in [1, 100, 900, 3_000, 12_000] {
        let start = Instant::now();
        sleep(Duration::from_micros(micros)).await;
        assert!(start.elapsed() >= Duration::from_micros(micros), "early");
        assert!(
            timeout(Duration::from_micros(micros), sleep(HOUR))
                .await
                .is_err()
        );
    }
    let mut ticks = interval(Duration::from_micros(700));
    for _ in 0..20 {
        let due = ticks.tick().await;
        assert!(due.into_std() <= Instant::now(), "early");
    }
}

async fn sockets() -> io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let addr = listener.local_addr()?;
    let echo = tourbillon::spawn(async move {
        for _ in 0..20 {
            let (mut stream, _) = listener.accept().await?;
            let mut buf = [0; 4096];
            loop {
                match stream.read(&mut buf).await? {
                    0 => break,
                    read => stream.write_all(&buf[..read]).await?,
                }
            }
        }
        io::Result::Ok(())
    });
    for i in 0..20_u8 {
        let stream = TcpStream::connect(addr).await?;
        let said = vec![i; 100_000];
        let mut heard = vec![0; said.len()];
        let (mut reads, mut writes) = stream.into_split();
        let (wrote, read) = futures_lite::future::zip(
            async {
                writes.write_all(&said).await?;
                writes.flush().await
            },
            reads.read_exact(&mut heard),
        )
        .await;
        wrote?;
        read?;
        assert_eq!(said, heard);
    }
    echo.await.unwrap()?;
    let (one, two) = (
        UdpSocket::bind("127.0.0.1:0").await?,
        UdpSocket::bind("127.0.0.1:0").await?,
    );
    for i in 0..100 {
        one.send_to(&[i; 32], two.local_addr()?).await?;
        assert_eq!(two.recv_from(&mut [0; 64]).await?.0, 32);
    }
    let (mut one, mut two) = UnixStream::pair()?;
    for i in 0..100 {
        one.write_all(&[i]).await?;
        two.read_exact(&mut [0]).await?;
    }
    Ok(())
}

/// Runs jobs on blocking threads. A job handles interrupts of its own calls, but each job runs.
fn jobs(runtime: &Runtime) {
    let jobs: Vec<_> = (0..200_u64)
        .map(|i| {
            runtime.spawn_blocking(move || {
                thread::sleep(Duration::from_micros(i * 5));
                i
            })
        })
        .collect();
    for (i, job) in (0..).zip(jobs) {
        assert_eq!(runtime.block_on(job).unwrap(), i);
    }
}

/// Timers are never early and nothing is lost while signals interrupt the system calls of all
/// threads.
#[test]
fn a_storm_of_signals_makes_nothing_early_and_loses_nothing() {
    alone(|| {
        let _alarm = alarm();
        let _storm = Storm::begin();
        let mut rounds = 0;
        while rounds < 2 || HANDLED.load(SeqCst) < 20_000 {
            let runtime = Builder::new()
                .worker_threads(2)
                .helpers(1..=2)
                .build()
                .unwrap();
            let far = runtime.handle().after(HOUR, || unreachable!("in an hour"));
            timers(&runtime);
            runtime.block_on(waits());
            let waiting: Vec<_> = (0..20).map(|_| runtime.spawn(waits())).collect();
            for task in waiting {
                runtime.block_on(task).unwrap();
            }
            runtime.block_on(sockets()).unwrap();
            runtime.block_on(runtime.spawn(sockets())).unwrap().unwrap();
            jobs(&runtime);
            assert!(far.is_pending());
            assert_eq!(runtime.metrics().total().panics(), 0);
            assert!(runtime.shutdown_graceful(PATIENCE));
            rounds += 1;
        }
    });
}

/// The runtime handles thousands of signals that have listeners. Each listener wakes, and no
/// signal is an error.
#[test]
fn thousands_of_signals_with_a_listener_are_all_noticed() {
    alone(|| {
        let _alarm = alarm();
        let runtime = crate::common::runtime(2);
        let heard: [Arc<AtomicUsize>; 4] = Default::default();
        let mut listeners = Vec::new();
        for heard in &heard {
            let heard = heard.clone();
            let mut signals =
                runtime.block_on(async { signal(SignalKind::user_defined1()).unwrap() });
            listeners.push(runtime.spawn(async move {
                loop {
                    signals.recv().await.unwrap();
                    heard.fetch_add(1, SeqCst);
                }
            }));
        }
        const COUNT: usize = 5_000;
        for sent in 0..COUNT {
            // SAFETY: a listener handles the signal, so that it does not end the process.
            unsafe { libc::kill(libc::getpid(), libc::SIGUSR1) };
            if sent % 100 == 0 {
                let (sender, receiver) = mpsc::channel();
                let asked = Instant::now() + Duration::from_micros(sent as u64);
                runtime.handle().at(asked, reporter(&sender, asked));
                none_early(&receiver, 1);
            }
        }
        // Several signals may count as one, but each listener hears the last one.
        let count = |heard: &Arc<AtomicUsize>| heard.load(SeqCst);
        eventually("each has heard", || heard.iter().all(|it| count(it) > 0));
        assert!(heard.iter().all(|it| count(it) <= COUNT), "{heard:?}");
        // After this pause, the last signal has probably been heard. Then send one more.
        thread::sleep(Duration::from_millis(50));
        let before = heard.each_ref().map(count);
        // SAFETY: as above.
        unsafe { libc::kill(libc::getpid(), libc::SIGUSR1) };
        eventually("each hears the last", || {
            heard
                .iter()
                .zip(before)
                .all(|(it, before)| count(it) > before)
        });
        for listener in listeners {
            assert!(!listener.is_finished(), "it was told an error");
            listener.abort();
        }
    });
}

/// The storm interrupts a read by the standard library. This shows that it interrupts system
/// calls.
#[test]
fn the_storm_interrupts_plain_reads() {
    alone(|| {
        let _alarm = alarm();
        let _storm = Storm::begin();
        let (mut reader, mut writer) = std::os::unix::net::UnixStream::pair().unwrap();
        let read = thread::spawn(move || reader.read(&mut [0; 8]));
        let interrupted = loop {
            if read.is_finished() {
                break read.join().unwrap();
            }
            thread::sleep(Duration::from_millis(1));
        };
        assert_eq!(interrupted.unwrap_err().kind(), io::ErrorKind::Interrupted);
        drop(writer.write(&[1]));
    });
}
