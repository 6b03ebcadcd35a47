//! One connection, and its timer.
//!
//! A connection that waits holds no buffer. One that is served holds up to two lines; what the peer
//! sends beyond that stays in the socket, until the peer has read what was sent to it.

use std::{
    io,
    net::Shutdown,
    pin::{Pin, pin},
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use futures_lite::{AsyncWriteExt, future::or};
use tourbillon::{
    Cancel, CancelOnDrop, Timer,
    net::TcpStream,
    time::{Instant, Sleep, sleep},
};

use crate::stats::Stats;

/// How much is read at once.
const CHUNK: usize = 4096;
const HEARTBEAT: &[u8] = b"heartbeat\n";

/// What holds for each connection.
#[derive(Clone, Copy)]
pub struct Rules {
    pub idle: Duration,
    pub heartbeat: Option<Duration>,
    pub max_line: usize,
}

/// How a connection ended by itself.
enum End {
    Closed,
    TooLong,
}

/// Serves a connection to its end.
pub async fn serve(stream: TcpStream, rules: Rules, stats: Arc<Stats>) {
    // A line is written in one go, and nothing is gained by waiting for more.
    let _ = stream.set_nodelay(true);
    let stream = Arc::new(stream);
    // The callback holds no reference: a connection that ends is not kept open by its timer.
    let idle = Timer::after(rules.idle)
        .while_alive(Arc::downgrade(&stream))
        .start(|stream| {
            // The task finds the end of the stream, or that it can write no more.
            let _ = stream.shutdown(Shutdown::Both);
        })
        .cancel_on_drop();

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
    // The timer knows whether it was in time to close the connection.
    let is_idle = idle.cancel() != Cancel::Cancelled;
    if is_idle && end.is_err() {
        // There is more to be sent, and the peer does not read it: the system is not to keep it.
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
    /// The next is due when the peer was silent for as long again.
    fn put_off(&mut self) {
        // Beyond what the clock knows it has never been due, and never will be.
        if let Some(next) = Instant::now().checked_add(self.after) {
            self.sleep.as_mut().reset(next);
        }
    }
}

/// Sends back each line, until the connection ends.
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
                // The keep-alive. Only whole lines are: a peer who sends a byte now and then is idle.
                idle.refresh();
                if let Some(beat) = &mut beat {
                    beat.put_off();
                }
                // Not read on before the peer has taken what is due to it. Nor does that refresh the
                // timer: a peer who does not read is idle, too.
                writer.write_all(&line[..end]).await?;
                let lines = line[..end].iter().filter(|&&byte| byte == b'\n').count();
                stats.lines.fetch_add(lines as u64, Relaxed);
                line.drain(..end);
                if line.is_empty() {
                    // Nor does a connection that is silent hold memory.
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

/// What came.
enum Read {
    /// Whole lines, up to there.
    Lines(usize),
    /// A part of one.
    Part,
    /// A line that is longer than it may be.
    TooLong,
    /// Nothing more will.
    End,
}

/// Reads what is there behind what has come of a line.
fn read(stream: &TcpStream, line: &mut Vec<u8>, max_line: usize) -> io::Result<Read> {
    // On the stack, and not in the future, which lives for as long as the connection.
    let mut chunk = [0; CHUNK];
    let room = chunk.len().min(max_line);
    let n = stream.try_read(&mut chunk[..room])?;
    if n == 0 {
        return Ok(Read::End);
    }
    let first = chunk[..n].iter().position(|&byte| byte == b'\n');
    // Lines that begin in the chunk are no longer than that.
    if first.map_or(line.len() + n >= max_line, |at| line.len() + at >= max_line) {
        return Ok(Read::TooLong);
    }
    let last = chunk[..n].iter().rposition(|&byte| byte == b'\n');
    let end = last.map(|at| line.len() + at + 1);
    line.extend_from_slice(&chunk[..n]);
    Ok(end.map_or(Read::Part, Read::Lines))
}

/// Says what is wrong, and waits for the peer to close: to close before all that it sent was read
/// would reset the connection, and take the message away. The timer bounds it.
async fn refuse(mut stream: &TcpStream, idle: &CancelOnDrop, max_line: usize) -> io::Result<End> {
    let error = format!("error: a line is longer than {max_line} bytes\n");
    stream.write_all(error.as_bytes()).await?;
    stream.shutdown(Shutdown::Write)?;
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
