//! The keys, and one timer for each key with an expiry.
//!
//! The map is split into parts by the hash of the key. Each part has its own mutex, which is held
//! briefly and never across an await. A timer's callback holds the part and the key. It locks the
//! part, and removes the key **if the key's deadline has passed**. This check covers all races:
//!
//! - A key is overwritten or gets a new deadline while its timer fires. The callback finds a later
//!   deadline, or none, and keeps the key. The new deadline has its own timer, because moving the
//!   old one was too late.
//! - A key is removed and set again at the same time. The callback finds a later deadline, or none,
//!   too.
//! - The callback of an earlier timer runs so late that the later deadline has also passed. Then it
//!   may remove the key, which cancels the later timer. A key is removed and counted once.
//!
//! An entry owns its timer through a guard, so removing or overwriting the entry cancels the timer.
//! A command that finds a key after its deadline, before its timer has fired, removes the key. So
//! no command sees an expired key.

use std::{
    collections::HashMap,
    hash::{BuildHasher, RandomState},
    mem,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use tourbillon::{
    time::Instant,
    timer::{CancelOnDrop, Reset},
};

use super::stats::Stats;

/// Number of parts: many more than cores, so that two threads seldom need the same part.
const PARTS: usize = 128;
/// A call that scans a part visits at least one part in this many of its keys. Each call looks at
/// all keys of the part, so this bounds the total work of a scan.
const LEAST: usize = 16;
/// Approximate memory per key in addition to its bytes and its value's: its place in the map, three
/// allocations, and a timer.
const OVERHEAD: usize = 320;

/// Whether a [scan](Store::scan) should continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Visit {
    Continue,
    Stop,
}

/// The store has no room for the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// The time at which a key expires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadline {
    /// Milliseconds since 1970, as clients send, compare and receive them.
    pub unix_ms: i64,
    /// When the timer fires. `None` if it is beyond the range of instants, about 292 years; then
    /// the key needs no timer.
    pub at: Option<Instant>,
}

impl Deadline {
    fn has_passed(&self) -> bool {
        self.at.is_some_and(|at| at <= Instant::now())
    }
}

/// A change of a key's deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expiry {
    /// Keep it.
    Keep,
    /// Remove it.
    Never,
    At(Deadline),
}

/// Condition for setting a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    Always,
    Absent,
    Present,
}

/// Conditions for changing a key's deadline.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Only {
    /// Only if the key has no deadline.
    pub unset: bool,
    /// Only if the key has a deadline.
    pub set: bool,
    /// Only if the new deadline is later. No deadline counts as later than any.
    pub later: bool,
    /// Only if the new deadline is earlier.
    pub earlier: bool,
}

/// The result of [`Store::set`].
#[derive(Debug, PartialEq, Eq)]
pub struct Was {
    pub set: bool,
    /// The value before, if the caller asked for it.
    pub old: Option<Box<[u8]>>,
}

#[derive(Debug)]
struct Entry {
    value: Box<[u8]>,
    expiry: Option<Timed>,
}

#[derive(Debug)]
struct Timed {
    deadline: Deadline,
    /// `None` if the deadline is beyond the range of instants.
    timer: Option<CancelOnDrop>,
}

impl Entry {
    /// Returns whether the deadline has passed. Reads the clock only if there is a deadline.
    fn is_over(&self) -> bool {
        let expiry = self.expiry.as_ref();
        expiry.is_some_and(|expiry| expiry.deadline.has_passed())
    }

    fn deadline(&self) -> Option<Deadline> {
        self.expiry.as_ref().map(|expiry| expiry.deadline)
    }
}

/// Shift that turns a position into the index of its part.
const PART_SHIFT: u32 = u64::BITS - PARTS.ilog2();

/// Returns the index of a position's part.
fn part_of(position: u64) -> usize {
    (position >> PART_SHIFT) as usize
}

