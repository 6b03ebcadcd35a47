//! Buffers of tokio's: `ReadBuf` in `poll_` methods, and `BufMut` in methods that end in `_buf`.
//!
//! Each check runs the same code on our sockets and on tokio's.

use std::{future::poll_fn, io::ErrorKind::WouldBlock, mem::MaybeUninit};

use tokio::io::ReadBuf;

use crate::common::net::ANY_PORT;

/// Binds two sockets, and connects the second one to the first. Returns the sockets and their
/// addresses.
macro_rules! udp_pair {
    ($net:ident) => {{
        use $net::UdpSocket;
        let (one, other) = (
            UdpSocket::bind(ANY_PORT).await?,
            UdpSocket::bind(ANY_PORT).await?,
        );
        let (from, to) = (one.local_addr()?, other.local_addr()?);
        other.connect(from).await?;
        (one, other, from, to)
    }};
}

macro_rules! datagrams {
    ($net:ident) => {{
        let (one, other, from, to) = udp_pair!($net);

        let mut buf = Vec::with_capacity(100);
        assert_eq!(other.try_recv_buf(&mut buf).unwrap_err().kind(), WouldBlock);
        let error = other.try_recv_buf_from(&mut buf).unwrap_err();
        assert_eq!((error.kind(), buf.len()), (WouldBlock, 0));
        for sent in [&b"one"[..], b"", b"three"] {
            one.send_to(sent, to).await?;
        }
        // Each call appends to the buffer.
        assert_eq!(other.recv_buf(&mut buf).await?, 3);
        assert_eq!(other.recv_buf_from(&mut buf).await?, (0, from));
        other.readable().await?;
        assert_eq!(other.try_recv_buf_from(&mut buf)?, (5, from));
        assert_eq!(buf, b"onethree");
        // The part of a datagram that does not fit is lost.
        one.send_to(b"long", to).await?;
        one.send_to(b"next", to).await?;
        let mut few = [0; 2];
        assert_eq!(other.recv_buf(&mut &mut few[..]).await?, 2);
        other.readable().await?;
        assert_eq!(other.try_recv_buf(&mut buf)?, 4);
        assert_eq!((&few, &buf[8..]), (b"lo", &b"next"[..]));
        Ok(())
    }};
}

macro_rules! unix_datagrams {
    ($net:ident) => {{
        let (one, other) = $net::UnixDatagram::pair()?;
        let mut buf = Vec::with_capacity(100);
        assert_eq!(other.try_recv_buf(&mut buf).unwrap_err().kind(), WouldBlock);
        for sent in [b"one", b"two", b"six", b"ten"] {
            one.send(sent).await?;
        }
        assert_eq!(other.recv_buf(&mut buf).await?, 3);
        let (n, from) = other.recv_buf_from(&mut buf).await?;
        assert!(n == 3 && from.is_unnamed());
        other.readable().await?;
        assert_eq!(other.try_recv_buf(&mut buf)?, 3);
        let (n, from) = other.try_recv_buf_from(&mut buf)?;
        assert!(n == 3 && from.is_unnamed());
        assert_eq!(buf, b"onetwosixten");

        one.send(b"polled").await?;
        one.send(b"again").await?;
        let mut room = [MaybeUninit::uninit(); 20];
        let mut buf = ReadBuf::uninit(&mut room);
        let () = poll_fn(|cx| other.poll_recv(cx, &mut buf)).await?;
        let from = poll_fn(|cx| other.poll_recv_from(cx, &mut buf)).await?;
        assert!(from.is_unnamed());
        assert_eq!(buf.filled(), b"polledagain");
        Ok(())
    }};
}

macro_rules! polled_datagrams {
    ($net:ident) => {{
        let (one, other, from, to) = udp_pair!($net);
        one.send_to(b"one", to).await?;
        one.send_to(b"two", to).await?;
        let mut room = [MaybeUninit::uninit(); 20];
        let mut buf = ReadBuf::uninit(&mut room);
        let () = poll_fn(|cx| other.poll_peek(cx, &mut buf)).await?;
        assert_eq!(
            poll_fn(|cx| other.poll_peek_from(cx, &mut buf)).await?,
            from
        );
        let () = poll_fn(|cx| other.poll_recv(cx, &mut buf)).await?;
        assert_eq!(
            poll_fn(|cx| other.poll_recv_from(cx, &mut buf)).await?,
            from
        );
        assert_eq!(buf.filled(), b"oneoneonetwo");
        Ok(())
    }};
}

macro_rules! streams {
    ($net:ident) => {{
        use $net::{TcpListener, TcpStream, UnixStream};
        let listener = TcpListener::bind(ANY_PORT).await?;
        let mut one = TcpStream::connect(listener.local_addr()?).await?;
        let (other, _) = listener.accept().await?;
        let (mut a, b) = UnixStream::pair()?;

        let mut buf = Vec::with_capacity(100);
        assert_eq!(one.try_read_buf(&mut buf).unwrap_err().kind(), WouldBlock);
        assert_eq!(a.try_read_buf(&mut buf).unwrap_err().kind(), WouldBlock);
        other.writable().await?;
        b.writable().await?;
        assert_eq!((other.try_write(b"abcd")?, b.try_write(b"ABCD")?), (4, 4));

        let mut room = [0; 4];
        let mut peeked = ReadBuf::new(&mut room);
        assert_eq!(poll_fn(|cx| one.poll_peek(cx, &mut peeked)).await?, 4);
        peeked.clear();
        assert_eq!(
            poll_fn(|cx| one.split().0.poll_peek(cx, &mut peeked)).await?,
            4
        );
        assert_eq!(peeked.filled(), b"abcd");

        a.readable().await?;
        assert_eq!(one.try_read_buf(&mut &mut [0_u8; 1][..])?, 1);
        assert_eq!(a.try_read_buf(&mut &mut [0_u8; 1][..])?, 1);
        assert_eq!(one.split().0.try_read_buf(&mut &mut [0_u8; 1][..])?, 1);
        assert_eq!(a.split().0.try_read_buf(&mut &mut [0_u8; 1][..])?, 1);
        // An empty buffer takes nothing.
        assert_eq!(one.try_read_buf(&mut &mut [0_u8; 0][..])?, 0);
        let ((one, _one), (a, _a)) = (one.into_split(), a.into_split());
        assert_eq!(
            (one.try_read_buf(&mut buf)?, a.try_read_buf(&mut buf)?),
            (2, 2)
        );
        assert_eq!(buf, b"cdCD");
        drop((other, b));
        one.readable().await?;
        a.readable().await?;
        assert_eq!(
            (one.try_read_buf(&mut buf)?, a.try_read_buf(&mut buf)?),
            (0, 0)
        );
        Ok(())
    }};
}

#[test]
fn datagrams_are_received_into_growing_buffers() {
    on_both!(datagrams);
}

#[test]
fn unix_datagrams_are_received_into_growing_buffers() {
    on_both!(unix_datagrams);
}

#[test]
fn polled_datagrams_fill_a_read_buf() {
    on_both!(polled_datagrams);
}

#[test]
fn streams_are_read_and_peeked_into_growing_buffers() {
    on_both!(streams);
}
