//! The model of the spin lock.
#![cfg(loom)]

use handover::spin_lock::SpinLock;
use loom::{sync::Arc, thread};
use tourbillon_loom::model;

/// No two threads have the value at once, and each sees what the one before it wrote.
#[test]
fn two_threads_add() {
    for other_first in [false, true] {
        model!(None, move || {
            let sum = Arc::new(SpinLock::new(0));
            let other = thread::spawn({
                let sum = sum.clone();
                move || sum.with(|sum| *sum += 1)
            });
            if other_first {
                thread::yield_now();
            }
            sum.with(|sum| *sum += 2);
            other.join().unwrap();
            sum.with(|sum| assert_eq!(*sum, 3));
        });
    }
}
