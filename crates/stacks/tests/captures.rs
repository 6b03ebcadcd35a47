//! Captures by the thousand, of all threads of a process that waits in each way that is common,
//! break nothing: no wait ends early, none fails, and nothing stands still.
//!
//! `TOURBILLON_SOAK_CAPTURES` is the number of captures: 1,000 if it is not set.

use std::{
    env, fs,
    hint::black_box,
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    os::unix::net::UnixStream,
    process::Command,
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
        mpsc::{RecvTimeoutError, channel},
    },
    thread,
    time::{Duration, Instant},
};

use tourbillon::{Handle, runtime::Builder};
use tourbillon_stacks::{CaptureError, capture};
use tourbillon_support::{PATIENCE, eventually};

const MS: Duration = Duration::from_millis(1);

/// Does one thing again and again, on a thread of its own, until it is told to stop.
struct Activity {
    name: &'static str,
    rounds: Arc<AtomicU64>,
    thread: thread::JoinHandle<()>,
}

fn again(
    name: &'static str,
    stop: &Arc<AtomicBool>,
    mut round: impl FnMut() + Send + 'static,
) -> Activity {
    let (rounds, stop) = (Arc::new(AtomicU64::new(0)), stop.clone());
    let counted = rounds.clone();
    let thread = thread::spawn(move || {
        while !stop.load(Relaxed) {
            round();
            counted.fetch_add(1, Relaxed);
        }
    });
    Activity {
        name,
        rounds,
        thread,
    }
}

/// Waits, and checks that the wait was not too short.
fn at_least(least: Duration, wait: impl FnOnce()) {
    let start = Instant::now();
    wait();
    let took = start.elapsed();
    assert!(took >= least, "{took:?} of {least:?}");
}

/// Sends what it gets back, on a thread that ends with the other end.
fn echo<S: Read + Write + Send + 'static>(mut stream: S) {
    thread::spawn(move || {
        let mut bytes = [0; 1 << 10];
        while stream.read_exact(&mut bytes).is_ok() {
            stream.write_all(&bytes).unwrap();
        }
    });
}

