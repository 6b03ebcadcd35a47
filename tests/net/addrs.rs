//! Addresses of sockets: which types have them, and where names are resolved.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6},
    sync::mpsc,
};

use futures_lite::future::{block_on, poll_once};
use tourbillon::{
    net::{PerCoreListeners, TcpListener, TcpStream, ToSocketAddrs, UdpSocket, lookup_host},
    runtime::Builder,
    task::spawn_blocking,
    time::timeout,
};

use crate::{
    common::{PATIENCE, alarm, net::ANY_PORT, runtime},
    on_tokio,
};

async fn lookup(addr: impl ToSocketAddrs) -> io::Result<Vec<SocketAddr>> {
    Ok(lookup_host(addr).await?.collect())
}

/// Resolves `addr` by this crate and by tokio. Checks that both find the same addresses, or the
/// same kind of error.
fn same(
    addr: impl ToSocketAddrs + tokio::net::ToSocketAddrs + Copy,
) -> io::Result<Vec<SocketAddr>> {
    let ours = runtime(1).block_on(lookup(addr));
    let theirs = on_tokio(async {
        let addrs = tokio::net::lookup_host(addr).await?;
        io::Result::Ok(addrs.collect::<Vec<_>>())
    });
    match (&ours, theirs) {
        (Ok(ours), Ok(theirs)) => assert_eq!(*ours, theirs),
        (Err(ours), Err(theirs)) => assert_eq!(ours.kind(), theirs.kind()),
        different => panic!("{different:?}"),
    }
    ours
}

#[test]
fn every_type_has_the_addresses_that_tokio_finds() {
    let _alarm = alarm();
    let (v4, v6) = (Ipv4Addr::LOCALHOST, Ipv6Addr::LOCALHOST);
    let (addr4, addr6) = (SocketAddrV4::new(v4, 80), SocketAddrV6::new(v6, 80, 1, 2));
    let all = [SocketAddr::from(addr4), SocketAddr::from(addr6)];
    assert_eq!(same(all[1]).unwrap(), all[1..]);
    assert_eq!(same(addr4).unwrap(), all[..1]);
    assert_eq!(same(addr6).unwrap(), all[1..]);
    assert_eq!(same((IpAddr::from(v4), 80)).unwrap(), all[..1]);
    assert_eq!(same((v4, 80)).unwrap(), all[..1]);
    assert_eq!(same((v6, 80)).unwrap(), [(v6, 80).into()]);
    assert_eq!(same(&all[..]).unwrap(), all);
    let by_reference = &&addr4;
    assert_eq!(same(by_reference).unwrap(), all[..1]);
    assert_eq!(same(&all[..0]).unwrap(), []);
    assert_eq!(same("127.0.0.1:80").unwrap(), all[..1]);
    assert_eq!(same("[::1%2]:80").unwrap()[0].port(), 80);
    assert_eq!(same(&"127.0.0.1:80".to_owned()).unwrap(), all[..1]);
    assert_eq!(same(("127.0.0.1", 80)).unwrap(), all[..1]);
    assert_eq!(same(("::1", 80)).unwrap(), [(v6, 80).into()]);
    assert_eq!(same(&("127.0.0.1".to_owned(), 80)).unwrap(), all[..1]);
    for found in [same("localhost:80"), same(("localhost", 80))] {
        let found = found.unwrap();
        assert!(!found.is_empty() && found.iter().all(|addr| addr.ip().is_loopback()));
    }
    for wrong in [
        "",
        "localhost",
        "localhost:",
        "localhost:65536",
        "127.0.0.1",
    ] {
        assert_eq!(same(wrong).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }
}

#[test]
fn only_names_need_a_thread_for_blocking_jobs() {
    let _alarm = alarm();
    let runtime = Builder::new()
        .worker_threads(1)
        .max_blocking_threads(1)
        .build()
        .unwrap();
    runtime.block_on(async {
        let (release, released) = mpsc::channel::<()>();
        let blocking = spawn_blocking(move || released.recv());
        // The only blocking thread is busy. Addresses do not wait for it.
        // As in tokio, a caller may name the type of the address.
        let listener = TcpListener::bind::<&str>("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let socket = UdpSocket::bind::<(&str, u16)>(("127.0.0.1", 0))
            .await
            .unwrap();
        for result in [
            poll_once(lookup(("127.0.0.1", port))).await,
            poll_once(lookup(String::from("[::1]:80"))).await,
        ] {
            assert_eq!(result.unwrap().unwrap().len(), 1);
        }
        // Names wait for the thread, and their futures do not block the worker.
        let connecting = tourbillon::spawn(TcpStream::connect::<(&str, u16)>(("localhost", port)));
        let sending = tourbillon::spawn(async move {
            socket.connect(format!("localhost:{port}")).await?;
            socket.send_to(b"x", ("localhost", port)).await
        });
        for _ in 0..100 {
            tourbillon::task::yield_now().await;
        }
        assert!(!connecting.is_finished() && !sending.is_finished());
        assert!(poll_once(lookup("localhost:80")).await.is_none());
        drop(release);
        let (_server, client) = timeout(PATIENCE, listener.accept()).await.unwrap().unwrap();
        let stream = timeout(PATIENCE, connecting)
            .await
            .unwrap()
            .unwrap()
            .unwrap();
        assert_eq!(stream.local_addr().unwrap(), client);
        let sent = timeout(PATIENCE, sending).await.unwrap().unwrap();
        assert_eq!(sent.unwrap(), 1);
        assert!(blocking.await.unwrap().is_err());
    });
}

#[test]
fn a_connection_needs_only_one_of_the_addresses_of_a_name() {
    let _alarm = alarm();
    runtime(1).block_on(async {
        // `localhost` may have an IPv6 address first, at which no socket listens.
        let listener = TcpListener::bind(ANY_PORT).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let connect = TcpStream::connect_timeout(("localhost", port), PATIENCE);
        assert!(connect.await.unwrap().peer_addr().unwrap().is_ipv4());
        let error = TcpStream::connect("localhost").await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    });
}

/// `spawn` accepts only futures that are `Send`. The test only has to compile.
#[test]
fn futures_that_resolve_names_are_send() {
    fn send<'a>(socket: &'a UdpSocket, name: &'a str) -> [Box<dyn Send + 'a>; 7] {
        [
            Box::new(lookup_host(name)),
            Box::new(TcpStream::connect_timeout(name, PATIENCE)),
            Box::new(TcpListener::bind((name, 80))),
            Box::new(PerCoreListeners::bind_with(name, 1, |_| Ok(()))),
            Box::new(UdpSocket::bind(name)),
            Box::new(socket.connect(name)),
            Box::new(socket.send_to(b"", name)),
        ]
    }
    let _ = send;
}

#[test]
fn a_name_without_a_running_runtime_is_an_error() {
    let _alarm = alarm();
    let error = block_on(lookup("localhost:80")).unwrap_err();
    assert!(error.to_string().contains("in no Tourbillon runtime"));
    assert_eq!(block_on(lookup("127.0.0.1:80")).unwrap().len(), 1);
    let runtime = runtime(1);
    let handle = runtime.handle().clone();
    drop(runtime);
    let _context = handle.enter();
    let error = block_on(lookup(("localhost", 80))).unwrap_err();
    assert!(error.to_string().contains("shut down"), "{error}");
}
