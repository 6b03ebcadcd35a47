//! The traits of `tokio::io`: generic code over them runs here, without a runtime of tokio's.

use std::io::{self, ErrorKind, IoSlice};

use tokio::io::{
    AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader, ReadBuf,
    copy_bidirectional,
};
use tourbillon::{
    net::{TcpStream, UnixStream},
    time::timeout,
};

use crate::common::{
    PATIENCE, alarm,
    net::{listen, pair, pair_with_std, pattern},
    runtime, unix,
};

fn no_tokio() {
    assert!(tokio::runtime::Handle::try_current().is_err());
}

/// Sends bytes in both directions at the same time, by generic code. Returns the received bytes.
async fn exchange<A, B>(mut a: A, mut b: B) -> (Vec<u8>, Vec<u8>)
where
    A: AsyncRead + AsyncWrite + Unpin,
    B: AsyncRead + AsyncWrite + Unpin,
{
    no_tokio();
    let (to_b, to_a) = (pattern(300_000, 1), pattern(200_000, 2));
    // Each end can write all its data only while the other end reads, so each end does both at
    // once.
    let one = async {
        let (mut read, mut write) = tokio::io::split(&mut a);
        let mut came = Vec::new();
        let write = async {
            write.write_all(&to_b).await.unwrap();
            write.shutdown().await.unwrap();
        };
        let (_, read) = futures::join!(write, read.read_to_end(&mut came));
        assert_eq!(read.unwrap(), came.len());
        came
    };
    let other = async {
        let (mut read, mut write) = tokio::io::split(&mut b);
        let mut came = Vec::new();
        let write = async {
            write.write_all(&to_a).await.unwrap();
            write.shutdown().await.unwrap();
        };
        let (_, read) = futures::join!(write, read.read_to_end(&mut came));
        assert_eq!(read.unwrap(), came.len());
        came
    };
    futures::join!(one, other)
}

#[test]
fn streams_of_either_kind_are_read_and_written_by_generic_code() {
    let _alarm = alarm();
    runtime(2).block_on(async {
        let (a, b) = pair().await;
        let (at_a, at_b) = exchange(a, b).await;
        assert!(at_a == pattern(200_000, 2) && at_b == pattern(300_000, 1));
        let (a, b) = UnixStream::pair().unwrap();
        let (at_a, at_b) = exchange(a, b).await;
        assert!(at_a == pattern(200_000, 2) && at_b == pattern(300_000, 1));
    });
}

#[test]
fn a_proxy_copies_both_ways_to_the_end_of_each() {
    let _alarm = alarm();
    runtime(2).block_on(async {
        let (listener, addr) = listen().await;
        let (backend, behind) = unix::listen();
        // The server replies after it has read the whole request.
        let server = tourbillon::spawn(async move {
            let (mut stream, _) = backend.accept().await.unwrap();
            let mut request = Vec::new();
            stream.read_to_end(&mut request).await.unwrap();
            request.reverse();
            stream.write_all(&request).await.unwrap();
            stream.shutdown().await.unwrap();
        });
        let proxy = tourbillon::spawn(async move {
            no_tokio();
            let (mut client, _) = listener.accept().await.unwrap();
            let mut backend = UnixStream::connect_addr(&behind).await.unwrap();
            copy_bidirectional(&mut client, &mut backend).await
        });
        let mut client = TcpStream::connect(addr).await.unwrap();
        let mut request = pattern(250_000, 3);
        client.write_all(&request).await.unwrap();
        // This is the method of tokio's trait. No method of the stream itself hides it.
        client.shutdown().await.unwrap();
        let mut reply = Vec::new();
        let read = client.read_to_end(&mut reply);
        timeout(PATIENCE, read).await.unwrap().unwrap();
        request.reverse();
        assert!(reply == request);
        server.await.unwrap();
        assert_eq!(proxy.await.unwrap().unwrap(), (250_000, 250_000));
    });
}

#[test]
fn halves_are_owned_by_different_tasks_and_read_by_lines() {
    let _alarm = alarm();
    runtime(2).block_on(async {
        let (client, server) = pair().await;
        let (read, mut write) = server.into_split();
        let (client_read, mut client_write) = client.into_split();
        let echo = tourbillon::spawn(async move {
            no_tokio();
            let mut lines = BufReader::new(read).lines();
            while let Some(line) = lines.next_line().await? {
                write.write_all(format!("{line}!\n").as_bytes()).await?;
            }
            // Dropping the half sends the end.
            io::Result::Ok(())
        });
        client_write.write_all(b"one\ntw").await.unwrap();
        let mut lines = BufReader::new(client_read).lines();
        assert_eq!(lines.next_line().await.unwrap().unwrap(), "one!");
        client_write.write_all(b"o\n").await.unwrap();
        assert_eq!(lines.next_line().await.unwrap().unwrap(), "two!");
        client_write.shutdown().await.unwrap();
        assert_eq!(lines.next_line().await.unwrap(), None);
        echo.await.unwrap().unwrap();
        // The reunited stream still works, and does not send the end a second time.
        let (a, b) = UnixStream::pair().unwrap();
        let (read, mut write) = a.into_split();
        write.shutdown().await.unwrap();
        let mut whole = read.reunite(write).unwrap();
        drop(b);
        assert_eq!(whole.read(&mut [0; 1]).await.unwrap(), 0);
    });
}

#[test]
fn vectored_writes_work_and_a_read_appends() {
    let _alarm = alarm();
    runtime(2).block_on(async {
        let (mut client, mut server) = pair().await;
        assert!(client.is_write_vectored());
        let bufs = [IoSlice::new(b"ab"), IoSlice::new(b"cde")];
        assert_eq!(client.write_vectored(&bufs).await.unwrap(), 5);
        let mut room = [std::mem::MaybeUninit::uninit(); 16];
        let mut buf = ReadBuf::uninit(&mut room);
        buf.put_slice(b"> ");
        while buf.filled().len() < 7 {
            let read = |cx: &mut std::task::Context<'_>| {
                let server = std::pin::Pin::new(&mut server);
                AsyncRead::poll_read(server, cx, &mut buf)
            };
            std::future::poll_fn(read).await.unwrap();
        }
        assert_eq!(buf.filled(), b"> abcde");
        assert_eq!(buf.remaining(), 9);
        // `read_buf` reads into what a vector has not initialized.
        client.write_all(b"more").await.unwrap();
        let mut more = Vec::with_capacity(64);
        while more.len() < 4 {
            server.read_buf(&mut more).await.unwrap();
        }
        assert_eq!(more, b"more");
    });
}

#[test]
fn errors_are_the_systems_and_shutdown_after_a_reset_succeeds() {
    let _alarm = alarm();
    runtime(2).block_on(async {
        let (mut ours, theirs) = pair_with_std().await;
        socket2::SockRef::from(&theirs)
            .set_linger(Some(std::time::Duration::ZERO))
            .unwrap();
        drop(theirs);
        let error = ours.read(&mut [0; 1]).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
        AsyncWriteExt::shutdown(&mut ours).await.unwrap();
        assert!(ours.write_all(b"x").await.is_err());
    });
}
