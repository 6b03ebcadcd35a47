//! Options and builders of sockets. Each check runs the same code on our sockets and on tokio's.

use std::{
    io::ErrorKind::{AddrInUse, NotFound},
    net::Ipv6Addr,
    os::fd::{AsRawFd, FromRawFd, IntoRawFd},
    time::Duration,
};

use tourbillon::{net::UnixSocket, time::timeout};

use crate::common::{PATIENCE, alarm, net::ANY_PORT, runtime, unix::Dir};

macro_rules! ip_options {
    ($net:ident) => {{
        use $net::{TcpSocket, UdpSocket};
        let tcp = TcpSocket::new_v4()?;
        tcp.set_tos_v4(0x88)?;
        assert_eq!(tcp.tos_v4()?, 0x88);
        assert!(tcp.set_tclass_v6(0x88).is_err());
        tcp.set_zero_linger()?;
        #[allow(deprecated)]
        let linger = tcp.linger()?;
        assert_eq!(linger, Some(Duration::ZERO));
        let udp = UdpSocket::bind(ANY_PORT).await?;
        udp.set_tos_v4(0x10)?;
        assert_eq!(udp.tos_v4()?, 0x10);
        assert!(udp.tclass_v6().is_err());
        // Skip the options of IPv6 on a machine without IPv6.
        if let Ok(udp) = UdpSocket::bind((Ipv6Addr::LOCALHOST, 0)).await {
            udp.set_tclass_v6(0x88)?;
            assert_eq!(udp.tclass_v6()?, 0x88);
            let tcp = TcpSocket::new_v6()?;
            tcp.set_tclass_v6(0x10)?;
            assert_eq!(tcp.tclass_v6()?, 0x10);
        }

        assert!(tcp.bind_device(Some(b"no-such-device")).is_err());
        assert!(udp.bind_device(Some(b"no-such-device")).is_err());
        assert_eq!((tcp.device()?, udp.device()?), (None, None));
        // An old kernel requires a capability for this.
        if udp.bind_device(Some(b"lo")).is_ok() {
            assert_eq!(udp.device()?, Some(b"lo".to_vec()));
            tcp.bind_device(Some(b"lo"))?;
            assert_eq!(tcp.device()?, Some(b"lo".to_vec()));
        }
        Ok(())
    }};
}

#[test]
fn options_of_packets_and_devices_are_set_and_read_back() {
    on_both!(ip_options);
}

macro_rules! quickack {
    ($net:ident) => {{
        use $net::{TcpListener, TcpStream};
        let listener = TcpListener::bind(ANY_PORT).await?;
        let stream = TcpStream::connect(listener.local_addr()?).await?;
        for quickack in [false, true] {
            stream.set_quickack(quickack)?;
            assert_eq!(stream.quickack()?, quickack);
        }
        Ok(())
    }};
}

#[test]
fn acknowledgements_are_delayed_or_not() {
    on_both!(quickack);
}

macro_rules! unix_sockets {
    ($net:ident) => {{
        use $net::{UnixDatagram, UnixSocket};
        let dir = Dir::new();
        let (path, other_path) = (dir.path("socket"), dir.path("other"));
        let socket = UnixSocket::new_stream()?;
        socket.bind(&path)?;
        let again = UnixSocket::new_stream()?.bind(&path).unwrap_err();
        assert_eq!(again.kind(), AddrInUse);
        let listener = socket.listen(1024)?;
        // The server sees the path of a client that is bound.
        let client = UnixSocket::new_stream()?;
        client.bind(&other_path)?;
        let client = client.connect(&path).await?;
        let (server, peer) = listener.accept().await?;
        assert_eq!(peer.as_pathname(), Some(&*other_path));
        assert_eq!(server.peer_cred()?.uid(), client.peer_cred()?.uid());
        client.writable().await?;
        assert_eq!(client.try_write(b"hello")?, 5);
        server.readable().await?;
        assert_eq!(server.try_read(&mut [0; 10])?, 5);
        let nobody = UnixSocket::new_stream()?.connect(dir.path("nobody")).await;
        assert_eq!(nobody.unwrap_err().kind(), NotFound);

        let datagrams = dir.path("datagrams");
        let socket = UnixSocket::new_datagram()?;
        socket.bind(&datagrams)?;
        let socket = socket.datagram()?;
        UnixDatagram::unbound()?.send_to(b"x", &datagrams).await?;
        assert_eq!(socket.recv(&mut [0; 10]).await?, 1);

        // Each kind of socket refuses the operations of the other kind.
        assert!(UnixSocket::new_datagram()?.listen(1).is_err());
        assert!(UnixSocket::new_datagram()?.connect(&path).await.is_err());
        assert!(UnixSocket::new_stream()?.datagram().is_err());
        Ok(())
    }};
}

#[test]
fn unix_sockets_listen_connect_and_take_datagrams() {
    on_both!(unix_sockets);
}

macro_rules! raw_descriptors {
    ($net:ident) => {{
        use $net::{TcpSocket, UnixSocket};
        let (tcp, unix) = (TcpSocket::new_v4()?, UnixSocket::new_datagram()?);
        let (tcp_fd, unix_fd) = (tcp.as_raw_fd(), unix.as_raw_fd());
        let (tcp, unix) = (tcp.into_raw_fd(), unix.into_raw_fd());
        assert_eq!((tcp, unix), (tcp_fd, unix_fd));
        // SAFETY: each descriptor is open, and comes from a socket that gave it up.
        let (tcp, unix) = unsafe { (TcpSocket::from_raw_fd(tcp), UnixSocket::from_raw_fd(unix)) };
        tcp.bind(ANY_PORT.into())?;
        assert_ne!(tcp.listen(1)?.local_addr()?.port(), 0);
        unix.datagram()?;
        Ok(())
    }};
}

#[test]
fn unconnected_sockets_convert_from_and_to_descriptors() {
    on_both!(raw_descriptors);
}

#[test]
fn a_unix_socket_made_elsewhere_does_not_block() {
    let _alarm = alarm();
    runtime(1).block_on(async {
        let socket = socket2::Socket::new(socket2::Domain::UNIX, socket2::Type::STREAM, None);
        let fd = socket.unwrap().into_raw_fd();
        // SAFETY: the descriptor is open, and the socket gave it up.
        let socket = unsafe { UnixSocket::from_raw_fd(fd) };
        let name = format!("\0tourbillon-elsewhere-{}", std::process::id());
        socket.bind(&name).unwrap();
        let listener = socket.listen(1).unwrap();
        let brief = Duration::from_millis(5);
        assert!(timeout(brief, listener.accept()).await.is_err());
        let other = UnixSocket::new_stream().unwrap();
        let _client = other.connect(&name).await.unwrap();
        timeout(PATIENCE, listener.accept()).await.unwrap().unwrap();
    });
}

#[test]
fn a_unix_socket_without_a_runtime_is_an_error() {
    let _alarm = alarm();
    let dir = Dir::new();
    let (stream, datagram) = (
        UnixSocket::new_stream().unwrap(),
        UnixSocket::new_datagram(),
    );
    stream.bind(dir.path("socket")).unwrap();
    for error in [
        stream.listen(1).map(drop).unwrap_err(),
        datagram.unwrap().datagram().map(drop).unwrap_err(),
    ] {
        assert!(
            error.to_string().contains("in no Tourbillon runtime"),
            "{error}"
        );
    }
}
