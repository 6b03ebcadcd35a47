//! Shared set-up of the shard's tests: owners that record what happens.
#![allow(dead_code, reason = "each test program uses a part of it")]

pub mod units;

use std::{
    collections::HashMap,
    ops::RangeInclusive,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering},
    },
    thread::{self, ThreadId},
};

use tourbillon_shards::{
    Due, Flow, Kind, Notice, Outcome, Owner, Shard, Tolerance, store::StoreKind,
};

/// An owner for which the test decides whether the caller is its thread. It counts its calls.
pub struct Scripted {
    local: AtomicBool,
    keeps: AtomicBool,
    pub wakes: AtomicUsize,
    pub over: Overs,
    owed: AtomicUsize,
    told: AtomicUsize,
    notices: Mutex<Vec<Notice<Scripted>>>,
    /// The next random number, and by how much it grows each time.
    random: AtomicU64,
    step: AtomicU64,
    /// The tolerance of timers without options, in ns.
    tolerance: AtomicU64,
    /// The present and the latest moment of the clock when it is read again, if the test sets them.
    reread: Mutex<Option<RangeInclusive<u64>>>,
}

impl Scripted {
    pub fn shard(local: bool) -> Arc<Shard<Scripted>> {
        Self::shard_with(local, StoreKind::default())
    }

    pub fn shard_with(local: bool, store: StoreKind) -> Arc<Shard<Scripted>> {
        Arc::new(Self::new(local).with_store(store))
    }

    /// Returns a shard whose owner may defer its wake-ups.
    pub fn deferring(local: bool, store: StoreKind) -> Arc<Shard<Scripted>> {
        Arc::new(Self::new(local).with_store(store).deferring())
    }

    /// Returns a shard with the default store.
    pub fn new(local: bool) -> Shard<Scripted> {
        Shard::new(Scripted {
            local: AtomicBool::new(local),
            keeps: AtomicBool::new(false),
            wakes: AtomicUsize::new(0),
            over: Overs::default(),
            owed: AtomicUsize::new(0),
            told: AtomicUsize::new(0),
            notices: Mutex::default(),
            random: AtomicU64::new(0),
            step: AtomicU64::new(0),
            tolerance: AtomicU64::new(0),
            reread: Mutex::default(),
        })
    }

    /// Sets whether the shard takes its callers for the owner, and uses the store, or for a remote
    /// thread, and uses the inbox.
    pub fn set_local(&self, local: bool) {
        self.local.store(local, Ordering::Relaxed);
    }

    /// Keeps outcome deliveries from now on, to be [taken](Scripted::notices), and does not run
    /// them.
    pub fn keep_notices(&self) {
        self.keeps.store(true, Ordering::Relaxed);
    }

    /// Takes the deliveries that were kept.
    pub fn notices(&self) -> Vec<Notice<Scripted>> {
        std::mem::take(&mut *self.notices.lock().unwrap())
    }

    /// Returns how many callbacks still have to take their outcomes.
    pub fn owes(&self) -> usize {
        let told = self.told.load(Ordering::Relaxed);
        let owed = self.owed.load(Ordering::Relaxed);
        owed.checked_sub(told)
            .expect("more outcomes were taken than are owed")
    }

    /// Sets how late timers without options may be from now on, in ns.
    pub fn set_tolerance(&self, tolerance: u64) {
        self.tolerance.store(tolerance, Ordering::Relaxed);
    }

    /// Sets the present and the latest moment that the clock tells when it is read again.
    pub fn set_reread(&self, range: RangeInclusive<u64>) {
        *self.reread.lock().unwrap() = Some(range);
    }

    /// Sets the next random numbers to `random`, `random + step`, …
    pub fn set_random(&self, random: u64, step: u64) {
        self.random.store(random, Ordering::Relaxed);
        self.step.store(step, Ordering::Relaxed);
    }
}

impl Owner for Scripted {
    fn wake(&self) {
        self.wakes.fetch_add(1, Ordering::Relaxed);
    }

    fn is_current(&self) -> bool {
        self.local.load(Ordering::Relaxed)
    }

    fn over(&self, kind: Kind, how: Outcome) {
        self.over.note(kind, how);
    }

    fn outcome_pending(&self) {
        self.owed.fetch_add(1, Ordering::Relaxed);
    }

    fn outcome_delivered(&self) {
        self.told.fetch_add(1, Ordering::Relaxed);
    }

    fn deliver(&self, notice: Notice<Self>) {
        if self.keeps.load(Ordering::Relaxed) {
            self.notices.lock().unwrap().push(notice);
        } else {
            notice.run();
        }
    }

    fn tolerance(&self) -> Tolerance {
        Tolerance::new(self.tolerance.load(Ordering::Relaxed))
    }

    fn reread(&self, now: u64) -> RangeInclusive<u64> {
        let range = self.reread.lock().unwrap();
        range.clone().unwrap_or(now..=now)
    }

    fn random(&self) -> u64 {
        let step = self.step.load(Ordering::Relaxed);
        self.random.fetch_add(step, Ordering::Relaxed)
    }
}

/// An owner whose thread is the one that made it. It never needs a wake-up.
pub struct Threaded {
    thread: ThreadId,
    pub over: Overs,
}

impl Threaded {
    pub fn shard() -> Arc<Shard<Threaded>> {
        Arc::new(Shard::new(Threaded {
            thread: thread::current().id(),
            over: Overs::default(),
        }))
    }
}

