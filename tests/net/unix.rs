//! Unix sockets: connections and datagrams, by paths, by abstract names and in pairs.

use std::{
    future::poll_fn,
    io::{self, IoSlice, IoSliceMut, Read, Write},
    net::Shutdown,
    os::{linux::net::SocketAddrExt, unix::net::SocketAddr},
    path::Path,
    sync::Arc,
    task::Poll,
    time::Duration,
};

use futures_lite::{
    AsyncReadExt, AsyncWriteExt,
    future::{block_on, poll_once},
};
use tourbillon::{
    io::Interest,
    net::{UnixDatagram, UnixListener, UnixStream, unix},
    runtime::Builder,
    time::{sleep, timeout},
};

use crate::common::{
    PATIENCE, alarm,
    freed::until_err,
    net::{echo_all, half_close, pattern, reply_after_half_close},
    on_worker, runtime,
    unix::{Dir, abstract_addr, unique},
};

const BRIEF: Duration = Duration::from_millis(5);

#[test]
fn an_echo_comes_back_by_a_path_and_by_an_abstract_name() {
    let _alarm = alarm();
    let dir = Dir::new();
    let by_path = SocketAddr::from_pathname(dir.path("socket")).unwrap();
    let runtime = runtime(2);
    for addr in [by_path, abstract_addr()] {
        let (addr, clients) = runtime.block_on(async move {
            let listener = UnixListener::bind_addr(&addr).unwrap();
            let found = listener.local_addr().unwrap();
            assert_eq!(found.as_pathname(), addr.as_pathname());
            assert_eq!(found.as_abstract_name(), addr.as_abstract_name());
            tourbillon::spawn(async move {
                loop {
                    let (stream, peer) = listener.accept().await.unwrap();
                    assert!(peer.is_unnamed(), "{peer:?}");
                    tourbillon::spawn(echo_all(stream));
                }
            });
            let clients: Vec<_> = (0..50_usize)
                .map(|i| {
                    let addr = addr.clone();
                    tourbillon::spawn(async move {
                        let mut stream = UnixStream::connect_addr(&addr).await.unwrap();
                        assert!(stream.local_addr().unwrap().is_unnamed());
                        for round in 0..5 {
                            let sent = pattern(100 + i * 11, round);
                            stream.write_all(&sent).await.unwrap();
                            let mut received = vec![0; sent.len()];
                            stream.read_exact(&mut received).await.unwrap();
                            assert_eq!(received, sent);
                        }
                    })
                })
                .collect();
            (addr, clients)
        });
        for client in clients {
            runtime
                .block_on(timeout(PATIENCE, client))
                .unwrap()
                .unwrap();
        }
        // A blocking client of the standard library is served, too.
        let mut stream = std::os::unix::net::UnixStream::connect_addr(&addr).unwrap();
        stream.write_all(b"blocking").unwrap();
        let mut received = [0; 8];
        stream.read_exact(&mut received).unwrap();
        assert_eq!(&received, b"blocking");
    }
}

#[test]
fn a_path_that_begins_with_a_nul_byte_is_an_abstract_name() {
    let _alarm = alarm();
    runtime(1).block_on(async {
        let name = unique();
        let path = format!("\0{name}");
        let listener = UnixListener::bind(&path).unwrap();
        let addr = listener.local_addr().unwrap();
        assert_eq!(addr.as_abstract_name(), Some(name.as_bytes()));
        let client = UnixStream::connect(&path).await.unwrap();
        assert_eq!(
            client.peer_addr().unwrap().as_abstract_name(),
            Some(name.as_bytes())
        );
        let socket = UnixDatagram::bind(format!("{path}-datagrams")).unwrap();
        assert!(socket.local_addr().unwrap().as_abstract_name().is_some());
    });
}

#[test]
fn an_accepted_peer_that_is_bound_is_named() {
    let _alarm = alarm();
    let dir = Dir::new();
    runtime(1).block_on(async {
        let listener = UnixListener::bind(dir.path("listener")).unwrap();
        let by_path = SocketAddr::from_pathname(dir.path("client")).unwrap();
        for addr in [by_path, abstract_addr()] {
            let client = socket2::Socket::new(socket2::Domain::UNIX, socket2::Type::STREAM, None);
            let client = client.unwrap();
            match addr.as_pathname() {
                Some(path) => client.bind(&socket2::SockAddr::unix(path).unwrap()),
                None => {
                    let name = [b"\0", addr.as_abstract_name().unwrap()].concat();
                    let name = String::from_utf8(name).unwrap();
                    client.bind(&socket2::SockAddr::unix(name).unwrap())
                }
            }
            .unwrap();
            let to = socket2::SockAddr::unix(dir.path("listener")).unwrap();
            client.connect(&to).unwrap();
            let (stream, peer) = listener.accept().await.unwrap();
            assert_eq!(peer.as_pathname(), addr.as_pathname());
            assert_eq!(peer.as_abstract_name(), addr.as_abstract_name());
            assert_eq!(
                stream.peer_addr().unwrap().as_pathname(),
                addr.as_pathname()
            );
        }
    });
}

