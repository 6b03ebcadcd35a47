//! Pipes and the forms of receiving that tokio's sockets have, on Tourbillon under tokio's name.

use std::{
    env, fs,
    future::{IntoFuture, poll_fn},
    io::ErrorKind,
    net::SocketAddr,
    os::unix::fs::FileTypeExt,
    path::PathBuf,
    process,
};

use axum::{Router, extract::ConnectInfo, routing::get};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, ReadBuf},
    net::{
        TcpListener, TcpStream, UdpSocket, UnixDatagram, UnixListener, UnixSocket,
        unix::pipe::{self, Receiver, Sender},
    },
};

/// A path that is removed when this is dropped.
struct Path(PathBuf);

impl Path {
    fn new(name: &str) -> Self {
        let name = format!("tourbillon-sockets-{name}-{}", process::id());
        Self(env::temp_dir().join(name))
    }
}

impl Drop for Path {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

#[tokio::test]
async fn a_pipe_carries_more_than_it_holds() {
    let (mut sender, mut receiver) = pipe::pipe().unwrap();
    let nothing = receiver.try_read(&mut [0; 1]).unwrap_err();
    assert_eq!(nothing.kind(), ErrorKind::WouldBlock);
    let writing = tokio::spawn(async move { sender.write_all(&[7; 1_000_000]).await });
    let mut read = Vec::new();
    receiver.read_to_end(&mut read).await.unwrap();
    writing.await.unwrap().unwrap();
    assert!(read.len() == 1_000_000 && read.iter().all(|&byte| byte == 7));
}

#[tokio::test]
async fn a_pipe_is_used_without_waiting() {
    let (sender, receiver) = pipe::pipe().unwrap();
    sender.writable().await.unwrap();
    assert_eq!(sender.try_write(b"hello").unwrap(), 5);
    receiver.readable().await.unwrap();
    let mut buf = Vec::with_capacity(100);
    assert_eq!(receiver.try_read_buf(&mut buf).unwrap(), 5);
    assert_eq!(buf, b"hello");
    // A full pipe is ready again after a read.
    while sender.try_write(&[0; 4096]).is_ok() {}
    let full = sender.try_write(b"more").unwrap_err();
    assert_eq!(full.kind(), ErrorKind::WouldBlock);
    let mut room = vec![0; 100_000];
    receiver.try_read(&mut room).unwrap();
    sender.writable().await.unwrap();
    sender.try_write(b"more").unwrap();
    drop(receiver);
    let gone = sender.try_write(b"more").unwrap_err();
    assert_eq!(gone.kind(), ErrorKind::BrokenPipe);
}

#[tokio::test]
async fn a_pipe_with_a_name_is_checked() {
    let path = Path::new("fifo");
    let made = process::Command::new("mkfifo").arg(&path.0).status();
    assert!(made.unwrap().success());
    assert!(fs::metadata(&path.0).unwrap().file_type().is_fifo());
    let options = pipe::OpenOptions::new();
    // Nothing reads yet.
    assert!(options.open_sender(&path.0).is_err());
    let mut receiver = options.open_receiver(&path.0).unwrap();
    let mut sender = options.open_sender(&path.0).unwrap();
    sender.write_all(b"hello").await.unwrap();
    let mut read = [0; 5];
    receiver.read_exact(&mut read).await.unwrap();
    assert_eq!(&read, b"hello");
    let wrong = Receiver::from_owned_fd(sender.into_nonblocking_fd().unwrap()).unwrap_err();
    assert_eq!(wrong.kind(), ErrorKind::InvalidInput);

    let file = Path::new("file");
    let no_pipe = fs::File::create(&file.0).unwrap();
    let error = Sender::from_file(no_pipe).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(options.open_receiver(&file.0).is_err());
}

#[tokio::test]
async fn datagrams_are_received_in_all_forms() {
    let udp = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let addr = udp.local_addr().unwrap();
    udp.connect(addr).await.unwrap();
    let (unix, peer) = UnixDatagram::pair().unwrap();
    let mut bytes = [0; 100];

    udp.send(b"one").await.unwrap();
    let mut buf = ReadBuf::new(&mut bytes);
    poll_fn(|cx| udp.poll_peek(cx, &mut buf)).await.unwrap();
    buf.clear();
    assert_eq!(
        poll_fn(|cx| udp.poll_peek_from(cx, &mut buf))
            .await
            .unwrap(),
        addr
    );
    // It goes behind what is there already.
    assert_eq!(
        poll_fn(|cx| udp.poll_recv_from(cx, &mut buf))
            .await
            .unwrap(),
        addr
    );
    assert_eq!(buf.filled(), b"oneone");

    peer.send(b"two").await.unwrap();
    let mut buf = ReadBuf::new(&mut bytes);
    poll_fn(|cx| unix.poll_recv(cx, &mut buf)).await.unwrap();
    assert_eq!(buf.filled(), b"two");

    let mut buf = Vec::with_capacity(100);
    udp.send(b"three").await.unwrap();
    assert_eq!(udp.recv_buf(&mut buf).await.unwrap(), 5);
    udp.send(b"four").await.unwrap();
    assert_eq!(udp.recv_buf_from(&mut buf).await.unwrap(), (4, addr));
    peer.send(b"five").await.unwrap();
    assert_eq!(unix.recv_buf(&mut buf).await.unwrap(), 4);
    assert_eq!(buf, b"threefourfive");
    assert_eq!(
        unix.try_recv_buf(&mut buf).unwrap_err().kind(),
        ErrorKind::WouldBlock
    );
}

#[tokio::test]
async fn streams_peek_and_read_into_buffers() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let (stream, accepted) = tokio::join!(TcpStream::connect(addr), listener.accept());
    let (stream, (mut peer, _)) = (stream.unwrap(), accepted.unwrap());
    peer.write_all(b"hello").await.unwrap();
    let mut bytes = [0; 100];
    let mut buf = ReadBuf::new(&mut bytes);
    assert_eq!(
        poll_fn(|cx| stream.poll_peek(cx, &mut buf)).await.unwrap(),
        5
    );
    assert_eq!(buf.filled(), b"hello");
    let mut buf = Vec::with_capacity(100);
    assert_eq!(stream.try_read_buf(&mut buf).unwrap(), 5);
    assert_eq!(buf, b"hello");
}

