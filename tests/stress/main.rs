//! Storms of random operations from several threads, with exact accounts: each timer fires, is
//! cancelled or is ended by the shutdown, exactly once; none fires early.

use tourbillon_support as common;

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use common::{HOUR, Random, alarm, eventually, runtime};
use tourbillon::{
    Handle, Runtime, Timer,
    runtime::{Builder, StoreKind},
    timer::{Cancel, Outcome, Reset, Status},
};

/// Operations of one storm, over all threads.
const OPERATIONS: u64 = 300_000;
const THREADS: u64 = 4;

/// The accounts of one timer, kept apart from the runtime's.
struct Entry {
    /// The earliest moment, in ns since the storm began, at which it may run.
    not_before: AtomicU64,
    runs: AtomicUsize,
    /// How many calls returned that they had cancelled it.
    cancels: AtomicUsize,
    /// How often its callback was dropped.
    drops: AtomicUsize,
    /// Set while it runs.
    inside: AtomicBool,
    recurs: bool,
}

/// The state that all threads of a storm share.
struct Storm {
    began: Instant,
    early: AtomicUsize,
    overlaps: AtomicUsize,
    entries: Mutex<Vec<Arc<Entry>>>,
    /// Timers that any thread may take and do something with.
    shared: Mutex<Vec<Arc<Shared>>>,
}

/// A timer with its accounts.
struct Shared {
    timer: Timer,
    entry: Arc<Entry>,
}

/// A value that lives in a callback.
struct Payload {
    entry: Arc<Entry>,
    storm: Arc<Storm>,
}

impl Payload {
    fn run(&self) {
        let now = self.storm.now();
        if self.entry.inside.swap(true, Ordering::SeqCst) {
            self.storm.overlaps.fetch_add(1, Ordering::SeqCst);
        }
        if now < self.entry.not_before.load(Ordering::SeqCst) {
            self.storm.early.fetch_add(1, Ordering::SeqCst);
        }
        self.entry.runs.fetch_add(1, Ordering::SeqCst);
        self.entry.inside.store(false, Ordering::SeqCst);
    }
}

impl Drop for Payload {
    fn drop(&mut self) {
        self.entry.drops.fetch_add(1, Ordering::SeqCst);
    }
}

impl Storm {
    fn nanos(&self, instant: Instant) -> u64 {
        (instant - self.began).as_nanos() as u64
    }

    fn now(&self) -> u64 {
        self.nanos(Instant::now())
    }

    fn arm(
        self: &Arc<Self>,
        handle: &Handle,
        deadline: Instant,
        period: Option<Duration>,
    ) -> Shared {
        let entry = Arc::new(Entry {
            not_before: AtomicU64::new(self.nanos(deadline)),
            runs: AtomicUsize::new(0),
            cancels: AtomicUsize::new(0),
            drops: AtomicUsize::new(0),
            inside: AtomicBool::new(false),
            recurs: period.is_some(),
        });
        let payload = Payload {
            entry: entry.clone(),
            storm: self.clone(),
        };
        let timer = match period {
            None => handle.at(deadline, move || payload.run()),
            Some(period) => handle.every(period, move || payload.run()),
        };
        Shared { timer, entry }
    }
}

/// Returns a delay: mostly a few milliseconds, sometimes none, sometimes one that is never over.
fn delay(random: &mut Random) -> Duration {
    match random.below(20) {
        0 => Duration::ZERO,
        1..4 => HOUR,
        _ => Duration::from_nanos(random.below(8_000_000)),
    }
}

/// Moves a timer that only this thread moves. Between two moves its deadline is known exactly.
fn move_own(storm: &Storm, own: &Shared, random: &mut Random) {
    let (timer, entry) = (&own.timer, &own.entry);
    let old = entry.not_before.load(Ordering::SeqCst);
    let to = Instant::now() + delay(random);
    let new = storm.nanos(to);
    // Until the call returns, the timer may run for either deadline.
    entry.not_before.store(old.min(new), Ordering::SeqCst);
    let answer = match random.below(2) {
        0 => timer.reset_at(to),
        // The runtime reads the clock later than this thread, so its deadline is no earlier than
        // `to`.
        _ => timer.reset_after(to.saturating_duration_since(Instant::now())),
    };
    if answer == Reset::Pending {
        // `reset_after` has read the clock itself, so ask the timer for its deadline. A timer that is
        // over has none.
        if let Some(deadline) = timer.deadline() {
            let deadline = storm.nanos(deadline.into_std());
            entry.not_before.store(deadline, Ordering::SeqCst);
        }
    }
}

