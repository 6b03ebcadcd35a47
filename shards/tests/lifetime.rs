//! A shard is dropped once, with the last reference to it: a handle of a timer is one, and so is a timer
//! that waits.
#![cfg(not(loom))]

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
        mpsc,
    },
    thread,
};

use tourbillon_shards::{Cancel, Owner, Shard, Timer};

/// Counts the owners that have been dropped.
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

/// Cancels the timer, and takes it out of its shard. Then the handle is the last reference.
fn free(timer: Timer<Counted>) {
    assert_eq!(timer.cancel(), Cancel::Cancelled);
    timer.home().settle();
}

#[test]
fn a_handle_keeps_its_shard() {
    let dropped = Arc::default();
    let home = shard(&dropped);
    let timer = arm(&home);
    timer.cancel();
    home.settle();
    drop(home);
    assert_eq!(dropped.load(SeqCst), 0, "the handle is left");
    drop(timer);
    assert_eq!(dropped.load(SeqCst), 1);
}

#[test]
fn references_add_up_if_one_thread_arms_and_another_frees() {
    let dropped = Arc::default();
    let home = shard(&dropped);
    let (sender, receiver) = mpsc::channel();
    let freer = thread::spawn(move || receiver.into_iter().for_each(free));
    for _ in 0..1_500 {
        sender.send(arm(&home)).unwrap();
    }
    drop(sender);
    freer.join().unwrap();
    assert_eq!(Arc::strong_count(&home), 1);
    drop(home);
    assert_eq!(dropped.load(SeqCst), 1);
}

/// Four threads arm on two shards, and free timers that other threads armed, while the last references to
/// the shards go.
#[test]
fn shards_that_come_and_go_under_threads_are_dropped_once() {
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
                    let count = if cfg!(miri) { 70 } else { 200 };
                    for i in 0..count {
                        let home = &homes[(number + i / 3) % 2];
                        senders[(number + i) % THREADS].send(arm(home)).unwrap();
                        if let Ok(timer) = receiver.try_recv() {
                            free(timer);
                        }
                    }
                    drop(senders);
                    // Half of the timers outlive this thread's references.
                    let (mut early, mut late): (Vec<Timer<_>>, _) = (Vec::new(), Vec::new());
                    for (i, timer) in receiver.into_iter().enumerate() {
                        [&mut early, &mut late][i % 2].push(timer);
                    }
                    early.into_iter().for_each(free);
                    drop(homes);
                    late.into_iter().for_each(free);
                })
            })
            .collect();
        drop((homes, senders));
        threads.into_iter().for_each(|it| it.join().unwrap());
        assert_eq!(dropped.load(SeqCst), 2 * (round + 1));
    }
}
