//! A template for a model. Copy this file, and change what the comments speak of:
//!
//! 1. Say here which invariant the model is about, and how its violation shows: as an assertion, a
//!    deadlock, a causality violation, or a leak.
//! 2. Use the public API of `tourbillon-shards` or `tourbillon-tasks`, from two or three threads.
//!    One of them is the thread that runs the closure.
//! 3. Add a row to the table in `loom_tests/README.md`, and a mutant that the model must catch.
#![cfg(loom)]

use loom::thread;
// The parts that models share: `loom_tests/src/lib.rs` lists them.
use loom_tests::{EventLoop, Probe, close, model, shard};
use tourbillon_shards::{Cancel, Timer};

/// One sentence that says what happens at the same time, and what must be true after it.
#[test]
fn a_timer_is_cancelled_while_its_owner_runs_it() {
    // All schedules with at most three switches away from a thread that could go on. `None` means
    // all schedules. Begin with `Some(2)`, look at the number of executions, and raise the bound.
    model!(Some(3), || {
        // All of this is made anew for each execution. A value that is kept from one execution to
        // the next, and a random number or a clock, would make the executions differ.
        let home = shard();
        // The calling thread is the owner of the shard. Without this line it is a remote thread.
        let mut owner = EventLoop::new(&home);
        let probe = Probe::new();
        let timer = Timer::once(&home, 5, 5, probe.once());

        // The other thread does one thing. Each further step multiplies the executions.
        let canceller = thread::spawn(move || timer.cancel());
        owner.now = 5;
        owner.expire();
        let answer = canceller.join().unwrap();

        // Assert what holds in each execution: here, that the answer is exact.
        let ran = probe.runs() == 1;
        assert_eq!(answer == Cancel::Cancelled, !ran, "{answer:?}");
        assert_eq!(probe.drops(), 1);
        // A shard has to be closed: its timers refer to it, and loom reports leaks.
        close(&home);
    });
}
