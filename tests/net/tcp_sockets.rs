//! TCP sockets beyond the traits of futures-io: readiness, `try_` methods, options, socket
//! builders, and connect timeouts.

use std::{
    future::{Future, poll_fn},
    io::{self, IoSlice, IoSliceMut},
    net::{Ipv6Addr, SocketAddr},
    pin::pin,
    sync::Arc,
    task::Poll,
    time::{Duration, Instant},
};

use futures_lite::{AsyncReadExt, AsyncWriteExt, future::block_on};
use socket2::SockRef;
use tourbillon::{
    io::Interest,
    net::{TcpListener, TcpSocket, TcpStream},
    time::{sleep, timeout},
};

use crate::common::{
    PATIENCE, alarm,
    freed::until_err,
    net::{ANY_PORT, listen, pair, pair_with_std},
    runtime,
};

const BRIEF: Duration = Duration::from_millis(5);

#[test]
fn peeked_data_stays_readable() {
    let _alarm = alarm();
    runtime(2).block_on(async {
        let (mut client, mut server) = pair().await;
        let mut buf = [0; 10];
        {
            let mut dropped = pin!(server.peek(&mut buf));
            poll_fn(|cx| {
                assert!(dropped.as_mut().poll(cx).is_pending());
                Poll::Ready(())
            })
            .await;
        }
        client.write_all(b"hello").await.unwrap();
        let peeked = timeout(PATIENCE, server.peek(&mut buf[..2])).await;
        assert_eq!(peeked.unwrap().unwrap(), 2);
        let peeked = poll_fn(|cx| server.poll_peek(cx, &mut buf)).await;
        assert_eq!(peeked.unwrap(), 5);
        server.read_exact(&mut buf[..5]).await.unwrap();
        assert_eq!(&buf[..5], b"hello");
        assert!(timeout(BRIEF, server.peek(&mut buf)).await.is_err());
        client.close().await.unwrap();
        assert_eq!(server.peek(&mut buf).await.unwrap(), 0, "the end");
    });
}

/// Reads from an accepted stream without data until it counts as not readable.
///
/// An event that comes during an attempt leaves the stream readable. The only event here says that
/// there is room to write.
async fn drain(stream: &TcpStream) {
    for attempt in 1.. {
        let nothing = stream.try_read(&mut [0]).unwrap_err();
        assert_eq!(nothing.kind(), io::ErrorKind::WouldBlock);
        if timeout(BRIEF, stream.readable()).await.is_err() {
            return;
        }
        assert!(attempt < 3, "each attempt finds the stream readable");
    }
}

#[test]
fn try_methods_do_not_wait_and_readiness_does() {
    let _alarm = alarm();
    runtime(2).block_on(async {
        let (client, server) = pair().await;
        let mut buf = [0; 10];
        drain(&server).await;
        let bufs = [IoSlice::new(b"ab"), IoSlice::new(b"cd")];
        assert_eq!(client.try_write_vectored(&bufs).unwrap(), 4);
        timeout(PATIENCE, server.readable()).await.unwrap().unwrap();
        let (mut a, mut b) = ([0; 3], [0; 3]);
        let mut bufs = [IoSliceMut::new(&mut a), IoSliceMut::new(&mut b)];
        assert_eq!(server.try_read_vectored(&mut bufs).unwrap(), 4);
        assert_eq!((&a, &b), (b"abc", b"d\0\0"));
        let both = Interest::READABLE | Interest::WRITABLE;
        let ready = timeout(PATIENCE, client.ready(both))
            .await
            .unwrap()
            .unwrap();
        assert!(ready.is_writable() && !ready.is_write_closed());
        poll_fn(|cx| client.poll_write_ready(cx)).await.unwrap();
        // The halves have the same methods.
        let ((read, write), (server_read, _write)) = (client.into_split(), server.into_split());
        write.writable().await.unwrap();
        assert_eq!(write.try_write(b"x").unwrap(), 1);
        timeout(PATIENCE, server_read.readable())
            .await
            .unwrap()
            .unwrap();
        assert_eq!(server_read.try_read(&mut buf).unwrap(), 1);
        assert!(read.try_read(&mut buf).is_err());
    });
}

