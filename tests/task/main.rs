//! Tasks: spawning, joining, aborting, panics, blocking code, fairness, and what tasks wait for.

use tourbillon_support as common;

mod abort;
mod block_in_place;
mod block_in_place_end;
mod budget;
mod coop;
mod dropped;
mod fairness;
mod group_turns;
mod groups;
mod join;
mod join_set;
mod join_set_end;
mod local_fairness;
mod local_set;
mod local_set_end;
mod local_set_waiters;
mod names;
mod notify;
mod notify_threads;
mod panic;
mod panic_as_tokio;
mod panic_at_worst;
mod panic_in_drop;
mod panic_in_wakers;
mod panic_location;
mod select;
mod spawn_blocking;
mod spawn_blocking_paused;
mod spawn_blocking_shutdown;
mod spawn_blocking_threads;
mod spawn_local;
mod spawn_local_end;
mod spawn_local_paused;
mod task_local;
mod wake;
