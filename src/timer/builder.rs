//! The builder of timers: the options of one timer.

use std::{fmt, marker::PhantomData, time::Duration};

use tourbillon_shards::{
    self as shards, Flow, Kind, Name, Options, Outcome, Owner, Timer as ShardTimer,
};

use crate::{
    clock::{instant::Instant, wall::BootInstant},
    engine::{context::group, handle::Handle, telemetry::current_span},
    error::ArmError,
    timer::{
        self, Status, Timer,
        clock::{Boot, Monotonic, TimerClock, Wall, sealed::Sealed},
        home::home,
        schedule::{Every, Moment, OnStep, Once, Schedule},
    },
    util::{contained::contained, nanos::nanos},
};

/// A builder of one timer, with its options.
///
/// [`Timer::after`] and the other constructors of [`Timer`] return a builder.
///
/// ```
/// use std::{sync::mpsc, time::Duration};
/// use tourbillon::{Runtime, Timer, timer::Outcome};
///
/// let runtime = Runtime::new().unwrap();
/// let (sender, outcomes) = mpsc::channel();
/// let timer = Timer::after(Duration::from_secs(60))
///     .on(runtime.handle())
///     .name("session 7")
///     .tolerance(Duration::from_millis(50))
///     .start_with(move |how| sender.send(how).unwrap());
/// assert_eq!(runtime.handle().cancel_all_named("session 7"), 1);
/// // Called on a worker, and not by the thread that cancelled.
/// assert_eq!(outcomes.recv(), Ok(Outcome::Cancelled));
/// # drop(timer);
/// ```
///
/// A method of the last step takes the callback `f`:
///
/// - [`start(f)`](TimerBuilder::start) runs `f` when the timer is due, and never otherwise.
/// - [`start_with(f)`](TimerBuilder::start_with) calls `f` once with the outcome of the timer:
///   [`Fired`](timer::Outcome::Fired) or another. A recurring timer calls `f` with `Fired` for each
///   run, and then once with another outcome, unless it has [run out](TimerBuilder::times).
/// - [`try_start`](TimerBuilder::try_start) and [`try_start_with`](TimerBuilder::try_start_with)
///   do the same, or return an error.
///
/// After [`manual`](TimerBuilder::manual), the timer waits for [`Timer::start`] instead.
///
/// Callbacks are called by a worker, or by the thread that ends the runtime, also after a
/// cancellation. No lock of the runtime is held then. [The rule](timer) has the one exception: a
/// runtime that has ended.
///
/// With [`while_alive`](TimerBuilder::while_alive), the callback gets an `Arc` as an argument.
#[must_use = "a timer does nothing until it is started"]
pub struct TimerBuilder<S: Schedule, W = ()> {
    pub(crate) schedule: S,
    handle: Option<Handle>,
    worker: Option<usize>,
    name: Option<String>,
    /// `None`: that of the scope or of the runtime.
    tolerance: Option<Duration>,
    jitter: Duration,
    manual: bool,
    /// Whether the timer is not refused on a full runtime.
    unbounded: bool,
    pub(crate) condition: W,
}

impl Timer {
    /// Returns a builder of a timer that runs once, `delay` after it is started.
    pub fn after(delay: Duration) -> TimerBuilder<Once<Monotonic>> {
        TimerBuilder::new(Once::after(delay))
    }

    /// Returns a builder of a timer that runs once, not before `deadline`.
    pub fn at(deadline: impl Into<Instant>) -> TimerBuilder<Once<Monotonic>> {
        once_at(deadline.into())
    }

    /// Returns a builder of a timer that runs every `period`, for the first time one period after
    /// it is started. See [`Handle::every`].
    pub fn every(period: Duration) -> TimerBuilder<Every> {
        TimerBuilder::new(Every::new(period))
    }

    /// Returns a builder of a timer that runs once, when the wall clock shows `time`.
    ///
    /// The timer follows the clock when that is set. If the clock is set forward past `time`, the
    /// timer runs at once (unless [`on_step`](TimerBuilder::on_step) says otherwise). If the clock
    /// is set back, the timer waits longer. Times before 2020 count as passed; times after 2093
    /// never come.
    ///
    /// ```
    /// use std::{sync::mpsc, time::{Duration, SystemTime}};
    /// use tourbillon::{Runtime, Timer};
    ///
    /// let runtime = Runtime::new().unwrap();
    /// let (sender, fired) = mpsc::channel();
    /// let soon = SystemTime::now() + Duration::from_millis(2);
    /// Timer::at_wall(soon).on(runtime.handle()).start(move || {
    ///     sender.send(SystemTime::now()).unwrap();
    /// });
    /// assert!(fired.recv().unwrap() >= soon);
    /// ```
    pub fn at_wall(time: std::time::SystemTime) -> TimerBuilder<Once<Wall>> {
        once_at(time)
    }

