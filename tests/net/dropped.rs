//! Futures of sockets, descriptors and signals that are dropped between polls, at each poll:
//! nothing is lost, and no descriptor stays. The table is in docs/reference/cancel-safety.md.

use std::{
    io::{self, ErrorKind, Read, Write},
    time::Duration,
};

use futures_lite::{AsyncReadExt, AsyncWriteExt};
use tourbillon::{
    io::{AsyncFd, Interest, select},
    net::{
        PerCoreListeners, TcpListener, TcpSocket, TcpStream, UdpSocket, UnixDatagram, UnixSocket,
        UnixStream, lookup_host,
    },
    signal::{SignalKind, ctrl_c, signal},
    time::timeout,
};

use crate::common::{
    HOUR, alarm,
    dropped::in_each_way,
    eventually, fds,
    net::{ANY_PORT, listen, pair},
    process::alone,
    runtime, unix,
};

/// Runs `cases`, and checks that they leave no descriptor and no task. For tests that run alone.
fn leaves_nothing(cases: impl AsyncFnOnce()) {
    let _alarm = alarm();
    let runtime = runtime(1);
    // What a runtime opens once.
    runtime.block_on(async { drop(signal(SignalKind::user_defined2())) });
    let before = fds();
    runtime.block_on(cases());
    eventually("the descriptors are closed", || fds() == before);
    eventually("the tasks end", || runtime.metrics().num_alive_tasks() == 0);
}

/// Checks a future that waits for data, which the peer sends: `abc`. The data is still there if the
/// future was dropped, or did not take it.
macro_rules! loses_no_data {
    ($pair:expr, |$stream:ident, $buf:ident| $wait:expr, takes: $takes:expr) => {
        in_each_way(async |way| {
            #[allow(unused_mut, reason = "not each kind of stream reads mutably")]
            let (mut $stream, mut peer) = $pair;
            let mut $buf = [0; 8];
            let send = async || peer.write_all(b"abc").await.unwrap();
            let ended = way.run($wait, send).await;
            let is_ready = ended.is_some();
            ended.map(|ended| ended.unwrap());
            if $takes && is_ready {
                assert_eq!(&$buf[..3], b"abc");
            } else {
                let mut rest = [0; 3];
                $stream.read_exact(&mut rest).await.unwrap();
                assert_eq!(&rest, b"abc");
            }
            drop(peer);
            assert_eq!($stream.read(&mut [0; 8]).await.unwrap(), 0);
            is_ready
        })
        .await
    };
}

#[test]
fn a_wait_for_data_that_is_dropped_loses_none() {
    alone(|| {
        leaves_nothing(async || {
            loses_no_data!(pair().await, |it, buf| it.read(&mut buf), takes: true);
            loses_no_data!(pair().await, |it, buf| it.peek(&mut buf), takes: false);
            loses_no_data!(pair().await, |it, _buf| it.readable(), takes: false);
            let read = Interest::READABLE;
            loses_no_data!(pair().await, |it, _buf| it.ready(read), takes: false);
            let unix = || UnixStream::pair().unwrap();
            loses_no_data!(unix(), |it, buf| it.read(&mut buf), takes: true);
            loses_no_data!(unix(), |it, _buf| it.readable(), takes: false);
            loses_no_data!(unix(), |it, _buf| it.ready(read), takes: false);
            loses_no_data!(
                unix(),
                |it, buf| it.async_io(read, || it.try_read(&mut buf)),
                takes: true
            );
            loses_no_data!(
                unix(),
                |it, _buf| {
                    let it = &it;
                    async move { select(&[(it as _, Interest::READABLE)], Some(HOUR)).await }
                },
                takes: false
            );
            // The halves have methods of their own.
            let owned = async || {
                let (stream, peer) = pair().await;
                (stream.into_split().0, peer)
            };
            loses_no_data!(owned().await, |it, buf| it.read(&mut buf), takes: true);
            loses_no_data!(owned().await, |it, buf| it.peek(&mut buf), takes: false);
            loses_no_data!(owned().await, |it, _buf| it.readable(), takes: false);
            loses_no_data!(owned().await, |it, _buf| it.ready(read), takes: false);
            loses_no_data!(pair().await, |it, buf| async { it.split().0.read(&mut buf).await },
                takes: true);
        });
    });
}

