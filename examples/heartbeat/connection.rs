//! One connection and its timer.
//!
//! A silent connection holds no buffer. An active one holds up to two lines. More bytes from the
//! peer stay in the socket until the peer has read its replies.

use std::{
    io,
    net::Shutdown,
    pin::{Pin, pin},
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use futures_lite::{AsyncWriteExt, future::or};
use tourbillon::{
    CancelOnDrop, Timer,
    net::TcpStream,
    time::{Instant, Sleep, sleep},
    timer::Cancel,
};

use crate::stats::Stats;

/// Number of bytes to read at once.
const CHUNK: usize = 4096;
const HEARTBEAT: &[u8] = b"heartbeat\n";

/// The options of all connections.
#[derive(Clone, Copy)]
pub struct Rules {
    pub idle: Duration,
    pub heartbeat: Option<Duration>,
    pub max_line: usize,
}

/// How a connection ended.
enum End {
    Closed,
    TooLong,
}

/// Serves a connection until it ends.
pub async fn serve(stream: TcpStream, rules: Rules, stats: Arc<Stats>) {
    // Each reply is one write, so waiting for more data gains nothing.
    let _ = stream.set_nodelay(true);
    let stream = Arc::new(stream);
    // The callback holds only a weak reference, so the timer does not keep a connection open.
    let idle = Timer::after(rules.idle)
        .while_alive(Arc::downgrade(&stream))
        .start(|stream| {
            // The task then reads the end of the stream, or its write fails.
            let _ = stream.shutdown_now(Shutdown::Both);
        })
        .cancel_on_drop();

    // Only connections with heartbeats need a second timer.
    let end = match rules.heartbeat {
        None => echo(&stream, &idle, None, rules, &stats).await,
        Some(after) => {
            let mut beat = pin!(sleep(after));
            let beat = Beat {
                after,
                sleep: beat.as_mut(),
            };
            echo(&stream, &idle, Some(beat), rules, &stats).await
        }
    };
    // `Cancelled` means that the timer did not fire, so the connection was not idle.
    let is_idle = idle.cancel() != Cancel::Cancelled;
    if is_idle && end.is_err() {
        // The peer does not read its replies: the system must not keep them.
        let _ = stream.set_zero_linger();
    }
    let count = match end {
        _ if is_idle => &stats.idle,
        Ok(End::Closed) => &stats.closed,
        Ok(End::TooLong) => &stats.too_long,
        Err(_) => &stats.failed,
    };
    count.fetch_add(1, Relaxed);
}

/// The heartbeat of a connection.
struct Beat<'a> {
    after: Duration,
    sleep: Pin<&'a mut Sleep>,
}

impl Beat<'_> {
    /// Restarts the silence after which the next heartbeat is due.
    fn put_off(&mut self) {
        // A deadline beyond the clock's range cannot be set. The first one was then out of range,
        // too.
        if let Some(next) = Instant::now().checked_add(self.after) {
            self.sleep.as_mut().reset(next);
        }
    }
}

/// Echoes lines until the connection ends.
async fn echo(
    stream: &TcpStream,
    idle: &CancelOnDrop,
    mut beat: Option<Beat<'_>>,
    rules: Rules,
    stats: &Stats,
) -> io::Result<End> {
    let mut writer = stream;
    let mut line = Vec::new();
    loop {
        // Wait for bytes or for the heartbeat.
        let is_beat = match &mut beat {
            None => stream.readable().await.map(|()| false)?,
            Some(beat) => {
                let readable = async { stream.readable().await.map(|()| false) };
                let due = async {
                    beat.sleep.as_mut().await;
                    Ok(true)
                };
                or(readable, due).await?
            }
        };
        if is_beat {
            writer.write_all(HEARTBEAT).await?;
            stats.heartbeats.fetch_add(1, Relaxed);
            if let Some(beat) = &mut beat {
                beat.put_off();
            }
            continue;
        }
        match read(stream, &mut line, rules.max_line) {
            Ok(Read::Lines(end)) => {
                // Only whole lines refresh the idle timer: a peer that sends single bytes is idle.
                idle.refresh();
                if let Some(beat) = &mut beat {
                    beat.put_off();
                }
                // Read no more until the peer has taken its reply. Writing does not refresh the
                // timer, so a peer that does not read is idle, too.
                writer.write_all(&line[..end]).await?;
                let lines = line[..end].iter().filter(|&&byte| byte == b'\n').count();
                stats.lines.fetch_add(lines as u64, Relaxed);
                line.drain(..end);
                if line.is_empty() {
                    // A silent connection holds no memory.
                    line = Vec::new();
                }
            }
            Ok(Read::Part) => {}
            Ok(Read::End) => {
                writer.write_all(&line).await?;
                return Ok(End::Closed);
            }
            Ok(Read::TooLong) => {
                drop(line);
                return refuse(stream, idle, rules.max_line).await;
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
}

/// The result of a read.
enum Read {
    /// Whole lines, up to this position.
    Lines(usize),
    /// Part of a line.
    Part,
    /// A line that is too long.
    TooLong,
    /// The end of the stream.
    End,
}

/// Reads available bytes and appends them to `line`.
fn read(stream: &TcpStream, line: &mut Vec<u8>, max_line: usize) -> io::Result<Read> {
    // On the stack: a buffer in the future would exist as long as the connection.
    let mut chunk = [0; CHUNK];
    let room = chunk.len().min(max_line);
    let n = stream.try_read(&mut chunk[..room])?;
    if n == 0 {
        return Ok(Read::End);
    }
    let first = chunk[..n].iter().position(|&byte| byte == b'\n');
    // The chunk has at most `max_line` bytes, so only the first line can be too long.
    if first.map_or(line.len() + n >= max_line, |at| line.len() + at >= max_line) {
        return Ok(Read::TooLong);
    }
    let last = chunk[..n].iter().rposition(|&byte| byte == b'\n');
    let end = last.map(|at| line.len() + at + 1);
    line.extend_from_slice(&chunk[..n]);
    Ok(end.map_or(Read::Part, Read::Lines))
}

/// Sends an error and waits until the peer closes. Closing while received bytes are unread would
/// reset the connection and discard the message. The idle timer limits the wait.
async fn refuse(mut stream: &TcpStream, idle: &CancelOnDrop, max_line: usize) -> io::Result<End> {
    let error = format!("error: a line is longer than {max_line} bytes\n");
    stream.write_all(error.as_bytes()).await?;
    stream.shutdown_now(Shutdown::Write)?;
    while idle.is_pending() {
        stream.readable().await?;
        match discard(stream) {
            Ok(0) => break,
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(End::TooLong)
}

fn discard(stream: &TcpStream) -> io::Result<usize> {
    stream.try_read(&mut [0; CHUNK])
}