    /// Returns a builder of a timer that runs once, `delay` after it is started. The delay includes
    /// the time in which the machine is suspended.
    ///
    /// A timer that is due while the machine is suspended runs when the machine resumes. It does
    /// not wake the machine.
    pub fn after_boot(delay: Duration) -> TimerBuilder<Once<Boot>> {
        TimerBuilder::new(Once::after(delay))
    }

    /// Returns a builder of a timer that runs once, not before `deadline`, on the clock of
    /// [`after_boot`](Timer::after_boot).
    pub fn at_boot(deadline: BootInstant) -> TimerBuilder<Once<Boot>> {
        once_at(deadline)
    }
}

/// Returns a builder of a timer that runs once, at a moment of its clock.
fn once_at<C: TimerClock>(at: C::Instant) -> TimerBuilder<Once<C>>
where
    C::Instant: Copy,
{
    TimerBuilder::new(Once::at(at))
}

impl<S: Schedule> TimerBuilder<S> {
    fn new(schedule: S) -> Self {
        Self {
            schedule,
            handle: None,
            worker: None,
            name: None,
            tolerance: None,
            jitter: Duration::ZERO,
            manual: false,
            unbounded: false,
            condition: (),
        }
    }

    /// Runs the callback only if `weak` can be upgraded when the timer is due. The callback gets
    /// the upgraded `Arc`.
    ///
    /// If `weak` cannot be upgraded, the timer ends as cancelled. A recurring timer ends at its
    /// first such run. A timer that was refreshed ends already at its earlier deadline.
    ///
    /// ```
    /// use std::{sync::{Arc, Mutex}, time::Duration};
    /// use tourbillon::Timer;
    ///
    /// let runtime = tourbillon::Runtime::new().unwrap();
    /// let session = Arc::new(Mutex::new(Vec::new()));
    /// Timer::every(Duration::from_millis(1))
    ///     .on(runtime.handle())
    ///     .while_alive(Arc::downgrade(&session))
    ///     .start(|session| session.lock().unwrap().push("beat"));
    /// # while session.lock().unwrap().is_empty() { std::thread::yield_now() }
    /// drop(session); // and with it, the timer
    /// ```
    pub fn while_alive<T: ?Sized + Send + Sync + 'static>(
        self,
        weak: std::sync::Weak<T>,
    ) -> TimerBuilder<S, std::sync::Weak<T>> {
        TimerBuilder {
            // Only the type of the condition changes. All options stay.
            schedule: self.schedule,
            handle: self.handle,
            worker: self.worker,
            name: self.name,
            tolerance: self.tolerance,
            jitter: self.jitter,
            manual: self.manual,
            unbounded: self.unbounded,
            condition: weak,
        }
    }
}

impl<S: Schedule, W> TimerBuilder<S, W> {
    /// Sets the runtime of the timer. The default is the runtime that the starting thread is in.
    pub fn on(mut self, handle: &Handle) -> Self {
        self.handle = Some(handle.clone());
        self
    }

    /// Sets a name, by which the timer can be [cancelled](Handle::cancel_named),
    /// [refreshed](Handle::refresh_named) and [counted](Handle::count_named). Several timers may
    /// have one name. The name is in use from when the timer is built until it is over.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Sets how much later than its deadline the timer may run, so that it shares a wake-up with
    /// others. With zero it is exact, whatever the runtime's
    /// [`timer_budget`](crate::runtime::Builder::timer_budget).
    ///
    /// The default is that of [`time::with_tolerance`](crate::time::with_tolerance) around the
    /// caller, or else the runtime's
    /// [`timer_tolerance`](crate::runtime::Builder::timer_tolerance). If that is zero, as it is by
    /// default, the timer is exact as long as the budget suffices. Timers of the wall clock and of
    /// the boot-time clock are exact by default.
    ///
    /// The timer waits for the roundest moment between its deadline and the end of the tolerance,
    /// where it meets other timers with a tolerance. If its worker wakes in that window for another
    /// reason, the timer runs then. It never runs before its deadline, and the runtime does not
    /// delay it past the tolerance on purpose. The tolerance is rounded down, by less than a fifth.
    pub fn tolerance(mut self, tolerance: Duration) -> Self {
        self.tolerance = Some(tolerance);
        self
    }

