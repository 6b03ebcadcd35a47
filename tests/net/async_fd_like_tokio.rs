//! Priority data, errors, and guards that pass the wrapped value mutably. Each check runs the same
//! code on our `AsyncFd` and on tokio's.

#![allow(
    deprecated,
    reason = "tokio deprecates `AsyncFd::new`, because it takes any `AsRawFd`"
)]

use std::{
    future::poll_fn,
    io::{self, ErrorKind, Read, Write},
    mem::MaybeUninit,
    net::{Shutdown, TcpListener, TcpStream, UdpSocket},
    pin::pin,
};

use futures_lite::future::{poll_once, yield_now};
use socket2::Socket;

use crate::common::{freed::nobody, net::ANY_PORT};

mod ours {
    pub use tourbillon::io::{AsyncFd, Interest, Ready};
}

mod theirs {
    pub use tokio::io::{Interest, Ready, unix::AsyncFd};
}

/// Returns the two ends of a connection. The first end does not block.
fn pair() -> io::Result<(Socket, Socket)> {
    let listener = TcpListener::bind(ANY_PORT)?;
    let client = TcpStream::connect(listener.local_addr()?)?;
    let (server, _) = listener.accept()?;
    client.set_nonblocking(true)?;
    Ok((client.into(), server.into()))
}

macro_rules! priority {
    ($io:ident) => {{
        use $io::{AsyncFd, Interest, Ready};
        let (receiver, sender) = pair()?;
        let mut urgent = [MaybeUninit::uninit(); 4];
        let both = Interest::READABLE | Interest::PRIORITY;
        assert!(both.is_priority() && !both.is_error());
        let mut fd = AsyncFd::with_interest(receiver, both)?;

        sender.send(b"data")?;
        assert!(!fd.ready(both).await?.ready().is_priority());
        assert!(
            poll_once(pin!(fd.ready(Interest::PRIORITY)))
                .await
                .is_none()
        );
        sender.send_out_of_band(b"!")?;
        let mut guard = fd.ready_mut(Interest::PRIORITY).await?;
        assert_eq!(guard.ready(), Ready::PRIORITY);
        let received = guard.try_io(|fd| fd.get_ref().recv_out_of_band(&mut urgent));
        assert_eq!(received.unwrap()?, 1);
        guard.clear_ready();
        assert_eq!(guard.ready(), Ready::EMPTY);
        assert!(
            poll_once(pin!(fd.ready(Interest::PRIORITY)))
                .await
                .is_none()
        );
        // The data before the priority data is still there and can be read.
        assert!(fd.readable().await?.ready().is_readable());

        drop(sender);
        let ready = fd.ready(Interest::PRIORITY).await?.ready();
        assert_eq!(ready, Ready::READ_CLOSED);
        Ok(())
    }};
}

#[test]
fn priority_data_is_distinguished_from_data() {
    on_both!(priority, ours, theirs);
}

macro_rules! errors {
    ($io:ident) => {{
        use $io::{AsyncFd, Interest, Ready};
        // epoll always reports errors, whatever else is watched.
        for interest in [Interest::ERROR, Interest::READABLE] {
            let socket = UdpSocket::bind(ANY_PORT)?;
            socket.set_nonblocking(true)?;
            socket.connect(nobody())?;
            let fd = AsyncFd::with_interest(socket, interest)?;
            assert!(poll_once(pin!(fd.ready(Interest::ERROR))).await.is_none());
            fd.get_ref().send(b"anybody?")?;
            let mut guard = fd.ready(Interest::ERROR).await?;
            assert_eq!(guard.ready(), Ready::ERROR);
            let error = guard.get_inner().take_error()?.unwrap();
            assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
            guard.clear_ready_matching(Ready::ERROR);
            assert!(guard.ready().is_empty());
            assert!(poll_once(pin!(fd.ready(Interest::ERROR))).await.is_none());
        }
        Ok(())
    }};
}

#[test]
fn errors_can_be_waited_for() {
    on_both!(errors, ours, theirs);
}