#[test]
fn a_wait_for_any_descriptor_that_is_dropped_loses_no_readiness() {
    fn watched() -> (AsyncFd<std::os::unix::net::UnixStream>, UnixStream) {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        (
            AsyncFd::new(ours).unwrap(),
            UnixStream::from_std(theirs).unwrap(),
        )
    }
    /// A wrapper that reads by the loop that users write.
    struct Reader(AsyncFd<std::os::unix::net::UnixStream>);
    impl Reader {
        async fn read(&self, buf: &mut [u8]) -> io::Result<usize> {
            loop {
                let mut guard = self.0.readable().await?;
                if let Ok(read) = guard.try_io(|fd| fd.get_ref().read(buf)) {
                    return read;
                }
            }
        }
        async fn read_exact(&self, buf: &mut [u8]) -> io::Result<()> {
            assert_eq!(self.read(buf).await?, buf.len());
            Ok(())
        }
    }
    let reader = || {
        let (fd, peer) = watched();
        (Reader(fd), peer)
    };
    alone(move || {
        leaves_nothing(async || {
            let read = Interest::READABLE;
            loses_no_data!(reader(), |it, buf| it.read(&mut buf), takes: true);
            loses_no_data!(
                reader(),
                |it, buf| it.0.async_io(read, |mut fd| fd.read(&mut buf)),
                takes: true
            );
            loses_no_data!(
                reader(),
                |it, buf| it.0.async_io_mut(read, |fd| fd.read(&mut buf)),
                takes: true
            );
            loses_no_data!(reader(), |it, _buf| async { it.0.ready(read).await.map(drop) },
                takes: false);
            loses_no_data!(reader(), |it, _buf| async { it.0.ready_mut(read).await.map(drop) },
                takes: false);
            loses_no_data!(reader(), |it, _buf| async { it.0.readable_mut().await.map(drop) },
                takes: false);
            for wait in 0..2 {
                in_each_way(async |way| {
                    let (mut fd, mut peer) = watched();
                    while fd.get_ref().write(&[0; 4096]).is_ok() {}
                    let event = async || {
                        let mut room = [0; 65536];
                        while peer.try_read(&mut room).is_ok() {}
                        peer.write_all(b"x").await.unwrap();
                    };
                    // The record still says that there is room.
                    fd.try_io(Interest::WRITABLE, |mut it| it.write(b"y"))
                        .unwrap_err();
                    let ready = match wait {
                        0 => {
                            way.run(async { fd.writable().await.map(drop) }, event)
                                .await
                        }
                        _ => {
                            way.run(async { fd.writable_mut().await.map(drop) }, event)
                                .await
                        }
                    };
                    fd.writable().await.unwrap().retain_ready();
                    assert_eq!(fd.get_ref().write(b"z").unwrap(), 1);
                    ready.is_some()
                })
                .await;
            }
        });
    });
}

/// Fills a stream, and checks that what a write that is dropped reports is what the peer gets.
macro_rules! writes_what_it_says {
    ($pair:expr, |$stream:ident, $bytes:ident| $wait:expr) => {
        in_each_way(async |way| {
            let (mut $stream, mut peer) = $pair;
            let $bytes = [1; 1000];
            let mut written = 0;
            loop {
                match $stream.try_write(&[0; 65536]) {
                    Ok(n) => written += n,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(error) => panic!("{error}"),
                }
            }
            let mut read = 0;
            let make_room = async || {
                // Nothing more comes until there is a write, so this ends.
                let mut room = vec![0; 65536];
                while read < written {
                    read += peer.read(&mut room).await.unwrap();
                }
            };
            let ended = way.run($wait, make_room).await;
            let is_ready = ended.is_some();
            let more: usize = ended.map_or(0, |ended| ended.unwrap());
            $stream.close().await.unwrap();
            let mut rest = Vec::new();
            peer.read_to_end(&mut rest).await.unwrap();
            assert_eq!(read + rest.len(), written + more);
            is_ready
        })
        .await
    };
}