    /// Adds a random time between zero and `jitter` to the first deadline. For a recurring timer,
    /// each deadline gets a new random time, counted from the regular grid.
    ///
    /// Deadlines that `refresh` and `reset_after` set are exact.
    pub fn jitter(mut self, jitter: Duration) -> Self {
        self.jitter = jitter;
        self
    }

    /// Has the timer wait until [`Timer::start`], from which its delay counts.
    ///
    /// Before that it can be cancelled, which ends it. Only a callback that takes an outcome waits
    /// for the start: it is then called with `Cancelled`. If the timer is dropped, nothing runs. It
    /// belongs to its runtime, and counts towards the bound there, from the last step of this
    /// builder on.
    ///
    /// ```
    /// use std::{sync::mpsc, time::Duration};
    /// use tourbillon::{Runtime, Timer};
    ///
    /// let runtime = Runtime::new().unwrap();
    /// let (sender, fired) = mpsc::channel();
    /// let timer = Timer::after(Duration::from_millis(1))
    ///     .on(runtime.handle())
    ///     .manual()
    ///     .start(move || sender.send("fired").unwrap());
    /// assert!(fired.try_recv().is_err());
    /// timer.start();
    /// assert_eq!(fired.recv(), Ok("fired"));
    /// ```
    pub fn manual(mut self) -> Self {
        self.manual = true;
        self
    }

    /// Does not let a full runtime refuse the timer, which counts all the same. For the packages on
    /// top of this one, whose users have armed no timer that could be refused.
    #[doc(hidden)]
    pub fn unbounded(mut self) -> Self {
        self.unbounded = true;
        self
    }
}

impl<S: Schedule<Clock = Monotonic>, W> TimerBuilder<S, W> {
    /// Sets the worker whose shard holds the timer, by index. That worker runs the callback, unless
    /// another one is faster. The default is the starting thread if that is a worker, otherwise
    /// any worker.
    pub fn on_worker(mut self, worker: usize) -> Self {
        self.worker = Some(worker);
        self
    }
}

impl<W> TimerBuilder<Every, W> {
    /// Ends the timer after `times` runs. Runs that panic count. The `Fired` of the last run is
    /// then its outcome, and the callback gets no other.
    ///
    /// Zero makes [`try_start`](TimerBuilder::try_start) and
    /// [`try_start_with`](TimerBuilder::try_start_with) fail. Methods that cannot fail start the
    /// timer, and it ends as cancelled at its first deadline.
    pub fn times(mut self, times: u64) -> Self {
        self.schedule.times = Some(times);
        self
    }
}

impl<W> TimerBuilder<Once<Wall>, W> {
    /// Sets what happens when the clock is set forward past the timer's time. By default the timer
    /// runs at once.
    pub fn on_step(mut self, on_step: OnStep) -> Self {
        self.schedule.on_step = on_step;
        self
    }
}

/// A question about a timer. The answer is yes or no.
pub(crate) type Ask = Box<dyn Fn() -> bool + Send + Sync>;

/// The questions that a shard asks about a timer.
pub(crate) struct Asks {
    /// Whether the timer may run. Asked when it is due.
    pub(crate) condition: Option<Ask>,
    /// The outcome of the timer, if a run that panicked was its last one.
    pub(crate) spent: Option<Box<dyn Fn() -> Option<Outcome> + Send + Sync>>,
}

impl Asks {
    pub(crate) fn condition(condition: Option<Ask>) -> Self {
        let spent = None;
        Self { condition, spent }
    }
}

/// How a timer's callback is called, and who is told that the runtime cannot take the timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mode {
    /// The callback is told the outcome.
    pub(crate) told: bool,
    /// The caller takes an error, in place of a timer that is over.
    pub(crate) fails: bool,
}

impl Mode {
    pub(crate) const START: Self = Self::new(false, false);
    pub(crate) const START_WITH: Self = Self::new(true, false);
    pub(crate) const TRY_START: Self = Self::new(false, true);
    pub(crate) const TRY_START_WITH: Self = Self::new(true, true);

    const fn new(told: bool, fails: bool) -> Self {
        Self { told, fails }
    }
}

