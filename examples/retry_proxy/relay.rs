//! Relays bytes between a client and an upstream.
//!
//! Each direction has a buffer only while it has bytes to forward. It reads no more until the
//! buffer was written. So a slow receiver slows down the sender, through TCP's flow control.

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

/// Size of each direction's buffer, in bytes.
const BUFFER: usize = 16 * 1024;

/// Why a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Both sides finished.
    Closed,
    /// No byte moved within the idle timeout.
    Idle,
    /// One side reset the connection, so the other was reset, too.
    Reset,
}

/// A pair of connections. Unless both sides finished, dropping it resets both: a connection that
/// was cut off must not look complete, and the system must not keep bytes for a peer that does not
/// read.
struct Pair {
    client: TcpStream,
    upstream: TcpStream,
    is_done: bool,
}

impl Drop for Pair {
    fn drop(&mut self) {
        if !self.is_done {
            // Fails if the connection is gone already.
            let _ = self.client.set_zero_linger();
            let _ = self.upstream.set_zero_linger();
        }
    }
}

/// Relays bytes both ways until both sides finish, one is reset, or nothing moves for `idle`.
/// Counts bytes from the client in `up` and bytes from the upstream in `down`. Dropping the future
/// resets both connections.
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
    // One timer for both directions. Each forwarded byte refreshes it.
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

/// Forwards bytes from one side to the other, and then the end of the stream.
async fn pass(
    from: &TcpStream,
    mut to: &TcpStream,
    idle: &Timer,
    count: &AtomicU64,
) -> io::Result<()> {
    loop {
        from.readable().await?;
        // Allocate only when there is something to read: most connections are silent most of the
        // time.
        let mut buf = vec![0; BUFFER];
        loop {
            let n = match from.try_read(&mut buf) {
                Ok(0) => {
                    // Forward the half close; the other direction continues. If the peer is gone,
                    // this fails, and the other direction reports it.
                    let _ = to.shutdown_now(Shutdown::Write);
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
                // A slow receiver is not idle as long as it reads.
                idle.refresh();
                count.fetch_add(n as u64, Relaxed);
                rest = &rest[n..];
            }
        }
    }
}
