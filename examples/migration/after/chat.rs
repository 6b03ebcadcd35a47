//! A chat server: rooms, nicknames, heartbeats, an idle timeout and a journal.
//!
//! Each line of a client is a command or a text for its room: `/nick NAME`, `/join ROOM`, `/who`,
//! `/quit`. The server begins its own lines with `*`, and errors with `!`.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::io::{self, Write};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::sync::{broadcast, mpsc, watch};
use tourbillon::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tourbillon::net::{TcpListener, TcpStream};
use tourbillon::task::{JoinSet, spawn_blocking};
use tourbillon::time::{Instant, MissedTickBehavior, interval_at, sleep, timeout};

/// The longest line of a client, in bytes.
const LONGEST_LINE: u64 = 512;

/// The room of a new client.
const LOBBY: &str = "lobby";

/// The times that a server allows.
#[derive(Clone, Copy)]
pub struct Limits {
    /// The time between two heartbeats.
    pub heartbeat: Duration,
    /// A client that sends no line for this long is disconnected.
    pub idle: Duration,
    /// A write that takes longer ends the session.
    pub write: Duration,
    /// The time that sessions get to end on shutdown.
    pub drain: Duration,
}

/// What the sessions share.
struct Chat {
    limits: Limits,
    rooms: Mutex<HashMap<String, Room>>,
    journal: mpsc::Sender<String>,
}

/// A room: its members, and the channel that reaches all of them.
struct Room {
    members: BTreeSet<String>,
    lines: broadcast::Sender<Arc<str>>,
}

impl Chat {
    /// Adds a member, and returns its channel. `None` if the name is taken in this room.
    fn enter(&self, room: &str, nick: &str) -> Option<broadcast::Receiver<Arc<str>>> {
        let mut rooms = self.rooms.lock().unwrap();
        let room = rooms.entry(room.to_owned()).or_insert_with(|| Room {
            members: BTreeSet::new(),
            lines: broadcast::channel(64).0,
        });
        if !room.members.insert(nick.to_owned()) {
            return None;
        }
        let _ = room.lines.send(format!("* {nick} is here").into());
        Some(room.lines.subscribe())
    }

    /// Removes a member, and the room when it is empty.
    fn leave(&self, room: &str, nick: &str) {
        let mut rooms = self.rooms.lock().unwrap();
        let Some(left) = rooms.get_mut(room) else {
            return;
        };
        left.members.remove(nick);
        let _ = left.lines.send(format!("* {nick} is gone").into());
        if left.members.is_empty() {
            rooms.remove(room);
        }
    }

    /// Returns the names of a room's members, in order.
    fn members(&self, room: &str) -> Vec<String> {
        let rooms = self.rooms.lock().unwrap();
        rooms
            .get(room)
            .map_or_else(Vec::new, |room| room.members.iter().cloned().collect())
    }

    /// Sends a text to a room, and to the journal.
    async fn say(&self, room: &str, nick: &str, text: &str) {
        let line = format!("<{nick}> {text}");
        let _ = self.journal.send(format!("{room} {line}")).await;
        if let Some(room) = self.rooms.lock().unwrap().get(room) {
            let _ = room.lines.send(line.into());
        }
    }
}

/// Prints a line to stderr. `eprintln!` would panic if stderr is closed or full.
fn warn(text: fmt::Arguments<'_>) {
    let _ = writeln!(io::stderr(), "{text}");
}

/// Serves clients until `shutdown` is ready. Returns when all sessions and the journal have ended.
pub async fn serve(
    listener: TcpListener,
    limits: Limits,
    journal: impl Write + Send + 'static,
    shutdown: impl Future<Output = ()>,
) -> io::Result<()> {
    let (stop, stopping) = watch::channel(false);
    let (entries, written) = mpsc::channel(64);
    let writing = tourbillon::spawn(write_journal(written, journal));
    let chat = Arc::new(Chat {
        limits,
        rooms: Mutex::default(),
        journal: entries,
    });
    let mut sessions = JoinSet::new();
    let mut guests = 0_u64;
    tokio::pin!(shutdown);
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    guests += 1;
                    let nick = format!("guest-{guests}");
                    sessions.spawn(run_session(chat.clone(), stream, nick, stopping.clone()));
                }
                Err(error) => {
                    // The process may have no descriptors left: give the sessions time to end.
                    warn(format_args!("cannot accept a client: {error}"));
                    sleep(Duration::from_millis(50)).await;
                }
            },
            Some(ended) = sessions.join_next() => {
                if let Err(error) = ended {
                    warn(format_args!("a session ended early: {error}"));
                }
            }
            () = &mut shutdown => break,
        }
    }
    drop(listener);
    stop.send_replace(true);
    let draining = async { while sessions.join_next().await.is_some() {} };
    if timeout(limits.drain, draining).await.is_err() {
        sessions.shutdown().await;
    }
    // The journal ends with the last sender.
    drop(chat);
    writing.await?
}

