//! The options of one timer.

use std::{fmt, time::Duration};

use tourbillon_shards::{
    self as shards, Flow, Name, Options, Outcome, Status, Timer as ShardTimer,
};

use crate::{
    api::handle::Handle,
    clock::{instant::Instant, wall::BootInstant},
    engine::core::TimerOwner,
    error::ArmError,
    timer::{
        Timer,
        arm::arm,
        clock::{Boot, Monotonic, TimerClock, Wall, sealed::Sealed},
        home::Homes,
        schedule::{Every, Moment, OnStep, Once, Schedule},
    },
    util::nanos::nanos,
};

/// The options of one timer, and how it is started.
///
/// ```
/// use std::{sync::mpsc, time::Duration};
/// use tourbillon::{Outcome, Runtime, Timer};
///
/// let runtime = Runtime::new().unwrap();
/// let (sender, outcomes) = mpsc::channel();
/// let timer = Timer::after(Duration::from_secs(60))
///     .on(runtime.handle())
///     .name("session 7")
///     .tolerance(Duration::from_millis(50))
///     .start_with(move |how| sender.send(how).unwrap());
/// assert_eq!(runtime.cancel_named("session 7", usize::MAX), 1);
/// // On a worker, not on the stack of who cancelled.
/// assert_eq!(outcomes.recv(), Ok(Outcome::Cancelled));
/// # drop(timer);
/// ```
///
/// | | |
/// |---|---|
/// | [`start(f)`](TimerBuilder::start) | runs `f` when the timer is due, and never otherwise |
/// | [`start_with(f)`](TimerBuilder::start_with) | runs `f` with how the timer ended: exactly once with `Fired`, `Cancelled` or `Shutdown` (a recurring timer: with `Fired` for each run, then once with `Cancelled` or `Shutdown`, unless it has [run out](TimerBuilder::times)) |
/// | [`try_start`](TimerBuilder::try_start), [`try_start_with`](TimerBuilder::try_start_with) | the same, or an error |
/// | [`build`](TimerBuilder::build), [`build_with`](TimerBuilder::build_with) | the timer, not started: [`Timer::start`] starts it. Until then it can be cancelled (starting it then completes it as cancelled) or dropped (nothing runs) |
///
/// Callbacks always run on a worker; if the timer is cancelled or the runtime shut down that is so as
/// well, and no lock of the runtime is held. There is one exception: on a runtime that has ended
/// there is no worker any more, and `f` is told `Shutdown` by the thread that starts the timer.
///
/// [`while_alive`](TimerBuilder::while_alive) gives callbacks an `Arc` as argument.
#[must_use = "a timer does nothing until it is started"]
pub struct TimerBuilder<S: Schedule, W = ()> {
    pub(crate) schedule: S,
    handle: Option<Handle>,
    worker: Option<usize>,
    name: Option<String>,
    tolerance: Duration,
    jitter: Duration,
    pub(crate) condition: W,
}

impl Timer {
    /// A timer that runs once, `delay` after it is started.
    pub fn after(delay: Duration) -> TimerBuilder<Once<Monotonic>> {
        TimerBuilder::new(Once::after(delay))
    }

    /// A timer that runs once, not before `deadline`.
    pub fn at(deadline: impl Into<Instant>) -> TimerBuilder<Once<Monotonic>> {
        once_at(deadline.into())
    }

    /// A timer that runs every `period`, for the first time one period after it is started. See
    /// [`Handle::every`].
    pub fn every(period: Duration) -> TimerBuilder<Every> {
        TimerBuilder::new(Every::new(period))
    }

    /// A timer that runs once, when the wall clock says `time`, whether or not that is set
    /// meanwhile: forward over `time`, and the timer runs at once (unless
    /// [`on_step`](TimerBuilder::on_step) says otherwise); back, and it waits for longer. Times
    /// before 2020 have passed; those after 2093 never come.
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

    /// A timer that runs once, `delay` after it is started, the time that the machine is suspended
    /// included. One that comes due meanwhile runs when the machine is resumed; it does not wake it.
    pub fn after_boot(delay: Duration) -> TimerBuilder<Once<Boot>> {
        TimerBuilder::new(Once::after(delay))
    }

    /// A timer that runs once, not before `deadline`, as [`after_boot`](Timer::after_boot).
    pub fn at_boot(deadline: BootInstant) -> TimerBuilder<Once<Boot>> {
        once_at(deadline)
    }
}

/// A timer that runs once, at a moment of its clock.
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
            tolerance: Duration::ZERO,
            jitter: Duration::ZERO,
            condition: (),
        }
    }

    /// Runs the callback only if `weak` can be upgraded then, and with what it upgrades to. If it
    /// cannot, the timer ends as cancelled; a recurring one with the first run that finds it so, and
    /// one that was refreshed when its earlier deadline comes up.
    ///
    /// ```
    /// use std::{sync::{Arc, Mutex}, time::Duration};
    /// use tourbillon::{Runtime, Timer};
    ///
    /// let runtime = Runtime::new().unwrap();
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
            schedule: self.schedule,
            handle: self.handle,
            worker: self.worker,
            name: self.name,
            tolerance: self.tolerance,
            jitter: self.jitter,
            condition: weak,
        }
    }
}

