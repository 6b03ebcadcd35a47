//! The keys, and the one timer that each key with an expiry has.
//!
//! The map is split into parts by the hash of the key, each under a mutex of its own that is held
//! for a moment and never across an await. A timer's callback has the part and the key, takes the
//! part's mutex, and removes the key **if its deadline has passed**. That is all there is to the
//! races:
//!
//! - A key that is overwritten, or given another time, while its timer runs: the callback finds a
//!   deadline that is yet to come, or none, and leaves the key alone. The new time has a timer of
//!   its own then, for moving the old one was too late.
//! - A key that is removed and made anew at the same time: the same.
//! - If the callback of an earlier timer comes so late that the later deadline has passed, too, it
//!   may as well remove the key: that cancels the later timer. A key is removed, and counted, once.
//!
//! An entry owns its timer through a guard, so that removing and overwriting it cancels the timer.
//! A command that meets a key after its deadline, before its timer has fired, removes the key: no
//! command sees it.

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

/// Many more than cores, so that two seldom want the same.
const PARTS: usize = 128;
/// Into how many calls a whole scan of one part may fall at most: each call looks at all keys of
/// the part.
const LEAST: usize = 16;
/// What a key costs beside its bytes and its value's, roughly: its place in the map, three
/// allocations, and a timer.
const OVERHEAD: usize = 320;

/// What the visitor of a [scan](Store::scan) wants next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Visit {
    Continue,
    Stop,
}

/// There is no room for the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// The moment from which on a key is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadline {
    /// Milliseconds since 1970, which is what clients give, compare and are told.
    pub unix_ms: i64,
    /// When the timer fires. `None` if it is further off than instants reach, about 292 years: no
    /// timer is needed then.
    pub at: Option<Instant>,
}

impl Deadline {
    fn has_passed(&self) -> bool {
        self.at.is_some_and(|at| at <= Instant::now())
    }
}

/// What becomes of a key's deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expiry {
    /// It stays.
    Keep,
    /// The key has none.
    Never,
    At(Deadline),
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
    deadline: Deadline,
    /// There is none if the deadline is out of its reach.
    timer: Option<CancelOnDrop>,
}

impl Entry {
    /// Whether the deadline has passed. Reads the clock only if there is a deadline.
    fn is_over(&self) -> bool {
        let expiry = self.expiry.as_ref();
        expiry.is_some_and(|expiry| expiry.deadline.has_passed())
    }

    fn deadline(&self) -> Option<Deadline> {
        self.expiry.as_ref().map(|expiry| expiry.deadline)
    }
}

/// By how many bits a position is shifted to get the number of its part.
const PART_SHIFT: u32 = u64::BITS - PARTS.ilog2();

/// Returns the number of the part in which a key of this position is.
fn part_of(position: u64) -> usize {
    (position >> PART_SHIFT) as usize
}

/// Returns the first position of a part, or 0 behind the last part.
fn first_of(part: usize) -> u64 {
    ((part % PARTS) as u64) << PART_SHIFT
}

type Keys = HashMap<Box<[u8]>, Entry>;

/// What one key takes.
fn cost(key: &[u8], value: &[u8]) -> u64 {
    (key.len() + value.len() + OVERHEAD) as u64
}

#[derive(Debug)]
struct Part {
    keys: Mutex<Keys>,
    /// Whether timers remove keys. If not, a key is removed when a command meets it.
    active: Arc<AtomicBool>,
    stats: Arc<Stats>,
}

impl Part {
    fn lock(&self) -> MutexGuard<'_, Keys> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a key's timer does.
    fn expire(&self, key: &[u8]) {
        let mut keys = self.lock();
        // Read under the mutex: `set_active` takes it after it has changed this, and removes what
        // is left here.
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

    /// Gives an entry of this part another deadline. The caller holds the part's mutex.
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
        if let Some(Timed {
            deadline: before,
            timer: Some(timer),
        }) = &mut entry.expiry
        {
            *before = deadline;
            if timer.reset_at(at) == Reset::Waiting {
                return;
            }
            // Its callback has begun, and waits for the mutex. It finds that the deadline was
            // moved, and does nothing.
        }
        let (part, key) = (self.clone(), Box::<[u8]>::from(key));
        let timer = tourbillon::at(at, move || part.expire(&key)).cancel_on_drop();
        let timer = Some(timer);
        entry.expiry = Some(Timed { deadline, timer });
    }
}

