//! [`Timer`], the handle of a timer that runs a callback, and its operations: build, start, cancel,
//! reset and refresh.

use std::num::NonZeroU64;

use tourbillon_sync::Arc;

use crate::{
    answer::{Cancel, Flow, Kind, Outcome, Reset, Started, Status},
    node::{
        NodeRef, callback,
        claim::{Armed, NEVER},
        ending, running,
        state::Claim,
        wait::start_of,
    },
    owner::{Notice, Owner},
    shard::{Shard, home::Home},
    timer::{
        cancel::cancel,
        ended::Ended,
        options::Options,
        reset::{later, moved, refresh, reset_after, reset_at, reset_from_start},
    },
};

pub(crate) mod cancel;
pub(crate) mod ended;
pub(crate) mod many;
pub(crate) mod options;
pub(crate) mod reset;

/// A handle to a timer that runs a callback.
///
/// Any thread may call any method. Dropping the handle does not cancel the timer; only a timer that
/// was [built](Timer::build) and never started ends with its handle. Times are in ns on the clock
/// that the shard's owner passes to [`Shard::expire`]. A time beyond [`NEVER`] counts as [`NEVER`].
///
/// If two threads move a timer at the same moment, its deadline is the one that one of them asked
/// for. The length and the start of its wait may then be those that the other asked for. All else
/// is exact.
pub struct Timer<O: Owner>(NodeRef<O>);

impl<O: Owner> Timer<O> {
    /// Arms a timer that runs `f` once.
    ///
    /// `wait` is the time that [`refresh`](Timer::refresh) waits for again: the deadline less the
    /// moment of arming. On a closed shard the timer is shut down at once, and `f` is dropped.
    #[inline]
    pub fn once<F>(home: &Arc<Shard<O>>, deadline: u64, wait: u64, f: F) -> Self
    where
        F: FnOnce() + Send + 'static,
    {
        Self::arm(home, deadline, |at, claim| {
            callback::once(at, claim, wait, (), f)
        })
    }

    /// Arms a timer like [`once`](Timer::once), with a number that says where it comes from.
    /// [`Due::origin`](crate::Due::origin) returns the number. It takes 8 bytes.
    #[inline]
    pub fn once_from<F>(
        home: &Arc<Shard<O>>,
        deadline: u64,
        wait: u64,
        origin: NonZeroU64,
        f: F,
    ) -> Self
    where
        F: FnOnce() + Send + 'static,
    {
        Self::arm(home, deadline, |at, claim| {
            callback::once(at, claim, wait, origin, f)
        })
    }

    /// Arms a timer that runs `f` at `deadline` and then every `period` ns (at least 1).
    pub fn recurring<F>(home: &Arc<Shard<O>>, deadline: u64, period: u64, f: F) -> Self
    where
        F: FnMut() + Send + 'static,
    {
        Self::arm(home, deadline, |at, claim| {
            callback::recurring(at, claim, period, (), f)
        })
    }

    /// Arms a timer like [`recurring`](Timer::recurring), with a number that says where it comes
    /// from. [`Due::origin`](crate::Due::origin) returns the number. It takes 8 bytes.
    pub fn recurring_from<F>(
        home: &Arc<Shard<O>>,
        deadline: u64,
        period: u64,
        origin: NonZeroU64,
        f: F,
    ) -> Self
    where
        F: FnMut() + Send + 'static,
    {
        Self::arm(home, deadline, |at, claim| {
            callback::recurring(at, claim, period, origin, f)
        })
    }

    /// Arms a timer, whose node `make` makes in this home and in this state.
    #[inline]
    fn arm(
        home: &Arc<Shard<O>>,
        deadline: u64,
        make: impl FnOnce(Home<O>, Claim) -> (NodeRef<O>, NodeRef<O>),
    ) -> Self {
        let deadline = deadline.min(NEVER);
        let (node, stored) = make(Home::new(home), Claim::Pending(deadline));
        home.insert_new(stored, deadline);
        Self(node)
    }

