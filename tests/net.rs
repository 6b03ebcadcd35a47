//! TCP sockets: data arrives whole and in order, ends and errors are told, nothing hangs.

mod common;

use std::{
    future::{Future, poll_fn},
    io::{self, Read, Write},
    net::{Ipv4Addr, SocketAddr},
    os::fd::AsRawFd,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, Waker},
    thread,
    time::Duration,
};

use common::{Drops, HOUR, PATIENCE, alarm, eventually, isolated, runtime, use_up_descriptors};
use futures_lite::{AsyncReadExt, AsyncWriteExt, future::zip};
use socket2::SockRef;
use tourbillon::{
    Runtime,
    net::{OwnedReadHalf, OwnedWriteHalf, TcpListener, TcpStream},
    time::{sleep, timeout},
};

const ANY_PORT: (Ipv4Addr, u16) = (Ipv4Addr::LOCALHOST, 0);

async fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind(ANY_PORT).await.unwrap();
    let addr = listener.local_addr().unwrap();
    assert_ne!(addr.port(), 0);
    (listener, addr)
}

/// Two ends of a connection.
async fn pair() -> (TcpStream, TcpStream) {
    let (listener, addr) = listen().await;
    let (client, server) = zip(TcpStream::connect(addr), listener.accept()).await;
    let (client, (server, peer)) = (client.unwrap(), server.unwrap());
    assert_eq!(client.local_addr().unwrap(), peer);
    assert_eq!(server.peer_addr().unwrap(), peer);
    assert_eq!(client.peer_addr().unwrap(), addr);
    (client, server)
}

/// One end of ours, and one of the standard library's, which blocks.
async fn pair_with_std() -> (TcpStream, std::net::TcpStream) {
    let (listener, addr) = listen().await;
    let client = std::net::TcpStream::connect(addr).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    client.set_write_timeout(Some(PATIENCE)).unwrap();
    (listener.accept().await.unwrap().0, client)
}

/// Sends back all that comes.
async fn echo(mut stream: TcpStream) -> io::Result<u64> {
    // Or replies in parts wait for the peer's delayed acknowledgement, 40 ms each time.
    stream.set_nodelay(true)?;
    let mut buffer = [0; 1024];
    let mut count = 0;
    loop {
        let n = stream.read(&mut buffer).await?;
        if n == 0 {
            return Ok(count);
        }
        stream.write_all(&buffer[..n]).await?;
        count += n as u64;
    }
}

/// A server that echoes, for as long as its runtime runs.
fn serve_echo(runtime: &Runtime) -> SocketAddr {
    let (listener, addr) = runtime.block_on(listen());
    runtime.spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            tourbillon::spawn(echo(stream));
        }
    });
    addr
}

/// Bytes that differ from place to place, and from seed to seed.
fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len)
        .map(|i| (i as u32).wrapping_mul(2_654_435_761).to_be_bytes()[0] ^ seed)
        .collect()
}

#[test]
fn an_echo_comes_back() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let addr = serve_echo(&runtime);
    runtime.block_on(async {
        let mut stream = TcpStream::connect(addr).await.unwrap();
        stream.set_nodelay(true).unwrap();
        for i in 0..200_u8 {
            let sent = pattern(1 + usize::from(i) * 37, i);
            stream.write_all(&sent).await.unwrap();
            let mut received = vec![0; sent.len()];
            stream.read_exact(&mut received).await.unwrap();
            assert_eq!(received, sent);
        }
    });
    // Clients that know nothing of the runtime.
    let mut stream = std::net::TcpStream::connect(addr).unwrap();
    stream.write_all(b"blocking").unwrap();
    let mut received = [0; 8];
    stream.read_exact(&mut received).unwrap();
    assert_eq!(&received, b"blocking");
}

#[test]
fn many_connections_are_served_at_once() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let addr = serve_echo(&runtime);
    let served = Arc::new(AtomicUsize::new(0));
    let clients: Vec<_> = (0..300_usize)
        .map(|i| {
            let served = served.clone();
            runtime.spawn(async move {
                let mut stream = TcpStream::connect(addr).await.unwrap();
                stream.set_nodelay(true).unwrap();
                assert!(stream.nodelay().unwrap());
                for round in 0..5 {
                    let sent = pattern(100 + i * 11, round);
                    stream.write_all(&sent).await.unwrap();
                    let mut received = vec![0; sent.len()];
                    stream.read_exact(&mut received).await.unwrap();
                    assert_eq!(received, sent);
                    // Not one after the other: all of them are connected together.
                    if round == 0 {
                        served.fetch_add(1, Ordering::SeqCst);
                        while served.load(Ordering::SeqCst) < 300 {
                            sleep(Duration::from_micros(500)).await;
                        }
                    }
                }
            })
        })
        .collect();
    for client in clients {
        runtime.block_on(client).unwrap();
    }
}