/// Keys, values and deadlines. To be used in a runtime, on which the timers are armed.
#[derive(Debug)]
pub struct Store {
    parts: Box<[Arc<Part>]>,
    hasher: RandomState,
    max_bytes: u64,
    active: Arc<AtomicBool>,
    stats: Arc<Stats>,
}

impl Store {
    /// A store for `max_bytes` of keys and values; `u64::MAX` is no bound.
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

    /// Where a key stands in the order in which [`scan`](Self::scan) visits the keys. The highest
    /// bits are the part's number.
    fn position(&self, key: &[u8]) -> u64 {
        self.hasher.hash_one(key)
    }

    fn part(&self, key: &[u8]) -> &Arc<Part> {
        &self.parts[part_of(self.position(key))]
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
        self.put(key, value, expiry, when, give_old, 0)
    }

    /// Sets all of these keys, without deadlines, or none of them if there is no room. Others may
    /// see some of them set while the rest is not.
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

    /// As [`set`](Self::set), where `paid` bytes of what it takes are reserved. The rest of those
    /// is given back.
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

    /// Replaces a key's value by what `change` makes of it, under the mutex of its part. The
    /// deadline stays.
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

    /// What took `before` bytes takes `after` from now on.
    fn resize(&self, before: u64, after: u64) -> Result<(), Full> {
        self.reserve(after.saturating_sub(before))?;
        self.stats.bytes.sub(before.saturating_sub(after));
        Ok(())
    }

    /// Looks at a key's value, and changes its deadline. A value is copied under the mutex of its
    /// part: that is no longer than its writing took.
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

    /// Removes a key; answers its value, if it was there.
    pub fn remove(&self, key: &[u8]) -> Option<Box<[u8]>> {
        let part = self.part(key);
        let mut keys = part.lock();
        let entry = match part.live(&mut keys, key) {
            Some(_) => part.remove(&mut keys, key),
            None => None,
        };
        drop(keys);
        // The timer is cancelled without the mutex.
        entry.map(|entry| entry.value)
    }

    /// A key's deadline, if there is the key, and it has one.
    pub fn deadline(&self, key: &[u8]) -> Option<Option<Deadline>> {
        let part = self.part(key);
        part.live(&mut part.lock(), key)
            .map(|entry| entry.deadline())
    }

    /// Gives a key that there is a deadline, if `only` allows it; says whether it did. One that has
    /// passed removes the key.
    pub fn expire_at(&self, key: &[u8], deadline: Deadline, only: Only) -> bool {
        let part = self.part(key);
        let mut keys = part.lock();
        let Some(entry) = part.live(&mut keys, key) else {
            return false;
        };
        let before = entry.deadline().map(|before| before.unix_ms);
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

    /// Takes a key's deadline away; says whether it had one.
    pub fn persist(&self, key: &[u8]) -> bool {
        let part = self.part(key);
        let mut keys = part.lock();
        let entry = part.live(&mut keys, key);
        entry.is_some_and(|entry| entry.expiry.take().is_some())
    }

    /// Visits keys in the order of their positions, from the position `from` on, until `visit` says
    /// to stop. Returns where to go on, which is 0 at the end.
    ///
    /// A key that exists from the first call, which begins at 0, to the last is visited once. To
    /// find the next keys a call looks at all keys of a part, under its mutex, so a call that stops
    /// has visited a [`LEAST`]th of a part before.
    pub fn scan(&self, from: u64, mut visit: impl FnMut(&[u8]) -> Visit) -> u64 {
        for (index, part) in self.parts.iter().enumerate().skip(part_of(from)) {
            let keys = part.lock();
            let least = keys.len() / LEAST;
            let live = keys.iter().filter(|(_, entry)| !entry.is_over());
            let placed = live.map(|(key, _)| (self.position(key), key));
            let mut rest: Vec<_> = placed.filter(|(position, _)| *position >= from).collect();
            rest.sort_unstable_by_key(|(position, _)| *position);
            let (mut stopped, mut before) = (false, None);
            for (visited, (position, key)) in rest.into_iter().enumerate() {
                // Keys that share a position are visited in one call.
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

    /// Lets timers remove keys, or lets them leave the keys until a command meets them.
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
