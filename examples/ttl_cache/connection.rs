//! One connection: reads bytes, runs all complete requests, and writes all replies at once.
//!
//! Its memory is bounded. It holds at most one request beyond the bytes of one read. Its buffer
//! grows with the received bytes, not with an announced length. Replies are written when they reach
//! 64 KiB; meanwhile nothing is read or run until the client has taken them.
//!
//! What it holds of a request beyond 16 KiB counts for the memory of the server. If there is no room
//! for it, the connection ends.
//!
//! One idle timer watches the connection. Each batch of requests that was answered in full
//! refreshes it; single bytes do not. So a client is also idle if it sends half a request, sends
//! too slowly, or does not read its replies.

use std::{io, net::Shutdown, sync::Arc, time::Duration};

use futures_lite::{AsyncReadExt, AsyncWriteExt};
use tourbillon::{CancelOnDrop, net::TcpStream, task::yield_now, time::timeout};

use crate::{
    clients::Client,
    commands::{self, Session, error::Error},
    reply::Replies,
    resp::{Parser, ProtocolError},
};

/// Size of each buffer while nothing large is read or written.
const BUFFER: usize = 16 * 1024;
/// Write the replies once they have this many bytes.
pub const FLUSH: usize = 64 * 1024;
/// Number of requests to run before yielding to other tasks of the worker.
const TURN: u32 = 1_024;
/// After a protocol error, how long to read from the client, and at most how many bytes.
const LINGER: Duration = Duration::from_secs(1);
const LEFTOVERS: usize = 1024 * 1024;

/// Serves a connection until it ends.
pub async fn serve(stream: TcpStream, client: Client) {
    // Each batch of replies is one write, so waiting for more data gains nothing.
    let _ = stream.set_nodelay(true);
    let stream = Arc::new(stream);
    let mut connection = Connection {
        idle: idle_timer(&stream, &client),
        input: vec![0; BUFFER],
        filled: 0,
        parser: Parser::new(client.server.options.max_bulk),
        out: Replies::default(),
        session: Session::new(client.peer.clone()),
        turn: 0,
        counted: 0,
        stream,
        client,
    };
    if connection.run().await.is_err() {
        // The client is gone or does not read its replies: the system must not keep them.
        let _ = connection.stream.set_zero_linger();
    }
}

fn idle_timer(stream: &Arc<TcpStream>, client: &Client) -> Option<CancelOnDrop> {
    let idle = client.server.options.idle;
    if idle.is_zero() {
        return None;
    }
    // The timer must not keep the connection or the server alive.
    let (timed, server) = (Arc::downgrade(stream), Arc::downgrade(&client.server));
    let timer = tourbillon::after(idle, move || {
        if let (Some(stream), Some(server)) = (timed.upgrade(), server.upgrade()) {
            server.stats.closed_idle.add(1);
            // The task then reads the end of the stream, or its write fails.
            let _ = stream.shutdown_now(Shutdown::Both);
        }
    });
    Some(timer.cancel_on_drop())
}

struct Connection {
    stream: Arc<TcpStream>,
    client: Client,
    idle: Option<CancelOnDrop>,
    /// The first `filled` bytes were received and not parsed yet.
    input: Vec<u8>,
    filled: usize,
    parser: Parser,
    out: Replies,
    session: Session,
    /// Number of requests since the last yield.
    turn: u32,
    /// The bytes of the request that count for the memory of the server.
    counted: u64,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.count(0);
    }
}

impl Connection {
    async fn run(&mut self) -> io::Result<()> {
        loop {
            let answered = self.answer().await?;
            self.flush().await?;
            if let Err(error) = answered {
                let error = format!("ERR Protocol error: {error}");
                return self.refuse(&error).await;
            }
            if self.session.quit {
                return Ok(());
            }
            if !self.make_room() {
                return self.refuse(&Error::Memory.to_string()).await;
            }
            let n = (&*self.stream).read(&mut self.input[self.filled..]).await?;
            if n == 0 {
                return Ok(());
            }
            self.filled += n;
        }
    }