#[test]
fn a_pair_is_read_and_written_both_ways_at_once() {
    let _alarm = alarm();
    const LEN: usize = 4 << 20;
    let runtime = runtime(2);
    let ends = runtime.block_on(async { UnixStream::pair().unwrap() });
    let tasks: Vec<_> = [(ends.0, 1), (ends.1, 2)]
        .into_iter()
        .flat_map(|(stream, seed)| {
            let (mut read, mut write): (unix::OwnedReadHalf, unix::OwnedWriteHalf) =
                stream.into_split();
            let sending = runtime.spawn(async move {
                write.write_all(&pattern(LEN, seed)).await.unwrap();
                // Dropping the half sends the end.
            });
            let receiving = runtime.spawn(async move {
                let mut received = Vec::new();
                read.read_to_end(&mut received).await.unwrap();
                assert!(received == pattern(LEN, 3 - seed), "bytes differ");
            });
            [sending, receiving]
        })
        .collect();
    for task in tasks {
        runtime.block_on(timeout(PATIENCE, task)).unwrap().unwrap();
    }
}

#[test]
fn a_new_pair_is_writable_before_the_worker_asks_epoll() {
    let _alarm = alarm();
    // This runtime has no other thread that polls epoll meanwhile.
    let runtime = Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let (one, other) = UnixStream::pair().unwrap();
        poll_once(one.writable()).await.unwrap().unwrap();
        assert!(poll_once(one.readable()).await.is_none());
        assert_eq!(other.try_write(b"x").unwrap(), 1);
        timeout(PATIENCE, one.readable()).await.unwrap().unwrap();
        let (one, other) = UnixDatagram::pair().unwrap();
        poll_once(one.writable()).await.unwrap().unwrap();
        assert!(poll_once(one.readable()).await.is_none());
        assert_eq!(other.try_send(b"x").unwrap(), 1);
        timeout(PATIENCE, one.readable()).await.unwrap().unwrap();
    });
}

#[test]
fn data_still_flows_the_other_way_after_a_half_close() {
    let _alarm = alarm();
    runtime(2).block_on(async {
        let (mut client, mut server) = UnixStream::pair().unwrap();
        let shutdown = async |client: &mut UnixStream| client.shutdown_now(Shutdown::Write);
        half_close(&mut client, &mut server, shutdown).await;
        // The read may have found the end before the worker saw the event.
        while !server
            .ready(Interest::READABLE)
            .await
            .unwrap()
            .is_read_closed()
        {
            sleep(Duration::from_millis(1)).await;
        }
        reply_after_half_close(&mut client, server).await;
    });
}

#[test]
fn a_closed_peer_ends_pending_reads_and_writes() {
    let _alarm = alarm();
    runtime(2).block_on(async {
        let (stream, peer) = UnixStream::pair().unwrap();
        let (mut read, mut write) = stream.into_split();
        let reading = tourbillon::spawn(async move { read.read(&mut [0]).await });
        let writing = tourbillon::spawn(async move {
            loop {
                if let Err(error) = write.write(&[1; 64 << 10]).await {
                    return error.kind();
                }
            }
        });
        sleep(BRIEF).await;
        assert!(!reading.is_finished() && !writing.is_finished());
        drop(peer);
        // The read finds the end, or an error because the peer did not read all data.
        let read = timeout(PATIENCE, reading).await.unwrap().unwrap();
        assert!(match read {
            Ok(n) => n == 0,
            Err(error) => error.kind() == io::ErrorKind::ConnectionReset,
        });
        let kind = timeout(PATIENCE, writing).await.unwrap().unwrap();
        assert_eq!(kind, io::ErrorKind::BrokenPipe);
    });
}

#[test]
fn borrowed_halves_leave_the_stream_open() {
    let _alarm = alarm();
    runtime(1).block_on(async {
        let (mut one, mut other) = UnixStream::pair().unwrap();
        {
            let (mut read, mut write) = one.split();
            assert!(read.peer_addr().unwrap().is_unnamed());
            write.write_all(b"to").await.unwrap();
            other.write_all(b"fro").await.unwrap();
            read.read_exact(&mut [0; 3]).await.unwrap();
            other.read_exact(&mut [0; 2]).await.unwrap();
        }
        assert!(timeout(BRIEF, other.read(&mut [0])).await.is_err());
        one.split().1.close().await.unwrap();
        assert_eq!(other.read(&mut [0]).await.unwrap(), 0);
    });
}

