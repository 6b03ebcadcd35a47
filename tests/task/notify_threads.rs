//! `sync::Notify` between threads: no notification is lost, and none is delivered twice.

use std::{
    collections::VecDeque,
    pin::pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    thread,
};

use crate::common::{HOUR, PATIENCE, Random, alarm, runtime};
use futures_lite::future::poll_once;
use tourbillon::{sync::Notify, task::yield_now, time::timeout};

/// Several receivers share a queue, and often give up a wait.
#[test]
fn no_notification_between_many_threads_is_lost() {
    const SENDERS: usize = 3;
    const RECEIVERS: usize = 4;
    const EACH: usize = 20_000;
    let _alarm = alarm();
    let runtime = runtime(2);
    let shared: Arc<(Mutex<VecDeque<usize>>, Notify)> = Arc::default();
    let received = Arc::new(AtomicUsize::new(0));
    let receivers: Vec<_> = (0..RECEIVERS)
        .map(|number| {
            let (shared, received) = (shared.clone(), received.clone());
            runtime.spawn(async move {
                let (values, changed) = &*shared;
                let mut random = Random::new(number as u64 + 1);
                let mut sum = 0;
                loop {
                    let mut notified = pin!(changed.notified());
                    notified.as_mut().enable();
                    if received.load(SeqCst) == SENDERS * EACH {
                        break sum;
                    }
                    // This drops the guard of the lock before the receiver waits.
                    let value = values.lock().unwrap().pop_front();
                    match value {
                        Some(value) => {
                            sum += value;
                            if received.fetch_add(1, SeqCst) + 1 == SENDERS * EACH {
                                changed.notify_waiters();
                            }
                        }
                        // Give up the wait, perhaps just after it was notified.
                        None if random.below(2) == 0 => {
                            yield_now().await;
                        }
                        None => notified.await,
                    }
                }
            })
        })
        .collect();
    let senders: Vec<_> = (0..SENDERS)
        .map(|number| {
            let shared = shared.clone();
            thread::spawn(move || {
                for n in 0..EACH {
                    shared.0.lock().unwrap().push_back(n);
                    if (n + number) % 3 == 0 {
                        shared.1.notify_last();
                    } else {
                        shared.1.notify_one();
                    }
                }
            })
        })
        .collect();
    senders.into_iter().for_each(|it| it.join().unwrap());
    let mut sum = 0;
    for receiver in receivers {
        sum += runtime
            .block_on(timeout(PATIENCE, receiver))
            .expect("a notice was lost")
            .unwrap();
    }
    assert_eq!(sum, SENDERS * EACH * (EACH - 1) / 2);
}

/// Two tasks notify each other in turn. No notification is lost, and none is delivered twice.
#[test]
fn two_threads_take_turns() {
    const TURNS: usize = 20_000;
    let _alarm = alarm();
    let runtime = runtime(2);
    let notifies: Arc<[Notify; 2]> = Arc::default();
    let turns = Arc::new(AtomicUsize::new(0));
    let tasks: Vec<_> = (0..2)
        .map(|side| {
            let (notifies, turns) = (notifies.clone(), turns.clone());
            runtime.spawn(async move {
                for turn in 0..TURNS {
                    notifies[side].notified_timeout(HOUR).await.unwrap();
                    assert_eq!(turns.fetch_add(1, SeqCst), 2 * turn + side);
                    notifies[1 - side].notify_one();
                }
            })
        })
        .collect();
    notifies[0].notify_one();
    for task in tasks {
        let ended = runtime.block_on(timeout(PATIENCE, task));
        ended.expect("a notice was lost").unwrap();
    }
    let last = poll_once(notifies[0].notified());
    assert!(runtime.block_on(last).is_some(), "the last one");
}
