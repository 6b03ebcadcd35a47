//! The programs with planted bugs of `tourbillon-sim`, unchanged, in shuttle: those that need
//! several threads of one host. shuttle has no network and no time. So the sockets here are queues
//! in memory, a sleep ends at once, and a timeout never passes: what would wait for ever is a
//! deadlock, which shuttle finds itself.
#![cfg(not(any(loom, madsim)))]

#[path = "../planted/absent.rs"]
mod absent;
#[path = "../planted/mod.rs"]
mod planted;
#[allow(dead_code, reason = "not all programs run here")]
#[path = "../../../../crates/sim/tests/it/planted/programs.rs"]
mod programs;
mod sockets;
mod system;

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use crate::{
    planted::{Planted, check, panic_of, planted},
    system::Description,
};

const SCHEDULES: usize = 10_000;

/// Returns the number of the first schedule that fails, and why.
fn first_failure(describe: fn(&mut Description)) -> Option<(u64, String)> {
    let ran = Arc::new(AtomicU64::new(0));
    let count = ran.clone();
    let ends = panic_of(|| {
        shuttle::check_random(
            move || {
                count.fetch_add(1, Relaxed);
                let mut description = Description::default();
                describe(&mut description);
                description.run();
            },
            SCHEDULES,
        );
    });
    Some((ran.load(Relaxed) - 1, ends.err()?))
}

#[test]
fn shuttle_finds_what_needs_threads() {
    let all = [
        planted!(two_hosts_lose_an_update, "an update is lost", true),
        planted!(
            a_timer_survives_its_session,
            "the new session is gone",
            true
        ),
        planted!(a_retry_counts_twice, "one was counted twice", true),
        planted!(two_workers_take_too_much, "too much is taken", true),
        planted!(a_wake_up_is_lost, "deadlock", true),
    ];
    check(&all, first_failure);
}
