//! A simulated world for the runtime (`--cfg tourbillon_sim`): its clock, its poller and its
//! scheduler, by a seed.
//!
//! | file | what is there |
//! |---|---|
//! | `world` | the threads, of which one runs at a time, and what they share |
//! | `schedule` | who is next, and how time goes on |
//! | `faults` | what goes wrong, and how often, by the seed |
//! | `disturb` | how it does |
//! | `kernel` | eventfds, timerfds and epoll instances |
//! | `calls` | the system calls on these, and the clocks |
//! | `sync` | condition variables and threads, as the standard library has them |
//!
//! Threads are the system's, but each waits for its baton. It is handed on at *points*: each access
//! to an atomic, each lock, each system call. So a run is a function of its seed, and can be had
//! again. What is between two points is not interrupted: the insides of crossbeam, arc-swap, and of
//! the standard library.
//!
//! `docs/src/simulation.md` has the whole of it; `tests/sim/` is the program that runs seeds.

pub(super) mod calls;
mod disturb;
mod faults;
mod kernel;
mod schedule;
pub(crate) mod sync;
mod world;

pub use self::{
    faults::{Faults, Plan, Style},
    sync::thread,
    world::{Report, run},
};
pub use tourbillon_shards::sim::Mutex;

use self::world::{World, with};

/// Any number of the seed's.
pub fn random() -> u64 {
    with(|world| world.lock().rng.u64(..)).unwrap_or(0)
}

/// A number below `end` (at least 1) of the seed's.
pub fn below(end: u64) -> u64 {
    random() % end.max(1)
}

/// The monotonic clock, in ns. No point: nobody else runs.
pub fn now() -> u64 {
    with(|world| world.lock().now).unwrap_or(0)
}

/// The clock of the time that the machine is suspended included, in ns. No point.
pub fn boot() -> u64 {
    with(|world| world.lock().boot()).unwrap_or(0)
}

/// The time of day, in ns since 1970. No point.
pub fn wall() -> u64 {
    with(|world| world.lock().wall()).unwrap_or(0)
}

/// Returns how many points there were: what has the lower number came first.
pub fn moment() -> u64 {
    with(|world| world.lock().tick()).unwrap_or(0)
}

/// A point: others may run.
pub fn step() {
    with(World::point);
}

/// Writes a line into the trace, if one is written.
pub fn note(line: impl FnOnce() -> String) {
    with(|world| world.lock().note(line));
}

/// Ends the process, as the seed has failed.
pub fn fail(why: &str) -> ! {
    world::die(why)
}

/// Takes the processor from the calling thread for `nanos`, as a callback that blocks does. Who
/// asks is excused for what is late meanwhile, as far as it says so itself.
pub fn block(nanos: u64) {
    thread::sleep(std::time::Duration::from_nanos(nanos));
}

/// From now on nothing is dropped, and who was not woken is: for who is about to wait for others to
/// end.
pub fn drop_no_more() {
    with(|world| world.lock().drop_no_more());
}

/// From now on nothing goes wrong, and everybody is woken once.
pub fn settle() {
    with(|world| world.lock().settle());
}

/// What has gone wrong so far.
pub fn faults() -> Faults {
    with(|world| world.lock().faults.clone()).unwrap_or_default()
}

/// For how many ns between the two moments something kept the machine or a thread from running.
pub fn disturbed(from: u64, to: u64) -> u64 {
    with(|world| world.lock().disturbed(from, to)).unwrap_or(0)
}

/// Returns how many threads have not ended, the calling one included.
pub fn alive() -> usize {
    with(|world| world.lock().alive()).unwrap_or(0)
}
