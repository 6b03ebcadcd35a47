//! The members of the chat, and what they say to each other.
//!
//! A member is in the lobby until something ends it: its client, one of its timers, or a queue that
//! is full. [`Lobby::end`] decides which was first. It removes the member, tells the others, and
//! tells the member's connection.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard},
    time::{Duration, UNIX_EPOCH},
};

use async_tungstenite::tungstenite::{
    Bytes, Message,
    protocol::frame::coding::CloseCode::{self, Again, Away, Policy, Size, Unsupported},
};
use clap::Args;
use futures::channel::{mpsc, oneshot};
use serde_json::{Value, json};
use tourbillon::time::Instant;
use tourbillon_examples::values::{count, positive};

/// Maximum length of a name, in characters.
const MAX_NAME: usize = 24;
/// How many messages may wait until a client takes them.
const MAX_QUEUE: usize = 64;
/// How many messages a new member gets to see.
const HISTORY: usize = 50;

/// The options of all members.
#[derive(Args, Clone, Copy)]
pub struct Rules {
    /// Send a ping to each client after each period of this length.
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = positive)]
    pub heartbeat: Duration,
    /// Remove a client after this time without an answer to a ping, or another frame.
    #[arg(long, value_name = "DURATION", default_value = "15s", value_parser = positive)]
    pub idle: Duration,
    /// Maximum number of clients.
    #[arg(long, value_name = "COUNT", default_value = "500", value_parser = count)]
    pub max_clients: usize,
}

/// Why a member ended: the reason for people, and the code for the client's close frame, unless it
/// has closed or gone.
#[derive(Clone, Copy, Debug)]
pub struct End(pub Option<CloseCode>, pub &'static str);

impl End {
    pub const LEFT: Self = Self(None, "left");
    pub const LOST: Self = Self(None, "connection lost");
    pub const IDLE: Self = Self(Some(Policy), "no sign of life");
    pub const SLOW: Self = Self(Some(Policy), "messages were not taken in time");
    pub const TOO_LONG: Self = Self(Some(Size), "the message was too long");
    pub const NOT_TEXT: Self = Self(Some(Unsupported), "the message was not text");
    pub const FULL: Self = Self(Some(Again), "the chat is full");
    pub const SHUTDOWN: Self = Self(Some(Away), "the server has ended");
}

struct Member {
    name: String,
    outbox: mpsc::Sender<Message>,
    end: oneshot::Sender<End>,
}

/// A member's place, held by its connection. If the connection drops it, the member ends.
pub struct Seat {
    pub id: u64,
    pub lobby: Arc<Lobby>,
    /// The messages for the client.
    pub outbox: mpsc::Receiver<Message>,
    /// Ready when the member has ended.
    pub end: oneshot::Receiver<End>,
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.lobby.end(self.id, End::LOST);
    }
}

/// The members of the chat: see the top of this file.
pub struct Lobby {
    pub rules: Rules,
    start: Instant,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    members: BTreeMap<u64, Member>,
    last_id: u64,
    said: VecDeque<Value>,
    is_closed: bool,
}

impl Lobby {
    pub fn new(rules: Rules) -> Self {
        Self {
            rules,
            start: Instant::now(),
            state: Mutex::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no thread panics with it")
    }

    /// Admits a member, tells the others, and returns its seat, or why it has none. `http` is the
    /// version of HTTP that its connection began with.
    pub fn join(self: &Arc<Self>, name: &str, http: &str) -> Result<Seat, End> {
        let mut state = self.state();
        if state.is_closed {
            return Err(End::SHUTDOWN);
        }
        if state.members.len() >= self.rules.max_clients {
            return Err(End::FULL);
        }
        state.last_id += 1;
        let id = state.last_id;
        let name = state.free_name(name, id);
        state.broadcast(&json!({ "type": "joined", "id": id, "name": name }));
        let (outbox, messages) = mpsc::channel(MAX_QUEUE);
        let (end, ended) = oneshot::channel();
        state.members.insert(id, Member { name, outbox, end });
        let pair = |(id, member): (&u64, &Member)| json!([id, member.name]);
        let members: Vec<_> = state.members.iter().map(pair).collect();
        let welcome = json!({
            "type": "welcome",
            "you": id,
            "http": http,
            "idle_ms": self.rules.idle.as_millis() as u64,
            "members": members,
            "said": state.said,
        });
        state.send(id, Message::text(welcome.to_string()));
        Ok(Seat {
            id,
            lobby: self.clone(),
            outbox: messages,
            end: ended,
        })
    }

    /// Tells all members what one of them says.
    pub fn say(&self, author: u64, text: &str) {
        let mut state = self.state();
        let Some(member) = state.members.get(&author) else {
            return;
        };
        // The milliseconds since 1970.
        let at = UNIX_EPOCH.elapsed().unwrap_or_default().as_millis() as u64;
        let name = &member.name;
        let said =
            json!({ "type": "said", "author": author, "name": name, "text": text, "at": at });
        state.broadcast(&said);
        state.said.push_back(said);
        let too_many = state.said.len().saturating_sub(HISTORY);
        state.said.drain(..too_many);
    }

    /// Sends a ping, whose content is the present time.
    pub fn ping(&self, id: u64) {
        let now = self.start.elapsed().as_micros() as u64;
        let ping = Message::Ping(Bytes::copy_from_slice(&now.to_be_bytes()));
        self.state().send(id, ping);
    }

    /// Tells a member the round trip of its pong.
    pub fn pong(&self, id: u64, content: &[u8]) {
        // Clients may also send pongs of their own.
        if let Ok(sent) = content.try_into().map(u64::from_be_bytes) {
            let trip = (self.start.elapsed().as_micros() as u64).saturating_sub(sent);
            let status = json!({ "type": "status", "round_trip_us": trip });
            self.state().send(id, Message::text(status.to_string()));
        }
    }

    /// Ends a member, unless it has ended.
    pub fn end(&self, id: u64, why: End) {
        self.state().end(id, why);
    }

    /// Ends all members, and admits no more.
    pub fn close(&self) {
        let mut state = self.state();
        state.is_closed = true;
        for member in std::mem::take(&mut state.members).into_values() {
            // An error: its connection is ending.
            let _ = member.end.send(End::SHUTDOWN);
        }
    }
}

impl State {
    /// Returns a name for a new member. Another member's name gets the number behind it.
    fn free_name(&self, wanted: &str, id: u64) -> String {
        let name = wanted.trim().chars().filter(|c| !c.is_control());
        let name: String = name.take(MAX_NAME).collect();
        let is_taken = self.members.values().any(|member| member.name == name);
        match &*name {
            "" => format!("guest {id}"),
            _ if is_taken => format!("{name} {id}"),
            _ => name,
        }
    }

    fn broadcast(&mut self, event: &Value) {
        let message = Message::text(event.to_string());
        let ids: Vec<_> = self.members.keys().copied().collect();
        for id in ids {
            self.send(id, message.clone());
        }
    }

    /// Queues a message for a member. A member whose queue is full ends.
    fn send(&mut self, id: u64, message: Message) {
        if let Some(member) = self.members.get_mut(&id) {
            let sent = member.outbox.try_send(message);
            if sent.is_err_and(|error| error.is_full()) {
                self.end(id, End::SLOW);
            }
        }
    }

    fn end(&mut self, id: u64, why: End) {
        if let Some(member) = self.members.remove(&id) {
            // An error: its connection is ending.
            let _ = member.end.send(why);
            self.broadcast(&json!({ "type": "gone", "id": id, "reason": why.1 }));
        }
    }
}
