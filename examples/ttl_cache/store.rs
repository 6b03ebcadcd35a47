//! The keys, and the one timer that each key with an expiry has.
//!
//! The map is split into parts by the hash of the key, each under a mutex of its own that is held for a moment and
//! never across an await. A timer's callback has the part and the key, takes the part's mutex, and removes the key
//! **if its deadline has passed**. That is all there is to the races:
//!
//! - A key that is overwritten, or given another time, while its timer runs: the callback finds a deadline that is
//!   yet to come, or none, and leaves the key alone. The new time has a timer of its own then, for moving the old one was too
//!   late.
//! - A key that is removed and made anew at the same time: the same.
//! - If the callback of an earlier timer comes so late that the later deadline has passed, too, it may as well remove the key:
//!   that cancels the later timer. A key is removed, and counted, once.
//!
//! An entry owns its timer through a guard, so that removing and overwriting it cancels the timer. And whoever
//! meets a key after its deadline, before its timer has come to it, removes it: no command sees it.

use std::{
    collections::HashMap,
    hash::{BuildHasher, RandomState},
    mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tourbillon::{
    time::Instant,
    timer::{CancelOnDrop, Reset},
};

use crate::stats::Stats;

/// Many more than cores, so that two seldom want the same.
const PARTS: usize = 128;
/// What a key costs beside its bytes and its value's, roughly: its place in the map, three allocations, and a timer.
const OVERHEAD: usize = 320;

/// Clients count whole milliseconds: deadlines that are less than half of one apart are meant to be the same.
const SAME: Duration = Duration::from_micros(500);

/// There is no room for the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// What becomes of a key's deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expiry {
    /// It stays.
    Keep,
    /// The key has none.
    Never,
    At(Instant),
}

/// When a key is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    Always,
    Absent,
    Present,
}

/// When a key's deadline is moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Only {
    /// If it has none.
    pub unset: bool,
    /// If it has one.
    pub set: bool,
    /// If the new one is later. None is later than all.
    pub later: bool,
    /// If the new one is earlier.
    pub earlier: bool,
}

/// What [`Store::set`] did.
#[derive(Debug, PartialEq, Eq)]
pub struct Was {
    pub set: bool,
    /// The value before, if it was asked for.
    pub old: Option<Box<[u8]>>,
}

#[derive(Debug)]
struct Entry {
    value: Box<[u8]>,
    expiry: Option<Timed>,
}

#[derive(Debug)]
struct Timed {
    at: Instant,
    timer: CancelOnDrop,
}

impl Entry {
    /// Whether the deadline has passed. The clock is read only if there is one.
    fn is_over(&self) -> bool {
        let expiry = self.expiry.as_ref();
        expiry.is_some_and(|expiry| expiry.at <= Instant::now())
    }

    fn deadline(&self) -> Option<Instant> {
        self.expiry.as_ref().map(|expiry| expiry.at)
    }
}

type Keys = HashMap<Box<[u8]>, Entry>;

/// Whether one deadline is later than another, for who counts milliseconds.
fn is_later(deadline: Instant, other: Instant) -> bool {
    deadline.saturating_duration_since(other) >= SAME
}

/// What one key takes.
fn cost(key: &[u8], value: &[u8]) -> u64 {
    (key.len() + value.len() + OVERHEAD) as u64
}

#[derive(Debug)]
struct Part {
    keys: Mutex<Keys>,
    stats: Arc<Stats>,
}

impl Part {
    fn lock(&self) -> MutexGuard<'_, Keys> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a key's timer does.
    fn expire(&self, key: &[u8]) {
        let mut keys = self.lock();
        let deadline = keys.get(key).and_then(Entry::deadline);
        let late = deadline.and_then(|at| Instant::now().checked_duration_since(at));
        if let Some(late) = late {
            self.stats.expired_by_timer.add(1);
            self.stats.lateness.record(late);
            let entry = self.remove(&mut keys, key);
            drop(keys);
            // Freed without the mutex.
            drop(entry);
        }
    }

    fn remove(&self, keys: &mut Keys, key: &[u8]) -> Option<Entry> {
        let entry = keys.remove(key)?;
        self.stats.keys.sub(1);
        self.stats.bytes.sub(cost(key, &entry.value));
        Some(entry)
    }

    /// The key's entry, unless its time is over.
    fn live<'a>(&self, keys: &'a mut Keys, key: &[u8]) -> Option<&'a mut Entry> {
        if keys.get(key)?.is_over() {
            self.stats.expired_on_access.add(1);
            self.remove(keys, key);
            return None;
        }
        keys.get_mut(key)
    }

    /// Gives an entry of this part, whose mutex the caller has, another deadline.
    fn set_expiry(self: &Arc<Self>, key: &[u8], entry: &mut Entry, expiry: Expiry) {
        let at = match expiry {
            Expiry::Keep => return,
            Expiry::Never => {
                entry.expiry = None;
                return;
            }
            Expiry::At(at) => at,
        };
        if let Some(expiry) = &mut entry.expiry {
            expiry.at = at;
            if expiry.timer.reset_at(at) == Reset::Waiting {
                return;
            }
            // It runs, and waits for the mutex. It will find the deadline moved, and do nothing.
        }
        let (part, key) = (self.clone(), Box::<[u8]>::from(key));
        let timer = tourbillon::at(at, move || part.expire(&key)).cancel_on_drop();
        entry.expiry = Some(Timed { at, timer });
    }
}

