//! The keys, and one timer for each key that expires.
//!
//! The map is split into parts by the hash of the key. Each part has a mutex, which is held briefly
//! and never across an await.
//!
//! Who is first decides, a reader or the timer:
//!
//! - A read puts the timer off (`Timer::refresh`). If the answer is that the timer waits again, the
//!   key stays. If it is too late, the callback runs or has run: the key has expired, and the
//!   reader removes it.
//! - A callback that has begun waits for the mutex. By then its key may be gone, or another entry
//!   may have its name. So each entry with a timer has a number, and the callback removes only the
//!   entry with the number it was made for.
//!
//! An entry owns its timer through a guard: removing or overwriting the entry cancels the timer.

use std::{
    collections::HashMap,
    hash::{BuildHasher, RandomState},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use tourbillon::{
    CancelOnDrop,
    time::Instant,
    timer::{Cancel, Reset},
};

/// Number of parts: many more than cores, so that two threads seldom need the same part.
const PARTS: u64 = 64;
/// Approximate memory of a key in addition to its bytes and its value's: its place in the map,
/// three allocations, and a timer.
pub const OVERHEAD: u64 = 320;

/// There is no room for the value.
#[derive(Debug, PartialEq, Eq)]
pub struct Full;

/// What a cache contains, and how many keys have expired.
#[derive(Debug, Default)]
pub struct Counts {
    pub keys: AtomicU64,
    /// Bytes of the keys and values, and [`OVERHEAD`] for each key.
    pub bytes: AtomicU64,
    pub expired: AtomicU64,
}

struct Entry {
    value: Box<str>,
    /// `None` if the key does not expire.
    expiry: Option<Expiry>,
}

struct Expiry {
    number: u64,
    timer: CancelOnDrop,
}

/// The keys of a part.
#[derive(Default)]
struct Keys {
    entries: HashMap<Box<str>, Entry>,
    last_number: u64,
}

impl Keys {
    fn next_number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }
}

struct Part {
    keys: Mutex<Keys>,
    counts: Arc<Counts>,
}

/// Keys and values. Use it within a runtime, which arms the timers.
pub struct Cache {
    parts: Vec<Arc<Part>>,
    hasher: RandomState,
    max_bytes: u64,
    pub counts: Arc<Counts>,
}

impl Cache {
    /// Returns an empty cache for this many [bytes](Counts::bytes).
    pub fn new(max_bytes: u64) -> Self {
        let counts = Arc::new(Counts::default());
        let part = |_| {
            Arc::new(Part {
                keys: Mutex::default(),
                counts: counts.clone(),
            })
        };
        Self {
            parts: (0..PARTS).map(part).collect(),
            hasher: RandomState::new(),
            max_bytes,
            counts,
        }
    }

    fn part(&self, key: &str) -> &Arc<Part> {
        &self.parts[(self.hasher.hash_one(key) % PARTS) as usize]
    }

    /// Sets a key. It expires when nobody has read it for the time `idle`.
    pub fn set(&self, key: &str, value: &str, idle: Duration) -> Result<(), Full> {
        let part = self.part(key);
        let cost = cost(key, value);
        let grow = |bytes: u64| bytes.checked_add(cost).filter(|&sum| sum <= self.max_bytes);
        let bytes = &self.counts.bytes;
        bytes.fetch_update(Relaxed, Relaxed, grow).or(Err(Full))?;
        let mut keys = part.lock();
        // Dropping the old entry cancels its timer.
        part.remove(&mut keys, key);
        self.counts.keys.fetch_add(1, Relaxed);
        let entry = Entry {
            value: value.into(),
            expiry: Some(part.expiry(keys.next_number(), key, idle)),
        };
        keys.entries.insert(key.into(), entry);
        Ok(())
    }