#[test]
fn connections_come_and_go() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let addr = serve_echo(&runtime);
    // Descriptors and places in the reactors are used again and again; no event may go astray.
    let clients: Vec<_> = (0..4_u8)
        .map(|i| {
            runtime.spawn(async move {
                for round in 0..150 {
                    let mut stream = TcpStream::connect(addr).await.unwrap();
                    let sent = [i, round, 7];
                    stream.write_all(&sent).await.unwrap();
                    let mut received = [0; 3];
                    stream.read_exact(&mut received).await.unwrap();
                    assert_eq!(received, sent);
                }
            })
        })
        .collect();
    for client in clients {
        runtime.block_on(client).unwrap();
    }
}

#[test]
fn after_half_a_close_the_other_direction_goes_on() {
    let _alarm = alarm();
    let runtime = runtime(2);
    runtime.block_on(async {
        let (mut client, mut server) = pair().await;
        client.write_all(b"request").await.unwrap();
        client.close().await.unwrap();
        let mut request = String::new();
        server.read_to_string(&mut request).await.unwrap();
        assert_eq!(request, "request");
        // The end stays the end.
        assert_eq!(server.read(&mut [0]).await.unwrap(), 0);
        server.write_all(b"reply").await.unwrap();
        drop(server);
        let mut reply = String::new();
        client.read_to_string(&mut reply).await.unwrap();
        assert_eq!(reply, "reply");
        let error = client.write(b"more").await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
    });
}