/// Writes the entries on a thread that may block, as many at once as there are.
async fn write_journal(
    mut entries: mpsc::Receiver<String>,
    mut journal: impl Write + Send + 'static,
) -> io::Result<()> {
    let mut batch = Vec::new();
    while entries.recv_many(&mut batch, 32).await > 0 {
        let lines = std::mem::take(&mut batch);
        let writing = spawn_blocking(move || {
            for line in lines {
                writeln!(journal, "{line}")?;
            }
            journal.flush().map(|()| journal)
        });
        journal = writing.await??;
    }
    Ok(())
}

/// A session: what the server knows of one client.
struct Session {
    chat: Arc<Chat>,
    nick: String,
    room: String,
    lines: broadcast::Receiver<Arc<str>>,
    writer: OwnedWriteHalf,
}

async fn run_session(
    chat: Arc<Chat>,
    stream: TcpStream,
    nick: String,
    stopping: watch::Receiver<bool>,
) {
    let _ = stream.set_nodelay(true);
    let (reader, writer) = stream.into_split();
    let lines = chat.enter(LOBBY, &nick).expect("a guest's name is free");
    let mut session = Session {
        chat,
        nick,
        room: LOBBY.to_owned(),
        lines,
        writer,
    };
    // A client that is gone is no fault of the server.
    let _ = session.run(BufReader::new(reader), stopping).await;
    session.chat.leave(&session.room, &session.nick);
}

impl Session {
    async fn run(
        &mut self,
        reader: BufReader<OwnedReadHalf>,
        mut stopping: watch::Receiver<bool>,
    ) -> io::Result<()> {
        self.send(&format!("* welcome, {}", self.nick)).await?;
        let limits = self.chat.limits;
        let mut heartbeat = interval_at(Instant::now() + limits.heartbeat, limits.heartbeat);
        heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);

        // A task of its own reads, as a line that has partly arrived must not be lost in `select!`.
        let (sender, mut commands) = mpsc::channel(8);
        let mut reading = JoinSet::new();
        reading.spawn(read_lines(reader, limits.idle, sender));
        loop {
            tokio::select! {
                command = commands.recv() => match command {
                    Some(Ok(line)) => if !self.obey(line.trim_end()).await? {
                        break;
                    },
                    Some(Err(reason)) => {
                        self.send(&format!("! {reason}")).await?;
                        break;
                    }
                    None => break,
                },
                line = self.lines.recv() => match line {
                    Ok(line) => self.send(&line).await?,
                    Err(broadcast::error::RecvError::Lagged(missed)) => {
                        self.send(&format!("! {missed} lines are lost")).await?;
                    }
                    Err(broadcast::error::RecvError::Closed) => break,
                },
                _ = heartbeat.tick() => self.send("* ping").await?,
                _ = stopping.changed() => {
                    self.send("* the server ends").await?;
                    break;
                }
            }
        }
        self.writer.shutdown().await
    }

    /// Obeys a line. Returns `false` if the session ends.
    async fn obey(&mut self, line: &str) -> io::Result<bool> {
        let (command, argument) = line.split_once(' ').unwrap_or((line, ""));
        match (command, argument.trim()) {
            ("", _) => {}
            ("/quit", _) => {
                self.send("* bye").await?;
                return Ok(false);
            }
            ("/who", _) => {
                let members = self.chat.members(&self.room).join(" ");
                self.send(&format!("* in {}: {members}", self.room)).await?;
            }
            ("/nick" | "/join", name) if !is_name(name) => {
                self.send("! a name has 1 to 16 letters and digits").await?;
            }
            ("/nick", nick) => self.move_to(self.room.clone(), nick.to_owned()).await?,
            ("/join", room) => self.move_to(room.to_owned(), self.nick.clone()).await?,
            (other, _) if other.starts_with('/') => {
                self.send(&format!("! no command: {other}")).await?;
            }
            _ => self.chat.say(&self.room, &self.nick, line).await,
        }
        Ok(true)
    }

    /// Enters a room under a name, and then leaves the old one.
    async fn move_to(&mut self, room: String, nick: String) -> io::Result<()> {
        let Some(lines) = self.chat.enter(&room, &nick) else {
            return self.send(&format!("! {nick} is taken in {room}")).await;
        };
        self.chat.leave(&self.room, &self.nick);
        // If the room stays the same, skip the message of the departure, which the client knows.
        (self.room, self.nick, self.lines) = (room, nick, lines.resubscribe());
        let welcome = format!("* you are {} in {}", self.nick, self.room);
        self.send(&welcome).await
    }

    /// Writes a line, within the limit.
    async fn send(&mut self, line: &str) -> io::Result<()> {
        let line = format!("{line}\n");
        timeout(
            self.chat.limits.write,
            self.writer.write_all(line.as_bytes()),
        )
        .await?
    }
}