/// Returns a round of calls to an echo.
fn calls(mut stream: impl Read + Write + Send + 'static) -> impl FnMut() + Send + 'static {
    let mut sent = [0_u8; 1 << 10];
    move || {
        sent[0] = sent[0].wrapping_add(1);
        stream.write_all(&sent).unwrap();
        let mut got = [0; 1 << 10];
        stream.read_exact(&mut got).unwrap();
        assert_eq!(sent, got);
    }
}

/// The waits of std.
fn of_std(stop: &Arc<AtomicBool>) -> Vec<Activity> {
    let (here, there) = UnixStream::pair().unwrap();
    echo(there);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let own = fs::read("/proc/self/exe").unwrap();
    let (sender, receiver) = channel::<()>();
    let pair = Arc::new((Mutex::new(0_u64), Condvar::new()));
    let other = pair.clone();
    let turn = |of: u64| {
        move |pair: &(Mutex<u64>, Condvar)| {
            let turn = pair.0.lock().unwrap();
            let waited = pair
                .1
                .wait_timeout_while(turn, MS * 20, |turn| *turn % 2 != of);
            *waited.unwrap().0 += 1;
            pair.1.notify_one();
        }
    };
    let (first, second) = (turn(0), turn(1));
    vec![
        again("sleep", stop, || at_least(MS * 3, || thread::sleep(MS * 3))),
        again("a channel", stop, move || {
            // The other end is kept, and nothing comes.
            let _kept = &sender;
            let wait = || {
                assert_eq!(
                    receiver.recv_timeout(MS * 3),
                    Err(RecvTimeoutError::Timeout)
                )
            };
            at_least(MS * 3, wait);
        }),
        again("a Unix socket", stop, calls(here)),
        again("TCP", stop, move || {
            let mut client = TcpStream::connect(addr).unwrap();
            let (mut server, _) = listener.accept().unwrap();
            client.write_all(b"hello").unwrap();
            drop(client);
            let mut text = String::new();
            server.read_to_string(&mut text).unwrap();
            assert_eq!(text, "hello");
        }),
        again("a file", stop, move || {
            assert!(fs::read("/proc/self/exe").unwrap() == own);
        }),
        again("a lock and a condition", stop, move || first(&pair)),
        again("its peer", stop, move || second(&other)),
        again("a process", stop, || {
            assert!(Command::new("true").status().unwrap().success());
        }),
        again("the allocator", stop, || {
            let kept: Vec<_> = (0..1_000_u64).map(|n| black_box(Box::new(n))).collect();
            assert_eq!(kept.into_iter().map(|n| *n).sum::<u64>(), 499_500);
        }),
    ]
}

/// Waits of the runtime: timers, sockets, blocking jobs, and its idle workers.
async fn of_the_runtime() {
    use tourbillon::time::{Instant, sleep};

    let start = Instant::now();
    sleep(MS).await;
    assert!(start.elapsed() >= MS);
    let read = Handle::current().spawn_blocking(|| fs::read("/proc/self/comm").unwrap());
    assert!(!read.await.unwrap().is_empty());
    let listener = tourbillon::net::TcpListener::bind("127.0.0.1:0")
        .await
        .unwrap();
    let addr = listener.local_addr().unwrap();
    let client = tourbillon::spawn(async move {
        let mut stream = tourbillon::net::TcpStream::connect(addr).await.unwrap();
        futures_lite::AsyncWriteExt::write_all(&mut stream, b"hello")
            .await
            .unwrap();
    });
    let (mut stream, _) = listener.accept().await.unwrap();
    let mut text = String::new();
    futures_lite::AsyncReadExt::read_to_string(&mut stream, &mut text)
        .await
        .unwrap();
    assert_eq!(text, "hello");
    client.await.unwrap();
}

/// The same on tokio: the waits of another runtime.
async fn of_tokio() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    let start = Instant::now();
    tokio::time::sleep(MS).await;
    assert!(start.elapsed() >= MS);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let client = tokio::spawn(async move {
        let mut stream = tokio::net::TcpStream::connect(addr).await.unwrap();
        stream.write_all(b"hello").await.unwrap();
    });
    let (mut stream, _) = listener.accept().await.unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    assert_eq!(text, "hello");
    client.await.unwrap();
}

/// Returns the threads of this process.
fn threads() -> Vec<u32> {
    let entries = fs::read_dir("/proc/self/task").unwrap();
    let number = |entry: fs::DirEntry| entry.file_name().to_str()?.parse().ok();
    entries.filter_map(|entry| number(entry.ok()?)).collect()
}

#[test]
fn captures_of_all_threads_break_no_wait() {
    let captures: u64 =
        env::var("TOURBILLON_SOAK_CAPTURES").map_or(1_000, |text| text.parse().unwrap());
    let stop = Arc::new(AtomicBool::new(false));
    let mut activities = of_std(&stop);
    let mut builder = Builder::new();
    let runtime = builder.worker_threads(2).build().unwrap();
    activities.push(again("the runtime", &stop, move || {
        runtime.block_on(runtime.spawn(of_the_runtime())).unwrap();
    }));
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let tokio = builder.enable_all().build().unwrap();
    activities.push(again("tokio", &stop, move || tokio.block_on(of_tokio())));
    // Two threads capture, also each other. A thread that captures cannot be captured then, as it
    // waits for a lock that the other one has.
    let left = Arc::new(AtomicU64::new(captures));
    let capturing: Vec<_> = (0..2)
        .map(|_| {
            let left = left.clone();
            thread::spawn(move || capture_all(&left))
        })
        .collect();
    let taken: u64 = capturing.into_iter().map(|it| it.join().unwrap()).sum();
    // Threads without a core, and those that have ended, have no stack.
    assert!(taken > captures / 4, "{taken} of {captures}");
    // Each activity still goes on, and ends without a panic.
    for Activity { name, rounds, .. } in &activities {
        let before = rounds.load(Relaxed);
        eventually(name, || rounds.load(Relaxed) > before);
    }
    stop.store(true, Relaxed);
    for Activity { name, thread, .. } in activities {
        thread.join().expect(name);
    }
}