impl Owner for Threaded {
    fn wake(&self) {}

    fn is_current(&self) -> bool {
        thread::current().id() == self.thread
    }

    fn over(&self, kind: Kind, how: Outcome) {
        self.over.note(kind, how);
    }
}

/// How often each kind of timer ended with each outcome.
#[derive(Default)]
pub struct Overs(Mutex<HashMap<(Kind, Outcome), usize>>);

impl Overs {
    pub fn note(&self, kind: Kind, how: Outcome) {
        *self.0.lock().unwrap().entry((kind, how)).or_default() += 1;
    }

    pub fn get(&self, kind: Kind, how: Outcome) -> usize {
        let overs = self.0.lock().unwrap();
        overs.get(&(kind, how)).copied().unwrap_or(0)
    }

    pub fn all(&self) -> HashMap<(Kind, Outcome), usize> {
        self.0.lock().unwrap().clone()
    }
}

/// Counts how many probes were dropped.
#[derive(Clone, Default)]
pub struct Drops(Arc<AtomicU32>);

/// A value whose drop is counted.
pub struct Probe(Arc<AtomicU32>);

impl Drops {
    pub fn probe(&self) -> Probe {
        Probe(self.0.clone())
    }

    pub fn get(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// The arguments of a callback's calls.
#[derive(Clone, Default)]
pub struct Calls(Arc<Mutex<Vec<Outcome>>>);

impl Calls {
    /// Returns a callback that records its calls here, and goes on.
    pub fn callback(&self) -> impl FnMut(Outcome) -> Flow + Send + 'static {
        self.answering(|_| Flow::Continue(()))
    }

    /// Returns a callback that records its calls here and then calls `f` with the number of the
    /// call. It returns what `f` returns.
    pub fn answering(
        &self,
        mut f: impl FnMut(usize) -> Flow + Send + 'static,
    ) -> impl FnMut(Outcome) -> Flow + Send + 'static {
        let calls = self.0.clone();
        move |how| {
            let count = {
                let mut calls = calls.lock().unwrap();
                calls.push(how);
                calls.len()
            };
            f(count)
        }
    }

    /// Returns all calls so far.
    pub fn get(&self) -> Vec<Outcome> {
        self.0.lock().unwrap().clone()
    }

    /// Returns whether all callbacks that record here were dropped.
    pub fn is_dropped(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }
}

/// Runs the test with each value of `recurring` and of `outcome`, [both ways](both_ways).
pub fn all_kinds(test: impl Fn(&Arc<Shard<Scripted>>, bool, bool)) {
    for recurring in [false, true] {
        for outcome in [false, true] {
            both_ways(|shard| test(shard, recurring, outcome));
        }
    }
}

/// Runs the test on the owner's path and on the path through the inbox, and checks that nothing is
/// left.
pub fn both_ways(test: impl Fn(&Arc<Shard<Scripted>>)) {
    for local in [true, false] {
        let shard = Scripted::shard(local);
        test(&shard);
        drop(shard.close());
        for notice in shard.owner().notices() {
            notice.run();
        }
        assert_eq!(shard.owner().owes(), 0, "a callback got no outcome");
        assert_eq!(Arc::strong_count(&shard), 1, "a node was left behind");
    }
}

/// Prints that the calling test is skipped, and why. Also appends the line to the file that
/// `TOURBILLON_SKIPPED` names, which CI prints.
pub fn skip(why: &str) {
    eprintln!("skipped: {why}");
    let Some(file) = std::env::var_os("TOURBILLON_SKIPPED") else {
        return;
    };
    let line = format!("{}: {why}\n", thread::current().name().unwrap_or("?"));
    let file = std::fs::OpenOptions::new()
        .append(true)
        .create(true)
        .open(file);
    file.and_then(|mut file| std::io::Write::write_all(&mut file, line.as_bytes()))
        .expect("the file that TOURBILLON_SKIPPED names can be written");
}

/// Returns how often a test repeats a step. Miri, which is a thousand times slower, repeats it
/// a two-hundredth of these times.
pub const fn times(count: usize) -> usize {
    if cfg!(miri) {
        count.div_ceil(200)
    } else {
        count
    }
}

/// A generator of random numbers that are equal in each run: xorshift64*.
pub struct Random(pub u64);

impl Random {
    /// Returns a number below `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) % bound
    }

    /// Returns a number up to 2^`bits`. All orders of magnitude are equally likely.
    pub fn up_to(&mut self, bits: u64) -> u64 {
        let bits = self.below(bits + 1);
        self.below((1 << bits) + 1)
    }

    /// Returns an index into a slice of length `len`.
    pub fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }
}

/// Expires and runs all timers that are due at `now`. Returns how many ran.
pub fn turn<O: Owner>(shard: &Arc<Shard<O>>, now: u64) -> usize {
    let due = expire(shard, now, usize::MAX);
    let count = due.len();
    for timer in due {
        timer.run(|| now);
    }
    count
}

/// Takes the timers that are due at `now`.
pub fn expire<O: Owner>(shard: &Arc<Shard<O>>, now: u64, limit: usize) -> Vec<Due<O>> {
    let mut due = Vec::new();
    let expired = shard.expire(now, limit, &mut due);
    assert_eq!(expired.count, due.len());
    due
}
