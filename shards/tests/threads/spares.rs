//! The reference-count cache. Threads arm, free, keep cached references and end in any order. A
//! shard is dropped exactly once, when its last timer, handle and cached reference is gone.

use std::{
    cell::RefCell,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
        mpsc,
    },
    thread,
};

use tourbillon_shards::{Cancel, Owner, Shard, Spares, Timer};

/// An owner that counts how many of its kind were dropped.
struct Counted(Arc<AtomicUsize>);

impl Owner for Counted {
    fn wake(&self) {}
    fn is_current(&self) -> bool {
        false
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, SeqCst);
    }
}

type Home = Arc<Shard<Counted>>;

fn shard(dropped: &Arc<AtomicUsize>) -> Home {
    Arc::new(Shard::new(Counted(dropped.clone())))
}

fn arm(home: &Home) -> Timer<Counted> {
    Timer::once(home, 1_000, 1_000, || ())
}

/// Cancels the timer and lets its shard drop its reference. The handle is left.
fn free(timer: Timer<Counted>) {
    assert_eq!(timer.cancel(), Cancel::Cancelled);
    timer.home().settle();
}

/// A number of timers above the number of references that a thread adds at once or keeps.
const MANY: usize = if cfg!(miri) { 150 } else { 500 };

#[test]
fn cached_references_are_dropped_with_their_guard() {
    let dropped = Arc::default();
    let home = shard(&dropped);
    let spares = Spares::new(&home);
    let timers: Vec<_> = (0..MANY).map(|_| arm(&home)).collect();
    timers.into_iter().for_each(free);
    // There are three references: that of this test, that of the guard, and one for all nodes.
    assert_eq!(Arc::strong_count(&home), 3);
    drop(spares);
    assert_eq!(Arc::strong_count(&home), 1);
    // Without the cache, the last timer drops the reference for all nodes.
    let timer = arm(&home);
    assert_eq!(Arc::strong_count(&home), 2);
    free(timer);
    assert_eq!(Arc::strong_count(&home), 1);
    drop(home);
    assert_eq!(dropped.load(SeqCst), 1);
}

/// A thread adds and gives up 64 references at a time, and keeps up to 128.
#[test]
fn references_are_counted_by_the_batch() {
    let home = shard(&Arc::default());
    let spares = Spares::new(&home);
    let mut all = vec![tourbillon_shards::Home::new(&home)];
    assert_eq!(home.references(), 64);
    while all.len() < 64 {
        all.push(all[0].clone());
    }
    assert_eq!(home.references(), 64);
    all.push(all[0].clone());
    assert_eq!(home.references(), 128);
    while all.len() < 192 {
        all.push(tourbillon_shards::Home::new(&home));
    }
    assert_eq!(home.references(), 192);
    all.truncate(64);
    assert_eq!(home.references(), 192, "128 are in stock");
    all.pop();
    assert_eq!(home.references(), 128, "63 are in use, and 65 in stock");
    drop((all, spares));
    assert_eq!(home.references(), 0);
}

#[test]
fn a_guard_without_references_drops_none() {
    let dropped = Arc::default();
    let home = shard(&dropped);
    drop(Spares::new(&home));
    assert_eq!(Arc::strong_count(&home), 1);
    drop(home);
    assert_eq!(dropped.load(SeqCst), 1);
}

#[test]
fn a_timer_keeps_its_shard_with_and_without_a_cache() {
    for keep in [false, true] {
        let dropped = Arc::default();
        let home = shard(&dropped);
        let spares = keep.then(|| Spares::new(&home));
        let timer = arm(&home);
        timer.cancel();
        home.settle();
        drop(spares);
        drop(home);
        assert_eq!(dropped.load(SeqCst), 0, "the handle is left");
        drop(timer);
        assert_eq!(dropped.load(SeqCst), 1);
    }
}

#[test]
fn a_thread_caches_references_of_one_shard() {
    let dropped = Arc::default();
    let (one, other) = (shard(&dropped), shard(&dropped));
    let of_one = Spares::new(&one);
    let of_other = Spares::new(&other);
    // Arm on both shards in turns.
    for _ in 0..MANY {
        free(arm(&one));
        free(arm(&other));
    }
    assert_eq!(Arc::strong_count(&one), 3);
    assert_eq!(Arc::strong_count(&other), 2, "it has none in stock");
    drop(of_one);
    drop(of_other);
    assert_eq!(Arc::strong_count(&one), 1);
    assert_eq!(Arc::strong_count(&other), 1);
    // Now this thread has room for references of the other shard.
    let of_other = Spares::new(&other);
    let twice = Spares::new(&other);
    free(arm(&other));
    assert_eq!(Arc::strong_count(&other), 4);
    drop(of_other);
    assert_eq!(Arc::strong_count(&other), 2);
    free(arm(&other));
    drop(twice);
    assert_eq!(Arc::strong_count(&other), 1);
}

#[test]
fn counts_balance_if_another_thread_frees_the_timers() {
    for (armer_keeps, freer_keeps) in [(true, true), (true, false), (false, true)] {
        let dropped = Arc::default();
        let home = shard(&dropped);
        let (sender, receiver) = mpsc::channel();
        let freer = thread::spawn({
            let home = home.clone();
            move || {
                let _spares = freer_keeps.then(|| Spares::new(&home));
                receiver.into_iter().for_each(free);
            }
        });
        {
            let _spares = armer_keeps.then(|| Spares::new(&home));
            for _ in 0..3 * MANY {
                sender.send(arm(&home)).unwrap();
            }
        }
        drop(sender);
        freer.join().unwrap();
        assert_eq!(Arc::strong_count(&home), 1);
        drop(home);
        assert_eq!(dropped.load(SeqCst), 1);
    }
}

