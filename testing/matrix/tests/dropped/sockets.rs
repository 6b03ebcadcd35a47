//! Pipes and sockets.

use std::{io::ErrorKind, time::Duration};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, Interest},
    net::{TcpListener, TcpStream, UdpSocket, unix::pipe},
    time::timeout,
};
use tourbillon_support::dropped::in_each_way;

use crate::{leaves_nothing, nothing};

#[test]
fn pipes() {
    leaves_nothing("sockets::pipes", async || {
        for wait in 0..3 {
            in_each_way(async |way| {
                let (mut sender, mut receiver) = pipe::pipe().unwrap();
                let event = async || sender.write_all(b"abc").await.unwrap();
                let mut buf = [0; 8];
                let is_ready = match wait {
                    0 => way.run(receiver.read(&mut buf), event).await.is_some(),
                    1 => way.run(receiver.readable(), event).await.is_some(),
                    _ => way
                        .run(receiver.ready(Interest::READABLE), event)
                        .await
                        .is_some(),
                };
                if wait == 0 && is_ready {
                    assert_eq!(&buf[..3], b"abc");
                } else {
                    assert_eq!(receiver.read(&mut buf).await.unwrap(), 3);
                }
                drop(sender);
                assert_eq!(receiver.read(&mut buf).await.unwrap(), 0);
                is_ready
            })
            .await;
            in_each_way(async |way| {
                let (mut sender, mut receiver) = pipe::pipe().unwrap();
                let mut written = 0;
                while let Ok(n) = sender.try_write(&[0; 4096]) {
                    written += n;
                }
                let mut read = 0;
                let event = async || {
                    let mut room = vec![0; 65536];
                    while read < written {
                        read += receiver.read(&mut room).await.unwrap();
                    }
                };
                let (is_ready, more) = match wait {
                    0 => match way.run(sender.write(b"abc"), event).await {
                        Some(written) => (true, written.unwrap()),
                        None => (false, 0),
                    },
                    1 => (way.run(sender.writable(), event).await.is_some(), 0),
                    _ => (
                        way.run(sender.ready(Interest::WRITABLE), event)
                            .await
                            .is_some(),
                        0,
                    ),
                };
                drop(sender);
                let mut rest = Vec::new();
                receiver.read_to_end(&mut rest).await.unwrap();
                assert_eq!(read + rest.len(), written + more);
                is_ready
            })
            .await;
        }
    });
}

#[test]
fn sockets() {
    leaves_nothing("sockets::sockets", async || {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        in_each_way(async |way| {
            let mut client = None;
            let event = async || client = Some(std::net::TcpStream::connect(addr).unwrap());
            let accepted = way.run(listener.accept(), event).await;
            let is_ready = accepted.is_some();
            let accepted = match accepted {
                Some(accepted) => accepted,
                None => listener.accept().await,
            };
            let client = client.unwrap().local_addr().unwrap();
            assert_eq!(accepted.unwrap().1, client);
            is_ready
        })
        .await;
        in_each_way(async |way| {
            let mut client = TcpStream::connect(addr).await.unwrap();
            let (mut server, _) = listener.accept().await.unwrap();
            let mut buf = [0; 8];
            let event = async || client.write_all(b"abc").await.unwrap();
            let read = way.run(server.read(&mut buf), event).await;
            let is_ready = read.is_some();
            let n = match read {
                Some(read) => read,
                None => server.read(&mut buf).await,
            };
            assert_eq!(&buf[..n.unwrap()], b"abc");
            is_ready
        })
        .await;
        in_each_way(async |way| {
            let connected = way.run(TcpStream::connect(addr), nothing).await;
            let is_ready = connected.is_some();
            let accept = timeout(Duration::from_millis(2), listener.accept()).await;
            drop(connected);
            if let Ok(accepted) = accept {
                let mut end = accepted.unwrap().0;
                assert!(matches!(end.read(&mut [0; 8]).await, Ok(0) | Err(_)));
            }
            is_ready
        })
        .await;
        in_each_way(async |way| {
            let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
            let addr = socket.local_addr().unwrap();
            let event = async || _ = socket.send_to(b"abc", addr).await.unwrap();
            let mut buf = [0; 8];
            let received = way.run(socket.recv_from(&mut buf), event).await;
            if received.is_none() {
                assert_eq!(socket.recv_from(&mut buf).await.unwrap().0, 3);
            }
            let nothing = socket.try_recv(&mut buf).unwrap_err();
            assert_eq!(nothing.kind(), ErrorKind::WouldBlock);
            received.is_some()
        })
        .await;
    });
}