#[test]
fn halves_can_be_reunited() {
    let _alarm = alarm();
    runtime(1).block_on(async {
        let (one, other) = UnixStream::pair().unwrap();
        let ((read, write), (other_read, other_write)) = (one.into_split(), other.into_split());
        let error = read.reunite(other_write).unwrap_err();
        assert!(error.to_string().contains("not of one connection"));
        let unix::ReuniteError(read, other_write) = error;
        let (one, other) = (write.reunite(read), other_read.reunite(other_write));
        let (mut one, mut other) = (one.unwrap(), other.unwrap());
        one.write_all(b"whole").await.unwrap();
        other.read_exact(&mut [0; 5]).await.unwrap();
        // A half that is forgotten does not send the end.
        let (read, write) = one.into_split();
        write.forget();
        assert!(timeout(BRIEF, other.read(&mut [0])).await.is_err());
        drop(read);
        assert_eq!(other.read(&mut [0]).await.unwrap(), 0);
    });
}

#[test]
fn try_methods_do_not_wait_and_readiness_does() {
    let _alarm = alarm();
    runtime(2).block_on(async {
        let (one, other) = UnixStream::pair().unwrap();
        let mut buf = [0; 10];
        let error = other.try_read(&mut buf).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        assert!(timeout(BRIEF, other.readable()).await.is_err());
        let bufs = [IoSlice::new(b"ab"), IoSlice::new(b"cd")];
        assert_eq!(one.try_write_vectored(&bufs).unwrap(), 4);
        timeout(PATIENCE, other.readable()).await.unwrap().unwrap();
        let (mut a, mut b) = ([0; 3], [0; 3]);
        let mut bufs = [IoSliceMut::new(&mut a), IoSliceMut::new(&mut b)];
        assert_eq!(other.try_read_vectored(&mut bufs).unwrap(), 4);
        assert_eq!((&a, &b), (b"abc", b"d\0\0"));
        // Write until there is no room, and wait until there is room again.
        while one.try_write(&[7; 4096]).is_ok() {}
        assert!(timeout(BRIEF, one.writable()).await.is_err());
        poll_fn(|cx| other.poll_read_ready(cx)).await.unwrap();
        let mut room = vec![0; 1 << 20];
        while other.try_read(&mut room).is_ok() {}
        timeout(PATIENCE, one.writable()).await.unwrap().unwrap();
        poll_fn(|cx| one.poll_write_ready(cx)).await.unwrap();
        assert!(one.try_write(b"x").is_ok());
    });
}

#[test]
fn several_tasks_accept_and_a_dropped_accept_takes_nothing() {
    let _alarm = alarm();
    runtime(2).block_on(async {
        let addr = abstract_addr();
        let listener = Arc::new(UnixListener::bind_addr(&addr).unwrap());
        let acceptors: Vec<_> = (0..5)
            .map(|_| {
                let listener = listener.clone();
                tourbillon::spawn(async move { listener.accept().await.map(drop) })
            })
            .collect();
        assert!(timeout(BRIEF, listener.accept()).await.is_err());
        let mut clients = Vec::new();
        for _ in 0..5 {
            clients.push(UnixStream::connect_addr(&addr).await.unwrap());
        }
        for acceptor in acceptors {
            timeout(PATIENCE, acceptor).await.unwrap().unwrap().unwrap();
        }
        let polling = poll_fn(|cx| Poll::Ready(listener.poll_accept(cx)));
        assert!(polling.await.is_pending());
        let _client = UnixStream::connect_addr(&addr).await.unwrap();
        poll_fn(|cx| listener.poll_accept(cx)).await.unwrap();
    });
}

#[test]
fn taken_and_missing_paths_are_errors() {
    let _alarm = alarm();
    let dir = Dir::new();
    runtime(1).block_on(async {
        let path = dir.path("socket");
        let kind = |error: io::Error| error.kind();
        let error = UnixStream::connect(&path).await.map_err(kind).unwrap_err();
        assert_eq!(error, io::ErrorKind::NotFound);
        let listener = UnixListener::bind(&path).unwrap();
        let error = UnixListener::bind(&path).map_err(kind).unwrap_err();
        assert_eq!(error, io::ErrorKind::AddrInUse);
        drop(listener);
        // The file still exists, but no socket listens there.
        let error = until_err(async || UnixStream::connect(&path).await).await;
        assert_eq!(kind(error), io::ErrorKind::ConnectionRefused);
        let too_long = "x".repeat(200);
        for error in [
            UnixListener::bind(Path::new(&too_long)).map(drop),
            UnixStream::connect(Path::new(&too_long)).await.map(drop),
            UnixDatagram::bind(Path::new(&too_long)).map(drop),
        ] {
            assert_eq!(kind(error.unwrap_err()), io::ErrorKind::InvalidInput);
        }
    });
}

