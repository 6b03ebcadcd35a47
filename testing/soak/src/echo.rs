//! TCP echo on the loopback interface, and reads that time out.

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
    shared::{PATIENCE, Shared},
    tally::Count,
};

/// Number of connections at a time.
pub(super) const CLIENTS: usize = 8;
/// Messages per connection. Fewer would use up the ports, which stay reserved for a minute.
const MESSAGES: usize = 100;
const LONGEST: usize = 2_000;
/// First byte of a message that the server does not answer.
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

/// Binds the listener and returns its address.
pub(super) async fn listen() -> io::Result<(TcpListener, SocketAddr)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let addr = listener.local_addr()?;
    Ok((listener, addr))
}

/// Accepts connections until it is aborted. Each connection ends with its client.
pub(super) async fn serve(shared: Shared, listener: TcpListener) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => drop(tourbillon::spawn(async move {
                if let Err(error) = answer(stream).await {
                    shared.faults.add("the echo server failed", error);
                }
            })),
            Err(error) => {
                shared.faults.add("the echo server could not accept", error);
                sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

/// Reads messages (a byte, a length, the body) and echoes them, except for [`SILENCE`].
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

/// Makes one connection after the other, until the soak ends.
pub(super) async fn client(shared: Shared, addr: SocketAddr) {
    while !shared.is_stopping() {
        if let Err(error) = connection(shared, addr).await {
            shared.faults.add("an echo client failed", error);
            sleep(Duration::from_millis(100)).await;
        }
    }
}

async fn connection(shared: Shared, addr: SocketAddr) -> io::Result<()> {
    let mut stream = TcpStream::connect(addr).await?;
    stream.set_nodelay(true)?;
    for _ in 0..MESSAGES {
        if shared.is_stopping() {
            break;
        }
        if fastrand::u8(..32) == 0 {
            silence(shared, &mut stream).await?;
        } else {
            message(shared, &mut stream).await?;
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

async fn message(shared: Shared, stream: &mut TcpStream) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    let text = text(1);
    write_all(stream, &text).await?;
    let mut back = vec![0; text.len() - 3];
    read_all(stream, &mut back).await?;
    let what = "a message came back changed";
    shared.check(back == text[3..], what, text.len());
    shared.tally.count(Count::Echoes);
    Ok(())
}

/// Sends a message that is not answered. The read must time out, not early, and leave the stream
/// usable.
async fn silence(shared: Shared, stream: &mut TcpStream) -> io::Result<()> {
    write_all(stream, &text(SILENCE)).await?;
    // The server does not answer, so the read must end by its timeout.
    let limit = Duration::from_micros(fastrand::u64(1_000..8_000));
    stream.set_read_timeout(Some(limit))?;
    let start = Instant::now();
    let answer = read(stream, &mut [0; 8]).await;
    let timed_out = matches!(&answer, Err(error) if error.kind() == ErrorKind::TimedOut);
    let what = "a read did not time out";
    shared.check(timed_out, what, format_args!("{answer:?}"));
    let took = start.elapsed();
    let what = "a read timed out early";
    shared.check(took >= limit, what, format_args!("{took:?} of {limit:?}"));
    shared.tally.count(Count::ReadTimeouts);
    Ok(())
}
