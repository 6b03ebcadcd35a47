//! The models of the mailbox.
#![cfg(loom)]

use handover::mailbox::Mailbox;
use loom::{sync::Arc, thread};
use tourbillon_loom::model;

/// A message is taken whole, once, or stays in the box.
#[test]
fn one_thread_puts_and_another_takes() {
    for other_first in [false, true] {
        model!(None, move || {
            let mailbox = Arc::new(Mailbox::new());
            let other = thread::spawn({
                let mailbox = mailbox.clone();
                move || mailbox.put("message").unwrap()
            });
            if other_first {
                thread::yield_now();
            }
            let early = mailbox.take();
            other.join().unwrap();
            let late = mailbox.take();
            assert!(early.is_none() || late.is_none(), "it was taken twice");
            assert_eq!(early.or(late), Some("message"), "it was lost");
        });
    }
}

/// One of two threads leaves its message; the other gets its own back.
#[test]
fn two_threads_put() {
    for other_first in [false, true] {
        model!(None, move || {
            let mailbox = Arc::new(Mailbox::new());
            let other = thread::spawn({
                let mailbox = mailbox.clone();
                move || mailbox.put(1)
            });
            if other_first {
                thread::yield_now();
            }
            let mine = mailbox.put(2);
            let others = other.join().unwrap();
            let expected = match (mine, others) {
                (Err(2), Ok(())) => 1,
                (Ok(()), Err(1)) => 2,
                other => panic!("{other:?}"),
            };
            assert_eq!(mailbox.take(), Some(expected));
        });
    }
}

/// The box is used again while the last message is read.
#[test]
fn a_thread_puts_while_another_takes_the_last_message() {
    for other_first in [false, true] {
        model!(None, move || {
            let mailbox = Arc::new(Mailbox::new());
            mailbox.put(1).unwrap();
            let other = thread::spawn({
                let mailbox = mailbox.clone();
                move || mailbox.take()
            });
            if other_first {
                thread::yield_now();
            }
            let put = mailbox.put(2);
            assert_eq!(other.join().unwrap(), Some(1));
            assert_eq!(mailbox.take(), put.ok().map(|()| 2));
        });
    }
}
