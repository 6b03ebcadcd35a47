//! A task that waits for a socket is woken only for events that concern it: several acceptors,
//! urgent data, and error queues.

use std::{
    io::{Read, Write},
    mem::MaybeUninit,
    net::{TcpListener as StdListener, TcpStream as StdStream},
    os::fd::AsRawFd,
    sync::Arc,
    time::Duration,
};

use futures_lite::{AsyncReadExt, AsyncWriteExt, future::poll_once};
use tourbillon::{
    net::{TcpListener, TcpStream},
    runtime::Builder,
    time::timeout,
};

use crate::common::{PATIENCE, alarm, runtime};

const MS: Duration = Duration::from_millis(1);

/// Both ends of a connection.
fn pair() -> (StdStream, StdStream) {
    let listener = StdListener::bind("127.0.0.1:0").unwrap();
    let client = StdStream::connect(listener.local_addr().unwrap()).unwrap();
    (client, listener.accept().unwrap().0)
}

#[test]
fn several_tasks_accept_from_one_listener() {
    let _alarm = alarm();
    let runtime = runtime(2);
    runtime.block_on(async {
        let listener = Arc::new(TcpListener::bind("127.0.0.1:0").await.unwrap());
        let addr = listener.local_addr().unwrap();
        let acceptors: Vec<_> = (0..5)
            .map(|_| {
                let listener = listener.clone();
                tourbillon::spawn(async move { listener.accept().await.map(drop) })
            })
            .collect();
        // Another task gives up, which takes no connection from these tasks.
        assert!(timeout(5 * MS, listener.accept()).await.is_err());
        let _clients: Vec<_> = (0..5).map(|_| StdStream::connect(addr).unwrap()).collect();
        for acceptor in acceptors {
            timeout(PATIENCE, acceptor).await.unwrap().unwrap().unwrap();
        }
    });
}

#[test]
fn data_after_urgent_data_is_read() {
    let _alarm = alarm();
    let (mut client, server) = pair();
    client.set_nodelay(true).unwrap();
    client.write_all(b"aaa").unwrap();
    socket2::SockRef::from(&client)
        .send_out_of_band(b"!")
        .unwrap();
    client.write_all(b"ccc").unwrap();
    runtime(1).block_on(async {
        let mut server = TcpStream::from_std(server).unwrap();
        let mut read: Vec<u8> = Vec::new();
        while read.len() < 6 {
            let mut buf = [0; 100];
            // The read stops at the urgent mark, although there is more data behind it.
            let n = timeout(PATIENCE, server.read(&mut buf))
                .await
                .unwrap()
                .unwrap();
            read.extend(&buf[..n]);
        }
        assert_eq!(read, b"aaaccc");
    });
}

/// Makes the kernel put an entry into the error queue of a socket for each packet sent.
fn report_sends(stream: &StdStream) {
    // TX_SOFTWARE, SOFTWARE, OPT_TSONLY of linux/net_tstamp.h.
    let flags: libc::c_uint = 1 << 1 | 1 << 4 | 1 << 11;
    // SAFETY: four readable bytes, as the option wants them.
    let result = unsafe {
        libc::setsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_TIMESTAMPING,
            (&raw const flags).cast(),
            size_of_val(&flags) as libc::socklen_t,
        )
    };
    assert_eq!(result, 0);
}

#[test]
fn a_filled_error_queue_does_not_keep_the_worker_busy() {
    let _alarm = alarm();
    let (client, mut server) = pair();
    report_sends(&client);
    let runtime = runtime(1);
    let reading = runtime.spawn(async move {
        let mut client = TcpStream::from_std(client).unwrap();
        client.write_all(b"hello").await.unwrap();
        tourbillon::time::sleep(10 * MS).await;
        // No data comes. The only worker must be free to fire the timeout.
        timeout(20 * MS, client.read(&mut [0; 8])).await.is_err()
    });
    server.read_exact(&mut [0; 5]).unwrap();
    let ended = runtime.block_on(timeout(PATIENCE, reading));
    assert!(ended.expect("the worker is occupied").unwrap());
}

#[test]
fn the_first_operations_of_an_accepted_stream_do_not_wait_for_epoll() {
    let _alarm = alarm();
    // This runtime has no other thread that polls epoll meanwhile.
    let runtime = Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let mut client = StdStream::connect(addr).unwrap();
        client.write_all(b"request").unwrap();
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut buf = [0; 100];
        // Wait without polling epoll: the loopback interface may take a moment.
        let peek = || socket2::SockRef::from(&stream).peek(&mut [MaybeUninit::uninit(); 7]);
        while !peek().is_ok_and(|n| n == 7) {
            std::thread::yield_now();
        }
        assert_eq!(poll_once(stream.read(&mut buf)).await.unwrap().unwrap(), 7);
        assert_eq!(poll_once(stream.write(b"reply")).await.unwrap().unwrap(), 5);
        // Without data, the next read waits, and is woken.
        let reading = timeout(PATIENCE, stream.read(&mut buf));
        let writing = async { client.write_all(b"next").unwrap() };
        let (read, ()) = futures::join!(reading, writing);
        assert_eq!(read.unwrap().unwrap(), 4);
    });
}

#[test]
fn a_new_connection_without_data_waits() {
    let _alarm = alarm();
    runtime(1).block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap());
        let (client, accepted) = futures::join!(client, listener.accept());
        let (mut client, mut server) = (client.unwrap(), accepted.unwrap().0);
        let mut buf = [0; 4];
        let reading = timeout(PATIENCE, server.read(&mut buf));
        let writing = async {
            tourbillon::time::sleep(MS).await;
            client.write_all(b"late").await.unwrap();
        };
        let (read, ()) = futures::join!(reading, writing);
        assert_eq!(read.unwrap().unwrap(), 4);
        assert!(poll_once(server.read(&mut buf)).await.is_none());
    });
}