#[test]
fn a_writer_with_full_buffers_waits_until_the_peer_reads() {
    let _alarm = alarm();
    runtime(2).block_on(async {
        let (client, server) = pair().await;
        // Fill the buffers until they stay full after all data under way has arrived.
        while timeout(10 * BRIEF, client.writable()).await.is_ok() {
            while client.try_write(&[7; 4096]).is_ok() {}
        }
        let client = Arc::new(client);
        let waiting: Vec<_> = (0..3)
            .map(|_| {
                let client = client.clone();
                tourbillon::spawn(async move { client.writable().await })
            })
            .collect();
        let mut room = vec![0; 1 << 20];
        let reading = async {
            loop {
                server.readable().await.unwrap();
                while server.try_read(&mut room).is_ok() {}
                if waiting.iter().all(|task| task.is_finished()) {
                    break;
                }
                sleep(BRIEF / 5).await;
            }
        };
        let poke = async {
            // The reader above may have read all data and wait for more, so send one more byte.
            while !waiting.iter().all(|task| task.is_finished()) {
                sleep(BRIEF).await;
            }
            let _ = client.try_write(b"x");
        };
        let all = futures_lite::future::zip(reading, poke);
        timeout(PATIENCE, all).await.unwrap();
    });
}

#[test]
fn readiness_reports_a_closed_peer() {
    let _alarm = alarm();
    runtime(2).block_on(async {
        let (stream, peer) = pair_with_std().await;
        drain(&stream).await;
        let waiting = tourbillon::spawn(async move {
            let ready = stream.ready(Interest::READABLE).await.unwrap();
            (ready, stream)
        });
        sleep(BRIEF).await;
        peer.shutdown(std::net::Shutdown::Write).unwrap();
        let (ready, stream) = timeout(PATIENCE, waiting).await.unwrap().unwrap();
        assert!(ready.is_readable() && ready.is_read_closed() && !ready.is_writable());
        assert_eq!(stream.try_read(&mut [0]).unwrap(), 0);
        assert_eq!(stream.try_write(b"goes on").unwrap(), 7);
        SockRef::from(&peer)
            .set_linger(Some(Duration::ZERO))
            .unwrap();
        drop(peer);
        let closed = async {
            while !stream
                .ready(Interest::WRITABLE)
                .await
                .unwrap()
                .is_write_closed()
            {
                sleep(BRIEF).await;
            }
        };
        timeout(PATIENCE, closed).await.unwrap();
    });
}

#[test]
fn options_can_be_set_and_read_back() {
    let _alarm = alarm();
    runtime(1).block_on(async {
        let (client, mut server) = pair().await;
        client.set_ttl(9).unwrap();
        assert_eq!(client.ttl().unwrap(), 9);
        assert_eq!(client.linger().unwrap(), None);
        client.set_linger(Some(Duration::from_secs(3))).unwrap();
        assert_eq!(client.linger().unwrap(), Some(Duration::from_secs(3)));
        // With no time to linger a close is a reset.
        client.set_zero_linger().unwrap();
        drop(client);
        let error = timeout(PATIENCE, server.read(&mut [0])).await.unwrap();
        assert_eq!(error.unwrap_err().kind(), io::ErrorKind::ConnectionReset);

        let (listener, _) = listen().await;
        listener.set_ttl(11).unwrap();
        assert_eq!(listener.ttl().unwrap(), 11);
        assert!(listener.take_error().unwrap().is_none());
    });
}

