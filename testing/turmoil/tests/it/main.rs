//! The programs with planted bugs of `tourbillon-sim`, unchanged, in turmoil. That of a clock that
//! is set does not run here: turmoil has no wall clock. Nor does that of a directory that is not
//! synced, since turmoil has a function of its own for that.

#[allow(dead_code, reason = "not all programs run here")]
#[path = "../../../../crates/sim/tests/it/planted/programs.rs"]
mod programs;
mod system;

use std::{
    panic::{AssertUnwindSafe, catch_unwind, set_hook},
    time::Instant,
};

use crate::system::Description;

const SEEDS: u64 = 10_000;

/// A program, what its failure says, and whether turmoil finds it.
struct Planted {
    name: &'static str,
    describe: fn(&mut Description),
    why: &'static str,
    is_found: bool,
}

macro_rules! planted {
    ($program:ident, $why:literal, $is_found:literal) => {
        Planted {
            name: stringify!($program),
            describe: programs::$program,
            why: $why,
            is_found: $is_found,
        }
    };
}

fn a_sync_is_missing(sim: &mut Description) {
    programs::a_store_crashes(sim, false, true);
}

/// Returns the first seed that fails, and why.
fn first_failure(planted: &Planted) -> Option<(u64, String)> {
    (0..SEEDS).find_map(|seed| {
        let ran = catch_unwind(AssertUnwindSafe(|| {
            let mut description = Description::default();
            (planted.describe)(&mut description);
            description.run(seed)
        }));
        let why = match ran {
            Ok(Ok(())) => return None,
            Ok(Err(why)) => why,
            Err(panic) => match panic.downcast::<String>() {
                Ok(why) => *why,
                Err(panic) => panic
                    .downcast::<&str>()
                    .map_or("?".into(), |it| (*it).into()),
            },
        };
        Some((seed, why))
    })
}

#[test]
fn turmoil_finds_what_needs_one_thread() {
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
        Planted {
            name: "a_sync_is_missing",
            describe: a_sync_is_missing,
            why: "an acknowledged value is lost",
            is_found: true,
        },
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
    set_hook(Box::new(|_| {}));
    let mut wrong = Vec::new();
    for planted in &all {
        let begin = Instant::now();
        let failure = first_failure(planted);
        println!("{}: {failure:?} in {:?}", planted.name, begin.elapsed());
        let is_found = failure.is_some();
        let is_meant = failure.is_none_or(|(_, why)| why.contains(planted.why));
        if is_found != planted.is_found || !is_meant {
            wrong.push(planted.name);
        }
    }
    assert_eq!(wrong, [""; 0], "these were not as said");
}
