//! The data of the server: strings with expirations, and channels of messages.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use bytes::Bytes;
use tokio::{
    select,
    sync::{Notify, broadcast},
};

use crate::rt::{
    spawn,
    task::JoinHandle,
    time::{Duration, Instant, sleep_until},
};

/// How many messages a subscriber may be behind.
const LONGEST_LAG: usize = 1024;

/// A handle to the data. Clones share them.
#[derive(Clone, Debug)]
pub struct Db(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// Wakes the purge task: an earlier deadline, or the end.
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    entries: HashMap<Bytes, Entry>,
    /// The deadline of each key that has one, the earliest first.
    deadlines: BTreeSet<(Instant, Bytes)>,
    channels: HashMap<Bytes, broadcast::Sender<Bytes>>,
    closed: bool,
}

#[derive(Clone, Debug)]
struct Entry {
    value: Bytes,
    deadline: Option<Instant>,
}

/// When the new value of a key expires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expiry {
    Never,
    /// When the old value would have expired.
    Keep,
    At(Instant),
}

/// Which keys a command sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    Always,
    IfMissing,
    IfPresent,
}

/// How long a key has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeLeft {
    Missing,
    Unlimited,
    Limited(Duration),
}

/// Why a number cannot be added to a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddError {
    NotInteger,
    Overflow,
}

impl Db {
    /// Makes an empty database, and the task that removes what has expired. The task ends after
    /// [`Db::close`].
    pub fn open() -> (Self, JoinHandle<()>) {
        let db = Self(Arc::new(Shared {
            state: Mutex::default(),
            changed: Notify::new(),
        }));
        let purging = spawn(purge(db.clone()));
        (db, purging)
    }

