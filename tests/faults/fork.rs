//! A process that forks: its child takes nothing from the parent's runtime, and another program
//! inherits no descriptor of the runtime.
//!
//! The child of a fork has one thread and no worker: it may not use the runtime. See
//! `docs/reference/limits.md`.

use std::{
    collections::BTreeSet,
    io::{Read, Write},
    os::fd::AsRawFd,
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
        mpsc,
    },
    thread,
    time::{Duration, Instant, SystemTime},
};

use futures_lite::{AsyncReadExt, AsyncWriteExt};
use tourbillon::{
    Timer,
    io::AsyncFd,
    net::{TcpListener, TcpStream, UdpSocket, UnixDatagram, UnixStream},
    runtime::Builder,
    signal::{SignalKind, signal},
    time::{BootInstant, sleep, timeout},
};

use crate::common::{
    HOUR, PATIENCE, alarm, eventually,
    net::pair,
    process::alone,
    timers::{none_early, reporter},
};

/// A child that is a copy of this process, with only the thread that forked. The child runs
/// `body`, and ends. It is killed when this is dropped. `body` makes only system calls, unless no
/// runtime exists: then the other threads of the test wait, and hold no lock.
struct Fork(libc::pid_t);

impl Fork {
    fn with(body: impl FnOnce()) -> Self {
        let parent = std::process::id() as libc::pid_t;
        // SAFETY: the child runs only what the documentation of `Fork` allows.
        match unsafe { libc::fork() } {
            -1 => panic!("no fork: {}", std::io::Error::last_os_error()),
            0 => {
                // SAFETY: the calls take numbers. Any end of the parent ends the child, also an
                // abort.
                unsafe {
                    libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                    if libc::getppid() != parent {
                        libc::_exit(1);
                    }
                }
                body();
                // SAFETY: this ends the process and runs nothing else.
                unsafe { libc::_exit(0) }
            }
            child => Self(child),
        }
    }

    /// Waits until the child ends. Returns its status.
    fn wait(self) -> libc::c_int {
        let mut status = 0;
        // SAFETY: `status` is valid for the write.
        let waited = unsafe { libc::waitpid(self.0, &mut status, 0) };
        assert_eq!(waited, self.0);
        std::mem::forget(self);
        status
    }
}

impl Drop for Fork {
    fn drop(&mut self) {
        // SAFETY: the arguments are numbers, and our child has not been waited for.
        unsafe {
            libc::kill(self.0, libc::SIGKILL);
            libc::waitpid(self.0, std::ptr::null_mut(), 0);
        }
    }
}

/// Closes all descriptors of the process.
fn close_all() {
    // SAFETY: the calls take no pointers. Nothing else uses the descriptors, since the process is
    // about to end.
    unsafe {
        if libc::syscall(libc::SYS_close_range, 0, libc::c_uint::MAX, 0) != 0 {
            // Linux before 5.9 and some sandboxes lack the call. The kernel gives out the lowest
            // numbers first.
            for fd in 0..4096 {
                libc::close(fd);
            }
        }
    }
}

/// Waits long enough for the parent to use the runtime.
fn linger() {
    let time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 20_000_000,
    };
    // SAFETY: `time` lives through the call.
    unsafe { libc::nanosleep(&time, std::ptr::null_mut()) };
}