    /// Builds a timer with options. It waits from when it is [started](Timer::start): for `wait`
    /// ns, or until the [deadline](Options::deadline) of the options.
    ///
    /// `f` is called with [`Outcome::Fired`] when the timer runs. If the options ask for outcomes,
    /// `f` is also called with the others: then it is called exactly once with the outcome that
    /// ends the timer. (A timer that ends itself by its return value gets no further call.)
    ///
    /// A timer whose handle is dropped before the start ends, and `f` is dropped without a call.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// use tourbillon_shards::{Cancel, Flow, Options, Outcome, Owner, Shard, Started, Timer};
    /// # struct Loop;
    /// # impl Owner for Loop { fn wake(&self) {} fn is_current(&self) -> bool { true } }
    ///
    /// let shard = Arc::new(Shard::new(Loop));
    /// let options = Options { outcome: true, ..Options::default() };
    /// let timer = Timer::build(&shard, 1_000, options, |how| {
    ///     assert_eq!(how, Outcome::Cancelled);
    ///     Flow::Break(how)
    /// });
    /// assert_eq!(timer.start(100), Started::Pending);
    /// assert_eq!(timer.deadline(), Some(1_100));
    /// assert_eq!(timer.cancel(), Cancel::Cancelled);
    /// shard.close();
    /// ```
    pub fn build<F>(home: &Arc<Shard<O>>, wait: u64, options: Options<O>, f: F) -> Self
    where
        F: FnMut(Outcome) -> Flow + Send + 'static,
    {
        Self::build_as::<F, F>(home, wait, options, f)
    }

    /// Builds a timer like [`build`](Timer::build), for an `f` that wraps another callback. The
    /// timer goes by the type name of `N`, which is the callback that the user wrote (see
    /// [`Due::type_name`](crate::Due::type_name)).
    pub fn build_as<N, F>(home: &Arc<Shard<O>>, wait: u64, options: Options<O>, f: F) -> Self
    where
        N: 'static,
        F: FnMut(Outcome) -> Flow + Send + 'static,
    {
        let home = Home::new(home);
        // Zero means that the deadline follows from the wait. A deadline of zero becomes 1, which
        // has passed as well.
        let claim = Claim::Idle(options.deadline.map_or(0, |at| at.clamp(1, NEVER)));
        let kind = (options.recurring, options.outcome);
        let tolerance = options.tolerance;
        let options = options.into_parts();
        let node = callback::optioned::<N, O, F>(home, claim, wait, kind, options, f);
        node.set_tolerance(tolerance);
        // Before another thread can find the timer by its name and end it: the owner must count it
        // as armed before it counts it as over.
        node.home.armed(&node);
        // From here on the timer ends with its handle, also if joining its name panics.
        let timer = Self(node);
        // SAFETY: `optioned` above has made the node for this `F`.
        unsafe { callback::join_name::<O, F>(&timer.0) };
        timer
    }

    /// Makes a timer that its owner refuses, for example because it has too many. The timer is over
    /// with [`Outcome::Refused`], and has no callback.
    ///
    /// [`Owner::over`] counts it, and [`Owner::armed`] does not.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// use tourbillon_shards::{Cancel, Outcome, Owner, Shard, Status, Timer};
    /// # struct Loop;
    /// # impl Owner for Loop { fn wake(&self) {} fn is_current(&self) -> bool { true } }
    ///
    /// let shard = Arc::new(Shard::new(Loop));
    /// let timer = Timer::refused(&shard);
    /// assert_eq!(timer.status(), Status::Over(Outcome::Refused));
    /// assert_eq!(timer.cancel(), Cancel::Over);
    /// ```
    pub fn refused(home: &Arc<Shard<O>>) -> Self {
        let claim = Claim::Over(Outcome::Refused);
        let (node, _) = callback::once(Home::new(home), claim, 0, (), || ());
        home.owner().over(Kind::Once, Outcome::Refused);
        Self(node)
    }

    /// Makes a timer that its owner refuses, like [`refused`](Timer::refused), and passes its
    /// callback with that outcome to [`Owner::deliver`]. For `N` see [`build_as`](Timer::build_as).
    pub fn refused_with<N, F>(home: &Arc<Shard<O>>, f: F) -> Self
    where
        N: 'static,
        F: FnMut(Outcome) -> Flow + Send + 'static,
    {
        let how = Outcome::Refused;
        // No other thread knows the timer yet, so it needs no exchange to become the one that this
        // thread ends.
        let (at, claim) = (Home::new(home), Claim::stopping(how, false));
        let options = Options::default().into_parts();
        let node = callback::optioned::<N, O, F>(at, claim, 0, (false, true), options, f);
        home.owner().outcome_pending();
        home.owner().deliver(Notice::new(node.clone(), how));
        Self(node)
    }