/// Keys, values and deadlines. To be used in a runtime, on which the timers are armed.
#[derive(Debug)]
pub struct Store {
    parts: Box<[Arc<Part>]>,
    hasher: RandomState,
    max_bytes: u64,
    stats: Arc<Stats>,
}

impl Store {
    /// A store for `max_bytes` of keys and values; `u64::MAX` is no bound.
    pub fn new(max_bytes: u64, stats: Arc<Stats>) -> Self {
        let part = || Part {
            keys: Mutex::default(),
            stats: stats.clone(),
        };
        Self {
            parts: (0..PARTS).map(|_| Arc::new(part())).collect(),
            hasher: RandomState::new(),
            max_bytes,
            stats,
        }
    }

    fn part(&self, key: &[u8]) -> &Arc<Part> {
        &self.parts[self.hasher.hash_one(key) as usize % PARTS]
    }

    /// Sets a key, if it is as `when` says, and its deadline.
    pub fn set(
        &self,
        key: &[u8],
        value: &[u8],
        expiry: Expiry,
        when: When,
        give_old: bool,
    ) -> Result<Was, Full> {
        let part = self.part(key);
        let mut keys = part.lock();
        let Some(entry) = part.live(&mut keys, key) else {
            let set = when != When::Present;
            if set {
                self.reserve(cost(key, value))?;
                self.stats.keys.add(1);
                let mut entry = Entry {
                    value: value.into(),
                    expiry: None,
                };
                part.set_expiry(key, &mut entry, expiry);
                keys.insert(key.into(), entry);
            }
            return Ok(Was { set, old: None });
        };
        let set = when != When::Absent;
        let mut old = None;
        if set {
            let (before, after) = (entry.value.len() as u64, value.len() as u64);
            self.reserve(after.saturating_sub(before))?;
            self.stats.bytes.sub(before.saturating_sub(after));
            old = Some(mem::replace(&mut entry.value, value.into()));
            part.set_expiry(key, entry, expiry);
        } else if give_old {
            old = Some(entry.value.clone());
        }
        Ok(Was {
            set,
            old: old.filter(|_| give_old),
        })
    }

    fn reserve(&self, bytes: u64) -> Result<(), Full> {
        if bytes == 0 || self.stats.bytes.add_up_to(bytes, self.max_bytes) {
            Ok(())
        } else {
            Err(Full)
        }
    }

    /// Looks at a key's value, and changes its deadline. A value is copied under the mutex of its part: that is no longer
    /// than its writing took.
    pub fn get<R>(&self, key: &[u8], expiry: Expiry, look: impl FnOnce(Option<&[u8]>) -> R) -> R {
        let part = self.part(key);
        let mut keys = part.lock();
        if expiry == Expiry::Keep {
            // Most of what a cache does, with one look at the map.
            match keys.get(key) {
                None => return look(None),
                Some(entry) if !entry.is_over() => return look(Some(&entry.value)),
                Some(_) => {}
            }
        }
        let Some(entry) = part.live(&mut keys, key) else {
            return look(None);
        };
        let answer = look(Some(&entry.value));
        part.set_expiry(key, entry, expiry);
        answer
    }

    /// Removes a key; says whether it was there.
    pub fn remove(&self, key: &[u8]) -> bool {
        let part = self.part(key);
        let mut keys = part.lock();
        let entry = match part.live(&mut keys, key) {
            Some(_) => part.remove(&mut keys, key),
            None => None,
        };
        drop(keys);
        // Freed, and its timer cancelled, without the mutex.
        entry.is_some()
    }

    /// A key's deadline, if there is the key, and it has one.
    pub fn deadline(&self, key: &[u8]) -> Option<Option<Instant>> {
        let part = self.part(key);
        part.live(&mut part.lock(), key)
            .map(|entry| entry.deadline())
    }

    /// Gives a key that there is a deadline, if `only` allows it; says whether it did. One that has passed removes the key.
    pub fn expire_at(&self, key: &[u8], at: Instant, only: Only) -> bool {
        let part = self.part(key);
        let mut keys = part.lock();
        let Some(entry) = part.live(&mut keys, key) else {
            return false;
        };
        let before = entry.deadline();
        let refused = only.unset && before.is_some()
            || only.set && before.is_none()
            || only.later && before.is_none_or(|before| !is_later(at, before))
            || only.earlier && before.is_some_and(|before| !is_later(before, at));
        if refused {
            return false;
        }
        if at <= Instant::now() {
            part.remove(&mut keys, key);
        } else {
            part.set_expiry(key, entry, Expiry::At(at));
        }
        true
    }

    /// Takes a key's deadline away; says whether it had one.
    pub fn persist(&self, key: &[u8]) -> bool {
        let part = self.part(key);
        let mut keys = part.lock();
        let entry = part.live(&mut keys, key);
        entry.is_some_and(|entry| entry.expiry.take().is_some())
    }

    /// Removes all keys. What is dropped, which may take a while, is handed out.
    pub fn clear(&self) -> impl Send + use<> {
        let take = |part: &Arc<Part>| {
            let keys = mem::take(&mut *part.lock());
            let bytes = keys.iter().map(|(key, entry)| cost(key, &entry.value));
            self.stats.bytes.sub(bytes.sum());
            self.stats.keys.sub(keys.len() as u64);
            keys
        };
        self.parts.iter().map(take).collect::<Vec<_>>()
    }
}