#[test]
fn forked_children_take_nothing_from_the_parent() {
    alone(|| {
        let _alarm = alarm();
        let runtime = Builder::new()
            .worker_threads(2)
            .helpers(1..=1)
            .build()
            .unwrap();
        let far = runtime.handle().after(HOUR, || unreachable!("in an hour"));
        let ticks = Arc::new(AtomicUsize::new(0));
        let _ticking = {
            let ticks = ticks.clone();
            runtime.handle().every(Duration::from_micros(500), move || {
                ticks.fetch_add(1, SeqCst);
            })
        };
        let (mut client, server) = runtime.block_on(pair());
        let echo = runtime.spawn(crate::common::net::echo(server));
        for round in 0..30 {
            let (sender, receiver) = mpsc::channel();
            let mut count = 0;
            let mut arm = || {
                for _ in 0..10 {
                    let asked = Instant::now() + Duration::from_millis(2);
                    runtime.handle().at(asked, reporter(&sender, asked));
                    let report = sender.clone();
                    let asked = Instant::now() + Duration::from_millis(12);
                    runtime.spawn(async move {
                        sleep(asked.saturating_duration_since(Instant::now())).await;
                        report.send((asked, Instant::now())).unwrap();
                    });
                    count += 2;
                }
                let asked = Instant::now();
                let report = sender.clone();
                let boot = BootInstant::now() + Duration::from_millis(3);
                Timer::at_boot(boot).on(runtime.handle()).start(move || {
                    report.send((asked, Instant::now())).unwrap();
                });
                let report = sender.clone();
                let wall = SystemTime::now() + Duration::from_millis(3);
                Timer::at_wall(wall).on(runtime.handle()).start(move || {
                    report.send((asked, Instant::now())).unwrap();
                });
                count += 2;
            };
            // Arm timers before the fork and after it. The workers sleep for the first ones when
            // the process forks.
            arm();
            let child = match round % 3 {
                0 => Fork::with(|| ()),
                1 => Fork::with(linger),
                _ => Fork::with(|| {
                    close_all();
                    linger();
                }),
            };
            arm();
            runtime.block_on(async {
                client.write_all(&[round]).await.unwrap();
                let mut byte = [0];
                client.read_exact(&mut byte).await.unwrap();
                assert_eq!(byte, [round]);
            });
            none_early(&receiver, count);
            assert_eq!(child.wait(), 0);
            let before = ticks.load(SeqCst);
            eventually("what recurs goes on", || ticks.load(SeqCst) > before);
        }
        assert!(far.is_pending());
        drop(client);
        runtime.block_on(echo).unwrap().unwrap();
    });
}

/// A descriptor that the parent closes stays open in the child, and so in the kernel. The parent's
/// next descriptor of that number must not receive its events.
#[test]
fn descriptors_that_a_child_keeps_open_cause_no_events() {
    alone(|| {
        let _alarm = alarm();
        let runtime = crate::common::runtime(1);
        // Each write to this pair is an event of its own.
        let (mut client, mut kept) = runtime.block_on(async { UnixStream::pair().unwrap() });
        let child = Fork::with(|| {
            // SAFETY: the call takes no pointers. It returns only when the child is killed.
            unsafe { libc::pause() };
        });
        let number = kept.as_raw_fd();
        runtime.block_on(async {
            client.write_all(b"a").await.unwrap();
            kept.read_exact(&mut [0]).await.unwrap();
        });
        drop(kept);
        runtime.block_on(async {
            // A new socket has the number now. In the child, the number is still that of the old
            // socket, which has something to read.
            let (mut other, mut new) = UnixStream::pair().unwrap();
            let numbers = [other.as_raw_fd(), new.as_raw_fd()];
            assert!(numbers.contains(&number), "{numbers:?}: {number}");
            let waits = runtime.metrics().total().epoll_waits();
            for _ in 0..100 {
                client.write_all(b"never read").await.unwrap();
                // A worker that gets an event has noticed it after this time.
                thread::sleep(Duration::from_micros(500));
            }
            let waits = runtime.metrics().total().epoll_waits() - waits;
            assert!(waits < 30, "the worker is woken for it: {waits} times");
            let mut buf = [0; 8];
            let nothing = timeout(Duration::from_millis(20), new.read(&mut buf)).await;
            assert!(nothing.is_err(), "nothing was said there");
            other.write_all(b"b").await.unwrap();
            assert_eq!(new.read(&mut buf).await.unwrap(), 1);
        });
        // The socket stays open while any process has it. So the peer sees the end only after the
        // child has ended.
        let told = runtime.block_on(timeout(Duration::from_millis(20), client.read(&mut [0])));
        assert!(told.is_err());
        drop(child);
        let told = runtime.block_on(timeout(PATIENCE, client.read(&mut [0])));
        // Unread data turns the close into a reset.
        assert!(!matches!(told, Ok(Ok(1..)) | Err(_)));
    });
}

