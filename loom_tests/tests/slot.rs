//! The slot for the task that a worker runs next, while thieves empty it. Each task is taken once,
//! and none is lost. The thread that takes it sees all that was done to it before.
//!
//! The owner is the first thread, since it is the one that changes the slot (see `README.md`).
#![cfg(loom)]

use std::{ptr::NonNull, sync::Arc as Plain, sync::atomic::AtomicUsize as PlainUsize};

use loom::{
    cell::UnsafeCell,
    sync::{Arc, atomic::Ordering},
    thread::{self, JoinHandle},
};
use loom_tests::model;
use tourbillon_sched::{NextSlot, RawPointer};

/// The memory of a task. It outlives the task, so that taking a task twice is not undefined
/// behaviour.
struct Memory {
    future: UnsafeCell<usize>,
    had: PlainUsize,
}

/// A task, owned by a thread or by a slot.
struct Task(NonNull<Memory>);

// SAFETY: the thread that has it is the only one that accesses `future`, as loom checks.
unsafe impl Send for Task {}

// SAFETY: the pointer is all that a task consists of.
unsafe impl RawPointer for Task {
    fn into_raw(self) -> NonNull<()> {
        let memory = self.0;
        std::mem::forget(self);
        memory.cast()
    }

    unsafe fn from_raw(raw: NonNull<()>) -> Self {
        Self(raw.cast())
    }
}

impl Task {
    fn memory(&self) -> &Memory {
        // SAFETY: `Tasks` outlives the task.
        unsafe { self.0.as_ref() }
    }

    fn poll(&self) {
        // SAFETY: loom checks that no other thread accesses it.
        self.memory()
            .future
            .with_mut(|polls| unsafe { *polls += 1 });
    }
}

/// A drop stands for a run of the task: it polls the future and counts the task as taken.
impl Drop for Task {
    fn drop(&mut self) {
        self.poll();
        self.memory().had.fetch_add(1, Ordering::Relaxed);
    }
}

/// The tasks of a model.
#[derive(Clone)]
struct Tasks(Plain<[Memory]>);

// SAFETY: as for `Task`.
unsafe impl Send for Tasks {}

impl Tasks {
    fn new(count: usize) -> Self {
        let memory = |_| Memory {
            future: UnsafeCell::new(0),
            had: PlainUsize::new(0),
        };
        Self((0..count).map(memory).collect())
    }

    /// Returns a queued task: the calling thread has polled its future before.
    fn wake(&self, number: usize) -> Task {
        let task = Task(NonNull::from(&self.0[number]));
        task.poll();
        task
    }

    /// Returns how often each task was taken.
    fn had(&self) -> Vec<usize> {
        let had = |memory: &Memory| memory.had.load(Ordering::Relaxed);
        self.0.iter().map(had).collect()
    }
}

type Slot = Arc<NextSlot<Task>>;

fn slot() -> Slot {
    Arc::new(NextSlot::default())
}

/// Starts a thread that steals from the slot, as a rescuer does. It returns whether it found a
/// task.
fn thief(slot: &Slot, tasks: &Tasks) -> JoinHandle<bool> {
    let (slot, tasks) = (slot.clone(), tasks.clone());
    thread::spawn(move || {
        let stolen = slot.steal().is_some();
        // The memory has to outlive the task.
        drop(tasks);
        stolen
    })
}

/// The owner fills an empty slot and empties it, twice, as two tasks do that wake each other.
fn tasks_in_turn(thieves: usize, preemptions: Option<usize>) {
    model!(preemptions, move || {
        let (slot, tasks) = (slot(), Tasks::new(2));
        let thieves: Vec<_> = (0..thieves).map(|_| thief(&slot, &tasks)).collect();
        let mut own = 0;
        for number in 0..2 {
            assert!(slot.put(tasks.wake(number)).is_none(), "it was empty");
            own += usize::from(slot.take().is_some());
            assert!(slot.is_empty(), "nobody else fills it");
        }
        let stolen = thieves.into_iter().map(|thief| thief.join().unwrap());
        assert_eq!(own + stolen.filter(|stolen| *stolen).count(), 2);
        assert_eq!(tasks.had(), [1, 1]);
    });
}

#[test]
fn one_thief_while_tasks_take_turns() {
    tasks_in_turn(1, None);
}

#[test]
fn two_thieves_while_tasks_take_turns() {
    tasks_in_turn(2, Some(3));
}

/// The owner puts a task in a full slot, and gets the first one back, unless a thief has taken it.
fn one_upon_the_other(thieves: usize, preemptions: Option<usize>) {
    model!(preemptions, move || {
        let (slot, tasks) = (slot(), Tasks::new(2));
        let thieves: Vec<_> = (0..thieves).map(|_| thief(&slot, &tasks)).collect();
        assert!(slot.put(tasks.wake(0)).is_none());
        let mut own = usize::from(slot.put(tasks.wake(1)).is_some());
        own += usize::from(slot.take().is_some());
        let stolen = thieves.into_iter().map(|thief| thief.join().unwrap());
        assert_eq!(own + stolen.filter(|stolen| *stolen).count(), 2);
        assert_eq!(tasks.had(), [1, 1]);
    });
}

#[test]
fn one_thief_while_one_is_put_upon_the_other() {
    one_upon_the_other(1, None);
}

#[test]
fn two_thieves_while_one_is_put_upon_the_other() {
    one_upon_the_other(2, Some(3));
}

/// The owner puts the same task again while a thief that has seen it hesitates: the thief takes the
/// task of the second put, or nothing.
#[test]
fn the_same_task_comes_again() {
    model!(Some(3), || {
        let (slot, tasks) = (slot(), Tasks::new(1));
        let thieves = [thief(&slot, &tasks), thief(&slot, &tasks)];
        let mut puts = 0;
        loop {
            puts += 1;
            assert!(slot.put(tasks.wake(0)).is_none());
            // A task that was stolen is not woken here again.
            if slot.take().is_none() || puts == 2 {
                break;
            }
        }
        thieves
            .into_iter()
            .for_each(|thief| _ = thief.join().unwrap());
        assert_eq!(tasks.had(), [puts]);
    });
}

/// The slot is dropped by its last user, and drops the task that no thread has taken.
#[test]
fn a_full_slot_is_dropped() {
    model!(None, || {
        let (slot, tasks) = (slot(), Tasks::new(2));
        let thief = thief(&slot, &tasks);
        assert!(slot.put(tasks.wake(0)).is_none());
        let other = slot.put(tasks.wake(1));
        drop((other, slot));
        thief.join().unwrap();
        assert_eq!(tasks.had(), [1, 1]);
    });
}