/// Moves a timer that other threads move, too. Only the earliest of all its deadlines is known.
fn move_shared(storm: &Storm, shared: &Shared, random: &mut Random) {
    let to = Instant::now() + delay(random);
    shared
        .entry
        .not_before
        .fetch_min(storm.nanos(to), Ordering::SeqCst);
    match random.below(3) {
        0 => drop(shared.timer.reset_at(to)),
        1 => {
            let delay = to.saturating_duration_since(Instant::now());
            let now = storm.now();
            shared.entry.not_before.fetch_min(now, Ordering::SeqCst);
            shared.timer.reset_after(delay);
        }
        _ => {
            // The timer may use any delay that it was ever given.
            let now = storm.now();
            shared.entry.not_before.fetch_min(now, Ordering::SeqCst);
            shared.timer.refresh();
        }
    }
}

fn cancel(shared: &Shared) {
    match shared.timer.cancel() {
        Cancel::Cancelled | Cancel::AfterRun => {
            shared.entry.cancels.fetch_add(1, Ordering::SeqCst);
        }
        Cancel::Running => assert!(!shared.entry.recurs),
        Cancel::Over => {}
    }
}

fn thread_of_storm(storm: &Arc<Storm>, handle: &Handle, seed: u64) {
    let mut random = Random::new(seed);
    let mut own: Vec<Shared> = Vec::new();
    let mut entries = Vec::new();
    for _ in 0..OPERATIONS / THREADS {
        let pick = |random: &mut Random, len: usize| random.below(len.max(1) as u64) as usize;
        match random.below(100) {
            0..40 => {
                let deadline = Instant::now() + delay(&mut random);
                let timer = storm.arm(handle, deadline, None);
                entries.push(timer.entry.clone());
                // Some handles are dropped immediately.
                if random.below(4) != 0 {
                    own.push(timer);
                }
            }
            40..45 => {
                let deadline = Instant::now() + delay(&mut random);
                let timer = storm.arm(handle, deadline, None);
                entries.push(timer.entry.clone());
                storm.shared.lock().unwrap().push(Arc::new(timer));
            }
            45 => {
                let period = Duration::from_micros(200 + random.below(3_000));
                let timer = storm.arm(handle, Instant::now() + period, Some(period));
                entries.push(timer.entry.clone());
                storm.shared.lock().unwrap().push(Arc::new(timer));
            }
            46..65 if !own.is_empty() => {
                let index = pick(&mut random, own.len());
                move_own(storm, &own[index], &mut random);
            }
            65..80 if !own.is_empty() => {
                let index = pick(&mut random, own.len());
                let timer = own.swap_remove(index);
                cancel(&timer);
                if timer.entry.cancels.load(Ordering::SeqCst) == 1 {
                    assert_eq!(timer.timer.status(), Status::Over(Outcome::Cancelled));
                    assert_eq!(timer.entry.drops.load(Ordering::SeqCst), 1);
                }
            }
            80..100 => {
                let shared = {
                    let shared = storm.shared.lock().unwrap();
                    let index = pick(&mut random, shared.len());
                    shared.get(index).cloned()
                };
                if let Some(shared) = shared {
                    match random.below(8) {
                        0 => cancel(&shared),
                        _ => move_shared(storm, &shared, &mut random),
                    }
                }
            }
            _ => {}
        }
    }
    storm.entries.lock().unwrap().append(&mut entries);
}

/// Runs one storm, and checks its accounts. With `cut_short`, the runtime is shut down in the
/// middle.
fn run(workers: usize, cut_short: bool) {
    storm(runtime(workers), cut_short);
}

