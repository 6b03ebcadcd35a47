//! The connector over TCP: its options, and its errors.

use std::{
    error::Error,
    io::ErrorKind,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener},
    time::Duration,
};

use futures_lite::future::block_on;
use hyper::Uri;
use socket2::{Domain, SockRef, Socket, Type};
use tourbillon::{net::TcpStream, time::timeout};
use tourbillon_hyper::{ConnectError, HttpConnector, TourbillonIo};
use tower_service::Service;

use crate::{
    common::{PATIENCE, alarm, freed::nobody, net::ANY_PORT, runtime, skip},
    web::SHORT,
};

/// Connects in a runtime.
fn connect(
    mut connector: HttpConnector,
    uri: &str,
) -> Result<TourbillonIo<TcpStream>, ConnectError> {
    let uri: Uri = uri.parse().unwrap();
    runtime(1).block_on(async {
        let connecting = connector.call(uri);
        timeout(PATIENCE, connecting).await.unwrap()
    })
}

/// Returns a listener of the standard library at a free port of an address, or `None` if the
/// machine does not have the address.
fn listen(ip: impl Into<IpAddr>) -> Option<(TcpListener, SocketAddr)> {
    let listener = TcpListener::bind((ip.into(), 0)).ok()?;
    let addr = listener.local_addr().unwrap();
    Some((listener, addr))
}

fn listen_v4() -> (TcpListener, SocketAddr) {
    listen(Ipv4Addr::LOCALHOST).unwrap()
}

#[test]
fn hosts_are_names_or_addresses() {
    let _alarm = alarm();
    let (_listener, addr) = listen_v4();
    // The system may find an address of IPv6 first, where no socket listens.
    for host in ["127.0.0.1", "localhost"] {
        let uri = format!("http://{host}:{}/path", addr.port());
        for delay in [None, Some(Duration::from_millis(300))] {
            let mut connector = HttpConnector::new();
            connector.set_happy_eyeballs_timeout(delay);
            let stream = connect(connector, &uri).unwrap();
            assert_eq!(stream.peer_addr().unwrap(), addr);
        }
    }
    match listen(Ipv6Addr::LOCALHOST) {
        Some((_listener, addr)) => {
            let stream = connect(HttpConnector::new(), &format!("http://{addr}/")).unwrap();
            assert_eq!(stream.peer_addr().unwrap(), addr);
        }
        None => skip("the machine has no IPv6"),
    }
}

#[test]
fn options_are_set_before_the_connection_is_made() {
    let _alarm = alarm();
    let (listener, addr) = listen_v4();
    let uri = format!("http://{addr}/");

    let plain = connect(HttpConnector::new(), &uri).unwrap();
    let options = SockRef::from(&plain);
    assert!(!plain.nodelay().unwrap() && !options.keepalive().unwrap());
    assert_eq!(options.tcp_user_timeout().unwrap(), None);
    let (_, peer) = listener.accept().unwrap();
    assert_eq!(peer.ip(), Ipv4Addr::LOCALHOST);

    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    connector.set_keepalive(Some(Duration::from_secs(7)));
    connector.set_keepalive_interval(Some(Duration::from_secs(3)));
    connector.set_keepalive_retries(Some(2));
    connector.set_tcp_user_timeout(Some(Duration::from_secs(9)));
    connector.set_send_buffer_size(Some(20_000));
    connector.set_recv_buffer_size(Some(30_000));
    connector.set_local_address(Some([127, 0, 0, 2].into()));
    let stream = connect(connector, &uri).unwrap();
    let options = SockRef::from(&stream);
    assert!(stream.nodelay().unwrap() && options.keepalive().unwrap());
    assert_eq!(options.tcp_keepalive_time().unwrap().as_secs(), 7);
    assert_eq!(options.tcp_keepalive_interval().unwrap().as_secs(), 3);
    assert_eq!(options.tcp_keepalive_retries().unwrap(), 2);
    assert_eq!(options.tcp_user_timeout().unwrap().unwrap().as_secs(), 9);
    // The system doubles both sizes.
    assert_eq!(options.send_buffer_size().unwrap(), 40_000);
    assert_eq!(options.recv_buffer_size().unwrap(), 60_000);
    let (_, peer) = listener.accept().unwrap();
    assert_eq!(peer.ip(), Ipv4Addr::new(127, 0, 0, 2));
}