/// Thread-local destructors drop timers: one before the guard's destructor and one after it, in an
/// order that is not specified.
#[test]
fn timers_may_be_dropped_before_and_after_the_cache() {
    thread_local! {
        static BEFORE: RefCell<Option<Timer<Counted>>> = const { RefCell::new(None) };
        static SPARES: RefCell<Option<Spares<Counted>>> = const { RefCell::new(None) };
        static AFTER: RefCell<Option<Timer<Counted>>> = const { RefCell::new(None) };
    }
    let dropped = Arc::default();
    let home = shard(&dropped);
    let ends = thread::spawn({
        let home = home.clone();
        move || {
            BEFORE.set(Some(arm(&home)));
            SPARES.set(Some(Spares::new(&home)));
            AFTER.set(Some(arm(&home)));
            BEFORE.with_borrow(|timer| timer.as_ref().unwrap().cancel());
            AFTER.with_borrow(|timer| timer.as_ref().unwrap().cancel());
            home.settle();
        }
    });
    ends.join().unwrap();
    assert_eq!(Arc::strong_count(&home), 1);
    drop(home);
    assert_eq!(dropped.load(SeqCst), 1);
}

#[test]
fn a_forgotten_guard_leaks_its_shard() {
    let forgets = || {
        let dropped = Arc::default();
        let home = shard(&dropped);
        std::mem::forget(Spares::new(&home));
        free(arm(&home));
        // No other shard gets the address of the forgotten one, or its place in the cache.
        let next = shard(&dropped);
        let spares = Spares::new(&next);
        free(arm(&next));
        drop(spares);
        drop(next);
        assert_eq!(dropped.load(SeqCst), 1);
        drop(home);
        assert_eq!(dropped.load(SeqCst), 1);
    };
    // Use a new thread, because its stock stays in use from here on.
    thread::spawn(forgets).join().unwrap();
}

/// Threads with and without a cache arm on shards in turns, and free timers of other threads, while
/// the shards are dropped.
#[test]
fn shards_that_threads_share_are_dropped_once() {
    let rounds = if cfg!(miri) { 2 } else { 200 };
    const THREADS: usize = 4;
    let dropped = Arc::default();
    for round in 0..rounds {
        let homes = [shard(&dropped), shard(&dropped)];
        let channels: Vec<_> = (0..THREADS).map(|_| mpsc::channel()).collect();
        let senders: Vec<_> = channels.iter().map(|(sender, _)| sender.clone()).collect();
        let threads: Vec<_> = channels
            .into_iter()
            .enumerate()
            .map(|(number, (_, receiver))| {
                let (homes, senders) = (homes.clone(), senders.clone());
                thread::spawn(move || {
                    let own = &homes[number % 2];
                    let spares = (number < 2).then(|| Spares::new(own));
                    let count = if cfg!(miri) { 70 } else { 200 };
                    for i in 0..count {
                        let home = &homes[(number + i / 3) % 2];
                        senders[(number + i) % THREADS].send(arm(home)).unwrap();
                        if let Ok(timer) = receiver.try_recv() {
                            free(timer);
                        }
                    }
                    drop(senders);
                    // Some timers outlive the cached references and all others.
                    let (mut early, mut late): (Vec<Timer<_>>, _) = (Vec::new(), Vec::new());
                    for (i, timer) in receiver.into_iter().enumerate() {
                        [&mut early, &mut late][i % 2].push(timer);
                    }
                    early.into_iter().for_each(free);
                    drop(homes);
                    drop(spares);
                    late.into_iter().for_each(free);
                })
            })
            .collect();
        drop((homes, senders));
        threads.into_iter().for_each(|it| it.join().unwrap());
        assert_eq!(dropped.load(SeqCst), 2 * (round + 1));
    }
}

/// References that belong to no timer keep the shard, too.
#[test]
fn other_references_keep_the_shard_with_and_without_a_cache() {
    let dropped: Arc<AtomicUsize> = Arc::default();
    let home = shard(&dropped);
    let before = tourbillon_shards::Home::new(&home);
    assert_eq!(home.references(), 1);
    let spares = Spares::new(&home);
    // These come from the existing reference and from the shard, and not from the stock.
    let mut homes: Vec<_> = (0..MANY).map(|_| before.clone()).collect();
    homes.extend((0..MANY).map(|_| tourbillon_shards::Home::new(&home)));
    assert!(home.references() > 2 * MANY);
    // Another thread without a cache drops half of them.
    let others = homes.split_off(MANY);
    thread::spawn(move || drop(others)).join().unwrap();
    drop(homes);
    drop(spares);
    assert_eq!(home.references(), 1);
    drop(home);
    assert_eq!(dropped.load(SeqCst), 0);
    let last = before.into_raw();
    // SAFETY: the pointer is from `into_raw`, and is used once.
    drop(unsafe { tourbillon_shards::Home::from_raw(last) });
    assert_eq!(dropped.load(SeqCst), 1);
}