/// Returns the first position of a part, or 0 after the last part.
fn first_of(part: usize) -> u64 {
    ((part % PARTS) as u64) << PART_SHIFT
}

type Keys = HashMap<Box<[u8]>, Entry>;

/// Returns the bytes that a key counts for.
fn cost(key: &[u8], value: &[u8]) -> u64 {
    (key.len() + value.len() + OVERHEAD) as u64
}

#[derive(Debug)]
struct Part {
    keys: Mutex<Keys>,
    /// Whether timers remove keys. If not, the next command that finds an expired key removes it.
    active: Arc<AtomicBool>,
    stats: Arc<Stats>,
}

impl Part {
    fn lock(&self) -> MutexGuard<'_, Keys> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The callback of a key's timer.
    fn expire(&self, key: &[u8]) {
        let mut keys = self.lock();
        // Read under the mutex. `set_active` changes this flag before it takes the mutex, and then
        // removes the keys that were left here.
        if !self.active.load(Relaxed) {
            return;
        }
        let deadline = keys.get(key).and_then(Entry::deadline);
        let at = deadline.and_then(|deadline| deadline.at);
        let late = at.and_then(|at| Instant::now().checked_duration_since(at));
        if let Some(late) = late {
            self.stats.expired_by_timer.add(1);
            self.stats.lateness.record(late);
            let entry = self.remove(&mut keys, key);
            drop(keys);
            // Free the entry without holding the mutex.
            drop(entry);
        }
    }

    fn remove(&self, keys: &mut Keys, key: &[u8]) -> Option<Entry> {
        let entry = keys.remove(key)?;
        self.stats.keys.sub(1);
        self.stats.bytes.sub(cost(key, &entry.value));
        Some(entry)
    }

    /// Returns the key's entry, unless its deadline has passed; then it removes the entry.
    fn live<'a>(&self, keys: &'a mut Keys, key: &[u8]) -> Option<&'a mut Entry> {
        if keys.get(key)?.is_over() {
            self.stats.expired_on_access.add(1);
            self.remove(keys, key);
            return None;
        }
        keys.get_mut(key)
    }

    /// Changes the deadline of an entry in this part. The caller holds the part's mutex.
    fn set_expiry(self: &Arc<Self>, key: &[u8], entry: &mut Entry, expiry: Expiry) {
        let deadline = match expiry {
            Expiry::Keep => return,
            Expiry::Never => {
                entry.expiry = None;
                return;
            }
            Expiry::At(deadline) => deadline,
        };
        let Some(at) = deadline.at else {
            let timer = None;
            entry.expiry = Some(Timed { deadline, timer });
            return;
        };
        // Try to move the existing timer.
        if let Some(Timed {
            deadline: before,
            timer: Some(timer),
        }) = &mut entry.expiry
        {
            *before = deadline;
            if timer.reset_at(at) == Reset::Waiting {
                return;
            }
            // Too late: the callback has started and waits for the mutex. It will find the moved
            // deadline and do nothing. Arm another timer.
        }
        let (part, key) = (self.clone(), Box::<[u8]>::from(key));
        let timer = tourbillon::at(at, move || part.expire(&key)).cancel_on_drop();
        let timer = Some(timer);
        entry.expiry = Some(Timed { deadline, timer });
    }
}

/// Keys, values and deadlines. Use it within a runtime, which arms the timers.
#[derive(Debug)]
pub struct Store {
    parts: Box<[Arc<Part>]>,
    hasher: RandomState,
    max_bytes: u64,
    active: Arc<AtomicBool>,
    stats: Arc<Stats>,
}

impl Store {
    /// Returns a store for `max_bytes` of keys and values; `u64::MAX` means no limit.
    pub fn new(max_bytes: u64, stats: Arc<Stats>) -> Self {
        let active = Arc::new(AtomicBool::new(true));
        let part = || Part {
            keys: Mutex::default(),
            active: active.clone(),
            stats: stats.clone(),
        };
        Self {
            parts: (0..PARTS).map(|_| Arc::new(part())).collect(),
            hasher: RandomState::new(),
            max_bytes,
            active,
            stats,
        }
    }