/// A signal in a child is no signal to the parent, although the handler writes to a descriptor
/// that the child has inherited.
#[test]
fn signals_in_a_child_do_not_reach_the_parent() {
    alone(|| {
        let _alarm = alarm();
        let runtime = crate::common::runtime(1);
        runtime.block_on(async {
            let mut signals = signal(SignalKind::user_defined1()).unwrap();
            for _ in 0..10 {
                let child = Fork::with(|| {
                    // SAFETY: the call takes no pointers, and a listener handles the signal.
                    unsafe { libc::raise(libc::SIGUSR1) };
                });
                assert_eq!(child.wait(), 0);
                let heard = timeout(Duration::from_millis(5), signals.recv()).await;
                assert!(heard.is_err(), "it was the child's");
            }
            // SAFETY: as above.
            unsafe { libc::raise(libc::SIGUSR1) };
            timeout(PATIENCE, signals.recv()).await.unwrap().unwrap();
        });
    });
}

/// A server may fork before it works. What the library remembers of the parent's runtime is of
/// use in the child, or does no harm.
#[test]
fn a_child_may_build_a_runtime_where_none_runs() {
    alone(|| {
        let _alarm = alarm();
        let runtime = crate::common::runtime(2);
        runtime.block_on(async {
            let _signals = signal(SignalKind::user_defined1()).unwrap();
            sleep(Duration::from_millis(1)).await;
        });
        runtime.block_on(runtime.spawn_blocking(|| ())).unwrap();
        drop(runtime);
        let children: Vec<_> = (0..4)
            .map(|_| {
                Fork::with(|| {
                    let works = || {
                        let runtime = crate::common::runtime(2);
                        let start = Instant::now();
                        runtime.block_on(async {
                            sleep(Duration::from_millis(15)).await;
                            let mut signals = signal(SignalKind::user_defined1()).unwrap();
                            // SAFETY: there are no pointers, and a listener handles the signal.
                            unsafe { libc::raise(libc::SIGUSR1) };
                            timeout(PATIENCE, signals.recv()).await.unwrap().unwrap();
                            let (mut client, mut server) = pair().await;
                            client.write_all(b"x").await.unwrap();
                            server.read_exact(&mut [0]).await.unwrap();
                        });
                        let job = runtime.spawn_blocking(|| 7);
                        runtime.block_on(job).unwrap() == 7
                            && start.elapsed() >= Duration::from_millis(15)
                    };
                    let worked = std::panic::catch_unwind(works).unwrap_or(false);
                    // SAFETY: this ends the process and runs nothing else.
                    unsafe { libc::_exit(if worked { 7 } else { 1 }) }
                })
            })
            .collect();
        for child in children {
            let status = child.wait();
            assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 7);
        }
    });
}

/// Returns the descriptors of this process that other programs would inherit.
fn inherited() -> BTreeSet<i32> {
    let open = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    open.filter_map(|entry| {
        let fd = entry.file_name().to_str()?.parse().ok()?;
        // SAFETY: the call takes no pointers. A descriptor that is closed by now is an error.
        let flags = unsafe { libc::fcntl(fd, libc::F_GETFD) };
        (flags >= 0 && flags & libc::FD_CLOEXEC == 0).then_some(fd)
    })
    .collect()
}

/// Returns the descriptors that a new program inherits, without the one that `ls` opens.
fn seen_by_a_program() -> String {
    let output = Command::new("ls")
        .args(["-l", "/proc/self/fd"])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(output.status.success());
    let links = String::from_utf8(output.stdout).unwrap();
    // The first line is the total. The others are the three streams, and the directory.
    let links = links.lines().skip(1).map(|line| {
        let (_, link) = line.rsplit_once(" -> ").expect("a link");
        link.split([':', '/']).next().unwrap_or_default().to_owned() + " "
    });
    links.collect()
}