    /// Starts a timer that was [built](Timer::build), at the moment `now`, in ns.
    pub fn start(&self, now: u64) -> Started {
        let node = &self.0;
        let wait = node.wait().length();
        let exact = |set| match set {
            0 => now.saturating_add(wait).min(NEVER),
            at => at,
        };
        if node.takes_outcome() {
            // Before the outcome can be delivered ("The counts of outcomes balance" in
            // `PROTOCOLS.md`).
            node.home.owner().outcome_pending();
        }
        let armed = node.claim.arm(|set| {
            let deadline = match node.extras() {
                Some(extras) => extras.jittered(exact(set), node.home.owner()),
                None => exact(set),
            };
            let waits = if node.recurs() {
                // A wait ends at `NEVER` at the latest, as in `reset`.
                wait.min(NEVER.saturating_sub(now))
            } else {
                deadline.saturating_sub(now)
            };
            if node.recurs() && set != 0 {
                // The first deadline does not imply the start: it is not one period from now.
                node.wait().keep(start_of(now.min(NEVER), 0));
            }
            // Another try of the exchange may have drawn another jitter.
            if node.wait().length() != waits {
                // Before the exchange that sets the deadline: a thread that refreshes the timer
                // relies on it ("Idle timers" in `PROTOCOLS.md`).
                node.wait().set(waits);
            }
            deadline
        });
        match armed {
            Armed::Waiting(_) => {
                node.home.arrive(node);
                // A closed shard has refused the timer: then this thread, or another one that came
                // with an update, has ended it by now.
                match node.claim.load().how() {
                    Some(Outcome::Shutdown) => Started::Shutdown,
                    _ => Started::Pending,
                }
            }
            Armed::Cancelled => {
                // The cancel came first and left the payload to the starter, which has to deliver
                // the outcome.
                let notice = Notice::new(node.clone(), Outcome::Cancelled);
                node.home.owner().deliver(notice);
                Started::Cancelled
            }
            Armed::Not => {
                if node.takes_outcome() {
                    // The start was too late, so the announcement above has to be taken back.
                    node.home.owner().outcome_delivered();
                }
                match node.claim.load().how() {
                    Some(Outcome::Cancelled) => Started::Cancelled,
                    Some(Outcome::Shutdown) => Started::Shutdown,
                    Some(Outcome::Refused) => Started::Refused,
                    _ => Started::AlreadyStarted,
                }
            }
        }
    }

    /// Cancels the timer. If this call ends the timer, it drops the callback here, or passes a
    /// callback that takes an outcome to [`Owner::deliver`].
    ///
    /// # Panics
    ///
    /// Panics if the callback's destructor panics and [`Owner::panicked`] goes on with that panic,
    /// as it does by default.
    #[inline]
    pub fn cancel(&self) -> Cancel {
        cancel(&self.0)
    }

    /// Returns a future that waits until the callback has returned for the last time. It waits only
    /// if the timer is ending: the timer runs once and is running, or it was cancelled or shut down
    /// and its callback is running or waits for its outcome. Otherwise it is ready at once.
    ///
    /// After [`cancel`](Timer::cancel) and this wait, the callback is not in use, and neither is
    /// anything that it refers to.
    ///
    /// # Errors
    ///
    /// The future returns an error if it is polled inside the callback itself.
    ///
    /// ```
    /// # use std::{future::Future, pin::pin, sync::Arc, task::{Context, Poll, Waker}};
    /// # use std::sync::Mutex;
    /// use tourbillon_shards::{Cancel, Flow, Notice, Options, Owner, Shard, Timer};
    ///
    /// #[derive(Default)]
    /// struct Loop { notices: Mutex<Vec<Notice<Loop>>> }
    ///
    /// impl Owner for Loop {
    ///     fn wake(&self) {}
    ///     fn is_current(&self) -> bool { true }
    ///     fn deliver(&self, notice: Notice<Loop>) { self.notices.lock().unwrap().push(notice); }
    /// }
    ///
    /// let shard = Arc::new(Shard::new(Loop::default()));
    /// let options = Options { outcome: true, ..Options::default() };
    /// let timer = Timer::build(&shard, 1_000, options, Flow::Break);
    /// timer.start(0);
    /// assert_eq!(timer.cancel(), Cancel::Cancelled);
    ///
    /// // The callback has not been called with the outcome yet.
    /// let mut ended = pin!(timer.ended());
    /// let mut cx = Context::from_waker(Waker::noop());
    /// assert_eq!(ended.as_mut().poll(&mut cx), Poll::Pending);
    /// let notice = shard.owner().notices.lock().unwrap().pop().unwrap();
    /// notice.run();
    /// assert_eq!(ended.as_mut().poll(&mut cx), Poll::Ready(Ok(())));
    /// shard.close();
    /// ```
    pub fn ended(&self) -> Ended<O> {
        Ended::new(self.0.clone())
    }

    /// Returns whether the calling thread is inside the timer's callback.
    pub fn is_inside(&self) -> bool {
        running::is_inside(self.0.address())
    }

