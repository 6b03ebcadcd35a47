//! UDP sockets: datagrams arrive whole, waiting tasks are woken, and failures are errors.

use std::{
    future::{Future, poll_fn},
    io,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    pin::pin,
    sync::Arc,
    task::Poll,
    time::Duration,
};

use futures_lite::future::block_on;
use tourbillon::{
    io::Interest,
    net::UdpSocket,
    time::{sleep, timeout},
};

use crate::common::{
    PATIENCE, alarm,
    freed::{any_port_of_its_own, until_ok},
    net::{ANY_PORT, pattern},
    on_worker,
    process::alone,
    runtime, use_up_descriptors,
};

const BRIEF: Duration = Duration::from_millis(5);

async fn bound() -> (UdpSocket, SocketAddr) {
    let socket = UdpSocket::bind(ANY_PORT).await.unwrap();
    let addr = socket.local_addr().unwrap();
    (socket, addr)
}

/// Returns two sockets that are connected to each other.
async fn pair() -> (UdpSocket, UdpSocket) {
    let ((one, one_addr), (other, other_addr)) = (bound().await, bound().await);
    one.connect(other_addr).await.unwrap();
    other.connect(one_addr).await.unwrap();
    assert_eq!(one.peer_addr().unwrap(), other_addr);
    (one, other)
}

/// Polls the future once.
async fn poll_once<F: Future + Unpin>(mut future: F) -> Poll<F::Output> {
    poll_fn(|cx| Poll::Ready(std::pin::Pin::new(&mut future).poll(cx))).await
}

#[test]
fn datagrams_arrive_whole_with_their_sender() {
    let _alarm = alarm();
    runtime(2).block_on(async {
        let ((one, one_addr), (other, other_addr)) = (bound().await, bound().await);
        let mut buf = [0; 4096];
        for i in 0..100_u8 {
            let sent = pattern(usize::from(i) * 20, i);
            assert_eq!(one.send_to(&sent, other_addr).await.unwrap(), sent.len());
            let (n, from) = other.recv_from(&mut buf).await.unwrap();
            assert_eq!((&buf[..n], from), (&sent[..], one_addr));
            other.send_to(&buf[..n], from).await.unwrap();
            let (n, from) = one.recv_from(&mut buf).await.unwrap();
            assert_eq!((&buf[..n], from), (&sent[..], other_addr));
        }
        // The part that does not fit is lost, and the next datagram is whole.
        one.send_to(b"long", other_addr).await.unwrap();
        one.send_to(b"next", other_addr).await.unwrap();
        assert_eq!(other.recv(&mut buf[..2]).await.unwrap(), 2);
        assert_eq!(other.recv(&mut buf).await.unwrap(), 4);
        assert_eq!(&buf[..4], b"next");
    });
}

#[test]
fn a_connected_socket_sends_and_receives_both_ways_at_once() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let (one, other) = runtime.block_on(pair());
    let ends = [(Arc::new(one), 1), (Arc::new(other), 2)];
    let tasks: Vec<_> = ends
        .into_iter()
        .flat_map(|(socket, seed)| {
            let sender = socket.clone();
            let sending = runtime.spawn(async move {
                for i in 0..200_u8 {
                    sender.send(&[seed, i]).await.unwrap();
                    // The receiver's buffer has room for a part of them only.
                    if i % 20 == 0 {
                        sleep(Duration::from_millis(1)).await;
                    }
                }
            });
            let receiving = runtime.spawn(async move {
                let mut buf = [0; 10];
                for i in 0..200_u8 {
                    assert_eq!(socket.recv(&mut buf).await.unwrap(), 2);
                    assert_eq!(buf[..2], [3 - seed, i]);
                }
            });
            [sending, receiving]
        })
        .collect();
    for task in tasks {
        runtime.block_on(timeout(PATIENCE, task)).unwrap().unwrap();
    }
}