impl<S: Schedule, W> TimerBuilder<S, W> {
    /// The runtime on which it runs. By default the one that the starting thread is in.
    pub fn on(mut self, handle: &Handle) -> Self {
        self.handle = Some(handle.clone());
        self
    }

    /// A name, which it may share with others, and by which it can be
    /// [cancelled](Handle::cancel_named), [refreshed](Handle::refresh_named) and
    /// [counted](Handle::count_named) from when it is built until it is over.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// How much later than its deadline it may run, so that it shares a wake-up with others. It is
    /// never early for that, nor later than so much by intent. By default zero.
    ///
    /// Within that window it waits for the roundest moment, where others that have a tolerance meet
    /// it; and where its worker wakes for something else in the window it runs then.
    pub fn tolerance(mut self, tolerance: Duration) -> Self {
        self.tolerance = tolerance;
        self
    }

    /// Adds a random time of up to so much to the deadline with which it starts; for a recurring
    /// timer to each deadline on its grid, anew. Deadlines set by `refresh` and `reset` are exact.
    pub fn jitter(mut self, jitter: Duration) -> Self {
        self.jitter = jitter;
        self
    }
}

impl<S: Schedule<Clock = Monotonic>, W> TimerBuilder<S, W> {
    /// The worker in whose shard it waits, by number, and which runs it unless a peer with nothing to
    /// do is faster. By default that of the starting thread, or any.
    pub fn on_worker(mut self, worker: usize) -> Self {
        self.worker = Some(worker);
        self
    }
}

impl<W> TimerBuilder<Every, W> {
    /// Ends the timer after so many runs, those that panic included. The last run's `Fired` is its
    /// outcome then, and its callback is told of no other.
    ///
    /// Zero is refused by [`try_start`](TimerBuilder::try_start) and its kind; by the others, which
    /// cannot refuse, the timer is started, and ends as cancelled at its first deadline.
    pub fn times(mut self, times: u64) -> Self {
        self.schedule.times = Some(times);
        self
    }
}

impl<W> TimerBuilder<Once<Wall>, W> {
    /// What becomes of it when the clock is set to after its time. By default it runs at once.
    pub fn on_step(mut self, on_step: OnStep) -> Self {
        self.schedule.on_step = on_step;
        self
    }
}

/// A question about a timer, with its answer.
pub(crate) type Ask = Box<dyn Fn() -> bool + Send + Sync>;

/// What a timer's shard asks about it.
#[derive(Default)]
pub(crate) struct Asks {
    /// Whether it is to run.
    pub(crate) condition: Option<Ask>,
    /// How the timer ended, if a run that panicked was the last.
    pub(crate) spent: Option<Box<dyn Fn() -> Option<Outcome> + Send + Sync>>,
}

impl Asks {
    pub(crate) fn condition(condition: Option<Ask>) -> Self {
        let spent = None;
        Self { condition, spent }
    }
}

/// How a timer's callback is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mode {
    /// It takes outcomes.
    pub(crate) outcome: bool,
    /// The timer may be refused.
    pub(crate) bounded: bool,
    /// It is started at once.
    pub(crate) start: bool,
}

impl<S: Schedule, W> TimerBuilder<S, W>
where
    Moment<S>: Copy,
    S::Clock: Homes,
{
    /// Makes the timer. `f`, which stands for the user's callback `N`, is given back where there is no
    /// runtime that could call it.
    pub(crate) fn arm<N, F>(
        self,
        mode: Mode,
        asks: Asks,
        f: F,
    ) -> Result<Timer<S::Clock>, (ArmError, Option<F>)>
    where
        N: 'static,
        F: FnMut(Outcome) -> Flow + Send + 'static,
    {
        let flaw = self.schedule.flaw().filter(|_| mode.bounded);
        if let Some(flaw) = flaw {
            return Err((flaw, Some(f)));
        }
        let home = match S::Clock::home(self.handle.as_ref(), self.worker) {
            Ok(home) => home,
            Err(error) => return Err((error, Some(f))),
        };
        let shared = home.owner().shared();
        if mode.outcome && shared.is_stopping() && shards::is_told_of_shutdown() {
            // It would be told at once, and again if it answers as its like just did.
            return Err((ArmError::Shutdown, Some(f)));
        }
        let plan = self.schedule.plan(|at| S::Clock::nanos(shared, *at));
        let names = S::Clock::names(shared);
        let options = Options {
            recurring: plan.recurring,
            outcome: mode.outcome,
            tolerance: nanos(self.tolerance),
            jitter: nanos(self.jitter),
            tag: plan.tag,
            name: self.name.map(|name| Name::new(names, &name)),
            condition: asks.condition,
            spent: asks.spent,
        };
        let wait = nanos(plan.wait);
        let mut f = Some(f);
        let made = arm(&home, mode.bounded, |home| {
            let f = f.take().expect("it is armed once");
            ShardTimer::build_as::<N, F>(home, wait, plan.deadline, options, f)
        });
        match (made, f) {
            (Ok(timer), _) => {
                if mode.start {
                    timer.start();
                }
                // One that is told is told so.
                let refused = mode.bounded && !mode.outcome;
                if refused && timer.status() == Status::Over(Outcome::Shutdown) {
                    return Err((ArmError::Shutdown, None));
                }
                Ok(timer)
            }
            (Err(error), f) => Err((error, f)),
        }
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
