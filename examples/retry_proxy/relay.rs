//! What happens between a client and an upstream that are connected.
//!
//! Each direction has one buffer, while it has something to pass on, and reads no more before that was
//! written: who is slow is waited for, and the other end learns of it by TCP's own means.

use std::{
    io,
    net::Shutdown,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use futures_lite::{
    AsyncWriteExt,
    future::{or, try_zip},
};
use tourbillon::{Timer, net::TcpStream, sync::Notify};

/// The buffer of each direction, in bytes.
const BUFFER: usize = 16 * 1024;

/// How a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Both ends were done.
    Closed,
    /// No byte went either way for too long.
    Idle,
    /// One end reset it, and so was the other.
    Reset,
}

/// Two connections that are one to those at their ends. Both are reset when this is dropped, unless both ends
/// were done: what was cut off, by whomever, must not look like what has ended; nor is the system to keep what
/// an end that does not read was sent.
struct Pair {
    client: TcpStream,
    upstream: TcpStream,
    is_done: bool,
}

impl Drop for Pair {
    fn drop(&mut self) {
        if !self.is_done {
            // Of one that is gone there is nothing to reset.
            let _ = self.client.set_zero_linger();
            let _ = self.upstream.set_zero_linger();
        }
    }
}

/// Passes bytes both ways until both ends are done, one is reset, or nothing has moved for `idle`.
/// Counts those from the client in `up`, and those from the upstream in `down`. Dropped before, it resets
/// both connections.
pub async fn relay(
    client: TcpStream,
    upstream: TcpStream,
    idle: Duration,
    (up, down): (&AtomicU64, &AtomicU64),
) -> End {
    let mut pair = Pair {
        client,
        upstream,
        is_done: false,
    };
    // One timer for both directions; who moves a byte refreshes it.
    let over = Arc::new(Notify::new());
    let tell = over.clone();
    let timer = tourbillon::after(idle, move || tell.notify_one()).cancel_on_drop();
    let passed = async {
        let up = pass(&pair.client, &pair.upstream, &timer, up);
        let down = pass(&pair.upstream, &pair.client, &timer, down);
        match try_zip(up, down).await {
            Ok(_) => End::Closed,
            Err(_) => End::Reset,
        }
    };
    let silent = async {
        over.notified().await;
        End::Idle
    };
    let end = or(passed, silent).await;
    pair.is_done = end == End::Closed;
    end
}

/// Passes on what comes from one end to the other, and then its end.
async fn pass(
    from: &TcpStream,
    mut to: &TcpStream,
    idle: &Timer,
    count: &AtomicU64,
) -> io::Result<()> {
    loop {
        from.readable().await?;
        // Not while there is nothing to read: most connections are silent most of the time.
        let mut buf = vec![0; BUFFER];
        loop {
            let n = match from.try_read(&mut buf) {
                Ok(0) => {
                    // Half a close: the other direction goes on. Refused by an end that is gone, of which
                    // the other direction hears.
                    let _ = to.shutdown(Shutdown::Write);
                    return Ok(());
                }
                Ok(n) => n,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            };
            idle.refresh();
            let mut rest = &buf[..n];
            while !rest.is_empty() {
                let n = to.write(rest).await?;
                // A slow reader is not idle, as long as it reads.
                idle.refresh();
                count.fetch_add(n as u64, Relaxed);
                rest = &rest[n..];
            }
        }
    }
}