#[test]
fn a_peeked_datagram_can_still_be_received() {
    let _alarm = alarm();
    runtime(1).block_on(async {
        let ((one, one_addr), (other, other_addr)) = (bound().await, bound().await);
        let mut buf = [0; 10];
        assert_eq!(
            other.try_peek(&mut buf).unwrap_err().kind(),
            io::ErrorKind::WouldBlock
        );
        one.send_to(b"hello", other_addr).await.unwrap();
        assert_eq!(other.peek_sender().await.unwrap(), one_addr);
        assert_eq!(other.peek(&mut buf).await.unwrap(), 5);
        assert_eq!(other.peek_from(&mut buf).await.unwrap(), (5, one_addr));
        assert_eq!(other.try_peek_from(&mut buf).unwrap(), (5, one_addr));
        assert_eq!(other.try_peek_sender().unwrap(), one_addr);
        assert_eq!(
            poll_fn(|cx| other.poll_peek(cx, &mut buf)).await.unwrap(),
            5
        );
        assert_eq!(other.recv_from(&mut buf).await.unwrap(), (5, one_addr));
        assert!(timeout(BRIEF, other.peek_from(&mut buf)).await.is_err());
    });
}

#[test]
fn try_methods_do_not_wait_and_readiness_does() {
    let _alarm = alarm();
    runtime(2).block_on(async {
        let ((one, one_addr), (other, other_addr)) = (bound().await, bound().await);
        let mut buf = [0; 10];
        let error = other.try_recv(&mut buf).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        assert!(timeout(BRIEF, other.readable()).await.is_err());
        // A fresh socket can be tried at once.
        assert_eq!(one.try_send_to(b"a", other_addr).unwrap(), 1);
        timeout(PATIENCE, other.readable()).await.unwrap().unwrap();
        assert_eq!(other.try_recv_from(&mut buf).unwrap(), (1, one_addr));
        assert!(other.try_recv(&mut buf).is_err());
        assert!(timeout(BRIEF, other.readable()).await.is_err());

        timeout(PATIENCE, one.writable()).await.unwrap().unwrap();
        let both = Interest::READABLE | Interest::WRITABLE;
        let ready = timeout(PATIENCE, other.ready(both)).await.unwrap().unwrap();
        assert!(ready.is_writable() && !ready.is_readable() && !ready.is_read_closed());
        one.connect(other_addr).await.unwrap();
        one.try_send(b"b").unwrap();
        poll_fn(|cx| other.poll_recv_ready(cx)).await.unwrap();
        poll_fn(|cx| other.poll_send_ready(cx)).await.unwrap();
        assert_eq!(other.try_recv(&mut buf).unwrap(), 1);
        // User operations in `try_io` and `async_io` use the same readiness.
        let blocked: io::Result<()> =
            one.try_io(Interest::READABLE, || Err(io::ErrorKind::WouldBlock.into()));
        assert!(blocked.is_err());
        other.send_to(b"c", one_addr).await.unwrap();
        let socket = socket2::SockRef::from(&one);
        let mut room = [std::mem::MaybeUninit::uninit(); 10];
        let read = one.async_io(Interest::READABLE, || socket.recv(&mut room));
        assert_eq!(timeout(PATIENCE, read).await.unwrap().unwrap(), 1);
    });
}

#[test]
fn poll_methods_wait_and_complete() {
    let _alarm = alarm();
    runtime(1).block_on(async {
        let ((one, one_addr), (other, other_addr)) = (bound().await, bound().await);
        let mut buf = [0; 10];
        let receiving = poll_fn(|cx| Poll::Ready(other.poll_recv_from(cx, &mut buf)));
        assert!(receiving.await.is_pending());
        poll_fn(|cx| one.poll_send_to(cx, b"a", other_addr))
            .await
            .unwrap();
        let got = poll_fn(|cx| other.poll_recv_from(cx, &mut buf)).await;
        assert_eq!(got.unwrap(), (1, one_addr));
        one.connect(other_addr).await.unwrap();
        poll_fn(|cx| one.poll_send(cx, b"bc")).await.unwrap();
        let got = poll_fn(|cx| other.poll_recv(cx, &mut buf)).await;
        assert_eq!(got.unwrap(), 2);
    });
}

#[test]
fn a_dropped_wait_consumes_nothing() {
    let _alarm = alarm();
    runtime(2).block_on(async {
        let (one, other) = pair().await;
        for i in 0..50_u8 {
            let mut lost = [0; 4];
            {
                let mut receiving = pin!(other.recv(&mut lost));
                assert!(poll_once(receiving.as_mut()).await.is_pending());
                one.send(&[i]).await.unwrap();
                // The future may be woken, but it is dropped without another poll.
            }
            let mut buf = [0; 4];
            let n = timeout(PATIENCE, other.recv(&mut buf)).await.unwrap();
            assert_eq!((n.unwrap(), buf[0]), (1, i));
            assert!(timeout(BRIEF / 10, other.recv(&mut buf)).await.is_err());
        }
    });
}

