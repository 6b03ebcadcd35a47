//! What the code of a simulation may ask, and do.

use crate::world::{self, World, clocks::Clock, faults::Faults, with};

/// Returns a random number from the seed.
pub fn random() -> u64 {
    with(|world| world.lock().rng().u64(..)).unwrap_or(0)
}

/// Returns a random number below `end` (at least 1) from the seed.
pub fn below(end: u64) -> u64 {
    random() % end.max(1)
}

/// Returns the monotonic clock in ns. Not a point: no other thread runs.
pub fn now() -> u64 {
    read(Clock::Monotonic)
}

/// Returns the boot-time clock in ns. Not a point.
pub fn boot() -> u64 {
    read(Clock::Boot)
}

/// Returns the time of day in ns since 1970. Not a point.
pub fn wall() -> u64 {
    read(Clock::Wall)
}

fn read(clock: Clock) -> u64 {
    let shown = with(|world| {
        let state = world.lock();
        state.clocks().read(clock, state.now)
    });
    shown.unwrap_or(0)
}

/// Returns the number of the current point. Lower numbers come first.
pub fn moment() -> u64 {
    with(|world| world.lock().tick()).unwrap_or(0)
}

/// Passes a point: another thread may run.
pub fn step() {
    with(World::point);
}

/// Writes a line to the trace, if tracing is on.
pub fn note(line: impl FnOnce() -> String) {
    with(|world| world.lock().note(line));
}

/// Reports that the seed has failed, and ends the process.
pub fn fail(why: &str) -> ! {
    world::die(why)
}

/// Blocks the calling thread for `nanos`, like a callback that blocks. The caller must excuse the
/// resulting lateness itself.
pub fn block(nanos: u64) {
    std::thread::sleep(std::time::Duration::from_nanos(nanos));
}

/// Stops dropping writes, and wakes all threads whose wake-up was dropped. Call it before waiting
/// for other threads to end.
pub fn drop_no_more() {
    with(|world| world.lock().drop_no_more());
}

/// Stops all faults, and wakes every worker once.
pub fn settle() {
    with(|world| world.lock().settle());
}

/// Returns the faults so far.
pub fn faults() -> Faults {
    with(|world| world.lock().faults.clone()).unwrap_or_default()
}

/// Returns for how many ns between the two times a fault kept the machine or a thread from running.
pub fn disturbed(from: u64, to: u64) -> u64 {
    with(|world| world.lock().disturbed(from, to)).unwrap_or(0)
}

/// Returns the number of threads that have not ended, including the calling one.
pub fn alive() -> usize {
    with(|world| world.lock().alive()).unwrap_or(0)
}
