//! The macros `select!` and `join!` of the crate `futures` and of tokio work with our futures.

use std::{pin::pin, time::Duration};

use crate::common::{HOUR, alarm, event::Event, runtime};
use futures::{FutureExt, join, select, select_biased};
use futures_lite::{AsyncReadExt, AsyncWriteExt};
use tourbillon::{
    net::{TcpListener, TcpStream},
    runtime::Builder,
    spawn,
    task::JoinSet,
    time::{Instant, interval, sleep},
};

const TICK: Duration = Duration::from_millis(1);

#[test]
fn select_returns_the_first_of_a_task_and_a_sleep() {
    let _alarm = alarm();
    runtime(2).block_on(async {
        let mut task = spawn(async { 7 }).fuse();
        let mut late = pin!(sleep(HOUR).fuse());
        select! {
            ended = task => assert_eq!(ended.unwrap(), 7),
            () = late => panic!("an hour went by"),
        }
        let start = Instant::now();
        let mut task = spawn(std::future::pending::<()>()).fuse();
        select! {
            _ = task => panic!("it never ends"),
            () = pin!(sleep(TICK).fuse()) => assert!(start.elapsed() >= TICK),
        }
    });
}

#[test]
fn select_of_an_interval_and_a_join_set_loses_nothing() {
    let _alarm = alarm();
    runtime(2).block_on(async {
        let mut ticks = interval(TICK);
        let mut set = JoinSet::new();
        let three = Event::default();
        for n in 0..100_u64 {
            let three = three.clone();
            set.spawn(async move {
                sleep(Duration::from_micros(n * 50)).await;
                if n == 99 {
                    three.wait().await;
                }
                n
            });
        }
        let (mut sum, mut ticked) = (0, 0);
        while !set.is_empty() {
            select! {
                ended = pin!(set.join_next().fuse()) => sum += ended.unwrap().unwrap(),
                _ = pin!(ticks.tick().fuse()) => ticked += 1,
            }
            if ticked == 3 {
                three.set();
            }
        }
        assert_eq!(sum, 99 * 100 / 2);
        assert!(ticked >= 3);
    });
}

#[test]
fn select_of_a_stream_and_a_timeout() {
    let _alarm = alarm();
    runtime(2).block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (ours, theirs) = join!(TcpStream::connect(address), listener.accept());
        let (mut ours, mut theirs) = (ours.unwrap(), theirs.unwrap().0);
        let mut byte = [0];
        select! {
            read = ours.read(&mut byte).fuse() => panic!("nothing was sent: {read:?}"),
            () = pin!(sleep(TICK).fuse()) => {}
        }
        theirs.write_all(b"!").await.unwrap();
        // The read that was given up took nothing.
        select_biased! {
            read = ours.read(&mut byte).fuse() => assert_eq!(read.unwrap(), 1),
            () = pin!(sleep(HOUR).fuse()) => panic!("an hour went by"),
        }
        assert_eq!(&byte, b"!");
    });
}

#[test]
fn join_runs_all_futures() {
    let _alarm = alarm();
    runtime(2).block_on(async {
        let start = Instant::now();
        let mut ticks = interval(TICK);
        let (task, (), first) = join!(spawn(async { 7 }), sleep(TICK), ticks.tick());
        assert_eq!(task.unwrap(), 7);
        assert!(first >= start && start.elapsed() >= TICK);
    });
}

/// A loop with tokio's macros works unchanged, because the macros need no runtime of tokio's.
#[test]
fn macros_of_tokio_accept_our_futures() {
    let runtime = Builder::new().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let (sender, mut receiver) = tokio::sync::mpsc::channel(4);
        spawn(async move {
            for n in 0..3 {
                sleep(Duration::from_millis(25)).await;
                sender.send(n).await.unwrap();
            }
        });
        let mut ticks = interval(Duration::from_millis(10));
        let (mut ticked, mut received) = (0, Vec::new());
        loop {
            tokio::select! {
                _ = ticks.tick() => ticked += 1,
                message = receiver.recv() => match message {
                    Some(n) => received.push(n),
                    None => break,
                },
            }
        }
        // The interval ticks at 0, 10, … 70 ms. The last message and the end of the channel come
        // at 75 ms.
        assert_eq!((ticked, received), (8, vec![0, 1, 2]));
        let both = tokio::join!(sleep(Duration::from_millis(1)), async { 42 });
        assert_eq!(both, ((), 42));
    });
}
