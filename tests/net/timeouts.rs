//! Timeouts of sockets: an operation fails after exactly its timeout, in each way to wait. The
//! socket can be used afterwards, and each direction has one timer.
//!
//! The clock is paused and advances to the next deadline when all tasks wait, so times are exact
//! and tests take no time.

use std::{
    future::{Future, poll_fn},
    io::{self, ErrorKind, IoSlice, IoSliceMut, Read, Write},
    mem::MaybeUninit,
    pin::Pin,
    sync::Arc,
    time::Duration,
};

use futures_lite::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, future::zip};
use tourbillon::{
    io::Interest,
    net::{TcpStream, UnixStream},
    time::{Instant, advance, sleep, timeout},
};

use crate::{
    common::{
        HOUR, PATIENCE, alarm,
        blocked::{Blocked, Says, all_come_elsewhere},
        net::{connections, pair},
        runtime,
    },
    paused,
};

const SEC: Duration = Duration::from_secs(1);
const LIMIT: Duration = Duration::from_secs(5);

/// Checks that the operation waits for exactly `after`, to the nanosecond, and fails.
async fn times_out<R>(after: Duration, operation: impl Future<Output = io::Result<R>>) {
    let start = Instant::now();
    let error = operation.await.err().expect("it does not succeed");
    assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
    assert_eq!(start.elapsed(), after);
}

/// Writes until there is no room. Checks that the next write times out after `LIMIT`.
async fn write_until_it_times_out<F>(mut write: impl FnMut() -> F)
where
    F: Future<Output = io::Result<usize>>,
{
    loop {
        let start = Instant::now();
        match write().await {
            Ok(n) => assert_ne!(n, 0),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
                return assert_eq!(start.elapsed(), LIMIT);
            }
        }
    }
}

static MUCH: [u8; 100_000] = [7; 100_000];

/// Defines a test of all ways to read and to write: each times out twice and works afterwards.
macro_rules! all_ways {
    ($name:ident, $pair:expr) => {
        #[test]
        fn $name() {
            paused(async {
                let (mut stream, mut peer) = $pair;
                stream.set_read_timeout(Some(LIMIT)).unwrap();
                assert_eq!(stream.read_timeout().unwrap(), Some(LIMIT));
                assert_eq!(stream.write_timeout().unwrap(), None);
                for _ in 0..2 {
                    let mut buf = [0; 8];
                    times_out(LIMIT, stream.read(&mut buf)).await;
                    times_out(LIMIT, (&stream).read(&mut buf)).await;
                    times_out(LIMIT, stream.read_exact(&mut buf)).await;
                    times_out(
                        LIMIT,
                        stream.read_vectored(&mut [IoSliceMut::new(&mut buf)]),
                    )
                    .await;
                    let operation = || stream.try_read(&mut [0; 8]);
                    times_out(LIMIT, stream.async_io(Interest::READABLE, operation)).await;
                    let mut room = [MaybeUninit::uninit(); 8];
                    let uninit = poll_fn(|cx| stream.poll_read_uninit(cx, &mut room));
                    times_out(LIMIT, uninit).await;
                }
                peer.write_all(b"here").await.unwrap();
                let mut buf = [0; 8];
                assert_eq!(stream.read(&mut buf).await.unwrap(), 4);
                times_out(LIMIT, stream.read(&mut buf)).await;

                stream.set_write_timeout(Some(LIMIT)).unwrap();
                assert_eq!(stream.write_timeout().unwrap(), Some(LIMIT));
                let stream = Arc::new(stream);
                for _ in 0..2 {
                    let stream = &stream;
                    let shared = || async { (&**stream).write(&MUCH).await };
                    write_until_it_times_out(shared).await;
                    let vectored =
                        || async { (&**stream).write_vectored(&[IoSlice::new(&MUCH)]).await };
                    write_until_it_times_out(vectored).await;
                    let async_io =
                        || stream.async_io(Interest::WRITABLE, || stream.try_write(&MUCH));
                    write_until_it_times_out(async_io).await;
                }
                // Writes work again when the peer has read.
                let stream = Arc::into_inner(stream).unwrap();
                tourbillon::spawn(async move {
                    let mut buf = vec![0; 100_000];
                    while peer.read(&mut buf).await.is_ok_and(|n| n > 0) {}
                });
                (&stream).write_all(&MUCH).await.unwrap();

                let (mut read, mut write) = stream.into_split();
                assert_eq!(read.read_timeout().unwrap(), Some(LIMIT));
                assert_eq!(write.write_timeout().unwrap(), Some(LIMIT));
                times_out(LIMIT, read.read(&mut [0; 8])).await;
                read.set_read_timeout(Some(SEC)).unwrap();
                write.set_write_timeout(None).unwrap();
                times_out(SEC, read.read(&mut [0; 8])).await;
                write.write_all(&MUCH).await.unwrap();
            });
        }
    };
}