#[tokio::test]
async fn unix_sockets_become_streams_and_datagrams() {
    let path = Path::new("listener");
    let socket = UnixSocket::new_stream().unwrap();
    socket.bind(&path.0).unwrap();
    let listener: UnixListener = socket.listen(8).unwrap();
    let connecting = UnixSocket::new_stream().unwrap().connect(&path.0);
    let (stream, accepted) = tokio::join!(connecting, listener.accept());
    let (mut stream, (mut peer, _)) = (stream.unwrap(), accepted.unwrap());
    stream.write_all(b"hello").await.unwrap();
    let mut read = [0; 5];
    peer.read_exact(&mut read).await.unwrap();
    assert_eq!(&read, b"hello");

    let path = Path::new("datagram");
    let socket = UnixSocket::new_datagram().unwrap();
    socket.bind(&path.0).unwrap();
    let receiver: UnixDatagram = socket.datagram().unwrap();
    let sender = UnixDatagram::unbound().unwrap();
    sender.send_to(b"hello", &path.0).await.unwrap();
    assert_eq!(receiver.recv(&mut read).await.unwrap(), 5);
}

// Each of these traits calls the socket's own method of the same name. If the socket had it by
// `Deref` alone, the trait's method would call itself, until the stack is used up.
#[tokio::test]
async fn traits_of_libraries_find_the_methods_of_sockets() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    assert_eq!(
        tokio_util::net::Listener::local_addr(&listener).unwrap(),
        addr
    );
    let app = Router::new().route(
        "/",
        get(|ConnectInfo(addr): ConnectInfo<SocketAddr>| async move { addr.to_string() }),
    );
    let serve = axum::serve(
        listener,
        app.into_make_service_with_connect_info::<SocketAddr>(),
    );
    assert_eq!(serve.local_addr().unwrap(), addr);
    let serving = tokio::spawn(serve.into_future());
    let mut client = TcpStream::connect(addr).await.unwrap();
    client.write_all(b"GET / HTTP/1.0\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).await.unwrap();
    let ours = client.local_addr().unwrap().to_string();
    assert!(answer.ends_with(&ours), "{answer}");
    serving.abort();

    let path = Path::new("traits");
    let listener = UnixListener::bind(&path.0).unwrap();
    let addr = tokio_util::net::Listener::local_addr(&listener).unwrap();
    assert_eq!(addr.as_pathname(), Some(&*path.0));
    let addr = axum::serve(listener, Router::new()).local_addr().unwrap();
    assert_eq!(addr.as_pathname(), Some(&*path.0));
}
