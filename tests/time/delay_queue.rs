//! A `DelayQueue` returns each value once, in order and never early, and wakes its waiter for each
//! change of the next deadline.

use std::{
    collections::HashMap,
    future::poll_fn,
    sync::{Arc, Mutex},
    task::{Context, Poll, Waker},
    thread,
    time::Duration,
};

use crate::common::{HOUR, Random, alarm, runtime};
use tourbillon::time::{DelayQueue, Instant, sleep};

const MS: Duration = Duration::from_millis(1);

/// Returns the next value, if one is due.
fn due<T>(queue: &mut DelayQueue<T>) -> Option<T> {
    match queue.poll_expired(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(expired) => expired.map(|expired| expired.into_inner()),
        Poll::Pending => None,
    }
}

#[test]
fn random_programs_agree_with_a_list() {
    let runtime = runtime(1);
    let _entered = runtime.enter();
    let mut random = Random::new(7);
    for _ in 0..30 {
        let mut queue = DelayQueue::new();
        let mut model = HashMap::new();
        let mut keys = Vec::new();
        for value in 0..400_u32 {
            let deadline = Instant::now() + Duration::from_micros(random.below(2_000));
            match random.below(10) {
                0..6 => {
                    let key = queue.insert_at(value, deadline);
                    model.insert(value, deadline);
                    keys.push((key, value));
                }
                action if !keys.is_empty() => {
                    let (key, value) = keys[random.below(keys.len() as u64) as usize];
                    let held = model.contains_key(&value);
                    if action < 8 {
                        let removed = queue.try_remove(&key);
                        assert_eq!(removed.is_some(), model.remove(&value).is_some());
                        assert!(removed.is_none_or(|removed| *removed.get_ref() == value));
                    } else if held {
                        queue.reset_at(&key, deadline);
                        model.insert(value, deadline);
                        assert_eq!(queue.deadline(&key), deadline);
                    }
                }
                _ => {}
            }
            // Keys stay valid, and values stay where they are in the order.
            match random.below(40) {
                0 => {
                    queue.compact();
                    assert_eq!(queue.capacity(), queue.len());
                }
                1 => {
                    queue.reserve(10);
                    assert!(queue.capacity() >= queue.len() + 10);
                }
                2 => queue.shrink_to_fit(),
                _ => {}
            }
            if random.below(4) == 0 {
                while let Some(value) = due(&mut queue) {
                    let deadline = model.remove(&value).expect("it comes out once");
                    assert!(Instant::now() >= deadline, "it is early");
                }
            }
            assert_eq!(queue.len(), model.len());
            let next = queue.peek().map(|key| queue.deadline(&key));
            assert_eq!(next, model.values().min().copied());
        }
        let mut last = None;
        runtime.block_on(async {
            while let Some(expired) = queue.expired().await {
                let deadline = model.remove(expired.get_ref()).expect("it comes out once");
                assert_eq!(expired.deadline(), deadline);
                assert!(Instant::now() >= deadline, "it is early");
                assert!(last <= Some(deadline), "out of order");
                last = Some(deadline);
            }
        });
        assert!(model.is_empty());
    }
}

/// A queue that a task waits on, and other threads change.
type Shared = Arc<Mutex<DelayQueue<u32>>>;

async fn next(queue: Shared) -> Option<u32> {
    poll_fn(|cx| queue.lock().unwrap().poll_expired(cx))
        .await
        .map(|expired| expired.into_inner())
}

/// Waits on `queue` in a task, changes the queue, and returns the value that came out.
fn wait_while(queue: DelayQueue<u32>, change: impl FnOnce(&mut DelayQueue<u32>)) -> Option<u32> {
    let runtime = runtime(1);
    let queue = Shared::new(Mutex::new(queue));
    let waiting = runtime.spawn(next(queue.clone()));
    thread::sleep(10 * MS);
    assert!(!waiting.is_finished());
    change(&mut queue.lock().unwrap());
    runtime.block_on(waiting).unwrap()
}

#[test]
fn an_earlier_value_wakes_the_waiter() {
    let mut queue = DelayQueue::new();
    queue.insert(1, HOUR);
    let came = wait_while(queue, |queue| _ = queue.insert(2, MS));
    assert_eq!(came, Some(2));
}

#[test]
fn a_moved_value_wakes_the_waiter() {
    let mut queue = DelayQueue::new();
    let key = queue.insert(1, HOUR);
    assert_eq!(wait_while(queue, |queue| queue.reset(&key, MS)), Some(1));
}

#[test]
fn removing_the_last_value_wakes_the_waiter() {
    let mut queue = DelayQueue::new();
    let key = queue.insert(1, HOUR);
    assert_eq!(wait_while(queue, |queue| _ = queue.remove(&key)), None);
    let mut queue = DelayQueue::new();
    queue.insert(1, HOUR);
    assert_eq!(wait_while(queue, DelayQueue::clear), None);
}

