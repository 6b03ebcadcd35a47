//! Plain data on both sides of two fences: loom takes the accesses for ordered, and C++20 does
//! not.
#![cfg(loom)]

use loom::{
    cell::UnsafeCell,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering, fence},
    },
    thread,
};
use loom_tests::model;

struct Shared {
    data: UnsafeCell<u32>,
    /// Set by the reader, before its fence.
    is_there: AtomicBool,
    /// One if the writer's fence came first, two otherwise. Zero if it is not known yet.
    verdict: AtomicUsize,
}

// SAFETY: loom reports an access without an order.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

/// The writer does not see what the reader set before its fence, so the writer's fence came first.
/// The reader learns that from a relaxed load behind its fence. To loom, the data is ordered. In
/// C++20 it is a data race: nothing that the reader has read before its fence, or by an acquire,
/// was written by the writer. With `loom_tests/plain_data.sh`, this model fails.
#[test]
fn loom_lets_fences_order_plain_data() {
    model!(None, || {
        let shared = Arc::new(Shared {
            data: UnsafeCell::new(0),
            is_there: AtomicBool::new(false),
            verdict: AtomicUsize::new(0),
        });
        let writer = thread::spawn({
            let shared = shared.clone();
            move || {
                // SAFETY: as above.
                shared.data.with_mut(|data| unsafe { *data = 1 });
                fence(Ordering::SeqCst);
                let is_there = shared.is_there.load(Ordering::Relaxed);
                let verdict = if is_there { 2 } else { 1 };
                shared.verdict.store(verdict, Ordering::Relaxed);
            }
        });
        shared.is_there.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if shared.verdict.load(Ordering::Relaxed) == 1 {
            // SAFETY: as above.
            let data = shared.data.with(|data| unsafe { *data });
            assert_eq!(data, 1);
        }
        writer.join().unwrap();
    });
}