#[test]
fn a_wait_for_room_that_is_dropped_writes_nothing() {
    alone(|| {
        leaves_nothing(async || {
            writes_what_it_says!(pair().await, |it, bytes| it.write(&bytes));
            writes_what_it_says!(pair().await, |it, bytes| async {
                it.writable().await?;
                it.try_write(&bytes)
            });
            writes_what_it_says!(pair().await, |it, bytes| async {
                it.ready(Interest::WRITABLE).await?;
                it.try_write(&bytes)
            });
            let unix = || UnixStream::pair().unwrap();
            writes_what_it_says!(unix(), |it, bytes| it.write(&bytes));
            writes_what_it_says!(unix(), |it, bytes| {
                it.async_io(Interest::WRITABLE, || it.try_write(&bytes))
            });
            let owned = async || {
                let (stream, peer) = pair().await;
                (stream.into_split().1, peer)
            };
            writes_what_it_says!(owned().await, |it, bytes| it.write(&bytes));
            writes_what_it_says!(owned().await, |it, bytes| async {
                it.writable().await?;
                it.try_write(&bytes)
            });
        });
    });
}

#[test]
fn an_accept_that_is_dropped_leaves_the_connection_to_the_next() {
    alone(|| {
        leaves_nothing(async || {
            in_each_way(async |way| {
                let (listener, addr) = listen().await;
                let mut client = None;
                let connect = async || client = Some(std::net::TcpStream::connect(addr).unwrap());
                let accepted = way.run(listener.accept(), connect).await;
                let is_ready = accepted.is_some();
                let accepted = match accepted {
                    Some(accepted) => accepted,
                    None => listener.accept().await,
                };
                let client = client.expect("it has connected").local_addr().unwrap();
                assert_eq!(accepted.unwrap().1, client);
                is_ready
            })
            .await;
            in_each_way(async |way| {
                let (listener, addr) = unix::listen();
                let mut client = None;
                let connect = async || {
                    let connected = std::os::unix::net::UnixStream::connect_addr(&addr);
                    client = Some(connected.unwrap());
                };
                let accepted = way.run(listener.accept(), connect).await;
                let is_ready = accepted.is_some();
                let accepted = match accepted {
                    Some(accepted) => accepted,
                    None => listener.accept().await,
                };
                let (mut stream, _) = accepted.unwrap();
                client.expect("it has connected").write_all(b"a").unwrap();
                assert_eq!(stream.read(&mut [0; 8]).await.unwrap(), 1);
                is_ready
            })
            .await;
        });
    });
}

/// Checks a future that connects to a listener: if it is dropped, the listener sees the end.
macro_rules! connects_or_closes {
    ($listener:expr, |$addr:ident| $connect:expr) => {
        in_each_way(async |way| {
            let (listener, $addr) = $listener;
            let connected = way.run($connect, async || {}).await;
            let is_ready = connected.is_some();
            if let Some(connected) = connected {
                let mut client = connected.unwrap();
                let (mut server, _) = listener.accept().await.unwrap();
                client.write_all(b"a").await.unwrap();
                assert_eq!(server.read(&mut [0; 8]).await.unwrap(), 1);
            } else if let Ok(accepted) = timeout(Duration::from_millis(2), listener.accept()).await
            {
                let (mut server, _) = accepted.unwrap();
                assert!(matches!(server.read(&mut [0; 8]).await, Ok(0) | Err(_)));
            }
            is_ready
        })
        .await
    };
}