#[test]
fn the_first_value_of_an_empty_queue_wakes_the_waiter() {
    let runtime = runtime(1);
    let queue = Shared::default();
    let waiting = runtime.spawn({
        let queue = queue.clone();
        async move {
            loop {
                if let Some(value) = next(queue.clone()).await {
                    return value;
                }
                // The queue is empty. Wait without another poll, as a caller of `poll_expired`
                // may.
                let mut asked = false;
                poll_fn(|_| {
                    if std::mem::replace(&mut asked, true) {
                        Poll::Ready(())
                    } else {
                        Poll::Pending
                    }
                })
                .await;
            }
        }
    });
    thread::sleep(10 * MS);
    queue.lock().unwrap().insert(5, MS);
    assert_eq!(runtime.block_on(waiting).unwrap(), 5);
}

#[test]
fn a_key_is_valid_for_its_own_value_only() {
    let mut queue = DelayQueue::new();
    let first = queue.insert("first", HOUR);
    assert_eq!(queue.remove(&first).into_inner(), "first");
    let second = queue.insert("second", HOUR);
    assert_ne!(first, second);
    assert!(
        queue.try_remove(&first).is_none(),
        "its slot is another's now"
    );
    assert_eq!(queue.len(), 1);
    assert_eq!(queue.peek(), Some(second));
}

#[test]
fn past_deadlines_expire_at_once_and_unlimited_ones_never() {
    let runtime = runtime(1);
    let _entered = runtime.enter();
    let mut queue = DelayQueue::new();
    queue.insert("never", Duration::MAX);
    assert_eq!(due(&mut queue), None);
    queue.insert("now", Duration::ZERO);
    queue.insert_at("past", Instant::now() - MS);
    assert_eq!(due(&mut queue), Some("past"));
    assert_eq!(due(&mut queue), Some("now"));
    assert_eq!(due(&mut queue), None);
    assert_eq!(queue.len(), 1);
}

#[test]
fn a_delay_queue_is_a_stream() {
    use futures_lite::StreamExt;
    let queue = runtime(1).block_on(async {
        let mut queue = DelayQueue::new();
        for n in (0..5).rev() {
            queue.insert(n, MS * n);
        }
        sleep(MS).await;
        queue
            .map(|expired| expired.into_inner())
            .collect::<Vec<_>>()
            .await
    });
    assert_eq!(queue, [0, 1, 2, 3, 4]);
}

#[test]
fn a_compacted_queue_keeps_its_keys() {
    let mut queue = DelayQueue::with_capacity(8);
    assert!(queue.capacity() >= 8);
    let keys: Vec<_> = (0..4).map(|value| queue.insert(value, HOUR)).collect();
    queue.remove(&keys[0]);
    queue.compact();
    assert_eq!(queue.capacity(), 3);
    let new = queue.insert(4, HOUR);
    assert!(queue.try_remove(&keys[0]).is_none());
    for (value, key) in (1..4).zip(&keys[1..]) {
        queue.reset(key, MS);
        assert_eq!(queue.peek(), Some(*key));
        let removed = queue.remove(key);
        assert_eq!((removed.key(), removed.into_inner()), (*key, value));
        assert!(queue.try_remove(key).is_none());
        queue.compact();
    }
    assert_eq!(queue.remove(&new).into_inner(), 4);
    assert_eq!(queue.peek(), None);
}

#[test]
fn a_queue_that_is_compacted_wakes_its_waiter() {
    let mut queue = DelayQueue::new();
    let removed = queue.insert(1, HOUR);
    let key = queue.insert(2, HOUR);
    queue.remove(&removed);
    let came = wait_while(queue, |queue| {
        queue.compact();
        queue.reset(&key, MS);
    });
    assert_eq!(came, Some(2));
}

#[test]
fn a_queue_goes_on_in_another_runtime() {
    let _alarm = alarm();
    let first = runtime(1);
    let (mut queue, key) = first.block_on(async {
        let mut queue = DelayQueue::new();
        let key = queue.insert("value", HOUR);
        let is_pending = poll_fn(|cx| Poll::Ready(queue.poll_expired(cx).is_pending())).await;
        assert!(is_pending);
        (queue, key)
    });
    drop(first);
    // In no runtime it waits, and does not panic.
    assert_eq!(due(&mut queue), None);
    let second = runtime(1);
    let expired = second.block_on(async {
        assert_eq!(due(&mut queue), None, "it is armed");
        queue.reset(&key, 20 * MS);
        queue.expired().await
    });
    assert_eq!(expired.map(|it| it.into_inner()), Some("value"));
}