fn storm(runtime: Runtime, cut_short: bool) {
    let workers = runtime.metrics().num_workers();
    let storm = Arc::new(Storm {
        began: Instant::now(),
        early: AtomicUsize::new(0),
        overlaps: AtomicUsize::new(0),
        entries: Mutex::default(),
        shared: Mutex::default(),
    });
    let handle = runtime.handle().clone();
    let mut runtime = Some(runtime);
    thread::scope(|scope| {
        for i in 0..THREADS {
            let (storm, handle) = (&storm, &handle);
            scope.spawn(move || thread_of_storm(storm, handle, i + 100 * workers as u64));
        }
        if cut_short {
            thread::sleep(Duration::from_millis(100));
            // On a busy machine neither the workers nor the threads may have run by then.
            let total = || runtime.as_ref().unwrap().metrics().total();
            eventually("some have fired and some are cancelled", || {
                total().fired() > 0 && total().cancelled() > 0
            });
            runtime = None;
        }
    });
    let entries = std::mem::take(&mut *storm.entries.lock().unwrap());
    let shared = std::mem::take(&mut *storm.shared.lock().unwrap());
    let count = |f: fn(&Entry) -> usize| entries.iter().map(|entry| f(entry)).sum::<usize>();

    if let Some(runtime) = runtime {
        // Any thread may have moved these, so their deadlines are unknown.
        for timer in &shared {
            cancel(timer);
        }
        // No timer is lost: all due timers run without further calls.
        let due = |entry: &Entry| {
            entry.drops.load(Ordering::SeqCst) == 0
                && entry.not_before.load(Ordering::SeqCst) < storm.now()
        };
        eventually("all that is due has run", || {
            !entries.iter().any(|entry| due(entry))
        });
        let total = || runtime.metrics().total();
        let cancelled = count(|entry| entry.cancels.load(Ordering::SeqCst));
        let fired = count(|e| usize::from(!e.recurs && e.runs.load(Ordering::SeqCst) > 0));
        assert_eq!(total().armed(), entries.len() as u64);
        eventually("the metrics agree", || {
            (total().cancelled(), total().fired()) == (cancelled as u64, fired as u64)
        });
        drop(runtime);
    }

    let mut ended = [0_usize; 3];
    for entry in &entries {
        let runs = entry.runs.load(Ordering::SeqCst);
        let cancels = entry.cancels.load(Ordering::SeqCst);
        assert!(cancels <= 1, "cancelled twice");
        assert_eq!(entry.drops.load(Ordering::SeqCst), 1, "dropped once");
        assert!(!entry.inside.load(Ordering::SeqCst));
        if !entry.recurs {
            assert!(runs + cancels <= 1, "ran {runs} times, cancelled {cancels}");
        }
        match (entry.recurs, runs, cancels) {
            (_, _, 1) => ended[1] += 1,
            (false, 1, _) => ended[0] += 1,
            _ => ended[2] += 1,
        }
    }
    let [fired, cancelled, shut_down] = ended;
    assert_eq!(fired + cancelled + shut_down, entries.len());
    assert_eq!(storm.early.load(Ordering::SeqCst), 0, "early");
    assert_eq!(storm.overlaps.load(Ordering::SeqCst), 0, "twice at once");
    // Timers ended in each of the ways. Otherwise the test would prove less than it claims.
    assert!(fired > 0 && cancelled > 0 && shut_down > 0, "{ended:?}");
    // The handles that are left say that their timers are over.
    for timer in &shared {
        assert!(matches!(timer.timer.status(), Status::Over(_)));
    }
}

#[test]
fn a_storm_on_one_worker_adds_up() {
    let _alarm = alarm();
    run(1, false);
}

#[test]
fn a_storm_on_two_workers_adds_up() {
    let _alarm = alarm();
    run(2, false);
}

#[test]
fn a_storm_on_four_workers_adds_up() {
    let _alarm = alarm();
    run(4, false);
}

#[test]
fn a_storm_adds_up_whatever_the_store() {
    let _alarm = alarm();
    for store in StoreKind::ALL {
        for cut_short in [false, true] {
            let mut builder = Builder::new();
            builder.worker_threads(2).timer_store(store);
            storm(builder.build().unwrap(), cut_short);
        }
    }
}

#[test]
fn a_storm_that_a_shutdown_cuts_short_adds_up() {
    let _alarm = alarm();
    for workers in [1, 2, 4] {
        run(workers, true);
    }
}