/// Reads lines until the end, an error, a line that is too long, or a silence that is too long.
async fn read_lines(
    mut reader: BufReader<OwnedReadHalf>,
    idle: Duration,
    lines: mpsc::Sender<Result<String, &'static str>>,
) {
    loop {
        let mut line = String::new();
        let mut limited = (&mut reader).take(LONGEST_LINE);
        let read = match timeout(idle, limited.read_line(&mut line)).await {
            Ok(Ok(0)) => return,
            Ok(Ok(_)) if !line.ends_with('\n') && line.len() as u64 == LONGEST_LINE => {
                Err("the line is too long")
            }
            Ok(Ok(_)) => Ok(line),
            Ok(Err(error)) if error.kind() == io::ErrorKind::InvalidData => {
                Err("the line is not UTF-8")
            }
            Ok(Err(_)) => return,
            Err(_) => Err("idle for too long"),
        };
        let is_last = read.is_err();
        if lines.send(read).await.is_err() || is_last {
            return;
        }
    }
}

fn is_name(name: &str) -> bool {
    (1..=16).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;
    use tourbillon::task::JoinHandle;

    use super::*;

    const LIMITS: Limits = Limits {
        heartbeat: Duration::from_secs(3600),
        idle: Duration::from_secs(3600),
        write: Duration::from_secs(60),
        drain: Duration::from_secs(60),
    };

    /// A server that ends when `stop` is dropped.
    struct Server {
        stop: oneshot::Sender<()>,
        serving: JoinHandle<io::Result<()>>,
    }

    impl Server {
        /// Starts a server, and connects to it.
        async fn start(limits: Limits) -> (Self, BufReader<TcpStream>) {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let (stop, stopped) = oneshot::channel();
            let serving = tourbillon::spawn(serve(listener, limits, io::sink(), async {
                let _ = stopped.await;
            }));
            let stream = TcpStream::connect(address).await.unwrap();
            (Self { stop, serving }, BufReader::new(stream))
        }

        async fn end(self) {
            drop(self.stop);
            self.serving.await.unwrap().unwrap();
        }
    }

    /// Talks to a server with these limits, and returns what the server sends until it hangs up.
    async fn talk(limits: Limits, said: &str) -> String {
        let (server, mut stream) = Server::start(limits).await;
        stream.write_all(said.as_bytes()).await.unwrap();
        let mut heard = String::new();
        let reading = stream.read_to_string(&mut heard);
        timeout(LIMITS.drain, reading).await.unwrap().unwrap();
        server.end().await;
        heard
    }

    #[tourbillon::test]
    async fn a_client_that_quits_hears_goodbye() {
        let heard = talk(LIMITS, "/nick ann\n/nick -\n/who\n/dance\n/quit\n").await;
        let expected = "* welcome, guest-1\n\
            * you are ann in lobby\n\
            ! a name has 1 to 16 letters and digits\n\
            * in lobby: ann\n\
            ! no command: /dance\n\
            * bye\n";
        assert_eq!(heard, expected);
    }

    #[tourbillon::test]
    async fn a_client_hears_heartbeats() {
        let heartbeat = Duration::from_millis(20);
        let (server, stream) = Server::start(Limits {
            heartbeat,
            ..LIMITS
        })
        .await;
        let mut lines = stream.lines();
        for expected in ["* welcome, guest-1", "* ping", "* ping"] {
            let line = timeout(LIMITS.drain, lines.next_line()).await.unwrap();
            assert_eq!(line.unwrap().as_deref(), Some(expected));
        }
        server.end().await;
    }

    #[tourbillon::test]
    async fn a_silent_client_is_disconnected() {
        let idle = Duration::from_millis(20);
        let heard = talk(Limits { idle, ..LIMITS }, "").await;
        assert_eq!(heard, "* welcome, guest-1\n! idle for too long\n");
    }

    #[tourbillon::test]
    async fn a_line_has_a_bound() {
        let long = "x".repeat(LONGEST_LINE as usize);
        let heard = talk(LIMITS, &long).await;
        assert!(heard.ends_with("! the line is too long\n"), "{heard}");
    }
}
