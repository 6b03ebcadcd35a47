//! The exercises of `README.md`, with their answers. A test that has to panic shows the mistake.
#![cfg(loom)]

use loom::{
    cell::UnsafeCell,
    sync::{
        Arc,
        atomic::{AtomicU8, AtomicUsize, Ordering},
    },
    thread,
};
use tourbillon_loom::model;

/// A number of permits.
struct Permits(AtomicUsize);

impl Permits {
    /// Takes a permit, if there is one.
    fn try_acquire_wrong(&self) -> bool {
        let there = self.0.load(Ordering::Acquire) > 0;
        if there {
            self.0.fetch_sub(1, Ordering::Acquire);
        }
        there
    }

    fn try_acquire(&self) -> bool {
        let take = |permits: usize| permits.checked_sub(1);
        let taken = self
            .0
            .fetch_update(Ordering::Acquire, Ordering::Relaxed, take);
        taken.is_ok()
    }
}

fn two_threads_want_the_last_permit(try_acquire: fn(&Permits) -> bool) {
    model!(None, move || {
        let permits = Arc::new(Permits(AtomicUsize::new(1)));
        let other = thread::spawn({
            let permits = permits.clone();
            move || try_acquire(&permits)
        });
        let mine = try_acquire(&permits);
        assert!(mine != other.join().unwrap(), "one of them gets it");
    });
}

#[test]
#[should_panic(expected = "one of them gets it")]
fn exercise_1_the_mistake() {
    two_threads_want_the_last_permit(Permits::try_acquire_wrong);
}

#[test]
fn exercise_1_the_answer() {
    two_threads_want_the_last_permit(Permits::try_acquire);
}

/// A value that the first thread that needs it makes.
struct Lazy {
    state: AtomicU8,
    value: UnsafeCell<u32>,
}

// SAFETY: nothing says so for `get_wrong`, which loom shows. In `get`, only the thread that has made
// the state BUSY writes the value, and all others read it when the state is READY.
unsafe impl Sync for Lazy {}

const NOT_YET: u8 = 0;
const BUSY: u8 = 1;
const READY: u8 = 2;

impl Lazy {
    fn new() -> Self {
        Self {
            state: AtomicU8::new(NOT_YET),
            value: UnsafeCell::new(0),
        }
    }

    /// Returns the value. The first caller makes it.
    fn get_wrong(&self, make: fn() -> u32) -> u32 {
        if self.state.load(Ordering::Acquire) != READY {
            // SAFETY: see `Sync`.
            self.value.with_mut(|value| unsafe { *value = make() });
            self.state.store(READY, Ordering::Release);
        }
        // SAFETY: see `Sync`.
        self.value.with(|value| unsafe { *value })
    }

    fn get(&self, make: fn() -> u32) -> u32 {
        let relaxed = Ordering::Relaxed;
        let first = self.state.compare_exchange(NOT_YET, BUSY, relaxed, relaxed);
        if first.is_ok() {
            // SAFETY: this thread has made the state BUSY.
            self.value.with_mut(|value| unsafe { *value = make() });
            self.state.store(READY, Ordering::Release);
        }
        while self.state.load(Ordering::Acquire) != READY {
            thread::yield_now();
        }
        // SAFETY: the value is written, and not written again.
        self.value.with(|value| unsafe { *value })
    }
}

fn two_threads_need_the_value(get: fn(&Lazy, fn() -> u32) -> u32) {
    model!(None, move || {
        let lazy = Arc::new(Lazy::new());
        let other = thread::spawn({
            let lazy = lazy.clone();
            move || get(&lazy, || 7)
        });
        assert_eq!(get(&lazy, || 7), 7);
        assert_eq!(other.join().unwrap(), 7);
    });
}

#[test]
#[should_panic(expected = "Causality violation")]
fn exercise_2_the_mistake() {
    two_threads_need_the_value(Lazy::get_wrong);
}

#[test]
fn exercise_2_the_answer() {
    two_threads_need_the_value(Lazy::get);
}

/// Moves one from an account to another, while another thread moves one back.
fn two_threads_move(in_order: bool) {
    use handover::spin_lock::SpinLock;
    model!(Some(2), move || {
        let accounts = Arc::new([SpinLock::new(5), SpinLock::new(5)]);
        let move_one = move |accounts: &[SpinLock<i32>; 2], from: usize, to: usize| {
            // The answer: each thread takes the locks in the order of the accounts.
            let (first, second) = match in_order {
                true => (from.min(to), from.max(to)),
                false => (from, to),
            };
            accounts[first].with(|first_sum| {
                accounts[second].with(|second_sum| {
                    let change = if first == from { 1 } else { -1 };
                    *first_sum -= change;
                    *second_sum += change;
                });
            });
        };
        let other = thread::spawn({
            let accounts = accounts.clone();
            move || move_one(&accounts, 1, 0)
        });
        move_one(&accounts, 0, 1);
        other.join().unwrap();
        accounts[0].with(|sum| assert_eq!(*sum, 5));
    });
}

#[test]
#[should_panic(expected = "exceeded maximum number of branches")]
fn exercise_3_the_mistake() {
    two_threads_move(false);
}

#[test]
fn exercise_3_the_answer() {
    two_threads_move(true);
}

/// One thread says that there is work, and the other looks.
fn a_thread_looks(the_first_one_looks: bool, other_first: bool) {
    use loom::sync::atomic::AtomicBool;
    let look = |work: &AtomicBool| _ = work.load(Ordering::Acquire);
    let say = |work: &AtomicBool| {
        if !work.load(Ordering::Relaxed) {
            work.store(true, Ordering::Release);
        }
    };
    let threads: [fn(&AtomicBool); 2] = match the_first_one_looks {
        true => [look, say],
        false => [say, look],
    };
    let [mine, others] = threads;
    model!(None, move || {
        let work = Arc::new(AtomicBool::new(false));
        let other = thread::spawn({
            let work = work.clone();
            move || others(&work)
        });
        if other_first {
            thread::yield_now();
        }
        mine(&work);
        other.join().unwrap();
    });
}

#[test]
#[should_panic(expected = "one execution shows nothing")]
fn exercise_4_the_mistake() {
    a_thread_looks(true, false);
}

#[test]
fn exercise_4_the_answer() {
    a_thread_looks(false, false);
}

#[test]
fn exercise_4_the_answer_without_an_exchange() {
    a_thread_looks(true, true);
}