/// Captures all threads in turn until none is left to take. Returns how many stacks it has got.
fn capture_all(left: &AtomicU64) -> u64 {
    let mut taken = 0;
    loop {
        for thread in threads() {
            let more = left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1));
            if more.is_err() {
                return taken;
            }
            let Ok(stack) = capture(thread) else {
                continue;
            };
            taken += u64::from(!stack.addresses().is_empty());
            // Names take long.
            if taken % 64 == 0 {
                assert!(!stack.to_string().is_empty() || stack.addresses().is_empty());
            }
        }
    }
}

/// A thread that blocks the signal does not answer. What the kernel says of it is there.
#[test]
fn a_thread_without_a_stack_has_its_call_of_the_system() {
    let (mut here, there) = UnixStream::pair().unwrap();
    let (sender, numbers) = channel();
    let reads = thread::spawn(move || {
        // SAFETY: the set is filled before it is used, and the calls have no other preconditions.
        let number = unsafe {
            let mut all: libc::sigset_t = std::mem::zeroed();
            libc::sigfillset(&mut all);
            libc::pthread_sigmask(libc::SIG_BLOCK, &all, std::ptr::null_mut());
            libc::gettid()
        };
        sender.send(number as u32).unwrap();
        here.read_exact(&mut [0]).unwrap();
    });
    let number = numbers.recv_timeout(PATIENCE).unwrap();
    let path = format!("/proc/self/task/{number}/syscall");
    // Some systems do not say it.
    let says = || fs::read_to_string(&path).unwrap_or_default();
    match says().is_empty() {
        true => assert!(matches!(capture(number), Err(CaptureError::NoAnswer))),
        false => {
            eventually("it sleeps", || !says().starts_with("running"));
            let stack = capture(number).unwrap();
            assert!(stack.addresses().is_empty());
            let call = stack.system_call().unwrap();
            assert!(["read", "recvfrom"].contains(&call), "{call}");
            assert!(
                stack.to_string().starts_with(&format!("[{call}")),
                "{stack}"
            );
        }
    }
    (&there).write_all(b"x").unwrap();
    reads.join().unwrap();
}

#[test]
fn captures_disturb_no_thread() {
    const WORK: u64 = 20_000;
    const STACKS: u32 = 100;
    let stop = Arc::new(AtomicBool::new(false));
    let (sender, receiver) = channel();
    let threads: Vec<_> = (0..2)
        .map(|_| {
            let (sender, stop) = (sender.clone(), stop.clone());
            thread::spawn(move || {
                // SAFETY: the call has no preconditions.
                sender.send(unsafe { libc::gettid() } as u32).unwrap();
                while !stop.load(Relaxed) {
                    let mut kept = Vec::new();
                    let mut sum = 0_u64;
                    for n in 0..WORK {
                        kept.push(black_box(Box::new(n)));
                        if kept.len() > 1_000 {
                            sum += kept.drain(..).map(|n| *n).sum::<u64>();
                        }
                    }
                    sum += kept.into_iter().map(|n| *n).sum::<u64>();
                    assert_eq!(sum, WORK * (WORK - 1) / 2);
                }
            })
        })
        .collect();
    let ids: Vec<_> = (0..2)
        .map(|_| receiver.recv_timeout(PATIENCE).unwrap())
        .collect();
    let (start, mut stacks) = (Instant::now(), 0);
    while stacks < STACKS {
        assert!(start.elapsed() < PATIENCE, "{stacks} stacks");
        for &id in &ids {
            // A thread without a core is an error.
            stacks += u32::from(capture(id).is_ok_and(|stack| !stack.addresses().is_empty()));
        }
    }
    stop.store(true, Relaxed);
    for thread in threads {
        thread.join().unwrap();
    }
    // The kernel may have the thread for a moment after it was joined.
    eventually("the thread is gone", || {
        matches!(capture(ids[0]), Err(CaptureError::Os(_)))
    });
    // SAFETY: the call has no preconditions.
    let own = capture(unsafe { libc::gettid() } as u32);
    assert!(matches!(own, Err(CaptureError::Os(_))), "{own:?}");
}
