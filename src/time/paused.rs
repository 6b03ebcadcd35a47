//! Functions for tests that pause, advance and set a runtime's clocks.

use std::time::{Duration, SystemTime};

use crate::{
    clock::{current::with_clock, other::OtherClock, runtime_clock as clock, wall},
    engine::{handle::Handle, paused::advance::Advance},
    error::NotPaused,
};

/// Pauses the clock of the runtime that the calling thread is in, for tests. Does nothing if it is
/// paused already.
///
/// From then on time passes as follows, for all callbacks and tasks of that runtime, with any
/// number of workers. Other runtimes are not affected.
///
/// - While a thread is in [`block_on`](crate::runtime::Runtime::block_on) and nothing is left to
///   do, the clock jumps to the next deadline. Nothing is left to do when all workers sleep and
///   every thread in `block_on` waits. Code that runs, or that blocks a worker, holds the clock.
/// - [`advance`] moves the clock forward.
/// - Otherwise the clock does not advance. So a thread that is not in `block_on` can arm several
///   timers at one time of the clock.
///
/// [`Instant::now`](crate::time::Instant::now) shows this clock to code in the context of the
/// runtime: on its workers, in `block_on`, and after [`Handle::enter`]. Sockets and other threads
/// do not follow it: if a test waits both for a timer and for a peer outside of its runtime, the
/// timer fires first. The timeout of
/// [`shutdown_timeout`](crate::runtime::Runtime::shutdown_timeout) is real time, too.
///
/// A runtime can start with a paused clock: see
/// [`Builder::start_paused`](crate::runtime::Builder::start_paused), and `start_paused` of the
/// attribute `test` of feature `macros`.
///
/// ```
/// use tourbillon::time::{self, Duration, Instant, sleep};
///
/// tourbillon::Runtime::new().unwrap().block_on(async {
///     time::pause();
///     let start = Instant::now();
///     sleep(Duration::from_secs(365 * 86_400)).await;
///     // Exactly one year has passed on the paused clock.
///     assert_eq!(start.elapsed(), Duration::from_secs(365 * 86_400));
/// });
/// ```
///
/// # Panics
///
/// Panics if the calling thread is in no runtime.
#[track_caller]
pub fn pause() {
    Handle::current().pause_clock();
}

/// Resumes the clock of the runtime that the calling thread is in, from the time that it shows.
/// Does nothing if it is running already.
///
/// An [`advance`] that is waiting makes its jump, and ends at once.
///
/// ```
/// use tourbillon::time::{self, Duration, Instant, sleep};
///
/// tourbillon::Runtime::new().unwrap().block_on(async {
///     time::pause();
///     sleep(Duration::from_secs(3600)).await;
///     time::resume();
///     let start = std::time::Instant::now();
///     sleep(Duration::from_millis(2)).await;
///     assert!(start.elapsed() >= Duration::from_millis(2), "real time");
/// });
/// ```
///
/// # Panics
///
/// Panics if the calling thread is in no runtime; see [`Handle::resume_clock`].
#[track_caller]
pub fn resume() {
    Handle::current().resume_clock();
}

/// Moves the paused clock of the calling thread's runtime forward by `duration`, and waits until
/// everything that came due has run.
///
/// It works in three steps:
///
/// 1. Wait until nothing is left to do: tasks that were spawned before run until they wait, and
///    have armed their timers.
/// 2. Move the clock in one jump. A `duration` of zero does not move it.
/// 3. Wait until all due callbacks and tasks have run, and everything that they woke or spawned
///    waits or has ended.
///
/// If several callers advance a clock at once, their jumps follow one after another.
///
/// As in tokio, all callbacks and tasks that came due see the time after the jump. They run in the
/// order of their deadlines only within one worker. Recurring callbacks and intervals skip the
/// deadlines that were jumped over. To go from deadline to deadline, use [`sleep`](super::sleep) in
/// [`block_on`](crate::runtime::Runtime::block_on) instead.
///
/// While a task never waits, for example because it yields in a loop, this does not end. The clock
/// reaches at most 73 years from the start of the runtime. If the runtime is shut down meanwhile,
/// this ends at once.
///
/// ```
/// use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
/// use tourbillon::{runtime::Builder, time::{self, Duration}};
///
/// static RUNS: AtomicUsize = AtomicUsize::new(0);
/// let runtime = Builder::new().start_paused(true).build().unwrap();
/// runtime.handle().after(Duration::from_secs(60), || _ = RUNS.fetch_add(1, Relaxed));
/// runtime.block_on(time::advance(Duration::from_secs(59)));
/// assert_eq!(RUNS.load(Relaxed), 0);
/// runtime.block_on(time::advance(Duration::from_secs(1)));
/// assert_eq!(RUNS.load(Relaxed), 1);
/// ```
///
/// # Panics
///
/// Panics when it is first polled outside of a runtime, or while the clock is not paused.
pub async fn advance(duration: Duration) {
    Advance::new(Handle::current().shared().clone(), duration).await;
}

/// Returns the time of the wall clock of the runtime that the calling thread is in.
///
/// It is the system's time. If the runtime's clock is or was [paused](pause), it is that of a wall
/// clock that advances with the paused clock. Outside of a runtime it is the system's time.
pub fn wall_clock() -> SystemTime {
    // Look for the runtime's clock only if some clock was paused.
    let shown = clock::any_warped().then(|| with_clock(|clock| clock.other(OtherClock::Wall)));
    shown
        .flatten()
        .map_or_else(crate::sys::clock::wall, wall::time)
}

/// Sets the wall clock of the runtime that the calling thread is in, forward or back, while its
/// clock is paused.
///
/// The system's clock stays unchanged. Timers that come due by this run next: an [`advance`] by
/// zero waits until they have run. The wall clock shows times from 2020 to 2093 only: a `time` out
/// of this range counts as the nearer end of it.
///
/// ```
/// use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
/// use tourbillon::{Timer, runtime::Builder, time::{self, Duration}};
///
/// static RAN: AtomicBool = AtomicBool::new(false);
/// let runtime = Builder::new().start_paused(true).build().unwrap();
/// runtime.block_on(async {
///     let noon = time::wall_clock() + Duration::from_secs(3600);
///     Timer::at_wall(noon).start(|| RAN.store(true, Relaxed));
///     // For example, daylight saving time begins.
///     time::set_wall_clock(noon)?;
///     time::advance(Duration::ZERO).await;
///     assert!(RAN.load(Relaxed));
///     Ok::<(), time::NotPaused>(())
/// }).unwrap();
/// ```
///
/// # Errors
///
/// Returns [`NotPaused`] if the runtime's clock is not paused: the runtime never sets the system's.
///
/// # Panics
///
/// Panics if the calling thread is in no runtime; see [`Handle::set_wall_clock`].
#[track_caller]
pub fn set_wall_clock(time: SystemTime) -> Result<(), NotPaused> {
    Handle::current().set_wall_clock(time)
}
