//! The programs with planted bugs of `tourbillon-sim`, unchanged, in madsim. Those of disks do not
//! run here: the files of madsim are for asynchronous calls only. Nor does that of a clock that is
//! set, since its wall clock cannot be set.
#![cfg(madsim)]

#[path = "../planted/mod.rs"]
mod planted;
#[allow(dead_code, reason = "not all programs run here")]
#[path = "../../../../crates/sim/tests/it/planted/programs.rs"]
mod programs;
mod system;

use crate::{
    planted::{Planted, check, panic_of, planted},
    system::Description,
};

const SEEDS: u64 = 10_000;

fn first_failure(describe: fn(&mut Description)) -> Option<(u64, String)> {
    (0..SEEDS).find_map(|seed| {
        let ran = panic_of(|| {
            let mut description = Description::default();
            describe(&mut description);
            description.run(seed);
        });
        Some((seed, ran.err()?))
    })
}

#[test]
fn madsim_finds_what_needs_one_thread() {
    let all = [
        planted!(
            a_late_answer_is_taken_for_the_next_one,
            "the answer to another",
            true
        ),
        // A crash drops what the host has, so its peers learn of it.
        planted!(
            a_lock_is_kept_for_a_dead_connection,
            "the server hangs",
            false
        ),
        planted!(
            a_read_after_a_failover_is_stale,
            "the backup has an old value",
            true
        ),
        // These need several threads of one host.
        planted!(two_hosts_lose_an_update, "an update is lost", false),
        planted!(
            a_timer_survives_its_session,
            "the new session is gone",
            false
        ),
        planted!(a_retry_counts_twice, "one was counted twice", false),
        planted!(two_workers_take_too_much, "too much is taken", false),
        planted!(a_wake_up_is_lost, "a wake-up is lost", false),
    ];
    check(&all, first_failure);
}