all_ways!(all_ways_to_read_and_write_tcp_time_out, pair().await);
all_ways!(
    all_ways_to_read_and_write_unix_time_out,
    UnixStream::pair().unwrap()
);

#[test]
fn peeks_time_out() {
    paused(async {
        let (stream, mut peer) = pair().await;
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        for _ in 0..2 {
            times_out(LIMIT, stream.peek(&mut [0; 8])).await;
            times_out(LIMIT, poll_fn(|cx| stream.poll_peek(cx, &mut [0; 8]))).await;
        }
        peer.write_all(b"here").await.unwrap();
        assert_eq!(stream.peek(&mut [0; 8]).await.unwrap(), 4);
    });
}

#[test]
fn data_that_comes_in_time_never_times_out() {
    paused(async {
        let (mut stream, mut peer) = pair().await;
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        let start = Instant::now();
        tourbillon::spawn(async move {
            for _ in 0..50 {
                sleep(LIMIT - Duration::from_nanos(1)).await;
                peer.write_all(&[1]).await.unwrap();
            }
            // Keep the connection open without sending data.
            sleep(HOUR).await;
        });
        for _ in 0..50 {
            assert_eq!(stream.read(&mut [0; 8]).await.unwrap(), 1);
        }
        assert_eq!(start.elapsed(), 50 * (LIMIT - Duration::from_nanos(1)));
        times_out(LIMIT, stream.read(&mut [0; 8])).await;
    });
}

/// Time between two operations does not count towards the timeout of the second one.
#[test]
fn a_timeout_starts_with_its_operation() {
    paused(async {
        let (mut stream, mut peer) = pair().await;
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        for pause in [0, 1, 4, 5, 6, 100] {
            let reading = async { stream.read(&mut [0; 8]).await };
            let writing = async {
                sleep(SEC).await;
                peer.write_all(&[1]).await
            };
            let (read, written) = zip(reading, writing).await;
            assert_eq!(read.unwrap(), 1);
            written.unwrap();
            sleep(pause * SEC).await;
            times_out(LIMIT, stream.read(&mut [0; 8])).await;
        }
    });
}

#[test]
fn there_is_one_timer_for_each_direction() {
    let _alarm = alarm();
    let runtime = runtime(1);
    let handle = runtime.handle().clone();
    let task = runtime.spawn(async move {
        let (mut stream, mut peer) = pair().await;
        stream.set_read_timeout(Some(HOUR)).unwrap();
        stream.set_write_timeout(Some(HOUR)).unwrap();
        assert_eq!(handle.timers().pending(), 0, "nothing has waited");
        for _ in 0..100 {
            let reading = async { stream.read(&mut [0; 8]).await };
            // The read is polled first, and waits.
            let (read, written) = zip(reading, peer.write_all(&[1])).await;
            assert_eq!(read.unwrap(), 1);
            written.unwrap();
            assert_eq!(handle.timers().pending(), 1);
            assert_eq!(handle.timers().garbage(), 0);
        }
        assert_eq!(handle.metrics().total().fired(), 0);
        drop(stream);
        assert_eq!(handle.timers().pending(), 0);
    });
    runtime.block_on(task).unwrap();
}

#[test]
fn a_zero_timeout_is_an_error_and_a_huge_one_is_not() {
    paused(async {
        let (mut stream, _peer) = pair().await;
        for refused in [
            stream.set_read_timeout(Some(Duration::ZERO)),
            stream.set_write_timeout(Some(Duration::ZERO)),
        ] {
            assert_eq!(refused.unwrap_err().kind(), ErrorKind::InvalidInput);
        }
        assert_eq!(stream.read_timeout().unwrap(), None);
        stream.set_read_timeout(None).unwrap();
        for limit in [Duration::MAX, Duration::MAX - Duration::from_nanos(1)] {
            stream.set_read_timeout(Some(limit)).unwrap();
            assert_eq!(stream.read_timeout().unwrap(), Some(limit));
            let waited = timeout(100_000 * HOUR, stream.read(&mut [0; 8])).await;
            assert!(waited.is_err(), "{waited:?}");
        }
        let shortest = Duration::from_nanos(1);
        stream.set_read_timeout(Some(shortest)).unwrap();
        times_out(shortest, stream.read(&mut [0; 8])).await;
        // A refused timeout leaves the old timeout in place.
        stream.set_read_timeout(Some(Duration::ZERO)).unwrap_err();
        assert_eq!(stream.read_timeout().unwrap(), Some(shortest));
    });
}

