//! Messages that come back over TCP, on the loopback interface, and reads that time out.

use std::{
    future::poll_fn,
    io::{self, ErrorKind},
    net::{Ipv4Addr, SocketAddr},
    pin::Pin,
    time::Duration,
};

use futures_io::{AsyncRead, AsyncWrite};
use tourbillon::{
    net::{TcpListener, TcpStream},
    time::{Instant, sleep},
};

use super::{
    books::{Books, PATIENCE},
    tally::Count,
};

/// So many connections at a time.
pub(super) const CLIENTS: usize = 8;
/// So many messages are sent by each, before the next one is made. (A port is not used again for a minute.)
const MESSAGES: usize = 100;
const LONGEST: usize = 2_000;
/// A message that begins so is not answered.
const SILENCE: u8 = 0;

async fn read(stream: &mut TcpStream, buf: &mut [u8]) -> io::Result<usize> {
    poll_fn(|cx| Pin::new(&mut *stream).poll_read(cx, buf)).await
}

async fn write_all(stream: &mut TcpStream, mut buf: &[u8]) -> io::Result<()> {
    while !buf.is_empty() {
        let written = poll_fn(|cx| Pin::new(&mut *stream).poll_write(cx, buf)).await?;
        buf = &buf[written..];
    }
    Ok(())
}

async fn read_all(stream: &mut TcpStream, buf: &mut [u8]) -> io::Result<()> {
    let mut have = 0;
    while have < buf.len() {
        match read(stream, &mut buf[have..]).await? {
            0 => return Err(ErrorKind::UnexpectedEof.into()),
            more => have += more,
        }
    }
    Ok(())
}

/// Listens, and serves until it is aborted; the connections end with their clients.
pub(super) async fn listen() -> io::Result<(TcpListener, SocketAddr)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let addr = listener.local_addr()?;
    Ok((listener, addr))
}

pub(super) async fn serve(books: Books, listener: TcpListener) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => drop(tourbillon::spawn(async move {
                if let Err(error) = answer(stream).await {
                    books.faults.add("the server of the echo failed", error);
                }
            })),
            Err(error) => {
                books
                    .faults
                    .add("the server of the echo could not accept", error);
                sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

/// A byte, and a length, and so many bytes: they come back, or do not.
async fn answer(mut stream: TcpStream) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut buf = [0; LONGEST];
    loop {
        let mut head = [0; 3];
        if read(&mut stream, &mut head[..1]).await? == 0 {
            return Ok(());
        }
        read_all(&mut stream, &mut head[1..]).await?;
        let len = usize::from(u16::from_be_bytes([head[1], head[2]]));
        let message = buf.get_mut(..len).ok_or(ErrorKind::InvalidData)?;
        read_all(&mut stream, message).await?;
        if head[0] != SILENCE {
            write_all(&mut stream, message).await?;
        }
    }
}

/// A client that makes one connection after the other, until the soak ends.
pub(super) async fn client(books: Books, addr: SocketAddr) {
    while !books.is_stopping() {
        if let Err(error) = connection(books, addr).await {
            books.faults.add("a client of the echo failed", error);
            sleep(Duration::from_millis(100)).await;
        }
    }
}

async fn connection(books: Books, addr: SocketAddr) -> io::Result<()> {
    let mut stream = TcpStream::connect(addr).await?;
    stream.set_nodelay(true)?;
    for _ in 0..MESSAGES {
        if books.is_stopping() {
            break;
        }
        if fastrand::u8(..32) == 0 {
            silence(books, &mut stream).await?;
        } else {
            message(books, &mut stream).await?;
        }
        sleep(Duration::from_micros(fastrand::u64(500..4_000))).await;
    }
    Ok(())
}

fn text(first: u8) -> Vec<u8> {
    let len = fastrand::usize(1..=LONGEST);
    let [high, low] = (len as u16).to_be_bytes();
    let mut text = vec![first, high, low];
    let body = fastrand::u8(..);
    text.extend((0..len).map(|i| body.wrapping_add(i as u8)));
    text
}

async fn message(books: Books, stream: &mut TcpStream) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    let text = text(1);
    write_all(stream, &text).await?;
    let mut back = vec![0; text.len() - 3];
    read_all(stream, &mut back).await?;
    let what = "a message came back as another";
    books.faults.unless(back == text[3..], what, text.len());
    books.tally.count(Count::Echoes);
    Ok(())
}

/// A message that is not answered: the read times out, in time, and the stream can be used as before.
async fn silence(books: Books, stream: &mut TcpStream) -> io::Result<()> {
    write_all(stream, &text(SILENCE)).await?;
    let limit = Duration::from_micros(fastrand::u64(1_000..8_000));
    stream.set_read_timeout(Some(limit))?;
    let start = Instant::now();
    let answer = read(stream, &mut [0; 8]).await;
    let timed_out = matches!(&answer, Err(error) if error.kind() == ErrorKind::TimedOut);
    let what = "a read did not time out";
    books
        .faults
        .unless(timed_out, what, format_args!("{answer:?}"));
    let took = start.elapsed();
    let what = "a read timed out early";
    books
        .faults
        .unless(took >= limit, what, format_args!("{took:?} of {limit:?}"));
    books.tally.count(Count::ReadTimeouts);
    Ok(())
}
