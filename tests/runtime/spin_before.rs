//! `Builder::spin_before`: a worker that spins before its deadlines still serves all other work.

use std::{
    fs,
    io::{Read, Write},
    net::TcpStream,
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use crate::common::{HOUR, PATIENCE, alarm, eventually, on_worker};
use futures_lite::{AsyncReadExt, AsyncWriteExt};
use tourbillon::{Runtime, net::TcpListener, runtime::Builder, time::sleep};

/// Builds a runtime whose workers spin from now on, because the next deadline is always near.
fn spinning(workers: usize) -> Runtime {
    let runtime = Builder::new()
        .worker_threads(workers)
        .spin_before(Duration::MAX)
        .build()
        .unwrap();
    for worker in 0..workers {
        let timer = tourbillon::Timer::after(HOUR).on_worker(worker);
        timer.on(runtime.handle()).start(|| ());
    }
    runtime
}

#[test]
fn a_spinning_worker_serves_other_work() {
    let _alarm = alarm();
    for workers in [1, 2] {
        let runtime = spinning(workers);
        // Serve a timer from a remote thread, and tasks.
        let (sender, receiver) = mpsc::channel();
        runtime
            .handle()
            .after(Duration::from_millis(5), move || sender.send(()).unwrap());
        receiver.recv_timeout(PATIENCE).unwrap();
        let slept = runtime.spawn(async {
            sleep(Duration::from_millis(1)).await;
            tourbillon::spawn(async { 7 }).await.unwrap()
        });
        assert_eq!(runtime.block_on(slept).unwrap(), 7);
        // Serve a socket.
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let addr = listener.local_addr().unwrap();
        let echo = runtime.spawn(async move {
            let (mut stream, _) = listener.accept().await?;
            let mut buf = [0; 5];
            stream.read_exact(&mut buf).await?;
            stream.write_all(&buf).await
        });
        let mut client = TcpStream::connect(addr).unwrap();
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut echoed = [0; 5];
        client.write_all(b"hello").unwrap();
        client.read_exact(&mut echoed).unwrap();
        assert_eq!(&echoed, b"hello");
        runtime.block_on(echo).unwrap().unwrap();
        // Shut down.
        drop(runtime);
    }
}

#[test]
fn a_spinning_worker_rescues_a_blocked_worker() {
    let _alarm = alarm();
    let runtime = spinning(2);
    let (sender, receiver) = mpsc::channel();
    let (go_on, waits) = mpsc::channel::<()>();
    let blocks = tourbillon::Timer::after(Duration::ZERO).on_worker(0);
    blocks.on(runtime.handle()).start(move || {
        let timer = tourbillon::Timer::after(Duration::from_millis(10)).on_worker(0);
        timer.start(move || go_on.send(()).unwrap());
        sender.send(waits.recv_timeout(PATIENCE)).unwrap();
    });
    assert_eq!(receiver.recv_timeout(2 * PATIENCE).unwrap(), Ok(()));
}

#[test]
fn timers_are_never_early() {
    let _alarm = alarm();
    let runtime = Builder::new()
        .worker_threads(2)
        .spin_before(Duration::from_micros(200))
        .build()
        .unwrap();
    let (sender, receiver) = mpsc::channel();
    for n in 0..500_u64 {
        let sender = sender.clone();
        let due = Instant::now() + Duration::from_micros(n * 37 % 5_000);
        runtime
            .handle()
            .at(due, move || sender.send((due, Instant::now())).unwrap());
    }
    for _ in 0..500 {
        let (due, ran) = receiver.recv_timeout(PATIENCE).unwrap();
        assert!(ran >= due, "early by {:?}", due - ran);
    }
}

/// Returns the processor time of the threads whose names begin with `name`.
fn cpu(name: &str) -> Duration {
    let threads = fs::read_dir("/proc/self/task").unwrap();
    let nanos = threads.filter_map(|thread| {
        let path = thread.unwrap().path();
        // The thread may have ended.
        let comm = fs::read_to_string(path.join("comm")).ok()?;
        let stat = fs::read_to_string(path.join("schedstat")).ok()?;
        let nanos = stat.split_whitespace().next()?.parse::<u64>().ok()?;
        comm.starts_with(name).then_some(nanos)
    });
    Duration::from_nanos(nanos.sum())
}

#[test]
fn a_spinning_worker_does_not_park() {
    let _alarm = alarm();
    let runtime = spinning(1);
    let parks = || runtime.metrics().workers()[0].counts().parks();
    // The worker may park until it has the timer.
    eventually("it only spins", || {
        let before = parks();
        for _ in 0..10 {
            on_worker(&runtime, || ());
            thread::sleep(Duration::from_millis(1));
        }
        parks() == before
    });
}

#[test]
fn a_worker_without_a_near_deadline_sleeps() {
    let _alarm = alarm();
    let runtime = Builder::new()
        .worker_threads(2)
        .thread_name("far-off")
        .spin_before(Duration::from_millis(1))
        .build()
        .unwrap();
    runtime.handle().after(HOUR, || ());
    thread::sleep(Duration::from_millis(50));
    let before = cpu("far-off");
    thread::sleep(Duration::from_millis(400));
    let spent = cpu("far-off") - before;
    assert!(spent < Duration::from_millis(100), "{spent:?} of 400 ms");
}

#[test]
fn a_paused_clock_is_exact_without_spinning() {
    let _alarm = alarm();
    let runtime = Builder::new()
        .worker_threads(2)
        .spin_before(Duration::MAX)
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(async {
        let start = tourbillon::time::Instant::now();
        sleep(HOUR).await;
        assert_eq!(start.elapsed(), HOUR);
    });
}
