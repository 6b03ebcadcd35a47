//! A clock that stands still, for tests.

use std::time::{Duration, SystemTime};

use crate::{
    api::handle::Handle,
    clock::{current::with_clock, other::OtherClock, runtime_clock as clock, wall},
    engine::paused::quiescence::Advance,
    error::NotPaused,
};

/// Stops the clock of the runtime that the calling thread is in. One that is paused stays so.
///
/// From then on time passes on that runtime as follows, for callbacks and tasks alike and however
/// many workers there are; other runtimes do not notice.
///
/// - While a thread is in [`block_on`](crate::runtime::Runtime::block_on), and there is nothing left to do, the
///   clock goes to the next deadline at once. Nothing is left to do when all workers sleep and every
///   thread that is in `block_on` waits. Code that runs, or blocks a worker, keeps the clock still.
/// - [`advance`] puts it forward.
/// - Otherwise it stands still. So a thread that is not in `block_on` can arm several timers in
///   peace.
///
/// [`Instant::now`](crate::time::Instant::now) shows this clock to whoever is in the context of the runtime:
/// on its workers, in `block_on`, and after [`Handle::enter`]. Sockets and other threads know
/// nothing of it: a test that waits for both a peer outside of its runtime and a timer gets the timer.
/// Neither does the wait of [`shutdown_timeout`](crate::runtime::Runtime::shutdown_timeout).
///
/// Most tests begin so: see [`Builder::start_paused`](crate::runtime::Builder::start_paused), and the
/// `start_paused` of the attribute `test` of feature `macros`.
///
/// ```
/// use tourbillon::time::{self, Duration, Instant, sleep};
///
/// tourbillon::Runtime::new().unwrap().block_on(async {
///     time::pause();
///     let start = Instant::now();
///     sleep(Duration::from_secs(365 * 86_400)).await;
///     // No sooner than a year later, and no later.
///     assert_eq!(start.elapsed(), Duration::from_secs(365 * 86_400));
/// });
/// ```
///
/// # Panics
///
/// If the thread is in no runtime; see [`Handle::pause`].
#[track_caller]
pub fn pause() {
    Handle::current().pause();
}

/// Lets the clock of the runtime that the calling thread is in run on from where it stands. One that
/// runs stays so.
///
/// An [`advance`] that waits is made, and ends at once.
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
///     assert!(start.elapsed() >= Duration::from_millis(2), "real ones");
/// });
/// ```
///
/// # Panics
///
/// If the thread is in no runtime; see [`Handle::resume`].
#[track_caller]
pub fn resume() {
    Handle::current().resume();
}

/// Puts the paused clock of the runtime that the calling thread is in forward by `duration`, and waits
/// until all that came due has run.
///
/// First it waits until there is nothing left to do: what was spawned before runs until it waits, and
/// has armed its timers then. Then the clock jumps. Then all that is due runs, and what that wakes and
/// spawns, until it waits in its turn, or is done. If `duration` is zero, this is all it does. Of
/// several that call this, one jumps after the other.
///
/// It is one jump, as in tokio: all that came due sees the time after it, in the order of the
/// deadlines only as far as one worker goes; callbacks that recur, and intervals, skip the deadlines
/// that were jumped over. To go from deadline to deadline, [`sleep`](super::sleep) in
/// [`block_on`](crate::runtime::Runtime::block_on) instead.
///
/// A task that never waits, one that yields in a loop for example, keeps this from ending. The clock
/// goes no further than 73 years from the start of the runtime. If that is shut down meanwhile, this
/// ends at once.
///
/// ```
/// use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
/// use tourbillon::{Runtime, time::{self, Duration}};
///
/// static RUNS: AtomicUsize = AtomicUsize::new(0);
/// let runtime = Runtime::builder().start_paused(true).build().unwrap();
/// runtime.after(Duration::from_secs(60), || _ = RUNS.fetch_add(1, Relaxed));
/// runtime.block_on(time::advance(Duration::from_secs(59)));
/// assert_eq!(RUNS.load(Relaxed), 0);
/// runtime.block_on(time::advance(Duration::from_secs(1)));
/// assert_eq!(RUNS.load(Relaxed), 1);
/// ```
///
/// # Panics
///
/// When polled for the first time outside of a runtime, or while the clock is not paused.
pub async fn advance(duration: Duration) {
    Advance::new(Handle::current().shared().clone(), duration).await;
}

/// What the wall clock of the runtime that the calling thread is in shows: the system's, and if the
/// runtime's clock is, or was, [paused](pause), one that goes in step with that. Outside of any runtime
/// the system's.
pub fn wall_clock() -> SystemTime {
    let shown = clock::any_warped().then(|| with_clock(|clock| clock.other(OtherClock::Wall)));
    shown
        .flatten()
        .map_or_else(crate::sys::clock::wall, wall::time)
}

/// Sets the wall clock of the runtime that the calling thread is in, whose clock is paused, forward or
/// back; that of the machine stays as it is. What comes due by it runs next: [`advance`] by zero waits
/// until it has.
///
/// ```
/// use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
/// use tourbillon::{Runtime, time::{self, Duration}};
///
/// static RAN: AtomicBool = AtomicBool::new(false);
/// let runtime = Runtime::builder().start_paused(true).build().unwrap();
/// runtime.block_on(async {
///     let noon = time::wall_clock() + Duration::from_secs(3600);
///     runtime.at_wall(noon, || RAN.store(true, Relaxed));
///     // Summer time begins, or somebody's watch was slow.
///     time::set_wall_clock(noon)?;
///     time::advance(Duration::ZERO).await;
///     assert!(RAN.load(Relaxed));
///     Ok::<(), time::NotPaused>(())
/// }).unwrap();
/// ```
///
/// # Errors
///
/// If the clock is not paused: the runtime does not set the system's.
///
/// # Panics
///
/// If the thread is in no runtime; see [`Handle::set_wall_clock`].
#[track_caller]
pub fn set_wall_clock(time: SystemTime) -> Result<(), NotPaused> {
    Handle::current().set_wall_clock(time)
}
