//! Datagrams of Unix sockets: by paths, by abstract names and in pairs.

use std::{
    future::{Future, poll_fn},
    io,
    net::Shutdown,
    pin::pin,
    task::Poll,
    time::Duration,
};

use futures_lite::{AsyncReadExt, AsyncWriteExt};
use tourbillon::{
    net::{UnixDatagram, UnixStream},
    time::{sleep, timeout},
};

use crate::common::{
    PATIENCE, alarm, runtime,
    unix::{Dir, abstract_addr},
};

const BRIEF: Duration = Duration::from_millis(5);

#[test]
fn datagrams_arrive_by_path_by_name_and_in_pairs() {
    let _alarm = alarm();
    let dir = Dir::new();
    runtime(2).block_on(async {
        let (server_path, client_path) = (dir.path("server"), dir.path("client"));
        let server = UnixDatagram::bind(&server_path).unwrap();
        let client = UnixDatagram::bind(&client_path).unwrap();
        let mut buf = [0; 100];
        client.send_to(b"by path", &server_path).await.unwrap();
        let (n, from) = server.recv_from(&mut buf).await.unwrap();
        assert_eq!(
            (&buf[..n], from.as_pathname()),
            (&b"by path"[..], Some(&*client_path))
        );
        client.connect(&server_path).unwrap();
        assert_eq!(
            client.peer_addr().unwrap().as_pathname(),
            Some(&*server_path)
        );
        client.send(b"connected").await.unwrap();
        assert_eq!(server.recv(&mut buf).await.unwrap(), 9);
        assert_eq!(server.try_send_to(b"back", &client_path).unwrap(), 4);
        assert_eq!(client.recv(&mut buf).await.unwrap(), 4);

        let addr = abstract_addr();
        let server = UnixDatagram::bind_addr(&addr).unwrap();
        let client = UnixDatagram::unbound().unwrap();
        client.send_to_addr(b"by name", &addr).await.unwrap();
        let (n, from) = poll_fn(|cx| server.poll_recv_from(cx, &mut buf))
            .await
            .unwrap();
        assert!(n == 7 && from.is_unnamed());
        client.connect_addr(&addr).unwrap();
        assert_eq!(client.try_send(b"x").unwrap(), 1);
        assert_eq!(server.recv(&mut buf).await.unwrap(), 1);

        let (one, other) = UnixDatagram::pair().unwrap();
        for i in 0..100_u8 {
            one.send(&[i; 3]).await.unwrap();
            assert_eq!(other.recv(&mut buf).await.unwrap(), 3);
            assert_eq!(buf[0], i);
        }
        other.shutdown(Shutdown::Read).unwrap();
        assert!(one.send(b"x").await.is_err());
        // epoll now reports readiness although there is no data. A receive must still be able to
        // time out.
        let waiting = other.recv(&mut buf);
        assert!(timeout(BRIEF, waiting).await.is_err());
        let gone = UnixDatagram::unbound().unwrap();
        let error = gone.send_to(b"x", dir.path("nobody")).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    });
}

#[test]
fn a_sender_waits_for_room_and_is_woken() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let (one, other) = runtime.block_on(async { UnixDatagram::pair().unwrap() });
    let sending = runtime.spawn(async move {
        for i in 0..5_000_u32 {
            one.send(&i.to_ne_bytes()).await.unwrap();
        }
    });
    runtime.block_on(async {
        sleep(BRIEF).await;
        assert!(!sending.is_finished(), "the queue has room for a part");
        for i in 0..5_000_u32 {
            let mut buf = [0; 8];
            let received = timeout(PATIENCE, other.recv(&mut buf)).await.unwrap();
            assert_eq!(received.unwrap(), 4);
            assert_eq!(buf[..4], i.to_ne_bytes());
        }
        sending.await.unwrap();
    });
}

#[test]
fn all_senders_to_one_receiver_are_woken_when_there_is_room() {
    let _alarm = alarm();
    const EACH: usize = 500;
    let runtime = runtime(2);
    let addr = abstract_addr();
    let (receiver, senders) = runtime.block_on(async {
        let receiver = UnixDatagram::bind_addr(&addr).unwrap();
        let senders: Vec<_> = (0..4)
            .map(|_| {
                let sender = UnixDatagram::unbound().unwrap();
                sender.connect_addr(&addr).unwrap();
                tourbillon::spawn(async move {
                    // The queue may also be full of datagrams of the other senders.
                    for _ in 0..EACH {
                        sender.send(b"x").await.unwrap();
                    }
                })
            })
            .collect();
        (receiver, senders)
    });
    runtime.block_on(async {
        sleep(BRIEF).await;
        for _ in 0..4 * EACH {
            let received = timeout(PATIENCE, receiver.recv(&mut [0; 4])).await;
            assert_eq!(received.unwrap().unwrap(), 1);
        }
        for sender in senders {
            timeout(PATIENCE, sender).await.unwrap().unwrap();
        }
    });
}

#[test]
fn dropped_waits_consume_nothing() {
    let _alarm = alarm();
    runtime(2).block_on(async {
        let (one, other) = UnixDatagram::pair().unwrap();
        let (mut near, mut far) = UnixStream::pair().unwrap();
        for i in 0..50_u8 {
            let (mut a, mut b) = ([0; 4], [0; 1]);
            {
                let mut receiving = pin!(other.recv(&mut a));
                let mut reading = pin!(far.read_exact(&mut b));
                poll_fn(|cx| {
                    assert!(receiving.as_mut().poll(cx).is_pending());
                    assert!(reading.as_mut().poll(cx).is_pending());
                    Poll::Ready(())
                })
                .await;
                one.send(&[i]).await.unwrap();
                near.write_all(&[i]).await.unwrap();
            }
            let n = timeout(PATIENCE, other.recv(&mut a)).await.unwrap();
            assert_eq!((n.unwrap(), a[0]), (1, i));
            timeout(PATIENCE, far.read_exact(&mut b))
                .await
                .unwrap()
                .unwrap();
            assert_eq!(b[0], i);
        }
    });
}