#[test]
fn no_descriptor_is_inherited_by_another_program() {
    alone(|| {
        let _alarm = alarm();
        let (before, program_before) = (inherited(), seen_by_a_program());
        let runtime = Builder::new()
            .worker_threads(2)
            .helpers(1..=2)
            .build()
            .unwrap();
        let _entered = runtime.enter();
        let open = async || {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let addr = listener.local_addr().unwrap();
            let client = TcpStream::connect(addr).await.unwrap();
            let (accepted, _) = listener.accept().await.unwrap();
            let per_core = TcpListener::bind_per_core("127.0.0.1:0").await.unwrap();
            let udp = UdpSocket::bind("127.0.0.1:0").await.unwrap();
            let stream = UnixStream::pair().unwrap();
            let datagram = UnixDatagram::pair().unwrap();
            let signals = signal(SignalKind::hangup()).unwrap();
            let (reader, writer) = std::os::unix::net::UnixStream::pair().unwrap();
            let watched = AsyncFd::new(reader).unwrap();
            let sockets = (listener, client, accepted, per_core, udp);
            (sockets, stream, datagram, signals, watched, writer)
        };
        let all = runtime.block_on(open());
        assert_eq!(inherited(), before, "not closed on exec");
        assert_eq!(seen_by_a_program(), program_before);
        // A new descriptor is not inherited even for a moment: programs start while a thread
        // opens others.
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let rounds = Arc::new(AtomicUsize::new(0));
        let counted = rounds.clone();
        let handle = runtime.handle().clone();
        let opens = thread::spawn(move || {
            while !stopped.load(SeqCst) {
                drop(handle.block_on(open()));
                counted.fetch_add(1, SeqCst);
            }
        });
        let mut programs = 0;
        // At least one round of opens runs beside the programs, however slow it is.
        while programs < 30 || (rounds.load(SeqCst) == 0 && !opens.is_finished()) {
            assert_eq!(seen_by_a_program(), program_before);
            programs += 1;
        }
        stop.store(true, SeqCst);
        opens.join().unwrap();
        drop(all);
    });
}

/// Servers start programs from blocking threads, while timers, sockets and signals are in use.
#[test]
fn starting_programs_disturbs_no_timer_and_no_socket() {
    alone(|| {
        let _alarm = alarm();
        let runtime = crate::common::runtime(2);
        let heard = Arc::new(AtomicUsize::new(0));
        let listening = {
            let heard = heard.clone();
            let mut children = runtime.block_on(async { signal(SignalKind::child()).unwrap() });
            runtime.spawn(async move {
                loop {
                    children.recv().await.unwrap();
                    heard.fetch_add(1, SeqCst);
                }
            })
        };
        let programs: Vec<_> = (0..10)
            .map(|i| {
                runtime.spawn_blocking(move || {
                    let mut child = Command::new("cat")
                        .stdin(Stdio::piped())
                        .stdout(Stdio::piped())
                        .spawn()
                        .unwrap();
                    let said = format!("said {i}");
                    let mut input = child.stdin.take().unwrap();
                    input.write_all(said.as_bytes()).unwrap();
                    drop(input);
                    let mut heard = String::new();
                    let mut output = child.stdout.take().unwrap();
                    output.read_to_string(&mut heard).unwrap();
                    assert_eq!(heard, said);
                    assert!(child.wait().unwrap().success());
                })
            })
            .collect();
        let (sender, receiver) = mpsc::channel();
        for i in 0..500 {
            let asked = Instant::now() + Duration::from_micros(i * 50);
            runtime.handle().at(asked, reporter(&sender, asked));
        }
        none_early(&receiver, 500);
        for program in programs {
            runtime.block_on(program).unwrap();
        }
        // Several signals may count as one.
        eventually("it is told that they end", || heard.load(SeqCst) > 0);
        assert!(!listening.is_finished(), "it was told an error");
        listening.abort();
    });
}
