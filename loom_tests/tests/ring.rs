//! The ring of a thread's last events, which other threads copy while the thread writes. Each
//! event of a copy is whole and has its number, and no event that was written before the copy is
//! missing, unless it was overwritten.
//!
//! The writer is the first thread, since it is the one that changes the ring (see `README.md`).
#![cfg(loom)]

use loom::{sync::Arc, thread};
use loom_tests::model;
use tourbillon_sched::{Copied, Ring};

/// Returns event `number`. Its two words differ from each other and from those of other events.
fn event(number: u64) -> [u64; 2] {
    [number + 1, 100 + number]
}

fn push(ring: &Ring, number: u64) {
    // SAFETY: only the first thread of each model writes.
    unsafe { ring.push(event(number)) };
}

fn check(copied: &Copied) {
    for (number, got) in (copied.first..).zip(&copied.events) {
        assert_eq!(*got, event(number), "event {number} of {copied:?}");
    }
}

/// A ring that keeps one event is overwritten while a thread copies it: each copied event is
/// whole.
#[test]
fn copied_events_are_whole() {
    model!(None, || {
        let ring = Arc::new(Ring::new(1));
        let reader = {
            let ring = ring.clone();
            thread::spawn(move || ring.copy(9))
        };
        (0..3).for_each(|number| push(&ring, number));
        check(&reader.join().unwrap());
        let copied = ring.copy(9);
        check(&copied);
        assert_eq!((copied.first, copied.events.len()), (2, 1));
    });
}

/// Events whose writes happen before a copy are in it, unless they were overwritten.
#[test]
fn events_before_the_copy_are_in_it() {
    model!(None, || {
        let ring = Arc::new(Ring::new(3));
        push(&ring, 0);
        let reader = {
            let ring = ring.clone();
            thread::spawn(move || ring.copy(9))
        };
        push(&ring, 1);
        let copied = reader.join().unwrap();
        check(&copied);
        assert_eq!(copied.first, 0, "nothing was overwritten");
        assert!(!copied.events.is_empty());
    });
}
