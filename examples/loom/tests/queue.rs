//! The models of the bounded queue.
#![cfg(loom)]

use handover::queue::queue;
use loom::{sync::Arc, thread};
use tourbillon_loom::model;

/// Messages come whole, once, and in order. The second one waits for the place of the first.
#[test]
fn two_messages_go_through_one_place() {
    for other_first in [false, true] {
        model!(None, move || {
            let (mut sender, mut receiver) = queue(1);
            // The thread that only looks is the one that is started. If the first thread looked and
            // did not yield, loom would try one schedule.
            let other = thread::spawn(move || {
                let early = receiver.receive();
                (early, receiver)
            });
            if other_first {
                thread::yield_now();
            }
            sender.send(1).unwrap();
            let second_sent = sender.send(2).is_ok();
            let (early, mut receiver) = other.join().unwrap();
            let late = receiver.receive();
            match early {
                Some(first) => assert_eq!((first, late), (1, second_sent.then_some(2))),
                None => assert_eq!((late, second_sent), (Some(1), false)),
            }
        });
    }
}

/// A message that nobody received is dropped with the queue: loom reports an `Arc` that is left.
#[test]
fn a_queue_ends_with_a_message() {
    for other_first in [false, true] {
        model!(None, move || {
            let (mut sender, receiver) = queue(2);
            let other = thread::spawn(move || sender.send(Arc::new(1)).unwrap());
            if other_first {
                thread::yield_now();
            }
            drop(receiver);
            other.join().unwrap();
        });
    }
}