#[test]
fn changing_the_timeout_restarts_pending_waits() {
    type Reads = fn(&TcpStream) -> Pin<Box<dyn Future<Output = io::Result<usize>> + Send + '_>>;
    let ways: [Reads; 2] = [
        |mut stream| Box::pin(async move { stream.read(&mut [0; 8]).await }),
        |stream| Box::pin(async move { stream.peek(&mut [0; 8]).await }),
    ];
    for read in ways {
        for (first, then, ends) in [
            (None, Some(2), Some(5)),
            (Some(10), Some(2), Some(5)),
            (Some(4), Some(10), Some(13)),
            (Some(4), Some(4), Some(7)),
            (Some(4), None, None),
        ] {
            paused(async move {
                let secs = |n: Option<u32>| n.map(|n| n * SEC);
                let (stream, _peer) = pair().await;
                let stream = Arc::new(stream);
                stream.set_read_timeout(secs(first)).unwrap();
                let other = stream.clone();
                tourbillon::spawn(async move {
                    sleep(3 * SEC).await;
                    other.set_read_timeout(secs(then)).unwrap();
                });
                match secs(ends) {
                    Some(ends) => times_out(ends, read(&stream)).await,
                    None => assert!(timeout(HOUR, read(&stream)).await.is_err()),
                }
            });
        }
    }
}

#[test]
fn reads_and_writes_have_separate_timeouts() {
    paused(async {
        let (stream, mut peer) = pair().await;
        stream.set_read_timeout(Some(3 * SEC)).unwrap();
        stream.set_write_timeout(Some(LIMIT)).unwrap();
        let stream = Arc::new(stream);
        let reader = stream.clone();
        let reading = tourbillon::spawn(async move {
            for _ in 0..3 {
                times_out(3 * SEC, (&*reader).read(&mut [0; 8])).await;
            }
        });
        let writer = stream.clone();
        let writing = tourbillon::spawn(async move {
            write_until_it_times_out(|| async { (&*writer).write(&MUCH).await }).await;
            write_until_it_times_out(|| async { (&*writer).write(&MUCH).await }).await;
        });
        reading.await.unwrap();
        writing.await.unwrap();
        peer.write_all(&[1]).await.unwrap();
        assert_eq!((&*stream).read(&mut [0; 8]).await.unwrap(), 1);
    });
}

/// Futures of this crate end their wait when they are dropped. A `poll_read` cannot notice a drop,
/// so the next read continues its wait.
#[test]
fn a_dropped_operation_does_not_affect_the_next() {
    paused(async {
        let (mut stream, mut peer) = pair().await;
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        let mut buf = [0; 8];
        assert!(timeout(3 * SEC, stream.peek(&mut buf)).await.is_err());
        times_out(LIMIT, stream.peek(&mut buf)).await;

        // Each read is given up early, but the peer stays silent, so the reads share one wait.
        assert!(timeout(2 * SEC, stream.read(&mut buf)).await.is_err());
        assert!(timeout(2 * SEC, stream.read(&mut buf)).await.is_err());
        times_out(SEC, stream.read(&mut buf)).await;
        times_out(LIMIT, stream.read(&mut buf)).await;

        // A timeout that expires between two reads does not shorten the next one.
        assert!(timeout(3 * SEC, stream.read(&mut buf)).await.is_err());
        sleep(3 * SEC).await;
        times_out(LIMIT, stream.read(&mut buf)).await;
        // A read that begins before the clock jumps past its deadline still times out.
        assert!(timeout(3 * SEC, stream.read(&mut buf)).await.is_err());
        let (read, ()) = zip(stream.read(&mut buf), advance(HOUR)).await;
        assert_eq!(read.unwrap_err().kind(), ErrorKind::TimedOut);

        // The wait also starts anew if the timeout is set again, or if data is read in any way.
        assert!(timeout(3 * SEC, stream.read(&mut buf)).await.is_err());
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        times_out(LIMIT, stream.read(&mut buf)).await;
        assert!(timeout(3 * SEC, stream.read(&mut buf)).await.is_err());
        peer.write_all(&[1]).await.unwrap();
        stream.readable().await.unwrap();
        assert_eq!(stream.try_read(&mut buf).unwrap(), 1);
        times_out(LIMIT, stream.read(&mut buf)).await;
    });
}