macro_rules! mutable {
    ($io:ident) => {{
        use $io::{AsyncFd, Interest, Ready};
        let (ours, mut theirs) = pair()?;
        let mut fd = AsyncFd::new(ours)?;
        let mut buf = [0; 4];
        // `read` and `write` of a `Socket` take `&mut self`.
        let blocked = fd.try_io_mut(Interest::READABLE, |fd| fd.read(&mut buf));
        assert_eq!(blocked.unwrap_err().kind(), ErrorKind::WouldBlock);
        assert!(poll_once(pin!(fd.readable_mut())).await.is_none());
        let mut guard = fd.writable_mut().await?;
        assert_eq!(guard.try_io(|fd| fd.get_mut().write(b"hello")).unwrap()?, 5);
        assert_eq!(theirs.read(&mut [0; 9])?, 5);

        theirs.write_all(b"one")?;
        let mut guard = fd.readable_mut().await?;
        assert_eq!(guard.ready(), Ready::READABLE);
        assert_eq!(guard.get_inner_mut().read(&mut buf)?, 3);
        // The first attempt that blocks clears the readiness.
        assert!(guard.try_io(|fd| fd.get_mut().read(&mut buf)).is_err());
        assert!(guard.ready().is_empty());
        assert!(guard.get_ref().get_ref().nonblocking()?);
        assert!(poll_once(pin!(fd.readable_mut())).await.is_none());

        theirs.write_all(b"two")?;
        poll_fn(|cx| {
            fd.poll_read_ready_mut(cx)
                .map_ok(|mut guard| guard.retain_ready())
        })
        .await?;
        poll_fn(|cx| fd.poll_write_ready_mut(cx).map_ok(drop)).await?;
        let read = fd.try_io_mut(Interest::READABLE, |fd| fd.read(&mut buf));
        assert_eq!(read?, 3);
        theirs.write_all(b"four")?;
        let read = fd
            .async_io_mut(Interest::READABLE, |fd| fd.read(&mut buf))
            .await?;
        assert_eq!((read, &buf), (4, b"four"));
        let failed: io::Result<()> = fd
            .async_io_mut(Interest::WRITABLE, |_| Err(ErrorKind::Unsupported.into()))
            .await;
        assert_eq!(failed.unwrap_err().kind(), ErrorKind::Unsupported);
        Ok(())
    }};
}

#[test]
fn guards_pass_the_wrapped_value_mutably() {
    on_both!(mutable, ours, theirs);
}

#[test]
fn interests_and_readiness_are_sets() {
    macro_rules! sets {
        ($io:ident) => {{
            use $io::{Interest, Ready};
            const ALL: Interest = Interest::READABLE
                .add(Interest::WRITABLE)
                .add(Interest::PRIORITY)
                .add(Interest::ERROR);
            assert_eq!(format!("{ALL:?}"), "READABLE | WRITABLE | PRIORITY | ERROR");
            assert_eq!(format!("{:?}", Interest::ERROR), "ERROR");
            let rest = ALL.remove(Interest::READABLE | Interest::ERROR).unwrap();
            assert_eq!(rest, Interest::WRITABLE | Interest::PRIORITY);
            assert!(rest.is_priority() && !rest.is_error() && !rest.is_readable());
            assert_eq!(rest.remove(ALL), None);
            assert!(Ready::ALL.is_priority() && Ready::ALL.is_error());
            assert!(!(Ready::ALL - Ready::ERROR).is_error());
            assert!(!(Ready::PRIORITY | Ready::ERROR).is_readable());
        }};
    }
    sets!(ours);
    sets!(theirs);
}

/// Waits until data and the end of the stream are both there, and clears the readiness.
macro_rules! ends {
    ($io:ident) => {{
        use $io::{AsyncFd, Interest, Ready};
        let both = Interest::READABLE | Interest::WRITABLE;
        let data = Ready::READABLE | Ready::WRITABLE;
        for how in 0..4 {
            let (ours, mut theirs) = pair()?;
            let mut fd = AsyncFd::new(ours)?;
            theirs.write_all(b"data")?;
            theirs.shutdown(Shutdown::Write)?;
            loop {
                let ready = fd.ready(both).await?.ready();
                if ready.is_read_closed() && ready.is_writable() {
                    break;
                }
                yield_now().await;
            }
            let read = fd.get_mut().read(&mut [0; 4])?;
            assert_eq!(read, 4);
            // The caller takes a short read for the proof that there is no more, and clears.
            match how {
                0 => {
                    let mut guard = fd.readable().await?;
                    guard.clear_ready();
                    assert_eq!(guard.ready(), Ready::EMPTY);
                }
                1 => {
                    let mut guard = fd.readable_mut().await?;
                    guard.clear_ready();
                    assert_eq!(guard.ready(), Ready::EMPTY);
                }
                2 => {
                    let mut guard = fd.ready(both).await?;
                    guard.clear_ready_matching(data);
                    assert_eq!(guard.ready(), Ready::READ_CLOSED);
                    guard.clear_ready_matching(data | Ready::READ_CLOSED);
                    assert_eq!(guard.ready(), Ready::EMPTY);
                }
                // A write that would block does not tell that there is something to read again.
                _ => {
                    while fd.get_mut().write(&[0; 65536]).is_ok() {}
                    let mut guard = fd.ready_mut(both).await?;
                    assert!(guard.try_io(|fd| fd.get_mut().write(b"more")).is_err());
                    assert_eq!(guard.ready(), Ready::EMPTY);
                }
            }
            let mut guard = match poll_once(pin!(fd.readable_mut())).await {
                Some(guard) => guard?,
                None => panic!("the end of the stream is gone ({how})"),
            };
            assert!(guard.ready().is_read_closed());
            let read = guard.try_io(|fd| fd.get_mut().read(&mut [0; 4]));
            assert_eq!(read.unwrap()?, 0);
        }
        Ok(())
    }};
}

#[test]
fn the_end_of_a_stream_is_kept_when_readiness_is_cleared() {
    on_both!(ends, ours, theirs);
}
