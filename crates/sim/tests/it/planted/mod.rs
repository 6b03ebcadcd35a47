//! A seed must find the bug of each program. Five of them need several threads of one host.
//!
//! The limit of 600 s is for busy machines. `.ci/weekly` runs these tests one by one, and sets it
//! to 60 s of search.

pub(crate) mod programs;
mod system;

use tourbillon_sim::Simulation;

/// The tests of programs: what the failure of each says.
macro_rules! finds {
    ($($program:ident: $why:literal,)*) => {
        $(
            #[tourbillon_sim::test(seeds = 10_000, seconds = 600)]
            #[should_panic(expected = $why)]
            fn $program(sim: &mut Simulation) {
                programs::$program(sim);
            }
        )*
    };
}

finds! {
    a_late_answer_is_taken_for_the_next_one: "the answer to another request",
    a_lock_is_kept_for_a_dead_connection: "the server hangs",
    a_read_after_a_failover_is_stale: "the backup has an old value",
    a_step_of_the_clock_ends_a_lease: "two hosts have the lease",
}

#[tourbillon_sim::test(seeds = 10_000, seconds = 600)]
#[should_panic(expected = "an acknowledged value is lost")]
fn a_sync_is_missing(sim: &mut Simulation) {
    programs::a_store_crashes(sim, false, true);
}

#[tourbillon_sim::test(seeds = 10_000, seconds = 600)]
#[should_panic(expected = "an acknowledged value is lost")]
fn a_sync_of_the_directory_is_missing(sim: &mut Simulation) {
    programs::a_store_crashes(sim, true, false);
}

#[tourbillon_sim::test(seeds = 100)]
fn a_store_that_syncs_loses_nothing(sim: &mut Simulation) {
    programs::a_store_crashes(sim, true, true);
}

/// The programs whose bugs need several threads of one host.
mod threads {
    use super::{Simulation, programs};

    finds! {
        two_hosts_lose_an_update: "an update is lost",
        a_timer_survives_its_session: "the new session is gone",
        a_retry_counts_twice: "one was counted twice",
        two_workers_take_too_much: "too much is taken",
        a_wake_up_is_lost: "a wake-up is lost",
    }

    /// With one worker, nothing comes between two accesses of a task.
    mod one_worker_has_no_bug {
        use super::{Simulation, programs};

        macro_rules! finds_none {
            ($($program:ident)*) => {
                $(
                    #[tourbillon_sim::test(seeds = 200, workers = 1)]
                    fn $program(sim: &mut Simulation) {
                        programs::$program(sim);
                    }
                )*
            };
        }

        finds_none! {
            two_hosts_lose_an_update
            a_timer_survives_its_session
            a_retry_counts_twice
            two_workers_take_too_much
            a_wake_up_is_lost
        }
    }
}