#[test]
fn a_connect_that_is_dropped_closes_its_socket() {
    alone(|| {
        leaves_nothing(async || {
            connects_or_closes!(listen().await, |addr| TcpStream::connect(addr));
            connects_or_closes!(listen().await, |addr| TcpStream::connect_timeout(
                addr, HOUR
            ));
            connects_or_closes!(listen().await, |addr| async move {
                TcpSocket::new_v4()?.connect(addr).await
            });
            // A name is looked up by a job, which runs on.
            connects_or_closes!(listen().await, |addr| async move {
                TcpStream::connect(("localhost", addr.port())).await
            });
            connects_or_closes!(unix::listen(), |addr| UnixStream::connect_addr(&addr));
            let dir = unix::Dir::new();
            let number = std::cell::Cell::new(0);
            let at_path = || {
                number.set(number.get() + 1);
                let path = dir.path(number.get().to_string());
                (tourbillon::net::UnixListener::bind(&path).unwrap(), path)
            };
            connects_or_closes!(at_path(), |path| UnixStream::connect(&path));
            connects_or_closes!(at_path(), |path| async {
                UnixSocket::new_stream()?.connect(&path).await
            });
        });
    });
}

#[test]
fn a_bind_and_a_lookup_that_are_dropped_leave_nothing() {
    alone(|| {
        leaves_nothing(async || {
            in_each_way(async |way| {
                let lookup = async { lookup_host("localhost:80").await.map(Iterator::count) };
                let found = way.run(lookup, async || {}).await;
                assert!(
                    found
                        .as_ref()
                        .is_none_or(|found| *found.as_ref().unwrap() > 0)
                );
                found.is_some()
            })
            .await;
            let name = || ("localhost".to_owned(), 0);
            in_each_way(async |way| {
                let bound = way.run(TcpListener::bind(name()), async || {}).await;
                bound.map(Result::unwrap).is_some()
            })
            .await;
            in_each_way(async |way| {
                let binding = PerCoreListeners::bind_with(name(), 8, |_| Ok(()));
                way.run(binding, async || {})
                    .await
                    .map(Result::unwrap)
                    .is_some()
            })
            .await;
            in_each_way(async |way| {
                let bound = way.run(UdpSocket::bind(name()), async || {}).await;
                bound.map(Result::unwrap).is_some()
            })
            .await;
            let peer = UdpSocket::bind(ANY_PORT).await.unwrap();
            let port = peer.local_addr().unwrap().port();
            in_each_way(async |way| {
                let socket = UdpSocket::bind(ANY_PORT).await.unwrap();
                let target = ("localhost".to_owned(), port);
                let connected = way.run(socket.connect(target.clone()), async || {}).await;
                let is_ready = connected.map(Result::unwrap).is_some();
                assert_eq!(socket.peer_addr().is_ok(), is_ready);
                is_ready
            })
            .await;
            in_each_way(async |way| {
                let socket = UdpSocket::bind(ANY_PORT).await.unwrap();
                let target = ("localhost".to_owned(), port);
                let sent = way.run(socket.send_to(b"abc", target), async || {}).await;
                let is_ready = sent.is_some();
                assert_eq!(sent.map_or(3, Result::unwrap), 3);
                if is_ready {
                    assert_eq!(peer.recv(&mut [0; 8]).await.unwrap(), 3);
                } else {
                    let nothing = peer.try_recv(&mut [0; 8]).unwrap_err();
                    assert_eq!(nothing.kind(), ErrorKind::WouldBlock);
                }
                is_ready
            })
            .await;
        });
    });
}

/// Checks a future that waits for a datagram: it is taken by a future that is ready, or else still
/// there.
macro_rules! loses_no_datagram {
    ($pair:expr, |$socket:ident, $buf:ident| $wait:expr, takes: $takes:expr) => {
        in_each_way(async |way| {
            let ($socket, peer) = $pair;
            let mut $buf = [0; 8];
            let send = async || assert_eq!(peer.send(b"abc").await.unwrap(), 3);
            let ended = way.run($wait, send).await;
            let is_ready = ended.is_some();
            ended.map(|ended| ended.unwrap());
            if !($takes && is_ready) {
                assert_eq!($socket.recv(&mut [0; 8]).await.unwrap(), 3);
            }
            let nothing = $socket.try_recv(&mut [0; 8]).unwrap_err();
            assert_eq!(nothing.kind(), ErrorKind::WouldBlock);
            is_ready
        })
        .await
    };
}