#[test]
fn waiting_for_readiness_has_no_timeout() {
    paused(async {
        let (stream, _peer) = pair().await;
        stream.set_read_timeout(Some(SEC)).unwrap();
        assert!(timeout(HOUR, stream.readable()).await.is_err());
        let polled = poll_fn(|cx| stream.poll_read_ready(cx));
        assert!(timeout(HOUR, polled).await.is_err());
    });
}

#[test]
fn a_shutdown_is_not_reported_as_a_timeout() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let handle = runtime.handle().clone();
    let (mut stream, peer) = runtime.block_on(pair());
    stream.set_read_timeout(Some(HOUR)).unwrap();
    let reading = std::thread::spawn(move || {
        let mut buf = [0; 8];
        let by_poll = handle.block_on(stream.read(&mut buf)).unwrap_err();
        let ours = handle.block_on(stream.peek(&mut buf)).unwrap_err();
        // Setting a timeout after the shutdown has no effect and does no harm.
        stream.set_read_timeout(Some(SEC)).unwrap();
        let again = handle.block_on(stream.read(&mut buf)).unwrap_err();
        [by_poll, ours, again]
    });
    crate::common::eventually("it waits", || runtime.timers().pending() > 0);
    drop(runtime);
    for error in reading.join().unwrap() {
        assert_eq!(error.kind(), ErrorKind::Other, "{error}");
    }
    drop(peer);
}

/// The timer is on the worker of the socket. A peer rescues it like any other timer.
#[test]
fn a_read_on_a_blocked_worker_times_out_while_it_is_blocked() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let (mut ours, _theirs) = connections(1);
    let ours = ours.pop().unwrap();
    let limit = Duration::from_millis(50);
    let (says, came) = Says::new();
    let (blocked, start) = Blocked::after(runtime.handle(), move || {
        let mut stream = TcpStream::from_std(ours).unwrap();
        stream.set_read_timeout(Some(limit)).unwrap();
        let start = std::time::Instant::now();
        tourbillon::spawn(async move {
            let error = stream.read(&mut [0; 8]).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::TimedOut);
            says.came(0, start + limit);
        });
        start
    });
    let came = all_come_elsewhere(&blocked, &came, 1);
    assert!(came[0].at - start >= limit);
}

#[test]
fn timeouts_of_a_standard_library_socket_are_not_adopted() {
    let _alarm = alarm();
    let (mut ours, mut theirs) = connections(1);
    let (ours, mut theirs) = (ours.pop().unwrap(), theirs.pop().unwrap());
    ours.set_read_timeout(Some(PATIENCE)).unwrap();
    runtime(1).block_on(async {
        let stream = TcpStream::from_std(ours).unwrap();
        assert_eq!(stream.read_timeout().unwrap(), None);
        stream.set_read_timeout(Some(SEC)).unwrap();
        let mut std = stream.into_std().unwrap();
        assert_eq!(std.read_timeout().unwrap(), Some(PATIENCE));
        std.set_nonblocking(false).unwrap();
        theirs.write_all(&[1]).unwrap();
        assert_eq!(std.read(&mut [0; 8]).unwrap(), 1);
    });
}

/// The code needs nothing but the traits of futures-io.
#[test]
fn generic_code_over_streams_times_out_too() {
    async fn echo(mut stream: impl AsyncRead + AsyncWrite + Unpin) -> io::Result<()> {
        let mut buf = [0; 8];
        loop {
            let n = stream.read(&mut buf).await?;
            stream.write_all(&buf[..n]).await?;
        }
    }
    paused(async {
        let (stream, mut peer) = pair().await;
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        let echoing = tourbillon::spawn(times_out(8 * SEC, echo(stream)));
        sleep(3 * SEC).await;
        peer.write_all(&[1]).await.unwrap();
        assert_eq!(peer.read(&mut [0; 8]).await.unwrap(), 1);
        echoing.await.unwrap();
    });
}
