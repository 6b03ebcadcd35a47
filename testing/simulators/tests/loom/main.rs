//! The programs with planted bugs of `tourbillon-sim`, unchanged, in loom: those of two tasks that
//! share memory. Those with sockets have more threads than loom allows. Time is as in shuttle's
//! test: a sleep ends at once, and a timeout never passes.
#![cfg(loom)]

#[path = "../planted/absent.rs"]
mod absent;
#[path = "../planted/mod.rs"]
mod planted;
#[allow(dead_code, reason = "not all programs run here")]
#[path = "../../../../crates/sim/tests/it/planted/programs.rs"]
mod programs;
#[allow(dead_code, reason = "no program with sockets runs here")]
#[path = "../shuttle/sockets.rs"]
mod sockets;
mod system;

use std::{
    env,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use crate::{
    planted::{Planted, check, panic_of, planted},
    system::Description,
};

fn run(describe: fn(&mut Description)) {
    let mut description = Description::default();
    describe(&mut description);
    description.run();
}

/// Returns the number of the first execution that fails, and why. loom runs all executions.
fn first_failure(describe: fn(&mut Description)) -> Option<(u64, String)> {
    let ran = Arc::new(AtomicU64::new(0));
    let count = ran.clone();
    let model = move || {
        count.fetch_add(1, Relaxed);
        run(describe);
    };
    let ends = panic_of(|| loom::model(model));
    Some((ran.load(Relaxed) - 1, ends.err()?))
}

#[test]
fn loom_finds_what_two_tasks_do_to_memory() {
    let all = [
        planted!(
            a_timer_survives_its_session,
            "the new session is gone",
            true
        ),
        planted!(two_workers_take_too_much, "too much is taken", true),
    ];
    check(&all, first_failure);
}

#[test]
#[ignore = "the next test runs it"]
fn a_wake_up_is_lost() {
    loom::model(|| run(programs::a_wake_up_is_lost));
}

/// A deadlock ends the process, since loom's own types panic again while the first panic unwinds.
#[test]
fn loom_finds_a_lost_wake_up() {
    let mut test = Command::new(env::current_exe().unwrap());
    let output = test
        .args(["--exact", "a_wake_up_is_lost", "--ignored", "--nocapture"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && said.contains("deadlock"),
        "{said}"
    );
}