#[test]
fn a_wait_for_a_datagram_that_is_dropped_loses_none() {
    async fn udp() -> (UdpSocket, UdpSocket) {
        let socket = UdpSocket::bind(ANY_PORT).await.unwrap();
        let peer = UdpSocket::bind(ANY_PORT).await.unwrap();
        peer.connect(socket.local_addr().unwrap()).await.unwrap();
        (socket, peer)
    }
    alone(|| {
        leaves_nothing(async || {
            loses_no_datagram!(udp().await, |it, buf| it.recv(&mut buf), takes: true);
            loses_no_datagram!(udp().await, |it, buf| it.recv_from(&mut buf), takes: true);
            loses_no_datagram!(udp().await, |it, buf| it.peek(&mut buf), takes: false);
            loses_no_datagram!(udp().await, |it, buf| it.peek_from(&mut buf), takes: false);
            loses_no_datagram!(udp().await, |it, _buf| it.peek_sender(), takes: false);
            loses_no_datagram!(udp().await, |it, _buf| it.readable(), takes: false);
            #[cfg(feature = "bytes")]
            {
                loses_no_datagram!(
                    udp().await,
                    |it, buf| async { it.recv_buf(&mut &mut buf[..]).await },
                    takes: true
                );
                loses_no_datagram!(
                    udp().await,
                    |it, buf| async { it.recv_buf_from(&mut &mut buf[..]).await },
                    takes: true
                );
            }
            let unix = || UnixDatagram::pair().unwrap();
            loses_no_datagram!(unix(), |it, buf| it.recv(&mut buf), takes: true);
            loses_no_datagram!(unix(), |it, buf| it.recv_from(&mut buf), takes: true);
            loses_no_datagram!(unix(), |it, _buf| it.readable(), takes: false);
            // A send that waits for room.
            let dir = unix::Dir::new();
            let number = std::cell::Cell::new(0);
            for send in 0..3 {
                in_each_way(async |way| {
                    number.set(number.get() + 1);
                    let path = dir.path(number.get().to_string());
                    let peer = UnixDatagram::bind(&path).unwrap();
                    let socket = UnixDatagram::unbound().unwrap();
                    socket.connect(&path).unwrap();
                    let addr = std::os::unix::net::SocketAddr::from_pathname(&path).unwrap();
                    let mut expected = 0;
                    while socket.try_send(b"x").is_ok() {
                        expected += 1;
                    }
                    let mut received = 0;
                    let receive = async || {
                        peer.recv(&mut [0; 8]).await.unwrap();
                        received += 1;
                    };
                    let sent = match send {
                        0 => way.run(socket.send(b"y"), receive).await,
                        1 => way.run(socket.send_to(b"y", &path), receive).await,
                        _ => way.run(socket.send_to_addr(b"y", &addr), receive).await,
                    };
                    expected += usize::from(sent.is_some());
                    while peer.try_recv(&mut [0; 8]).is_ok() {
                        received += 1;
                    }
                    assert_eq!(received, expected);
                    sent.is_some()
                })
                .await;
            }
        });
    });
}

#[test]
fn a_wait_for_a_signal_that_is_dropped_loses_none() {
    fn raise(signal: libc::c_int) {
        // SAFETY: the call takes no pointers.
        assert_eq!(unsafe { libc::raise(signal) }, 0);
    }
    alone(|| {
        leaves_nothing(async || {
            in_each_way(async |way| {
                let mut signals = signal(SignalKind::user_defined1()).unwrap();
                let ended = way.run(signals.recv(), async || raise(libc::SIGUSR1)).await;
                if ended.is_none() {
                    signals.recv().await.unwrap();
                }
                ended.is_some()
            })
            .await;
            // `SIGINT` does not end the process from here on.
            drop(signal(SignalKind::interrupt()).unwrap());
            in_each_way(async |way| {
                let ended = way.run(ctrl_c(), async || raise(libc::SIGINT)).await;
                // A later wait is for a later signal.
                let brief = timeout(Duration::from_millis(2), ctrl_c()).await;
                assert!(brief.is_err());
                ended.is_some()
            })
            .await;
        });
    });
}
