//! The memory of a task comes from its policy, and goes back there.

use std::{
    alloc::{Layout, alloc, dealloc},
    cell::RefCell,
    panic::{AssertUnwindSafe, catch_unwind},
};

use tourbillon_tasks::{Policy, Runnable, Woken, spawn};

thread_local! {
    /// The tasks of this thread that were allocated and not yet freed.
    static TASKS: RefCell<Vec<(usize, Layout)>> = const { RefCell::new(Vec::new()) };
}

/// A policy that keeps a list of the memory of its tasks.
struct Listed;

impl Policy for Listed {
    type Metadata = Noisy;

    fn schedule(task: Runnable<Noisy>, _: Woken) {
        task.run();
    }

    unsafe fn alloc(layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the same contract.
        let memory = unsafe { alloc(layout) };
        TASKS.with_borrow_mut(|tasks| tasks.push((memory.addr(), layout)));
        memory
    }

    unsafe fn dealloc(memory: *mut u8, layout: Layout) {
        TASKS.with_borrow_mut(|tasks| {
            let at = tasks
                .iter()
                .position(|task| *task == (memory.addr(), layout));
            tasks.remove(at.expect("it was allocated with this layout, and is freed once"));
        });
        // SAFETY: the caller keeps the same contract.
        unsafe { dealloc(memory, layout) };
    }
}

/// Metadata whose destructor may panic.
struct Noisy(bool);

impl Drop for Noisy {
    fn drop(&mut self) {
        assert!(!self.0, "a destructor panics on purpose");
    }
}

fn in_use() -> usize {
    TASKS.with_borrow(Vec::len)
}

#[test]
fn a_task_is_freed_by_the_policy_that_allocated_it() {
    let small = spawn::<Listed, _>(async { 1_u8 }, Noisy(false));
    let large = spawn::<Listed, _>(async { [1_u64; 512] }, Noisy(false));
    assert_eq!(in_use(), 2);
    // Run one task, and drop the other one without a run.
    small.0.run();
    drop(small.1);
    assert_eq!(in_use(), 1);
    drop(large);
    assert_eq!(in_use(), 0);
}

#[test]
fn a_task_is_freed_although_the_destructor_of_its_metadata_panics() {
    let (task, join) = spawn::<Listed, _>(async {}, Noisy(true));
    task.run();
    assert_eq!(in_use(), 1);
    let dropped = catch_unwind(AssertUnwindSafe(|| drop(join)));
    assert!(dropped.is_err());
    assert_eq!(in_use(), 0);
}
