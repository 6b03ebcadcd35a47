//! hyper's traits for TCP and Unix streams, and its timer, on a paused clock.

use std::{
    future::poll_fn,
    io::{ErrorKind, IoSlice},
    pin::Pin,
    time::Duration,
};

use futures_lite::{AsyncReadExt, future::poll_once};
use hyper::rt::{Read, ReadBuf, Timer, Write};
use tourbillon::{
    Handle,
    net::{TcpListener, TcpStream, UnixStream},
    runtime::Builder,
    time::Instant,
};
use tourbillon_hyper::{Stream, TolerantSleep, TourbillonIo, TourbillonTimer};

const LIMIT: Duration = Duration::from_secs(5);

fn paused<R>(future: impl Future<Output = R>) -> R {
    let runtime = Builder::new().worker_threads(1).start_paused(true).build();
    runtime.unwrap().block_on(future)
}

async fn tcp() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap())
        .await
        .unwrap();
    let (server, _) = listener.accept().await.unwrap();
    (client, server)
}

/// Reads once into a buffer of eight bytes of which two are filled.
async fn read<S: Stream>(stream: &mut TourbillonIo<S>) -> std::io::Result<Vec<u8>> {
    let mut room = [0; 8];
    let mut buf = ReadBuf::new(&mut room);
    buf.unfilled().put_slice(b"ab");
    poll_fn(|cx| Read::poll_read(Pin::new(&mut *stream), cx, buf.unfilled())).await?;
    Ok(buf.filled().to_vec())
}

async fn exchange<S: Stream>(near: S, mut far: TourbillonIo<S>, limit: impl FnOnce(&S)) {
    let mut near = TourbillonIo::new(near);
    // What comes is put behind what is there, as much as there is room for.
    assert!(far.is_write_vectored());
    let bufs = [IoSlice::new(b"1234"), IoSlice::new(b"5678")];
    let written = poll_fn(|cx| Write::poll_write_vectored(Pin::new(&mut far), cx, &bufs)).await;
    assert_eq!(written.unwrap(), 8);
    assert_eq!(read(&mut near).await.unwrap(), b"ab123456");
    assert_eq!(read(&mut near).await.unwrap(), b"ab78");
    // The timeout of the socket is that of hyper's reads.
    limit(&near);
    let start = Instant::now();
    let error = read(&mut near).await.unwrap_err();
    assert_eq!(
        (error.kind(), start.elapsed()),
        (ErrorKind::TimedOut, LIMIT)
    );
    poll_fn(|cx| Write::poll_shutdown(Pin::new(&mut far), cx))
        .await
        .unwrap();
    assert_eq!(read(&mut near).await.unwrap(), b"ab");
}

#[test]
fn hyper_reads_and_writes_tcp_and_unix_streams() {
    paused(async {
        let (near, far) = tcp().await;
        let limit = |near: &TcpStream| near.set_read_timeout(Some(LIMIT)).unwrap();
        exchange(near, far.into(), limit).await;
        let (near, far) = UnixStream::pair().unwrap();
        let limit = |near: &UnixStream| near.set_read_timeout(Some(LIMIT)).unwrap();
        exchange(near, far.into(), limit).await;
    });
}

#[test]
fn a_wrapped_stream_has_the_methods_and_traits_of_the_stream() {
    paused(async {
        let (near, far) = tcp().await;
        let (mut near, far) = (TourbillonIo::new(near), TourbillonIo::new(far));
        assert_eq!(near.peer_addr().unwrap(), far.local_addr().unwrap());
        assert_eq!(far.try_write(b"here").unwrap(), 4);
        drop(far.into_inner());
        let mut text = String::new();
        near.read_to_string(&mut text).await.unwrap();
        assert_eq!(text, "here");
    });
}

/// Returns the moment for which the worker waits while it waits for this sleep.
async fn waits_for(mut sleep: TolerantSleep) -> Instant {
    assert!(poll_once(&mut sleep).await.is_none());
    Handle::current().timers().next_deadline().unwrap()
}

#[test]
fn the_tolerance_of_the_user_counts() {
    let runtime = Builder::new().worker_threads(1).build().unwrap();
    let waits = async {
        let hour = Duration::from_secs(3_600);
        let deadline = Instant::now() + hour;
        // A tolerance rounds the moment up, and no deadline here is round.
        let late = |moment: Instant| moment.duration_since(deadline);
        let exact = TolerantSleep::until(deadline).tolerance(Duration::ZERO);
        assert_eq!(waits_for(exact).await, deadline);
        let by_default = late(waits_for(TolerantSleep::until(deadline)).await);
        assert!(by_default <= Duration::from_millis(250), "{by_default:?}");
        let much = late(waits_for(TolerantSleep::until(deadline).tolerance(hour)).await);
        assert!(
            much > Duration::from_millis(250) && much <= hour,
            "{much:?}"
        );
        // A deadline that is moved keeps the tolerance.
        let mut moved = TolerantSleep::new(2 * hour).tolerance(Duration::ZERO);
        assert!(poll_once(&mut moved).await.is_none());
        moved.set_deadline(deadline);
        assert_eq!((moved.deadline(), moved.is_elapsed()), (deadline, false));
        assert_eq!(waits_for(moved).await, deadline);
    };
    runtime.block_on(runtime.spawn(waits)).unwrap();
}

#[test]
fn hypers_sleeps_end_at_their_deadline_and_can_be_moved() {
    paused(async {
        let timer = TourbillonTimer::new().tolerance(Duration::ZERO);
        let start = Instant::now();
        let mut sleep = timer.sleep(LIMIT);
        sleep.as_mut().await;
        assert_eq!(start.elapsed(), LIMIT);
        timer.reset(&mut sleep, (start + 3 * LIMIT).into_std());
        sleep.as_mut().await;
        assert_eq!(start.elapsed(), 3 * LIMIT);
        timer.sleep_until((start + 4 * LIMIT).into_std()).await;
        assert_eq!(start.elapsed(), 4 * LIMIT);
    });
}