    /// Returns a key's position in the order of [`scan`](Self::scan). The highest bits are the
    /// index of the part.
    fn position(&self, key: &[u8]) -> u64 {
        self.hasher.hash_one(key)
    }

    fn part(&self, key: &[u8]) -> &Arc<Part> {
        &self.parts[part_of(self.position(key))]
    }

    /// Sets a key and its deadline, on the condition `when`.
    pub fn set(
        &self,
        key: &[u8],
        value: &[u8],
        expiry: Expiry,
        when: When,
        give_old: bool,
    ) -> Result<Was, Full> {
        self.put(key, value, expiry, when, give_old, 0)
    }

    /// Sets all keys, without deadlines, or none of them if there is no room. Other clients may see
    /// some of the keys before the rest is set.
    pub fn set_all<'a>(
        &self,
        pairs: impl Iterator<Item = (&'a [u8], &'a [u8])> + Clone,
    ) -> Result<(), Full> {
        let needed = pairs.clone().map(|(key, value)| cost(key, value)).sum();
        self.reserve(needed)?;
        for (key, value) in pairs {
            let paid = cost(key, value);
            self.put(key, value, Expiry::Never, When::Always, false, paid)?;
        }
        Ok(())
    }

    /// Like [`set`](Self::set), but the caller has reserved `paid` bytes. Gives back what it does
    /// not need.
    fn put(
        &self,
        key: &[u8],
        value: &[u8],
        expiry: Expiry,
        when: When,
        give_old: bool,
        paid: u64,
    ) -> Result<Was, Full> {
        let part = self.part(key);
        let mut keys = part.lock();
        let Some(entry) = part.live(&mut keys, key) else {
            // A new key pays for its bytes first, so that the limit is never exceeded.
            let set = when != When::Present;
            if set {
                self.resize(paid, cost(key, value))?;
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
            // Pay only for the difference to the old value.
            self.resize(entry.value.len() as u64 + paid, value.len() as u64)?;
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

    /// Replaces a key's value by the result of `change`, under the part's mutex. The deadline
    /// stays.
    pub fn update<E: From<Full>>(
        &self,
        key: &[u8],
        change: impl FnOnce(Option<&[u8]>) -> Result<Box<[u8]>, E>,
    ) -> Result<(), E> {
        let part = self.part(key);
        let mut keys = part.lock();
        match part.live(&mut keys, key) {
            Some(entry) => {
                let value = change(Some(&entry.value))?;
                self.resize(entry.value.len() as u64, value.len() as u64)?;
                entry.value = value;
            }
            None => {
                let value = change(None)?;
                self.reserve(cost(key, &value))?;
                self.stats.keys.add(1);
                let expiry = None;
                keys.insert(key.into(), Entry { value, expiry });
            }
        }
        Ok(())
    }

    fn reserve(&self, bytes: u64) -> Result<(), Full> {
        if bytes == 0 || self.stats.bytes.add_up_to(bytes, self.max_bytes) {
            Ok(())
        } else {
            Err(Full)
        }
    }

    /// Changes the counted bytes from `before` to `after`.
    fn resize(&self, before: u64, after: u64) -> Result<(), Full> {
        self.reserve(after.saturating_sub(before))?;
        self.stats.bytes.sub(before.saturating_sub(after));
        Ok(())
    }

    /// Passes a key's value to `look`, and changes its deadline. `look` may copy the value under
    /// the part's mutex: that takes no longer than writing it did.
    pub fn get<R>(&self, key: &[u8], expiry: Expiry, look: impl FnOnce(Option<&[u8]>) -> R) -> R {
        let part = self.part(key);
        let mut keys = part.lock();
        if expiry == Expiry::Keep {
            // Fast path: most commands of a cache only read. It needs one look-up.
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

    /// Removes a key. Returns its value if it existed.
    pub fn remove(&self, key: &[u8]) -> Option<Box<[u8]>> {
        let part = self.part(key);
        let mut keys = part.lock();
        let entry = match part.live(&mut keys, key) {
            Some(_) => part.remove(&mut keys, key),
            None => None,
        };
        drop(keys);
        // Drop the entry, which cancels the timer, without holding the mutex.
        entry.map(|entry| entry.value)
    }

    /// Returns a key's deadline: `None` without the key, `Some(None)` without a deadline.
    pub fn deadline(&self, key: &[u8]) -> Option<Option<Deadline>> {
        let part = self.part(key);
        part.live(&mut part.lock(), key)
            .map(|entry| entry.deadline())
    }

    /// Changes a key's deadline if the key exists and `only` allows it. Returns whether it did. A
    /// deadline in the past removes the key.
    pub fn expire_at(&self, key: &[u8], deadline: Deadline, only: Only) -> bool {
        let part = self.part(key);
        let mut keys = part.lock();
        let Some(entry) = part.live(&mut keys, key) else {
            return false;
        };
        let before = entry.deadline().map(|before| before.unix_ms);
        // All conditions must hold.
        let refused = only.unset && before.is_some()
            || only.set && before.is_none()
            || only.later && before.is_none_or(|before| deadline.unix_ms <= before)
            || only.earlier && before.is_some_and(|before| deadline.unix_ms >= before);
        if refused {
            return false;
        }
        if deadline.has_passed() {
            part.remove(&mut keys, key);
        } else {
            part.set_expiry(key, entry, Expiry::At(deadline));
        }
        true
    }

    /// Removes a key's deadline. Returns whether it had one.
    pub fn persist(&self, key: &[u8]) -> bool {
        let part = self.part(key);
        let mut keys = part.lock();
        let entry = part.live(&mut keys, key);
        entry.is_some_and(|entry| entry.expiry.take().is_some())
    }

    /// Visits keys in the order of their positions, starting at `from`, until `visit` stops it.
    /// Returns the position to continue from, or 0 at the end.
    ///
    /// A key that exists during the whole scan is visited once. Each call looks at all keys of a
    /// part, under its mutex. So a call visits at least a [`LEAST`]th of a part before it stops.
    pub fn scan(&self, from: u64, mut visit: impl FnMut(&[u8]) -> Visit) -> u64 {
        for (index, part) in self.parts.iter().enumerate().skip(part_of(from)) {
            let keys = part.lock();
            let least = keys.len() / LEAST;
            let live = keys.iter().filter(|(_, entry)| !entry.is_over());
            let placed = live.map(|(key, _)| (self.position(key), key));
            // Hash maps have no order: sort the keys of this part from `from` on.
            let mut rest: Vec<_> = placed.filter(|(position, _)| *position >= from).collect();
            rest.sort_unstable_by_key(|(position, _)| *position);
            let (mut stopped, mut before) = (false, None);
            for (visited, (position, key)) in rest.into_iter().enumerate() {
                // Visit keys with equal positions in one call.
                if stopped && visited >= least && before != Some(position) {
                    return position;
                }
                before = Some(position);
                stopped |= visit(key) == Visit::Stop;
            }
            if stopped {
                return first_of(index + 1);
            }
        }
        0
    }

    /// Sets whether timers remove keys. If not, the next command that finds an expired key removes
    /// it.
    pub fn set_active(&self, active: bool) {
        self.active.store(active, Relaxed);
        if !active {
            return;
        }
        for part in &self.parts {
            let mut keys = part.lock();
            let over = keys.iter().filter(|(_, entry)| entry.is_over());
            let over: Vec<_> = over.map(|(key, _)| key.clone()).collect();
            for key in over {
                self.stats.expired_on_access.add(1);
                part.remove(&mut keys, &key);
            }
        }
    }

    /// Removes all keys. Returns what to drop, because dropping may take a while.
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