    /// Moves the timer to `deadline`. The length of its wait stays: [`refresh`](Timer::refresh)
    /// waits for it again. The wait counts as begun that length before `deadline`, which matters to
    /// [`reset_from_start`](Timer::reset_from_start).
    #[inline]
    pub fn reset_at(&self, deadline: u64) -> Reset {
        reset_at(&self.0, deadline)
    }

    /// Moves the timer to `now + wait`. `wait` becomes its wait (and its period, if it recurs),
    /// which starts at `now`.
    pub fn reset_after(&self, now: u64, wait: u64) -> Reset {
        // A wait that would end beyond `NEVER` ends at `NEVER`.
        let wait = wait.min(NEVER.saturating_sub(now));
        reset_after(&self.0, now, wait)
    }

    /// Moves the timer to the start of its present wait plus `wait`. `wait` becomes its wait.
    ///
    /// A wait starts when the timer is [started](Timer::start), [refreshed](Timer::refresh) or
    /// [reset](Timer::reset_after). The wait of a recurring timer also starts with each deadline on
    /// its grid, whether the timer runs then or skips it. A move [to a moment](Timer::reset_at)
    /// moves the start as well.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// use tourbillon_shards::{Owner, Reset, Shard, Timer};
    /// # struct Loop;
    /// # impl Owner for Loop { fn wake(&self) {} fn is_current(&self) -> bool { true } }
    ///
    /// let shard = Arc::new(Shard::new(Loop));
    /// let timer = Timer::once(&shard, 1_010, 10, || ());
    /// assert_eq!(timer.reset_from_start(5), Reset::Pending);
    /// assert_eq!(timer.deadline(), Some(1_005), "its wait began at 1000");
    /// shard.close();
    /// ```
    pub fn reset_from_start(&self, wait: u64) -> Reset {
        reset_from_start(&self.0, wait)
    }

    /// Prefetches the timer, for a caller that is about to move it and has other work to do
    /// meanwhile.
    #[inline]
    pub fn prefetch(&self) {
        self.0.prefetch();
    }

    /// Starts the timer's wait anew: moves the timer to `now` plus its wait.
    ///
    /// This is the cheapest move, from any thread. A later deadline is one compare-exchange, and
    /// the store finds it when the old one comes up.
    ///
    /// A refresh never undoes another one. If `now` leads to an earlier deadline, the clock is
    /// [read again](Owner::reread), and a deadline that another thread's start or refresh has set
    /// meanwhile stays.
    #[inline]
    pub fn refresh(&self, now: u64) -> Reset {
        let node = &self.0;
        // Fast path: most timers have no options, and wait.
        if node.vtable.extras.is_some() {
            return refresh(node, now);
        }
        // SAFETY: timers have callbacks.
        let wait = unsafe { node.wait_of_callback() };
        // The wait is read behind the claim word, as in the slow path. A deadline that would be
        // earlier needs a second reading of the clock, in the slow path.
        match node.claim.move_pending(|at| later(wait, now, at)) {
            Some((at, next)) => moved(node, at, next),
            None => refresh(node, now),
        }
    }

    /// Returns the deadline, in ns, that the timer waits or runs for. Returns `None` if the timer
    /// is not started, is over, or was cancelled so that only its present run is left.
    pub fn deadline(&self) -> Option<u64> {
        self.0.claim.load().deadline()
    }

    /// Returns the timer's wait, or its period, in ns; at most [`NEVER`].
    pub fn wait(&self) -> u64 {
        self.0.wait().length()
    }

    /// Returns the state of the timer.
    #[inline]
    pub fn status(&self) -> Status {
        match self.0.claim.load() {
            Claim::Idle(_) => Status::NotStarted,
            Claim::Barred => Status::Over(Outcome::Cancelled),
            Claim::Pending(_) | Claim::Due(_) => Status::Pending,
            Claim::Running(_) => Status::Running {
                last: !self.0.recurs(),
            },
            Claim::Rearmed(_) => Status::Running { last: false },
            Claim::Stopping { .. } => Status::Running { last: true },
            Claim::Over(how) => Status::Over(how),
        }
    }

    /// Returns the timer's owning shard.
    #[inline]
    pub fn home(&self) -> &Shard<O> {
        &self.0.home
    }

    #[cfg(all(test, not(loom)))]
    pub(crate) fn node(&self) -> &NodeRef<O> {
        &self.0
    }
}

impl<O: Owner> Drop for Timer<O> {
    #[inline]
    fn drop(&mut self) {
        if self.0.claim.abandon() {
            ending::unstarted(&self.0);
        }
    }
}

debug!(Timer, |timer| timer.0.claim.load());