#[test]
fn a_refused_connection_is_an_error() {
    let _alarm = alarm();
    let runtime = runtime(1);
    // A port that was just given up: nobody listens there.
    let addr = {
        let listener = std::net::TcpListener::bind(ANY_PORT).unwrap();
        listener.local_addr().unwrap()
    };
    runtime.block_on(async {
        let error = TcpStream::connect(addr).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
        // The next address is tried.
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
fn outside_of_a_runtime_sockets_are_errors() {
    let error = futures_lite::future::block_on(TcpListener::bind(ANY_PORT)).unwrap_err();
    assert!(error.to_string().contains("in no Tourbillon runtime"));
    let listener = std::net::TcpListener::bind(ANY_PORT).unwrap();
    let addr = listener.local_addr().unwrap();
    assert!(TcpListener::from_std(listener.try_clone().unwrap()).is_err());
    let error = futures_lite::future::block_on(TcpStream::connect(addr)).unwrap_err();
    assert!(error.to_string().contains("in no Tourbillon runtime"));
}

#[test]
fn megabytes_pass_both_ways_through_small_buffers() {
    let _alarm = alarm();
    const LEN: usize = 8 << 20;
    let runtime = runtime(2);
    let (client, server) = runtime.block_on(pair());
    for stream in [&client, &server] {
        let socket = SockRef::from(stream);
        socket.set_send_buffer_size(16 << 10).unwrap();
        socket.set_recv_buffer_size(16 << 10).unwrap();
    }
    let both_ways = |stream: TcpStream, seed: u8, chunk: usize| {
        let (mut read, mut write) = stream.into_split();
        let sending = runtime.spawn(async move {
            let sent = pattern(LEN, seed);
            write.write_all(&sent).await.unwrap();
            // Dropping the half sends the end.
        });
        let receiving = runtime.spawn(async move {
            let mut received = Vec::new();
            let mut buffer = vec![0; chunk];
            loop {
                match read.read(&mut buffer).await.unwrap() {
                    0 => return received,
                    n => received.extend_from_slice(&buffer[..n]),
                }
            }
        });
        (sending, receiving)
    };
    let ends = [both_ways(client, 1, 777), both_ways(server, 2, 64 << 10)];
    for ((sending, receiving), seed) in ends.into_iter().zip([2, 1]) {
        runtime.block_on(sending).unwrap();
        let received = runtime.block_on(receiving).unwrap();
        assert_eq!(received.len(), LEN);
        assert!(received == pattern(LEN, seed), "bytes differ");
    }
}

#[test]
fn one_task_may_read_and_write_at_once() {
    let _alarm = alarm();
    const LEN: usize = 1 << 20;
    let runtime = runtime(1);
    runtime.block_on(async {
        let (mut client, server) = pair().await;
        let echo = tourbillon::spawn(echo(server));
        {
            let (mut read, mut write) = (&client, &client);
            let mut received = vec![0; LEN];
            let sent = pattern(LEN, 3);
            let (wrote, got) = zip(write.write_all(&sent), read.read_exact(&mut received)).await;
            wrote.unwrap();
            got.unwrap();
            assert!(received == sent, "bytes differ");
        }
        client.close().await.unwrap();
        assert_eq!(echo.await.unwrap().unwrap(), LEN as u64);
    });
}

#[test]
fn vectored_reads_and_writes_pass_all_bytes() {
    let _alarm = alarm();
    let runtime = runtime(1);
    runtime.block_on(async {
        let (mut client, mut server) = pair().await;
        let sent = pattern(10_000, 9);
        let mut left = &sent[..];
        let mut received = Vec::new();
        while received.len() < sent.len() {
            if !left.is_empty() {
                let (a, b) = left.split_at(left.len() / 3);
                let bufs = [io::IoSlice::new(a), io::IoSlice::new(b)];
                let n = client.write_vectored(&bufs).await.unwrap();
                left = &left[n..];
            }
            let (mut a, mut b) = ([0; 100], [0; 1000]);
            let mut bufs = [io::IoSliceMut::new(&mut a), io::IoSliceMut::new(&mut b)];
            let n = server.read_vectored(&mut bufs).await.unwrap();
            assert!(n > 0);
            received.extend_from_slice(&a[..n.min(100)]);
            received.extend_from_slice(&b[..n.saturating_sub(100)]);
        }
        assert!(received == sent, "bytes differ");
    });
}

#[test]
fn a_read_of_nothing_is_not_the_end() {
    let _alarm = alarm();
    let runtime = runtime(1);
    runtime.block_on(async {
        let (mut client, mut server) = pair().await;
        client.write_all(b"x").await.unwrap();
        let mut byte = [0];
        server.read_exact(&mut byte).await.unwrap();
        client.write_all(b"y").await.unwrap();
        assert_eq!(server.read(&mut []).await.unwrap(), 0);
        assert_eq!(server.write(&[]).await.unwrap(), 0);
        server.read_exact(&mut byte).await.unwrap();
        assert_eq!(&byte, b"y");
    });
}

#[test]
fn halves_can_be_put_together_again() {
    let _alarm = alarm();
    let runtime = runtime(1);
    runtime.block_on(async {
        let (client, server) = pair().await;
        let (other, _its_peer) = pair().await;
        let addr = client.local_addr().unwrap();
        let (read, write): (OwnedReadHalf, OwnedWriteHalf) = client.into_split();
        let (other_read, other_write) = other.into_split();
        assert_eq!(read.local_addr().unwrap(), addr);
        assert_eq!(write.peer_addr().unwrap(), server.local_addr().unwrap());
        // Halves of two connections are given back, and still work.
        let error = read.reunite(other_write).unwrap_err();
        assert!(error.to_string().contains("not of one connection"));
        let tourbillon::net::ReuniteError(read, other_write) = error;
        drop(other_read.reunite(other_write).unwrap());
        let mut client = read.reunite(write).unwrap();
        let echo = tourbillon::spawn(echo(server));
        client.write_all(b"whole").await.unwrap();
        let mut received = [0; 5];
        client.read_exact(&mut received).await.unwrap();
        assert_eq!(&received, b"whole");
        drop(client);
        assert_eq!(echo.await.unwrap().unwrap(), 5);
    });
}

#[test]
fn a_dropped_write_half_sends_the_end_unless_it_is_forgotten() {
    let _alarm = alarm();
    let runtime = runtime(1);
    runtime.block_on(async {
        let (client, mut server) = pair().await;
        let (mut read, write) = client.into_split();
        drop(write);
        assert_eq!(server.read(&mut [0]).await.unwrap(), 0);
        server.write_all(b"z").await.unwrap();
        let mut byte = [0];
        read.read_exact(&mut byte).await.unwrap();

        let (client, mut server) = pair().await;
        let (read, write) = client.into_split();
        write.forget();
        let brief = Duration::from_millis(20);
        assert!(timeout(brief, server.read(&mut [0])).await.is_err());
        drop(read);
        assert_eq!(server.read(&mut [0]).await.unwrap(), 0);
    });
}

#[test]
fn a_timeout_on_a_read_leaves_the_stream_usable() {
    let _alarm = alarm();
    let runtime = runtime(2);
    runtime.block_on(async {
        let (mut client, mut server) = pair().await;
        for i in 0..20_u8 {
            let brief = Duration::from_micros(500);
            let read = timeout(brief, server.read(&mut [0])).await;
            assert!(read.is_err(), "nothing was sent");
            client.write_all(&[i]).await.unwrap();
            let mut byte = [0];
            let read = timeout(PATIENCE, server.read_exact(&mut byte)).await;
            read.unwrap().unwrap();
            assert_eq!(byte, [i]);
        }
    });
}

#[test]
fn a_task_that_waits_for_a_stream_can_be_aborted() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let drops = Drops::new();
    runtime.block_on(async {
        for _ in 0..20 {
            let (mut client, mut server) = pair().await;
            let token = drops.token();
            let reading = tourbillon::spawn(async move {
                let _token = token;
                server.read(&mut [0]).await
            });
            tourbillon::task::yield_now().await;
            reading.abort();
            assert!(reading.await.unwrap_err().is_cancelled());
            // Its end is closed with it.
            assert_eq!(client.read(&mut [0]).await.unwrap(), 0);
        }
    });
    assert_eq!(drops.count(), 20);
}

#[test]
fn a_reset_connection_is_an_error_for_who_waits_and_who_comes() {
    let _alarm = alarm();
    let runtime = runtime(2);
    runtime.block_on(async {
        let (stream, peer) = pair_with_std().await;
        let (mut read, mut write) = stream.into_split();
        let reading = tourbillon::spawn(async move {
            let error = read.read(&mut [0]).await.unwrap_err();
            // It was told once; from then on it is the end.
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
fn a_reset_ends_a_write_that_waits_for_room() {
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
fn data_that_came_before_the_end_is_read_before_it() {
    let _alarm = alarm();
    let runtime = runtime(2);
    runtime.block_on(async {
        for len in [1, 100, 5_000] {
            let (mut stream, mut peer) = pair_with_std().await;
            let sent = pattern(len, 4);
            peer.write_all(&sent).unwrap();
            drop(peer);
            // Both the data and the end are there when it looks.
            sleep(Duration::from_millis(1)).await;
            let mut received = Vec::new();
            // Exactly what there is, so that a read takes all and more than all.
            stream.read_to_end(&mut received).await.unwrap();
            assert_eq!(received, sent);
        }
    });
}

#[test]
fn streams_are_taken_from_and_given_to_the_standard_library() {
    let _alarm = alarm();
    let runtime = runtime(1);
    let listener = std::net::TcpListener::bind(ANY_PORT).unwrap();
    let addr = listener.local_addr().unwrap();
    let client = std::net::TcpStream::connect(addr).unwrap();
    runtime.block_on(async {
        let listener = TcpListener::from_std(listener).unwrap();
        assert!(listener.as_raw_fd() >= 0);
        let (server, _) = listener.accept().await.unwrap();
        let mut client = TcpStream::from_std(client).unwrap();
        let echo = tourbillon::spawn(echo(server));
        client.write_all(b"ours").await.unwrap();
        let mut received = [0; 4];
        client.read_exact(&mut received).await.unwrap();
        assert_eq!(&received, b"ours");

        let mut client = client.into_std();
        let again = client.read(&mut [0]).unwrap_err();
        assert_eq!(
            again.kind(),
            io::ErrorKind::WouldBlock,
            "still non-blocking"
        );
        client.set_nonblocking(false).unwrap();
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        client.write_all(b"theirs").unwrap();
        let mut received = [0; 6];
        client.read_exact(&mut received).unwrap();
        assert_eq!(&received, b"theirs");

        // And ours again: a descriptor can be registered once it was given back.
        let mut client = TcpStream::from_std(client).unwrap();
        client.write_all(b"again").await.unwrap();
        let mut received = [0; 5];
        client.read_exact(&mut received).await.unwrap();
        assert_eq!(&received, b"again");
        drop(client);
        assert_eq!(echo.await.unwrap().unwrap(), 15);

        let listener = listener.into_std();
        assert_eq!(listener.local_addr().unwrap(), addr);
        let again = listener.accept().unwrap_err();
        assert_eq!(again.kind(), io::ErrorKind::WouldBlock);
    });
}

#[test]
fn a_stream_works_on_a_worker_of_another_runtime() {
    let _alarm = alarm();
    let (home, away) = (runtime(1), runtime(1));
    let (client, server) = home.block_on(pair());
    let serving = away.spawn(echo(server));
    let talking = away.spawn(async move {
        let mut client = client;
        for i in 0..200_u8 {
            client.write_all(&[i; 100]).await.unwrap();
            let mut received = [0; 100];
            client.read_exact(&mut received).await.unwrap();
            assert_eq!(received, [i; 100]);
        }
        client
    });
    let mut client = away.block_on(talking).unwrap();
    // What waits in another runtime is told when the one that watches the socket ends.
    let waiting = away.spawn(async move { client.read(&mut [0]).await });
    thread::sleep(Duration::from_millis(5));
    assert!(!waiting.is_finished() && !serving.is_finished());
    drop(home);
    assert!(away.block_on(waiting).unwrap().is_err());
    assert!(away.block_on(serving).unwrap().is_err());
}

#[test]
fn poll_accept_registers_and_answers() {
    let _alarm = alarm();
    let runtime = runtime(1);
    runtime.block_on(async {
        let (listener, addr) = listen().await;
        let mut cx = Context::from_waker(Waker::noop());
        assert!(listener.poll_accept(&mut cx).is_pending());
        let client = std::net::TcpStream::connect(addr).unwrap();
        let (_, peer) = poll_fn(|cx| listener.poll_accept(cx)).await.unwrap();
        assert_eq!(peer, client.local_addr().unwrap());
    });
}

#[test]
fn all_connections_that_came_at_once_are_accepted() {
    let _alarm = alarm();
    let runtime = runtime(2);
    runtime.block_on(async {
        let (listener, addr) = listen().await;
        // One edge stands for all of them.
        let clients: Vec<_> = (0..100)
            .map(|_| std::net::TcpStream::connect(addr).unwrap())
            .collect();
        for client in &clients {
            let (_, peer) = timeout(PATIENCE, listener.accept()).await.unwrap().unwrap();
            assert_eq!(peer, client.local_addr().unwrap());
        }
        assert!(
            timeout(Duration::from_millis(5), listener.accept())
                .await
                .is_err()
        );
        let _late = std::net::TcpStream::connect(addr).unwrap();
        timeout(PATIENCE, listener.accept()).await.unwrap().unwrap();
    });
}

#[test]
fn without_descriptors_accept_and_the_rest_fail_and_recover() {
    isolated(
        "without_descriptors_accept_and_the_rest_fail_and_recover",
        || {
            let runtime = runtime(1);
            runtime.block_on(async {
                let (listener, addr) = listen().await;
                let mut client = std::net::TcpStream::connect(addr).unwrap();
                let used_up = use_up_descriptors();
                for _ in 0..3 {
                    // Each time at once: the connection still waits.
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
        },
    );
}

#[test]
fn a_connect_that_is_given_up_leaves_no_descriptor() {
    isolated("a_connect_that_is_given_up_leaves_no_descriptor", || {
        let runtime = runtime(1);
        runtime.block_on(async {
            // A listener whose queue is full lets nobody else in, and says nothing.
            let (listener, addr) = listen().await;
            SockRef::from(&listener).listen(0).unwrap();
            let mut stuck = Vec::new();
            for _ in 0..8 {
                let brief = Duration::from_millis(20);
                match timeout(brief, TcpStream::connect(addr)).await {
                    Ok(connected) => stuck.push(connected.unwrap()),
                    Err(_) => break,
                }
            }
            let before = common::fds();
            for _ in 0..5 {
                let mut connecting = pin!(TcpStream::connect(addr));
                poll_fn(|cx| {
                    // Not awaited to its end.
                    let _ = connecting.as_mut().poll(cx);
                    Poll::Ready(())
                })
                .await;
            }
            assert_eq!(common::fds(), before);
        });
    });
}

#[test]
fn sockets_that_wait_do_not_keep_a_runtime_from_ending() {
    let _alarm = alarm();
    let drops = Drops::new();
    for _ in 0..20 {
        let runtime = runtime(2);
        let addr = serve_echo(&runtime);
        let mut client = std::net::TcpStream::connect(addr).unwrap();
        client.write_all(b"a").unwrap();
        client.read_exact(&mut [0]).unwrap();
        let token = drops.token();
        runtime.spawn(async move {
            let _token = token;
            sleep(HOUR).await;
        });
        drop(runtime);
        // The server's end is closed with its task.
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        assert!(matches!(client.read(&mut [0]), Ok(0) | Err(_)));
        eventually("nobody listens", || {
            std::net::TcpStream::connect(addr).is_err()
        });
    }
    assert_eq!(drops.count(), 20);
}