#[test]
fn an_interface_is_bound() {
    let _alarm = alarm();
    let (_listener, addr) = listen_v4();
    let uri = format!("http://{addr}/");
    let mut connector = HttpConnector::new();
    connector.set_interface("lo");
    match connect(connector.clone(), &uri) {
        Ok(stream) => {
            let device = SockRef::from(&stream).device().unwrap();
            assert_eq!(device.as_deref(), Some(&b"lo"[..]));
        }
        Err(error) => skip(&format!("the system binds no interface: {error}")),
    }
    connector.set_interface("no such one");
    assert!(connect(connector, &uri).is_err());
}

#[test]
fn local_addresses_choose_the_family() {
    let _alarm = alarm();
    let (_listener, addr) = listen_v4();
    let uri = format!("http://{addr}/");
    let mut connector = HttpConnector::new();
    connector.set_local_address(Some(Ipv6Addr::LOCALHOST.into()));
    let error = connect(connector.clone(), &uri).unwrap_err();
    assert!(matches!(&error, ConnectError::OtherFamily { host } if host == "127.0.0.1"));
    connector.set_local_addresses(Ipv4Addr::new(127, 0, 0, 3), Ipv6Addr::LOCALHOST);
    let stream = connect(connector.clone(), &uri).unwrap();
    assert_eq!(
        stream.local_addr().unwrap().ip(),
        Ipv4Addr::new(127, 0, 0, 3)
    );
    connector.set_local_address(None);
    let stream = connect(connector, &uri).unwrap();
    assert_eq!(stream.local_addr().unwrap().ip(), Ipv4Addr::LOCALHOST);
}

#[test]
fn errors_say_what_was_wrong() {
    let _alarm = alarm();
    let connector = HttpConnector::new();
    for incomplete in ["/path", "example.org", "example.org:80"] {
        let error = connect(connector.clone(), incomplete).unwrap_err();
        assert!(matches!(error, ConnectError::Incomplete { .. }), "{error}");
    }
    let error = connect(connector.clone(), "https://127.0.0.1/").unwrap_err();
    assert!(matches!(&error, ConnectError::NotHttp { scheme } if scheme == "https"));

    // The resolver refuses this name without a question to the network.
    let name = "a".repeat(64);
    let error = connect(connector.clone(), &format!("http://{name}.invalid/")).unwrap_err();
    assert!(matches!(&error, ConnectError::Lookup { host, .. } if host.starts_with(&name)));
    assert!(error.source().is_some());

    let addr = nobody();
    let error = connect(connector, &format!("http://{addr}/")).unwrap_err();
    match &error {
        ConnectError::Address { addr: at, source } => {
            assert_eq!(*at, addr);
            assert_eq!(source.kind(), ErrorKind::ConnectionRefused);
        }
        _ => panic!("{error:?}"),
    }
    assert!(
        error
            .to_string()
            .starts_with(&format!("{addr} was not reached: "))
    );
}

#[test]
fn https_is_allowed_below_tls() {
    let _alarm = alarm();
    let (_listener, addr) = listen_v4();
    let mut connector = HttpConnector::new();
    connector.enforce_http(false);
    let stream = connect(connector, &format!("https://{addr}/")).unwrap();
    assert_eq!(stream.peer_addr().unwrap(), addr);
}

#[test]
fn a_server_that_does_not_answer_times_out() {
    let _alarm = alarm();
    // Once a queue of connections is full, the system ignores further attempts.
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from(ANY_PORT).into()).unwrap();
    socket.listen(0).unwrap();
    let addr = socket.local_addr().unwrap().as_socket().unwrap();
    let mut connector = HttpConnector::new();
    connector.set_connect_timeout(Some(SHORT));
    let mut queued = Vec::new();
    let error = loop {
        match connect(connector.clone(), &format!("http://{addr}/")) {
            Ok(stream) => queued.push(stream),
            Err(error) => break error,
        }
    };
    match &error {
        ConnectError::TimedOut { host, limit } => {
            assert_eq!((host.as_str(), *limit), ("127.0.0.1", SHORT));
        }
        _ => panic!("{error:?}"),
    }
}

#[test]
fn outside_of_a_runtime_a_connection_is_an_error() {
    let addr = TcpListener::bind(ANY_PORT).unwrap().local_addr().unwrap();
    for host in ["127.0.0.1", "localhost"] {
        let mut connector = HttpConnector::new();
        let uri = format!("http://{host}:{}/", addr.port()).parse().unwrap();
        let error = block_on(connector.call(uri)).unwrap_err();
        assert!(
            error.to_string().contains("in no Tourbillon runtime"),
            "{error}"
        );
    }
}