#[test]
fn connecting_to_a_full_listener_fails_at_once() {
    let _alarm = alarm();
    runtime(1).block_on(async {
        let addr = abstract_addr();
        let listener = UnixListener::bind_addr(&addr).unwrap();
        socket2::SockRef::from(&listener).listen(1).unwrap();
        let mut clients = Vec::new();
        let error = loop {
            match UnixStream::connect_addr(&addr).await {
                Ok(client) => clients.push(client),
                Err(error) => break error,
            }
            assert!(clients.len() < 10);
        };
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        for _ in &clients {
            listener.accept().await.unwrap();
        }
        UnixStream::connect_addr(&addr).await.unwrap();
    });
}

#[test]
fn peer_credentials_name_the_process() {
    let _alarm = alarm();
    runtime(1).block_on(async {
        let (one, _other) = UnixStream::pair().unwrap();
        let cred = one.peer_cred().unwrap();
        assert_eq!(cred.pid(), i32::try_from(std::process::id()).ok());
        // SAFETY: the calls take no pointers and cannot fail.
        let ids = unsafe { (libc::geteuid(), libc::getegid()) };
        assert_eq!((cred.uid(), cred.gid()), ids);
    });
}

#[test]
fn sockets_convert_from_and_to_the_standard_library() {
    let _alarm = alarm();
    runtime(1).block_on(async {
        let (theirs, other) = std::os::unix::net::UnixStream::pair().unwrap();
        let mut ours = UnixStream::from_std(theirs).unwrap();
        assert!(timeout(BRIEF, ours.read(&mut [0])).await.is_err());
        let mut theirs = ours.into_std().unwrap();
        let error = theirs.read(&mut [0]).unwrap_err();
        assert_eq!(
            error.kind(),
            io::ErrorKind::WouldBlock,
            "still non-blocking"
        );
        (&other).write_all(b"x").unwrap();
        let mut ours = UnixStream::try_from(theirs).unwrap();
        assert_eq!(ours.read(&mut [0]).await.unwrap(), 1);
        assert!(ours.take_error().unwrap().is_none());

        let addr = abstract_addr();
        let theirs = std::os::unix::net::UnixListener::bind_addr(&addr).unwrap();
        let ours = UnixListener::from_std(theirs).unwrap();
        let theirs = ours.into_std().unwrap();
        assert_eq!(
            theirs.accept().unwrap_err().kind(),
            io::ErrorKind::WouldBlock
        );

        let (theirs, _other) = std::os::unix::net::UnixDatagram::pair().unwrap();
        let theirs = UnixDatagram::from_std(theirs).unwrap().into_std().unwrap();
        let error = theirs.recv(&mut [0]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
    });
}

#[test]
fn sockets_without_a_running_runtime_are_errors() {
    let _alarm = alarm();
    let outside = [
        UnixStream::pair().map(drop),
        UnixDatagram::pair().map(drop),
        UnixDatagram::unbound().map(drop),
        UnixListener::bind_addr(&abstract_addr()).map(drop),
    ];
    for result in outside {
        let error = result.unwrap_err();
        assert!(error.to_string().contains("in no Tourbillon runtime"));
    }
    let runtime = runtime(1);
    // Callbacks create the sockets, in the context of the runtime.
    let (mut stream, _other) = on_worker(&runtime, || UnixStream::pair().unwrap());
    let (socket, _its_other) = on_worker(&runtime, || UnixDatagram::pair().unwrap());
    let listener = on_worker(&runtime, || UnixListener::bind_addr(&abstract_addr()));
    drop(runtime);
    let mut buf = [0; 4];
    let after = [
        block_on(stream.read(&mut buf)).map(drop),
        block_on(stream.write(&buf)).map(drop),
        block_on(stream.readable()),
        stream.try_write(&buf).map(drop),
        block_on(socket.recv(&mut buf)).map(drop),
        socket.try_send(&buf).map(drop),
        block_on(listener.unwrap().accept()).map(drop),
    ];
    for result in after {
        let error = result.unwrap_err();
        assert!(error.to_string().contains("shut down"), "{error}");
    }
}