#[test]
fn each_datagram_goes_to_one_waiting_task() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let (one, other) = runtime.block_on(pair());
    let other = Arc::new(other);
    let waiting: Vec<_> = (0..10)
        .map(|_| {
            let other = other.clone();
            runtime.spawn(async move {
                let mut buf = [0; 4];
                other.recv(&mut buf).await.unwrap();
                buf[0]
            })
        })
        .collect();
    runtime.block_on(async {
        // Another task gives up, which takes no datagram from these tasks.
        assert!(timeout(BRIEF, other.recv(&mut [0; 4])).await.is_err());
        for i in 0..10 {
            one.send(&[i]).await.unwrap();
        }
        let mut got = Vec::new();
        for task in waiting {
            got.push(timeout(PATIENCE, task).await.unwrap().unwrap());
        }
        got.sort_unstable();
        assert_eq!(got, (0..10).collect::<Vec<_>>());
    });
}

#[test]
fn a_connected_sender_learns_that_nobody_receives() {
    let _alarm = alarm();
    runtime(2).block_on(async {
        let one = Arc::new(bound().await.0);
        let other = UdpSocket::bind(any_port_of_its_own()).await.unwrap();
        let addr = other.local_addr().unwrap();
        one.connect(addr).await.unwrap();
        let waiting = tourbillon::spawn({
            let one = one.clone();
            async move { one.recv(&mut [0; 4]).await.unwrap_err().kind() }
        });
        sleep(BRIEF).await;
        drop(other);
        // A copy of the socket, in a child process that another test starts, receives for a while.
        let refused = async {
            while !waiting.is_finished() {
                one.send(b"anybody?").await.unwrap();
                sleep(BRIEF).await;
            }
        };
        timeout(PATIENCE, refused).await.unwrap();
        let kind = waiting.await.unwrap();
        assert_eq!(kind, io::ErrorKind::ConnectionRefused);
        // The error is reported once, and the socket goes on.
        assert!(one.take_error().unwrap().is_none());
        let again = until_ok(async || UdpSocket::bind(addr).await).await;
        one.send(b"you!").await.unwrap();
        let received = timeout(PATIENCE, again.recv(&mut [0; 4])).await;
        assert_eq!(received.unwrap().unwrap(), 4);
    });
}

#[test]
fn bind_takes_the_first_address_that_works() {
    let _alarm = alarm();
    runtime(1).block_on(async {
        let (_socket, taken) = bound().await;
        let error = UdpSocket::bind(taken).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        let addrs = [taken, ANY_PORT.into()];
        let socket = UdpSocket::bind(&addrs[..]).await.unwrap();
        assert_ne!(socket.local_addr().unwrap(), taken);
        let none: &[SocketAddr] = &[];
        for error in [
            UdpSocket::bind(none).await.unwrap_err(),
            socket.connect(none).await.unwrap_err(),
            socket.send_to(b"", none).await.unwrap_err(),
        ] {
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        }
        let error = socket.peer_addr().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotConnected);
        assert!(socket.send(b"to nobody").await.is_err());
    });
}

#[test]
fn options_can_be_set_and_read_back() {
    let _alarm = alarm();
    runtime(1).block_on(async {
        let (socket, _) = bound().await;
        socket.set_broadcast(true).unwrap();
        assert!(socket.broadcast().unwrap());
        socket.set_ttl(7).unwrap();
        assert_eq!(socket.ttl().unwrap(), 7);
        socket.set_multicast_loop_v4(false).unwrap();
        assert!(!socket.multicast_loop_v4().unwrap());
        socket.set_multicast_ttl_v4(3).unwrap();
        assert_eq!(socket.multicast_ttl_v4().unwrap(), 3);
        let group = Ipv4Addr::new(239, 255, 77, 77);
        socket
            .join_multicast_v4(group, Ipv4Addr::LOCALHOST)
            .unwrap();
        let again = socket.join_multicast_v4(group, Ipv4Addr::LOCALHOST);
        assert_eq!(again.unwrap_err().kind(), io::ErrorKind::AddrInUse);
        socket
            .leave_multicast_v4(group, Ipv4Addr::LOCALHOST)
            .unwrap();
        // Skip the rest on a machine without IPv6.
        if let Ok(socket) = UdpSocket::bind((Ipv6Addr::LOCALHOST, 0)).await {
            socket.set_multicast_loop_v6(false).unwrap();
            assert!(!socket.multicast_loop_v6().unwrap());
        }
    });
}