impl<S: Schedule, W> TimerBuilder<S, W>
where
    Moment<S>: Copy,
{
    /// Arms the timer. `f` wraps the user's callback, whose type is `N`.
    pub(crate) fn arm<N, F>(self, mode: Mode, asks: Asks, f: F) -> Result<Timer<S::Clock>, ArmError>
    where
        N: 'static,
        F: FnMut(Outcome) -> Flow + Send + 'static,
    {
        let mut f = Some(f);
        let armed = self.try_arm::<N, F>(mode, asks, &mut f);
        // No worker is left to call `f` if the runtime has been shut down, so this thread does. The
        // caller of a `try_` method gets the error instead.
        let tells = mode.told && !mode.fails && matches!(armed, Err(ArmError::Shutdown));
        if let Some(mut f) = f {
            // As on a worker, no panic of `f` or of its destructor reaches the caller.
            if tells {
                contained(|| shards::tell_of_shutdown(|how| _ = f(how)));
            }
            contained(|| drop(f));
        }
        armed
    }

    /// Arms the timer, which takes `f`, or returns an error. `f` stays if no runtime can call it.
    fn try_arm<N, F>(
        self,
        mode: Mode,
        asks: Asks,
        f: &mut Option<F>,
    ) -> Result<Timer<S::Clock>, ArmError>
    where
        N: 'static,
        F: FnMut(Outcome) -> Flow + Send + 'static,
    {
        // 1. Refuse a wrong schedule, if the caller takes an error.
        if let Some(flaw) = self.schedule.flaw().filter(|_| mode.fails) {
            return Err(flaw);
        }
        // 2. Choose the shard.
        let home = home::<S::Clock>(self.handle.as_ref(), self.worker)?;
        debug_assert_eq!(home.owner().clock, S::Clock::OTHER);
        let shared = &home.owner().shared;
        // Drops `f`, as a shard does: a panic of its destructor is caught and counted.
        let drop_contained = |f: &mut Option<F>| home.owner().contain(|| drop(f.take()));
        // If the callback is told, it would be called with `Shutdown` right now. If this thread is
        // inside of such a call already, a callback that starts its like again would never end.
        let again = || mode.told && shards::is_told_of_shutdown();
        if shared.is_stopping() && (mode.fails || again()) {
            drop_contained(f);
            return Err(ArmError::Shutdown);
        }
        // 3. Build the timer on that shard, unless the runtime is full.
        let plan = self.schedule.plan(|at| S::Clock::nanos(shared, *at));
        let options = Options {
            deadline: plan.deadline,
            recurring: plan.recurring,
            outcome: mode.told,
            tolerance: match self.tolerance {
                Some(tolerance) => home.owner().stated(nanos(tolerance)),
                None => home.owner().tolerance(),
            },
            jitter: nanos(self.jitter),
            tag: plan.tag | group::current(shared).tag(),
            name: self.name.map(|name| Name::new(home.owner().names(), &name)),
            condition: asks.condition,
            spent: asks.spent,
            origin: current_span(),
        };
        let taken = |f: &mut Option<F>| f.take().expect("it is armed once");
        let timer = match shared.admit_timer(!self.unbounded) {
            Ok(()) => {
                let (wait, f) = (nanos(plan.wait), taken(f));
                ShardTimer::build_as::<N, F>(&home, wait, options, f)
            }
            Err(full) if mode.fails => {
                home.owner().over(Kind::Once, Outcome::Refused);
                drop_contained(f);
                return Err(full);
            }
            // A worker calls it: this thread may hold a lock that it takes.
            Err(_) if mode.told => ShardTimer::refused_with::<N, F>(&home, taken(f)),
            Err(_) => {
                drop_contained(f);
                ShardTimer::refused(&home)
            }
        };
        let timer = Timer(Some(timer), PhantomData);
        // 4. Start it. The runtime may have been shut down meanwhile.
        if !self.manual {
            timer.start();
        }
        if let Some(deadline) = timer.0.as_ref().and_then(shards::Timer::deadline) {
            home.owner().note_armed(deadline);
        }
        // A callback that takes outcomes gets `Shutdown`, so that is no error for it.
        let fails = mode.fails && !mode.told;
        if fails && timer.status() == Status::Over(timer::Outcome::Shutdown) {
            return Err(ArmError::Shutdown);
        }
        Ok(timer)
    }
}

impl<S: Schedule + fmt::Debug, W> fmt::Debug for TimerBuilder<S, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TimerBuilder")
            .field("schedule", &self.schedule)
            .field("worker", &self.worker)
            .field("name", &self.name)
            .field("tolerance", &self.tolerance)
            .field("jitter", &self.jitter)
            .finish_non_exhaustive()
    }
}
