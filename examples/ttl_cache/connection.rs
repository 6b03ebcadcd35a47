//! One connection: reads what has come, runs all requests that are complete, writes all replies in
//! one go.
//!
//! What it takes is bounded. Of the input there is one request at most beyond what one read brings,
//! and memory grows with what has come, not with what was announced; replies are written when there
//! are 64 KiB of them, and nothing is read or run until the client has taken them.
//!
//! One timer watches over it, refreshed by each batch of requests that was answered in full: not by
//! single bytes, so that a client who sends half a request, sends one too slowly or does not take
//! its replies is idle, too.

use std::{io, net::Shutdown, sync::Arc, time::Duration};

use futures_lite::{AsyncReadExt, AsyncWriteExt};
use tourbillon::{CancelOnDrop, net::TcpStream, task::yield_now, time::timeout};

use crate::{
    clients::Client,
    commands::{self, Session},
    reply::Replies,
    resp::{Parser, ProtocolError},
};

/// How large each of a connection's buffers is when it has nothing large to do.
const BUFFER: usize = 16 * 1024;
/// How many bytes of replies are held back for more.
pub const FLUSH: usize = 64 * 1024;
/// How many requests of one client run before other jobs of the worker get their turn.
const TURN: u32 = 1_024;
/// For how long a client that was told of its mistake is listened to, and how much it may say
/// meanwhile.
const LINGER: Duration = Duration::from_secs(1);
const LEFTOVERS: usize = 1024 * 1024;

/// Serves a connection to its end.
pub async fn serve(stream: TcpStream, client: Client) {
    // Replies are written in one go, and nothing is gained by waiting for more.
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
        stream,
        client,
    };
    if connection.run().await.is_err() {
        // The client is gone, or does not take what it was sent: the system is not to keep that.
        let _ = connection.stream.set_zero_linger();
    }
}

fn idle_timer(stream: &Arc<TcpStream>, client: &Client) -> Option<CancelOnDrop> {
    let idle = client.server.options.idle;
    if idle.is_zero() {
        return None;
    }
    let (timed, server) = (Arc::downgrade(stream), Arc::downgrade(&client.server));
    let timer = tourbillon::after(idle, move || {
        if let (Some(stream), Some(server)) = (timed.upgrade(), server.upgrade()) {
            server.stats.closed_idle.add(1);
            // The task finds the end of the stream, or that it can write no more.
            let _ = stream.shutdown(Shutdown::Both);
        }
    });
    Some(timer.cancel_on_drop())
}

struct Connection {
    stream: Arc<TcpStream>,
    client: Client,
    idle: Option<CancelOnDrop>,
    /// What has come and was not understood yet stands at the beginning, `filled` bytes of it.
    input: Vec<u8>,
    filled: usize,
    parser: Parser,
    out: Replies,
    session: Session,
    /// Requests since others had their turn.
    turn: u32,
}

impl Connection {
    async fn run(&mut self) -> io::Result<()> {
        loop {
            let answered = self.answer().await?;
            self.flush().await?;
            if let Err(error) = answered {
                return self.refuse(error).await;
            }
            if self.session.quit {
                return Ok(());
            }
            self.make_room();
            let n = (&*self.stream).read(&mut self.input[self.filled..]).await?;
            if n == 0 {
                return Ok(());
            }
            self.filled += n;
        }
    }

    /// Runs all requests that are complete.
    async fn answer(&mut self) -> io::Result<Result<(), ProtocolError>> {
        let server = self.client.server.clone();
        let mut at = 0;
        let mut ran = 0;
        let end = loop {
            let input = &mut self.input[at..self.filled];
            let length = match self.parser.parse(input) {
                Ok(Some(length)) => length,
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            };
            let from = at;
            at += length;
            loop {
                let args = self.parser.args(&self.input[from..at]);
                // An empty line asks for nothing.
                if args.is_empty() {
                    break;
                }
                commands::run(&server, &mut self.session, args, &mut self.out);
                if self.session.resume.is_none() {
                    ran += 1;
                    self.turn += 1;
                    break;
                }
                // The rest of the reply is made when the client has taken this, and others had
                // their turn.
                self.flush().await?;
                yield_now().await;
            }
            if self.session.quit {
                break Ok(());
            }
            if self.out.len() >= FLUSH {
                self.flush().await?;
            }
            if self.turn >= TURN {
                self.turn = 0;
                yield_now().await;
            }
        };
        server.stats.commands.add(ran);
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

    /// Sees to it that something can be read.
    fn make_room(&mut self) {
        if self.filled == 0 && self.input.len() > BUFFER {
            self.input = vec![0; BUFFER];
        }
        if self.filled == self.input.len() {
            // With so much to look at the parser does not ask for more: it answers, or errs.
            let max = self.parser.max_request();
            let len = (2 * self.input.len()).min(max);
            debug_assert!(len > self.filled, "the parser waits for too much");
            self.input.reserve_exact(len - self.filled);
            self.input.resize(len, 0);
        }
    }

    /// Tells the client that what it sent is no RESP, and closes. What it has sent meanwhile is
    /// read, or else the system would close by a reset, which may overtake the message.
    async fn refuse(&mut self, error: ProtocolError) -> io::Result<()> {
        self.out.error(&format_args!("ERR Protocol error: {error}"));
        self.flush().await?;
        self.stream.shutdown(Shutdown::Write)?;
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