#[test]
fn sockets_convert_from_and_to_the_standard_library() {
    let _alarm = alarm();
    runtime(1).block_on(async {
        let theirs = std::net::UdpSocket::bind(ANY_PORT).unwrap();
        let addr = theirs.local_addr().unwrap();
        let ours = UdpSocket::from_std(theirs).unwrap();
        assert!(timeout(BRIEF, ours.recv(&mut [0])).await.is_err());
        let theirs = ours.into_std().unwrap();
        let error = theirs.recv(&mut [0]).unwrap_err();
        assert_eq!(
            error.kind(),
            io::ErrorKind::WouldBlock,
            "still non-blocking"
        );
        let ours = UdpSocket::try_from(theirs).unwrap();
        bound().await.0.send_to(b"x", addr).await.unwrap();
        let received = timeout(PATIENCE, ours.recv(&mut [0])).await;
        assert_eq!(received.unwrap().unwrap(), 1);
    });
}

#[test]
fn sockets_work_on_any_worker_and_in_callbacks() {
    let _alarm = alarm();
    let runtime = runtime(2);
    // A callback creates the first socket, and a task of another runtime uses it. `block_on` uses
    // the second socket.
    let (one, one_addr) = on_worker(&runtime, || block_on(bound()));
    let away = crate::common::runtime(1);
    let (other, other_addr) = away.block_on(bound());
    let echo = away.spawn(async move {
        let mut buf = [0; 4];
        let (n, from) = one.recv_from(&mut buf).await.unwrap();
        one.send_to(&buf[..n], from).await.unwrap();
        // A task that waits in another runtime gets an error when the runtime that watches the
        // socket ends.
        one.recv(&mut buf).await
    });
    runtime.block_on(async {
        other.send_to(b"hi", one_addr).await.unwrap();
        let (n, from) = other.recv_from(&mut [0; 4]).await.unwrap();
        assert_eq!((n, from), (2, one_addr));
    });
    assert!(!echo.is_finished());
    drop(runtime);
    let error = away.block_on(timeout(PATIENCE, echo)).unwrap().unwrap();
    assert!(error.unwrap_err().to_string().contains("shut down"));
    assert_ne!(one_addr, other_addr);
}

#[test]
fn sockets_without_a_running_runtime_are_errors() {
    let _alarm = alarm();
    let error = block_on(UdpSocket::bind(ANY_PORT)).unwrap_err();
    assert!(error.to_string().contains("in no Tourbillon runtime"));
    let theirs = std::net::UdpSocket::bind(ANY_PORT).unwrap();
    assert!(UdpSocket::from_std(theirs).is_err());

    let runtime = runtime(1);
    let (socket, addr) = runtime.block_on(bound());
    drop(runtime);
    let mut buf = [0; 4];
    for error in [
        block_on(socket.recv(&mut buf)).unwrap_err(),
        block_on(socket.readable()).unwrap_err(),
        block_on(socket.send_to(b"x", addr)).unwrap_err(),
        socket.try_recv(&mut buf).unwrap_err(),
        socket.try_send_to(b"x", addr).unwrap_err(),
    ] {
        assert!(error.to_string().contains("shut down"), "{error}");
    }
    // The socket of the system still works.
    socket.into_std().unwrap().send_to(b"x", addr).unwrap();
}

#[test]
fn without_descriptors_bind_fails_and_open_sockets_work() {
    alone(|| {
        let runtime = runtime(1);
        runtime.block_on(async {
            let (one, other) = pair().await;
            let files = use_up_descriptors();
            let error = UdpSocket::bind(ANY_PORT).await.unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::EMFILE));
            one.send(b"x").await.unwrap();
            assert_eq!(other.recv(&mut [0; 4]).await.unwrap(), 1);
            drop(files);
            bound().await;
        });
    });
}
