//! A tour of the core: timers from all threads, tasks, sockets, panics, shutdown.
//!
//! Run it with `cargo run -p tourbillon-examples --example tour`. CI runs it under valgrind, which
//! must find no leak.

use std::{
    cell::Cell,
    io,
    process::ExitCode,
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use futures_lite::{AsyncReadExt, AsyncWriteExt};
use tourbillon::{
    Runtime,
    net::{TcpListener, TcpStream},
    runtime::Builder,
    task::{LocalSet, spawn_local, spawn_pinned_by_idx},
    time::{MissedTickBehavior, interval, sleep, timeout},
    timer::Cancel,
};
use tourbillon_examples::say::{self, say};

const MS: Duration = Duration::from_millis(1);
const HOUR: Duration = Duration::from_secs(3_600);

/// Arms callbacks from this thread, from a callback and from a task.
fn callbacks(runtime: &Runtime) {
    let ran = Arc::new(AtomicU32::new(0));
    let count = |n: u32| {
        let ran = ran.clone();
        move || {
            ran.fetch_add(n, Ordering::Relaxed);
        }
    };

    // Arm from outside the runtime, from a callback, and from a task.
    runtime.handle().after(MS, count(1));
    let inner = count(10);
    runtime
        .handle()
        .after(MS, move || drop(tourbillon::after(MS, inner)));
    let from_task = count(100);
    runtime.spawn(async move { tourbillon::after(MS, from_task) });
    // A recurring timer, one that is cancelled, one that is moved, and one that panics.
    let every = runtime.handle().every(MS, count(1_000));
    let never = runtime.handle().after(HOUR, count(1_000_000));
    never.refresh();
    assert_eq!(never.cancel(), Cancel::Cancelled);
    let moved = runtime.handle().after(HOUR, count(100_000));
    moved.reset_after(MS);
    runtime.handle().after(MS, || {
        panic!("a callback's panic is caught, counted and reported")
    });

    while ran.load(Ordering::Relaxed) < 102_111 {
        std::thread::sleep(MS);
    }
    every.cancel();
    say(format_args!(
        "callbacks: {} points",
        ran.load(Ordering::Relaxed)
    ));
}

/// Runs sleeps, intervals and timeouts, and tasks that end, panic or are aborted.
async fn tasks() {
    let sleepers: Vec<_> = (0..10).map(|n| tourbillon::spawn(sleep(MS * n))).collect();
    for sleeper in sleepers {
        sleeper.await.expect("a sleep ends");
    }
    let mut interval = interval(MS);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for _ in 0..3 {
        interval.tick().await;
    }
    assert!(timeout(MS, sleep(HOUR)).await.is_err());
    let panics = tourbillon::spawn(async { panic!("a task's panic is its joiner's") });
    assert!(panics.await.is_err_and(|error| error.is_panic()));
    let aborted = tourbillon::spawn(sleep(HOUR));
    aborted.abort();
    assert!(aborted.await.is_err_and(|error| error.is_cancelled()));
    say("tasks: done");
}

/// Runs tasks that share a value that is not `Send`, on this thread and on each worker.
fn local_tasks(runtime: &Runtime) {
    async fn count() -> u32 {
        let count = Rc::new(Cell::new(0));
        let tasks: Vec<_> = (1..=3)
            .map(|n| {
                let count = count.clone();
                spawn_local(async move {
                    sleep(MS).await;
                    count.set(count.get() + n);
                })
            })
            .collect();
        for task in tasks {
            task.await.expect("it adds up");
        }
        count.get()
    }
    let set = LocalSet::new();
    let here = set.block_on(runtime, count());
    let workers = runtime.block_on(async {
        let pinned = [0, 1].map(|worker| spawn_pinned_by_idx(count, worker));
        let mut sum = 0;
        for task in pinned {
            sum += task.expect("there are two workers").await.expect("it ends");
        }
        sum
    });
    assert_eq!((here, workers), (6, 12));
    // Dropping the set drops its pending tasks.
    let left = set.spawn_local(async { sleep(HOUR).await });
    drop(set);
    assert!(left.is_finished());
    say(format_args!(
        "local tasks: {here} here, {workers} on the workers"
    ));
}

/// Echoes bytes over a connection. Two tasks own its halves.
async fn sockets() -> io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let addr = listener.local_addr()?;
    let server = tourbillon::spawn(async move {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let (reader, mut writer) = stream.into_split();
        futures_lite::io::copy(reader, &mut writer).await
    });
    let mut client = TcpStream::connect(addr).await?;
    client.write_all(b"tick").await?;
    client.close().await?;
    let mut echo = String::new();
    client.read_to_string(&mut echo).await?;
    assert_eq!(echo, "tick");
    say(format_args!("sockets: {} bytes echoed", server.await??));
    Ok(())
}

fn main() -> ExitCode {
    say::end("tour", run())
}

fn run() -> io::Result<()> {
    let runtime = Builder::new().worker_threads(2).build()?;
    callbacks(&runtime);
    runtime.block_on(tasks());
    runtime.block_on(sockets())?;
    local_tasks(&runtime);

    // Dropping the runtime drops pending callbacks and tasks.
    let pending = Arc::new(());
    for n in 0..1_000 {
        let pending = pending.clone();
        runtime.handle().after(HOUR * n, move || drop(pending));
    }
    let kept = pending.clone();
    runtime.spawn(async move {
        sleep(HOUR).await;
        drop(kept);
    });
    let kept = pending.clone();
    runtime.handle().spawn_pinned(|| async move {
        let kept = Rc::new(kept);
        let shared = kept.clone();
        spawn_local(async move {
            sleep(HOUR).await;
            drop(shared);
        });
        sleep(HOUR).await;
        drop(kept);
    });
    drop(runtime);
    assert_eq!(Arc::strong_count(&pending), 1);
    say("shutdown: nothing left");
    Ok(())
}