    /// Runs all complete requests.
    async fn answer(&mut self) -> io::Result<Result<(), ProtocolError>> {
        let server = self.client.server.clone();
        let mut at = 0;
        let mut ran = 0;
        let end = loop {
            let input = &mut self.input[at..self.filled];
            // Parse the next request in place. An incomplete one waits for more bytes.
            let length = match self.parser.parse(input) {
                Ok(Some(length)) => length,
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            };
            let from = at;
            at += length;
            loop {
                let args = self.parser.args(&self.input[from..at]);
                // An empty line is no request.
                if args.is_empty() {
                    break;
                }
                commands::run(&server, &mut self.session, args, &mut self.out);
                if self.session.resume.is_none() {
                    ran += 1;
                    self.turn += 1;
                    break;
                }
                // Continue the reply when the client has taken this part and other tasks had a
                // turn.
                self.flush().await?;
                yield_now().await;
            }
            if self.session.quit {
                break Ok(());
            }
            // Limit the memory of replies, and give other tasks a turn.
            if self.out.len() >= FLUSH {
                self.flush().await?;
            }
            if self.turn >= TURN {
                self.turn = 0;
                yield_now().await;
            }
        };
        server.stats.commands.add(ran);
        // Move the incomplete request to the start of the buffer.
        self.input.copy_within(at..self.filled, 0);
        self.filled -= at;
        Ok(end)
    }

    async fn flush(&mut self) -> io::Result<()> {
        if self.out.is_empty() {
            return Ok(());
        }
        (&*self.stream).write_all(self.out.bytes()).await?;
        self.out.clear(BUFFER);
        self.client.peer.was_answered();
        if let Some(idle) = &self.idle {
            idle.refresh();
        }
        Ok(())
    }

    /// Makes room to read. Returns `false` if the server has no memory for it.
    fn make_room(&mut self) -> bool {
        if self.filled == 0 && self.input.len() > BUFFER {
            self.input = vec![0; BUFFER];
        }
        let mut len = self.input.len();
        if self.filled == len {
            // At this size the parser does not ask for more: it returns a request or an error.
            len = (2 * len).min(self.parser.max_request());
            debug_assert!(len > self.filled, "the parser waits for too much");
        }
        let bytes = len.saturating_sub(BUFFER) + self.parser.memory();
        if !self.count(bytes as u64) {
            return false;
        }
        if len > self.input.len() {
            self.input.reserve_exact(len - self.filled);
            self.input.resize(len, 0);
        }
        true
    }

    /// Lets this many bytes count for the memory of the server, in place of those before. Returns
    /// `false` if there is no room.
    fn count(&mut self, bytes: u64) -> bool {
        let stats = &self.client.server.stats;
        if let Some(more) = bytes.checked_sub(self.counted) {
            let max = self.client.server.options.max_bytes();
            if more > 0 && !stats.bytes.add_up_to(more, max) {
                return false;
            }
            stats.requests.add(more);
        } else {
            stats.requests.sub(self.counted - bytes);
            stats.bytes.sub(self.counted - bytes);
        }
        self.counted = bytes;
        true
    }

    /// Sends an error and closes. First reads what the client sent meanwhile: otherwise the
    /// system would reset the connection, and the reset could overtake the message.
    async fn refuse(&mut self, error: &str) -> io::Result<()> {
        self.out.error(&error);
        self.flush().await?;
        // Nobody needs the request any more.
        self.input = vec![0; BUFFER];
        self.parser = Parser::new(self.client.server.options.max_bulk);
        self.count(0);
        self.stream.shutdown_now(Shutdown::Write)?;
        let rest = async {
            let mut left = LEFTOVERS;
            while left > 0 {
                match (&*self.stream).read(&mut self.input).await? {
                    0 => break,
                    n => left = left.saturating_sub(n),
                }
            }
            Ok(())
        };
        timeout(LINGER, rest).await.unwrap_or(Ok(()))
    }
}
