//! TCP streams: data and connections arrive whole and in order.

use std::{
    future::poll_fn,
    io::{self, Read, Write},
    mem::MaybeUninit,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Waker},
    thread,
    time::Duration,
};

use futures_lite::{AsyncReadExt, AsyncWriteExt, future::zip};
use socket2::SockRef;
use tourbillon::{
    net::TcpStream,
    time::{sleep, timeout},
};

use crate::common::{
    PATIENCE, alarm,
    net::{
        echo, half_close, listen, pair, pair_with_std, pattern, reply_after_half_close, serve_echo,
    },
    runtime,
};

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
    // A blocking client of the standard library is served, too.
    let mut stream = std::net::TcpStream::connect(addr).unwrap();
    stream.write_all(b"blocking").unwrap();
    let mut received = [0; 8];
    stream.read_exact(&mut received).unwrap();
    assert_eq!(&received, b"blocking");
}

#[test]
fn a_read_initializes_as_many_bytes_as_it_returns() {
    let _alarm = alarm();
    runtime(1).block_on(async {
        let (stream, mut peer) = pair().await;
        let mut room = [MaybeUninit::new(9_u8); 8];
        peer.write_all(b"here").await.unwrap();
        let read = poll_fn(|cx| stream.poll_read_uninit(cx, &mut room)).await;
        assert_eq!(read.unwrap(), 4);
        // SAFETY: all bytes were initialized above.
        let bytes = room.map(|byte| unsafe { byte.assume_init() });
        assert_eq!(&bytes, b"here\x09\x09\x09\x09");
        drop(peer);
        let end = poll_fn(|cx| stream.poll_read_uninit(cx, &mut room)).await;
        assert_eq!(end.unwrap(), 0);
    });
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
                    // Wait here until all clients are connected at the same time.
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
fn connections_open_and_close_repeatedly() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let addr = serve_echo(&runtime);
    // Descriptors and places in the reactors are reused many times. No event may reach a wrong
    // stream.
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
fn data_still_flows_the_other_way_after_a_half_close() {
    let _alarm = alarm();
    let runtime = runtime(2);
    runtime.block_on(async {
        let (mut client, mut server) = pair().await;
        let close = async |client: &mut TcpStream| client.close().await;
        half_close(&mut client, &mut server, close).await;
        reply_after_half_close(&mut client, server).await;
    });
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
fn an_empty_read_does_not_signal_the_end() {
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
fn data_sent_before_the_end_is_read_before_it() {
    let _alarm = alarm();
    let runtime = runtime(2);
    runtime.block_on(async {
        for len in [1, 100, 5_000] {
            let (mut stream, mut peer) = pair_with_std().await;
            let sent = pattern(len, 4);
            peer.write_all(&sent).unwrap();
            drop(peer);
            // Wait until both the data and the end have arrived.
            sleep(Duration::from_millis(1)).await;
            let mut received = Vec::new();
            // A read may take all data that is there, and the next read finds the end.
            stream.read_to_end(&mut received).await.unwrap();
            assert_eq!(received, sent);
        }
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
    // A task that waits in another runtime gets an error when the runtime that watches the socket
    // ends.
    let waiting = away.spawn(async move { client.read(&mut [0]).await });
    thread::sleep(Duration::from_millis(5));
    assert!(!waiting.is_finished() && !serving.is_finished());
    drop(home);
    assert!(away.block_on(waiting).unwrap().is_err());
    assert!(away.block_on(serving).unwrap().is_err());
}

#[test]
fn poll_accept_registers_its_waker_and_returns_a_connection() {
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
fn simultaneous_connections_are_all_accepted() {
    let _alarm = alarm();
    let runtime = runtime(2);
    runtime.block_on(async {
        let (listener, addr) = listen().await;
        // One edge of epoll may stand for all of these connections.
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
