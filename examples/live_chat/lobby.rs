//! The members of the chat, and what they say to each other.
//!
//! A member is in the lobby until something ends it: its client, one of its timers, or a queue that
//! is full. [`Lobby::end`] decides which was first. It removes the member, tells the others, and
//! tells the member's connection.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use async_tungstenite::tungstenite::{
    Bytes, Message, Utf8Bytes,
    protocol::frame::{CloseFrame, coding::CloseCode},
};
use futures::channel::{mpsc, oneshot};
use serde::Serialize;
use tourbillon::time::Instant;

use crate::lateness::Lateness;

/// Maximum length of a name, in characters.
const MAX_NAME: usize = 24;
/// How many messages a new member gets to see.
const HISTORY: usize = 50;

/// The options of all members.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// Time between two pings.
    pub heartbeat: Duration,
    /// Time without a frame from the client after which the member ends.
    pub idle: Duration,
    /// How much later these two timers may run, to share a wake-up with those of other members.
    pub tolerance: Duration,
    pub max_clients: usize,
    /// How many messages may wait until a client takes them.
    pub max_queue: usize,
}

/// Why a member ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Left,
    Lost,
    Idle,
    Slow,
    TooLong,
    NotText,
    Full,
    Shutdown,
}

impl End {
    /// Returns the reason for people.
    fn reason(self) -> &'static str {
        match self {
            Self::Left => "left",
            Self::Lost => "connection lost",
            Self::Idle => "no sign of life",
            Self::Slow => "messages were not taken in time",
            Self::TooLong => "the message was too long",
            Self::NotText => "the message was not text",
            Self::Full => "the chat is full",
            Self::Shutdown => "the server has ended",
        }
    }

    /// Returns the close frame for the client, or `None` if the client has closed or gone.
    pub fn frame(self) -> Option<CloseFrame> {
        let code = match self {
            Self::Left | Self::Lost => return None,
            Self::Idle | Self::Slow => CloseCode::Policy,
            Self::TooLong => CloseCode::Size,
            Self::NotText => CloseCode::Unsupported,
            Self::Full => CloseCode::Again,
            Self::Shutdown => CloseCode::Away,
        };
        let reason = self.reason().into();
        Some(CloseFrame { code, reason })
    }
}

/// What the server tells a page, as JSON.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Event<'a> {
    Welcome {
        you: u64,
        /// The version of HTTP that the connection began with.
        http: &'a str,
        idle_ms: u128,
        members: Vec<(u64, &'a str)>,
        said: &'a VecDeque<Said>,
    },
    Joined {
        id: u64,
        name: &'a str,
    },
    Gone {
        id: u64,
        reason: &'static str,
    },
    Said(&'a Said),
    Status {
        round_trip_us: u128,
        late_us: Option<u128>,
        worst_us: Option<u128>,
    },
}

/// A message of a member. Its author may have gone.
#[derive(Serialize)]
struct Said {
    author: u64,
    name: String,
    text: String,
    /// Milliseconds since 1970.
    at: u128,
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
        self.lobby.end(self.id, End::Lost);
    }
}

/// The members of the chat: see the top of this file.
pub struct Lobby {
    pub rules: Rules,
    pub lateness: Lateness,
    start: Instant,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    members: BTreeMap<u64, Member>,
    last_id: u64,
    said: VecDeque<Said>,
    is_closed: bool,
}

impl Lobby {
    pub fn new(rules: Rules) -> Self {
        Self {
            rules,
            lateness: Lateness::default(),
            start: Instant::now(),
            state: Mutex::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no thread panics with it")
    }

    /// Admits a member, tells the others, and returns its seat, or why it has none.
    pub fn join(self: &Arc<Self>, name: &str, http: &str) -> Result<Seat, End> {
        let mut state = self.state();
        if state.is_closed {
            return Err(End::Shutdown);
        }
        if state.members.len() >= self.rules.max_clients {
            return Err(End::Full);
        }
        let name = state.free_name(name);
        state.last_id += 1;
        let id = state.last_id;
        state.broadcast(&Event::Joined { id, name: &name });
        let (outbox, messages) = mpsc::channel(self.rules.max_queue);
        let (end, ended) = oneshot::channel();
        state.members.insert(id, Member { name, outbox, end });
        let members = state.members.iter();
        let welcome = Event::Welcome {
            you: id,
            http,
            idle_ms: self.rules.idle.as_millis(),
            members: members.map(|(id, member)| (*id, &*member.name)).collect(),
            said: &state.said,
        };
        let welcome = text(&welcome);
        state.send(id, welcome);
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
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH);
        let said = Said {
            author,
            name: member.name.clone(),
            text: text.to_owned(),
            at: since_1970.unwrap_or_default().as_millis(),
        };
        state.broadcast(&Event::Said(&said));
        if state.said.len() == HISTORY {
            state.said.pop_front();
        }
        state.said.push_back(said);
    }

    /// Sends a ping, whose content is the present time.
    pub fn ping(&self, id: u64) {
        let now = self.start.elapsed().as_micros() as u64;
        let ping = Message::Ping(Bytes::copy_from_slice(&now.to_be_bytes()));
        self.state().send(id, ping);
    }

    /// Tells a member the round trip of its pong, and how late the timers are.
    pub fn pong(&self, id: u64, content: &[u8]) {
        // Clients may also send pongs of their own.
        let Ok(sent) = content.try_into().map(u64::from_be_bytes) else {
            return;
        };
        let measured = self.lateness.last_and_worst();
        let status = Event::Status {
            round_trip_us: self.start.elapsed().as_micros().saturating_sub(sent.into()),
            late_us: measured.map(|(last, _)| last.as_micros()),
            worst_us: measured.map(|(_, worst)| worst.as_micros()),
        };
        self.state().send(id, text(&status));
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
            let _ = member.end.send(End::Shutdown);
        }
    }
}

impl State {
    /// Returns a name for a new member. Another member's name gets a number behind it.
    fn free_name(&self, wanted: &str) -> String {
        let name = wanted.trim().chars().filter(|c| !c.is_control());
        let mut name: String = name.take(MAX_NAME).collect();
        if name.is_empty() {
            name = "guest".into();
        }
        let is_free = |name: &String| self.members.values().all(|member| member.name != *name);
        let numbered = (2..).map(|number| format!("{name} {number}"));
        let mut names = std::iter::once(name.clone()).chain(numbered);
        names
            .find(is_free)
            .expect("there are fewer members than numbers")
    }

    fn broadcast(&mut self, event: &Event<'_>) {
        let message = text(event);
        let ids: Vec<_> = self.members.keys().copied().collect();
        for id in ids {
            self.send(id, message.clone());
        }
    }

    /// Queues a message for a member. A member whose queue is full ends.
    fn send(&mut self, id: u64, message: Message) {
        let Some(member) = self.members.get_mut(&id) else {
            return;
        };
        let sent = member.outbox.try_send(message);
        if sent.is_err_and(|error| error.is_full()) {
            self.end(id, End::Slow);
        }
    }

    fn end(&mut self, id: u64, why: End) {
        let Some(member) = self.members.remove(&id) else {
            return;
        };
        // An error: its connection is ending.
        let _ = member.end.send(why);
        let reason = why.reason();
        self.broadcast(&Event::Gone { id, reason });
    }
}

fn text(event: &Event<'_>) -> Message {
    let json = serde_json::to_string(event).expect("an event is valid JSON");
    Message::Text(Utf8Bytes::from(json))
}
