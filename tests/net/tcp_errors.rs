//! TCP sockets that fail: pending and later operations return the error, and none hangs.

use std::{
    io::{self, Read},
    net::SocketAddr,
    time::Duration,
};

use futures_lite::{AsyncReadExt, AsyncWriteExt, future::zip};
use socket2::SockRef;
use tourbillon::{
    net::{TcpListener, TcpStream},
    time::{sleep, timeout},
};

use crate::common::{
    PATIENCE, alarm,
    freed::nobody,
    net::{ANY_PORT, listen, pair_with_std},
    process::alone,
    runtime, use_up_descriptors,
};

#[test]
fn a_refused_connection_is_an_error() {
    let _alarm = alarm();
    let runtime = runtime(1);
    let addr = nobody();
    runtime.block_on(async {
        let error = TcpStream::connect(addr).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
        // `connect` tries the next address.
        let (listener, good) = listen().await;
        let addrs = [addr, good];
        let stream = TcpStream::connect(&addrs[..]).await.unwrap();
        assert_eq!(stream.peer_addr().unwrap(), good);
        drop(listener);
        let none: &[SocketAddr] = &[];
        let error = TcpStream::connect(none).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    });
}

#[test]
fn an_address_in_use_is_an_error() {
    let _alarm = alarm();
    let runtime = runtime(1);
    runtime.block_on(async {
        let (_listener, addr) = listen().await;
        let error = TcpListener::bind(addr).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    });
}

#[test]
fn sockets_outside_a_runtime_are_errors() {
    let error = futures_lite::future::block_on(TcpListener::bind(ANY_PORT)).unwrap_err();
    assert!(error.to_string().contains("in no Tourbillon runtime"));
    let listener = std::net::TcpListener::bind(ANY_PORT).unwrap();
    let addr = listener.local_addr().unwrap();
    assert!(TcpListener::from_std(listener.try_clone().unwrap()).is_err());
    let error = futures_lite::future::block_on(TcpStream::connect(addr)).unwrap_err();
    assert!(error.to_string().contains("in no Tourbillon runtime"));
}

#[test]
fn a_reset_fails_pending_and_later_operations() {
    let _alarm = alarm();
    let runtime = runtime(2);
    runtime.block_on(async {
        let (stream, peer) = pair_with_std().await;
        let (mut read, mut write) = stream.into_split();
        let reading = tourbillon::spawn(async move {
            let error = read.read(&mut [0]).await.unwrap_err();
            // The error is reported once; after that comes the end.
            let again = read.read(&mut [0]).await;
            (error.kind(), again.is_err() || again.is_ok_and(|n| n == 0))
        });
        sleep(Duration::from_millis(2)).await;
        // With no time to linger a close is a reset.
        SockRef::from(&peer)
            .set_linger(Some(Duration::ZERO))
            .unwrap();
        drop(peer);
        let answer = reading.await.unwrap();
        assert_eq!(answer, (io::ErrorKind::ConnectionReset, true));
        assert!(write.write(b"x").await.is_err());
    });
}

#[test]
fn a_reset_fails_a_write_that_waits_for_room() {
    let _alarm = alarm();
    let runtime = runtime(2);
    runtime.block_on(async {
        let (mut stream, peer) = pair_with_std().await;
        let writing = tourbillon::spawn(async move {
            loop {
                if let Err(error) = stream.write(&[1; 64 << 10]).await {
                    return error.kind();
                }
            }
        });
        sleep(Duration::from_millis(20)).await;
        assert!(!writing.is_finished(), "there is no room, and nobody reads");
        SockRef::from(&peer)
            .set_linger(Some(Duration::ZERO))
            .unwrap();
        drop(peer);
        let kind = writing.await.unwrap();
        assert!(matches!(
            kind,
            io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe
        ));
    });
}

#[test]
fn a_closed_peer_ends_a_read_that_waits() {
    let _alarm = alarm();
    let runtime = runtime(2);
    runtime.block_on(async {
        let (mut stream, peer) = pair_with_std().await;
        let reading = tourbillon::spawn(async move { stream.read(&mut [0; 16]).await });
        sleep(Duration::from_millis(2)).await;
        drop(peer);
        assert_eq!(reading.await.unwrap().unwrap(), 0);
    });
}

#[test]
fn without_descriptors_operations_fail_and_later_recover() {
    alone(|| {
        let runtime = runtime(1);
        runtime.block_on(async {
            let (listener, addr) = listen().await;
            let mut client = std::net::TcpStream::connect(addr).unwrap();
            let used_up = use_up_descriptors();
            for _ in 0..3 {
                // Each call fails without waiting, since the connection is still queued.
                let error = timeout(PATIENCE, listener.accept()).await.unwrap();
                assert_eq!(error.unwrap_err().raw_os_error(), Some(libc::EMFILE));
            }
            let error = timeout(PATIENCE, TcpStream::connect(addr)).await.unwrap();
            assert_eq!(error.unwrap_err().raw_os_error(), Some(libc::EMFILE));
            let error = timeout(PATIENCE, TcpListener::bind(ANY_PORT))
                .await
                .unwrap();
            assert_eq!(error.unwrap_err().raw_os_error(), Some(libc::EMFILE));
            drop(used_up);
            let accepted = timeout(PATIENCE, listener.accept()).await.unwrap();
            let (mut server, peer) = accepted.unwrap();
            assert_eq!(peer, client.local_addr().unwrap());
            server.write_all(b"late").await.unwrap();
            let mut received = [0; 4];
            client.read_exact(&mut received).unwrap();
            assert_eq!(&received, b"late");
            let (_a, _b) = zip(TcpStream::connect(addr), listener.accept()).await;
        });
    });
}

/// tokio's streams behave like this, and hyper shuts each connection down at its end.
#[test]
fn closing_a_connection_after_a_reset_succeeds() {
    let _alarm = alarm();
    runtime(2).block_on(async {
        let (mut ours, theirs) = pair_with_std().await;
        SockRef::from(&theirs)
            .set_linger(Some(Duration::ZERO))
            .unwrap();
        drop(theirs);
        let error = ours.read(&mut [0; 1]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
        ours.close().await.unwrap();
        assert!(ours.write_all(b"x").await.is_err());
    });
}