    /// Returns a key's value, and puts its expiry off.
    pub fn get(&self, key: &str) -> Option<String> {
        let part = self.part(key);
        let mut keys = part.lock();
        let entry = keys.entries.get(key)?;
        let is_late = |expiry: &Expiry| expiry.timer.refresh() != Reset::Pending;
        if entry.expiry.as_ref().is_some_and(is_late) {
            part.expire(&mut keys, key);
            return None;
        }
        Some(entry.value.to_string())
    }

    /// Returns how long a key stays if nobody reads it: `None` without the key, `Some(None)` if it
    /// does not expire.
    pub fn left(&self, key: &str) -> Option<Option<Duration>> {
        let keys = self.part(key).lock();
        let Some(expiry) = &keys.entries.get(key)?.expiry else {
            return Some(None);
        };
        // A timer that is over, or runs, has no deadline ahead: its key is about to go.
        let deadline = expiry.timer.deadline()?;
        deadline.checked_duration_since(Instant::now()).map(Some)
    }

    /// Lets a key expire when nobody has read it for the time `idle`, from now on. Returns whether
    /// the key is there.
    pub fn expire(&self, key: &str, idle: Duration) -> bool {
        let part = self.part(key);
        let mut keys = part.lock();
        let number = keys.next_number();
        let Some(entry) = keys.entries.get_mut(key) else {
            return false;
        };
        let in_time = match &entry.expiry {
            Some(expiry) => expiry.timer.reset_after(idle) == Reset::Pending,
            None => {
                entry.expiry = Some(part.expiry(number, key, idle));
                true
            }
        };
        if !in_time {
            part.expire(&mut keys, key);
        }
        in_time
    }

    /// Lets a key stay for ever. Returns whether the key is there.
    pub fn keep(&self, key: &str) -> bool {
        let part = self.part(key);
        let mut keys = part.lock();
        let Some(entry) = keys.entries.get_mut(key) else {
            return false;
        };
        let expiry = entry.expiry.take();
        let in_time = expiry.is_none_or(|expiry| expiry.timer.cancel() == Cancel::Cancelled);
        if !in_time {
            part.expire(&mut keys, key);
        }
        in_time
    }

    /// Removes a key. Returns whether it was there.
    pub fn remove(&self, key: &str) -> bool {
        let part = self.part(key);
        let mut keys = part.lock();
        let is_late = |entry: Entry| {
            let expiry = entry.expiry;
            expiry.is_some_and(|expiry| expiry.timer.cancel() != Cancel::Cancelled)
        };
        let removed = part.remove(&mut keys, key).map(is_late);
        if removed == Some(true) {
            self.counts.expired.fetch_add(1, Relaxed);
        }
        removed == Some(false)
    }
}

impl Part {
    fn lock(&self) -> MutexGuard<'_, Keys> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Arms the timer of an entry, which has to get this number.
    fn expiry(self: &Arc<Self>, number: u64, key: &str, idle: Duration) -> Expiry {
        let (part, key) = (self.clone(), Box::<str>::from(key));
        let timer = tourbillon::after(idle, move || {
            let mut keys = part.lock();
            let entry = keys.entries.get(&key);
            let expiry = entry.and_then(|entry| entry.expiry.as_ref());
            if expiry.is_some_and(|expiry| expiry.number == number) {
                part.expire(&mut keys, &key);
            }
        });
        let timer = timer.cancel_on_drop();
        Expiry { number, timer }
    }

    fn expire(&self, keys: &mut Keys, key: &str) {
        if self.remove(keys, key).is_some() {
            self.counts.expired.fetch_add(1, Relaxed);
        }
    }

    fn remove(&self, keys: &mut Keys, key: &str) -> Option<Entry> {
        let entry = keys.entries.remove(key)?;
        self.counts.keys.fetch_sub(1, Relaxed);
        let cost = cost(key, &entry.value);
        self.counts.bytes.fetch_sub(cost, Relaxed);
        Some(entry)
    }
}

/// Returns the bytes that a key counts for.
fn cost(key: &str, value: &str) -> u64 {
    (key.len() + value.len()) as u64 + OVERHEAD
}