    /// Ends the purge task, and the channels.
    pub fn close(&self) {
        let mut state = self.state();
        state.closed = true;
        state.channels.clear();
        drop(state);
        self.0.changed.notify_one();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Each method leaves the state complete, even if one of them panics.
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state, and tells the purge task if its next deadline is earlier now.
    fn change<R>(&self, change: impl FnOnce(&mut State) -> R) -> R {
        let mut state = self.state();
        let before = state.next_deadline();
        let result = change(&mut state);
        let earlier = match (before, state.next_deadline()) {
            (None, after) => after.is_some(),
            (Some(before), after) => after.is_some_and(|after| after < before),
        };
        drop(state);
        if earlier {
            self.0.changed.notify_one();
        }
        result
    }

    /// Returns the value of a key.
    pub fn get(&self, key: &[u8]) -> Option<Bytes> {
        self.state().live(key).map(|entry| entry.value.clone())
    }

    /// Sets a key. Returns whether the condition was met.
    pub fn set(&self, key: &[u8], value: &[u8], condition: Condition, expiry: Expiry) -> bool {
        self.change(|state| {
            let old = state.live(key);
            let met = match condition {
                Condition::Always => true,
                Condition::IfMissing => old.is_none(),
                Condition::IfPresent => old.is_some(),
            };
            if met {
                let deadline = match expiry {
                    Expiry::Never => None,
                    Expiry::Keep => old.and_then(|old| old.deadline),
                    Expiry::At(deadline) => Some(deadline),
                };
                // A copy: a slice would keep the client's whole buffer.
                let value = Bytes::copy_from_slice(value);
                state.put(key, Entry { value, deadline });
            }
            met
        })
    }

    /// Sets several keys at once.
    pub fn set_all(&self, pairs: &[(Bytes, Bytes)]) {
        self.change(|state| {
            for (key, value) in pairs {
                let value = Bytes::copy_from_slice(value);
                let deadline = None;
                state.put(key, Entry { value, deadline });
            }
        });
    }

    /// Removes keys. Returns how many there were.
    pub fn remove(&self, keys: &[Bytes]) -> usize {
        let mut state = self.state();
        keys.iter()
            .filter(|key| state.live(key).is_some() && state.remove(key))
            .count()
    }

    /// Returns how many of the keys exist. One that is named twice counts twice.
    pub fn count(&self, keys: &[Bytes]) -> usize {
        let state = self.state();
        keys.iter().filter(|key| state.live(key).is_some()).count()
    }

    /// Returns the number of keys, with those that the purge task has still to remove.
    pub fn len(&self) -> usize {
        self.state().entries.len()
    }

    /// Removes all keys.
    pub fn clear(&self) {
        let mut state = self.state();
        state.entries.clear();
        state.deadlines.clear();
    }

    /// Sets or removes the deadline of a key. Returns whether the key exists and the call changed
    /// it.
    pub fn set_deadline(&self, key: &[u8], deadline: Option<Instant>) -> bool {
        self.change(|state| {
            let Some(entry) = state.live(key).cloned() else {
                return false;
            };
            let changes = deadline.is_some() || entry.deadline.is_some();
            state.put(key, Entry { deadline, ..entry });
            changes
        })
    }

    /// Returns how long a key has.
    pub fn time_left(&self, key: &[u8]) -> TimeLeft {
        match self.state().live(key) {
            None => TimeLeft::Missing,
            Some(Entry { deadline: None, .. }) => TimeLeft::Unlimited,
            Some(Entry {
                deadline: Some(deadline),
                ..
            }) => TimeLeft::Limited(deadline.saturating_duration_since(Instant::now())),
        }
    }

    /// Adds to the number that a key holds, or to 0. Returns the sum.
    pub fn add(&self, key: &[u8], number: i64) -> Result<i64, AddError> {
        self.change(|state| {
            let old = state.live(key);
            let value = match old {
                None => 0,
                Some(old) => crate::frame::parse_integer(&old.value).ok_or(AddError::NotInteger)?,
            };
            let deadline = old.and_then(|old| old.deadline);
            let sum = value.checked_add(number).ok_or(AddError::Overflow)?;
            let value = sum.to_string().into();
            state.put(key, Entry { value, deadline });
            Ok(sum)
        })
    }

    /// Appends to the value of a key. Returns its length.
    pub fn append(&self, key: &[u8], tail: &[u8]) -> usize {
        self.change(|state| {
            let old = state.live(key);
            let deadline = old.and_then(|old| old.deadline);
            let value: Bytes = [old.map_or(&[][..], |old| &old.value), tail]
                .concat()
                .into();
            let length = value.len();
            state.put(key, Entry { value, deadline });
            length
        })
    }

    /// Sends a message to a channel. Returns how many subscribers it has.
    pub fn publish(&self, channel: &[u8], message: &[u8]) -> usize {
        let mut state = self.state();
        let Some(sender) = state.channels.get(channel) else {
            return 0;
        };
        let sent = sender.send(Bytes::copy_from_slice(message));
        sent.unwrap_or_else(|_| {
            // The last subscriber has left.
            state.channels.remove(channel);
            0
        })
    }

    /// Subscribes to a channel.
    pub fn subscribe(&self, channel: &[u8]) -> broadcast::Receiver<Bytes> {
        let mut state = self.state();
        // Channels that nobody publishes to must not stay for ever.
        state
            .channels
            .retain(|_, sender| sender.receiver_count() > 0);
        if state.closed {
            return broadcast::channel(1).1;
        }
        let sender = state
            .channels
            .entry(Bytes::copy_from_slice(channel))
            .or_insert_with(|| broadcast::channel(LONGEST_LAG).0);
        sender.subscribe()
    }
}

impl State {
    /// Returns an entry that has not expired.
    fn live(&self, key: &[u8]) -> Option<&Entry> {
        let entry = self.entries.get(key)?;
        // The purge task can be late; a client must not see this.
        let expired = entry
            .deadline
            .is_some_and(|deadline| deadline <= Instant::now());
        (!expired).then_some(entry)
    }

    /// Inserts or replaces an entry.
    fn put(&mut self, key: &[u8], entry: Entry) {
        self.remove(key);
        let key = Bytes::copy_from_slice(key);
        if let Some(deadline) = entry.deadline {
            self.deadlines.insert((deadline, key.clone()));
        }
        self.entries.insert(key, entry);
    }

    /// Removes an entry with its deadline. Returns whether there was one.
    fn remove(&mut self, key: &[u8]) -> bool {
        let Some((key, entry)) = self.entries.remove_entry(key) else {
            return false;
        };
        if let Some(deadline) = entry.deadline {
            self.deadlines.remove(&(deadline, key));
        }
        true
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.deadlines.first().map(|(deadline, _)| *deadline)
    }

    /// Removes all entries that have expired.
    fn purge(&mut self, now: Instant) {
        while self.next_deadline().is_some_and(|deadline| deadline <= now) {
            let (_, key) = self.deadlines.pop_first().expect("there is a first");
            self.entries.remove(&key);
        }
    }
}

/// Removes entries when they expire, until the database is closed.
async fn purge(db: Db) {
    loop {
        let next = {
            let mut state = db.state();
            if state.closed {
                return;
            }
            state.purge(Instant::now());
            state.next_deadline()
        };
        let changed = db.0.changed.notified();
        match next {
            Some(deadline) => select! {
                () = sleep_until(deadline) => {}
                () = changed => {}
            },
            None => changed.await,
        }
    }
}
