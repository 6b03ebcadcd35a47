//! TCP sockets can be split, reunited, converted and dropped. A dropped socket is closed.

use std::{
    future::{Future, poll_fn},
    io::{self, ErrorKind::WouldBlock, Read, Write},
    os::fd::AsRawFd,
    pin::pin,
    task::Poll,
    time::Duration,
};

use futures_lite::{AsyncReadExt, AsyncWriteExt, future::zip};
use socket2::SockRef;
use tourbillon::{
    net::{OwnedReadHalf, OwnedWriteHalf, TcpListener, TcpStream},
    time::{sleep, timeout},
};

use crate::common::{
    Drops, HOUR, PATIENCE, alarm, eventually,
    net::{ANY_PORT, echo, listen, pair, pattern, serve_echo},
    process::alone,
    runtime,
};

#[test]
fn halves_can_be_reunited() {
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
fn a_dropped_write_half_shuts_down_writing_unless_forgotten() {
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
fn borrowed_halves_work_at_once_and_leave_the_stream_open() {
    let _alarm = alarm();
    runtime(1).block_on(async {
        let (mut client, server) = pair().await;
        let echo = tourbillon::spawn(echo(server));
        let (addr, peer) = (client.local_addr().unwrap(), client.peer_addr().unwrap());
        let sent = pattern(300_000, 1);
        let mut came = vec![0; sent.len()];
        {
            let (mut read, mut write) = client.split();
            assert_eq!(
                (read.local_addr().unwrap(), write.peer_addr().unwrap()),
                (addr, peer)
            );
            assert_eq!(read.try_read(&mut [0]).unwrap_err().kind(), WouldBlock);
            assert_eq!(write.try_write(&sent[..1]).unwrap(), 1);
            read.readable().await.unwrap();
            assert_eq!(read.peek(&mut [0; 4]).await.unwrap(), 1);
            // The data is larger than the buffers of the sockets, so both directions have to work
            // at once.
            let (wrote, read) = zip(write.write_all(&sent[1..]), read.read_exact(&mut came)).await;
            wrote.unwrap();
            read.unwrap();
        }
        assert!(came == sent);
        // Dropping the halves has closed neither direction. Closing the write half does.
        client.write_all(b"more").await.unwrap();
        client.read_exact(&mut came[..4]).await.unwrap();
        let (mut read, mut write) = client.split();
        assert!(std::ptr::eq(
            AsRef::<TcpStream>::as_ref(&read),
            write.as_ref()
        ));
        write.close().await.unwrap();
        assert_eq!(read.read(&mut came).await.unwrap(), 0);
        assert_eq!(echo.await.unwrap().unwrap(), 300_004);
    });
}

#[test]
fn a_read_half_peeks_without_taking_data() {
    let _alarm = alarm();
    runtime(1).block_on(async {
        let (client, server) = pair().await;
        let (mut read, _write) = client.into_split();
        let mut buf = [0; 8];
        let polled = poll_fn(|cx| Poll::Ready(read.poll_peek(cx, &mut buf))).await;
        assert!(polled.is_pending());
        (&server).write_all(b"hello").await.unwrap();
        let n = poll_fn(|cx| read.poll_peek(cx, &mut buf)).await.unwrap();
        assert_eq!(&buf[..n], b"hello");
        assert_eq!(read.peek(&mut buf[..2]).await.unwrap(), 2);
        assert_eq!(read.read(&mut buf).await.unwrap(), 5);
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
            // The task has dropped its stream, which closes the connection.
            assert_eq!(client.read(&mut [0]).await.unwrap(), 0);
        }
    });
    assert_eq!(drops.count(), 20);
}

#[test]
fn streams_convert_from_and_to_the_standard_library() {
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

        let mut client = client.into_std().unwrap();
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

        // Convert back: a descriptor can be registered again after it was given back.
        let mut client = TcpStream::from_std(client).unwrap();
        client.write_all(b"again").await.unwrap();
        let mut received = [0; 5];
        client.read_exact(&mut received).await.unwrap();
        assert_eq!(&received, b"again");
        drop(client);
        assert_eq!(echo.await.unwrap().unwrap(), 15);

        let listener = listener.into_std().unwrap();
        assert_eq!(listener.local_addr().unwrap(), addr);
        let again = listener.accept().unwrap_err();
        assert_eq!(again.kind(), io::ErrorKind::WouldBlock);
    });
}

#[test]
fn a_dropped_connect_leaks_no_descriptor() {
    alone(|| {
        let runtime = runtime(1);
        runtime.block_on(async {
            // A listener with a full queue ignores further connects.
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
            let before = crate::common::fds();
            for _ in 0..5 {
                let mut connecting = pin!(TcpStream::connect(addr));
                poll_fn(|cx| {
                    // Poll once, and drop the future before the connection is made.
                    let _ = connecting.as_mut().poll(cx);
                    Poll::Ready(())
                })
                .await;
            }
            assert_eq!(crate::common::fds(), before);
        });
    });
}

#[test]
fn pending_socket_waits_do_not_block_a_shutdown() {
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