#[test]
fn a_socket_is_built_bound_and_connected() {
    let _alarm = alarm();
    runtime(2).block_on(async {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_reuseaddr(true).unwrap();
        socket.set_reuseport(true).unwrap();
        socket.set_keepalive(true).unwrap();
        socket.set_nodelay(true).unwrap();
        socket.set_linger(None).unwrap();
        socket.set_recv_buffer_size(50_000).unwrap();
        socket.set_send_buffer_size(50_000).unwrap();
        assert!(socket.reuseaddr().unwrap() && socket.reuseport().unwrap());
        assert!(socket.keepalive().unwrap() && socket.nodelay().unwrap());
        assert!(socket.recv_buffer_size().unwrap() >= 50_000);
        assert!(socket.send_buffer_size().unwrap() >= 50_000);
        assert_eq!(socket.linger().unwrap(), None);
        socket.bind(ANY_PORT.into()).unwrap();
        let addr = socket.local_addr().unwrap();
        let listener = socket.listen(100).unwrap();
        assert_eq!(listener.local_addr().unwrap(), addr);
        // A second listener can share the address, as with one listener for each worker.
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_reuseport(true).unwrap();
        socket.bind(addr).unwrap();
        drop(socket.listen(100).unwrap());

        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(ANY_PORT.into()).unwrap();
        let from = socket.local_addr().unwrap();
        let mut client = socket.connect(addr).await.unwrap();
        let (mut server, peer) = timeout(PATIENCE, listener.accept()).await.unwrap().unwrap();
        assert_eq!((peer, client.peer_addr().unwrap()), (from, addr));
        client.write_all(b"x").await.unwrap();
        server.read_exact(&mut [0]).await.unwrap();

        drop(listener);
        let error = until_err(async || TcpSocket::new_v4()?.connect(addr).await).await;
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
        // Skip the rest on a machine without IPv6.
        let socket = TcpSocket::new_v6();
        if let Ok(socket) = socket {
            if socket.bind((Ipv6Addr::LOCALHOST, 0).into()).is_ok() {
                assert!(socket.listen(1).unwrap().local_addr().unwrap().is_ipv6());
            }
        }
    });
}

/// Returns a listener with a full queue, and the queued connections. It ignores further connects.
async fn full() -> (TcpListener, SocketAddr, Vec<TcpStream>) {
    let (listener, addr) = listen().await;
    SockRef::from(&listener).listen(0).unwrap();
    let mut queued = Vec::new();
    while let Ok(connected) = timeout(80 * BRIEF, TcpStream::connect(addr)).await {
        queued.push(connected.unwrap());
        assert!(queued.len() < 10);
    }
    (listener, addr, queued)
}

#[test]
fn connect_timeout_gives_up_on_a_slow_connection() {
    let _alarm = alarm();
    runtime(2).block_on(async {
        let (_listener, addr, _queued) = full().await;
        let start = Instant::now();
        let error = TcpStream::connect_timeout(addr, 10 * BRIEF).await;
        assert_eq!(error.unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert!(start.elapsed() >= 10 * BRIEF && start.elapsed() < PATIENCE);
        // The timeout counts for all addresses together.
        let addrs = [addr; 3];
        let error = TcpStream::connect_timeout(&addrs[..], 10 * BRIEF).await;
        assert_eq!(error.unwrap_err().kind(), io::ErrorKind::TimedOut);

        let (listener, addr) = listen().await;
        let stream = TcpStream::connect_timeout(addr, PATIENCE).await.unwrap();
        assert_eq!(stream.peer_addr().unwrap(), addr);
        drop((listener, stream));
        let error = until_err(async || TcpStream::connect_timeout(addr, PATIENCE).await).await;
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
    });
}

#[test]
fn sockets_without_a_running_runtime_are_errors() {
    let _alarm = alarm();
    let theirs = std::net::TcpListener::bind(ANY_PORT).unwrap();
    let addr = theirs.local_addr().unwrap();
    let socket = || TcpSocket::new_v4().expect("it needs no runtime");
    let bound = socket();
    bound.bind(ANY_PORT.into()).unwrap();
    for error in [
        block_on(TcpStream::connect_timeout(addr, PATIENCE)).unwrap_err(),
        block_on(socket().connect(addr)).unwrap_err(),
        bound.listen(1).unwrap_err(),
    ] {
        assert!(error.to_string().contains("in no Tourbillon runtime"));
    }
    let runtime = runtime(1);
    let (client, _server) = runtime.block_on(pair());
    let (listener, _) = runtime.block_on(listen());
    drop(runtime);
    for error in [
        block_on(client.readable()).unwrap_err(),
        block_on(client.writable()).unwrap_err(),
        block_on(client.peek(&mut [0])).unwrap_err(),
        client.try_read(&mut [0]).unwrap_err(),
        client.try_write(&[0]).unwrap_err(),
        block_on(listener.accept()).unwrap_err(),
    ] {
        assert!(error.to_string().contains("shut down"), "{error}");
    }
}
