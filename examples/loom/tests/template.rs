//! A template for a model. Copy this file, and change what the comments speak of.
#![cfg(loom)]

// Your structure. It takes its atomics and cells from `sync.rs`.
use handover::mailbox::Mailbox;
use loom::{sync::Arc, thread};
use tourbillon_loom::model;

/// One sentence: what happens at the same time, and what is true after it.
#[test]
fn a_message_is_put_while_another_thread_takes() {
    // Each model in both orders: what loom leaves out depends on the thread that goes first.
    for other_first in [false, true] {
        // `None` sets no bound. `Some(2)` tries at most two switches away from a thread that could
        // go on. With three threads, begin with `Some(2)`.
        model!(None, move || {
            // 1. Make all data here: each execution begins anew.
            let mailbox = Arc::new(Mailbox::new());

            // 2. Start one thread, or two. Each does one thing.
            let other = thread::spawn({
                let mailbox = mailbox.clone();
                move || mailbox.take()
            });
            if other_first {
                thread::yield_now();
            }

            // 3. This thread does the other thing at the same time.
            mailbox.put(7).unwrap();
            let taken = other.join().unwrap();

            // 4. Assert what holds in each execution, whoever was first.
            assert_eq!(taken.or(mailbox.take()), Some(7));
        });
    }
}
