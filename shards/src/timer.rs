//! The handle of a timer that runs a callback.

use crate::{
    callback::{self, Flow},
    claim::{Armed, Claim, End, NEVER, Outcome},
    ending,
    extras::{Extras, Options},
    home::Home,
    moving::{later, moved, refresh, reset, reset_at, reset_from_start},
    node::{Header, NodeRef},
    notice::Notice,
    owner::Owner,
    running,
    shard::Shard,
    sync::Arc,
    watchers::Ended,
};

/// What [`Timer::cancel`] did. Exact: of all that may end a timer, one wins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cancel {
    /// This call cancelled the timer: its callback will not run (again), and is dropped. One that
    /// takes an outcome is called once more, to be told; for a timer that was not started, when it
    /// is.
    Cancelled,
    /// The timer recurs and is running now; because of this call that run is its last.
    AfterRun,
    /// Too late: the timer is running, once and for all.
    Running,
    /// Too late: the timer was over, or had been cancelled.
    Over,
}

/// What [`Timer::reset_at`] and its kind did. Exact, as [`Cancel`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reset {
    /// The timer waits for the new deadline.
    Waiting,
    /// The timer recurs and is running now; after this run it waits for the new deadline.
    AfterRun,
    /// The timer was not started: its wait has not begun.
    NotStarted,
    /// Too late: the timer is running for the last time, or is over.
    TooLate,
}

/// What [`Timer::start`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Started {
    /// The timer waits for its deadline (or, on a closed shard, was shut down).
    Waiting,
    /// It had been cancelled. If its callback takes an outcome, it is told, once, by the first call.
    Cancelled,
    /// It had been started before.
    TooLate,
}

/// Where a timer stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Status {
    /// It was built and not started.
    Idle,
    /// It waits for its deadline, or for a worker to run it.
    Pending,
    /// Its callback is running, or about to be told how it ended. It will run again if `last` is
    /// false.
    Running {
        /// Whether this is its last run.
        last: bool,
    },
    /// It is over.
    Over(Outcome),
}

/// A timer that runs a callback, or will have.
///
/// All methods may be called from any thread. Dropping the handle leaves the timer as it is.
/// Times are in ns on the clock that the shard's owner passes to [`Shard::expire`]; those beyond
/// [`NEVER`] count as never.
///
/// Two threads that move the same timer at the same moment leave it with the deadline of one of
/// them, and with the wait, and its beginning, that one of them, perhaps the other, asked for; all
/// else is exact.
pub struct Timer<O: Owner>(NodeRef<O>);

impl<O: Owner> Timer<O> {
    /// Arms a timer that runs `f` once.
    ///
    /// `wait` is what [`refresh`](Timer::refresh) waits for again: the deadline less the moment of
    /// arming. On a closed shard the timer is
    /// over at once, as shut down, and `f` dropped.
    #[inline]
    pub fn once<F>(home: &Arc<Shard<O>>, deadline: u64, wait: u64, f: F) -> Self
    where
        F: FnOnce() + Send + 'static,
    {
        let home = Home::new(home);
        let deadline = deadline.min(NEVER);
        let header = move |table| Header::new(table, home, Claim::Pending(deadline));
        Self::arm(callback::once(header, wait, f), deadline)
    }

    /// Arms a timer that runs `f` at `deadline` and then every `period` ns (at least 1).
    pub fn recurring<F>(home: &Arc<Shard<O>>, deadline: u64, period: u64, f: F) -> Self
    where
        F: FnMut() + Send + 'static,
    {
        let home = Home::new(home);
        let deadline = deadline.min(NEVER);
        let header = move |table| Header::new(table, home, Claim::Pending(deadline));
        Self::arm(callback::recurring(header, period, f), deadline)
    }

    #[inline]
    fn arm((node, carried): (NodeRef<O>, NodeRef<O>), deadline: u64) -> Self {
        node.home.arrive_new(carried, deadline);
        Self(node)
    }

    /// Builds a timer with options, which waits for nothing until it is [started](Timer::start):
    /// for `wait` ns then, or until `deadline` if that is given.
    ///
    /// `f` is called with [`Outcome::Fired`] when the timer runs. If the options say so it is called
    /// with the other outcomes, too: then it is called exactly once with the outcome that ends the
    /// timer, but for a timer that ends itself by its answer.
    ///
    /// A timer that is dropped without having been started ends, and `f` is dropped, uncalled.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// use tourbillon_shards::{Cancel, Flow, Options, Outcome, Owner, Shard, Started, Timer};
    /// # struct Loop;
    /// # impl Owner for Loop { fn wake(&self) {} fn is_current(&self) -> bool { true } }
    ///
    /// let shard = Arc::new(Shard::new(Loop));
    /// let options = Options { outcome: true, tolerance: 50, ..Options::default() };
    /// let timer = Timer::build(&shard, 1_000, None, options, |how| {
    ///     assert_eq!(how, Outcome::Cancelled);
    ///     Flow::Break(how)
    /// });
    /// assert_eq!(timer.start(100), Started::Waiting);
    /// assert_eq!(timer.deadline(), Some(1_100));
    /// assert_eq!(timer.cancel(), Cancel::Cancelled);
    /// shard.close();
    /// ```
    pub fn build<F>(
        home: &Arc<Shard<O>>,
        wait: u64,
        deadline: Option<u64>,
        options: Options<O>,
        f: F,
    ) -> Self
    where
        F: FnMut(Outcome) -> Flow + Send + 'static,
    {
        Self::build_as::<F, F>(home, wait, deadline, options, f)
    }

    /// As [`build`](Timer::build), for an `f` that stands for another callback: it goes by the type name
    /// of `N`, the one that its user would know (see [`Due::type_name`](crate::Due::type_name)).
    pub fn build_as<N, F>(
        home: &Arc<Shard<O>>,
        wait: u64,
        deadline: Option<u64>,
        options: Options<O>,
        f: F,
    ) -> Self
    where
        N: 'static,
        F: FnMut(Outcome) -> Flow + Send + 'static,
    {
        let home = Home::new(home);
        // Zero stands for the wait; a deadline of zero has passed as has one of 1.
        let claim = Claim::Idle(deadline.map_or(0, |at| at.clamp(1, NEVER)));
        let (recurring, tells) = (options.recurring, options.outcome);
        let header = |table| Header::new(table, home, claim);
        let node =
            callback::optioned::<N, O, F>(header, wait, recurring, tells, Extras::new(options), f);
        // Before it can be found by its name, and end: as many are armed as are over at any moment, or more.
        node.home.armed(&node);
        // From here on it ends with its handle, also should its name have no room for it.
        let timer = Self(node);
        if let Some(name) = timer.0.extras().and_then(|extras| extras.name.as_ref()) {
            name.join(&timer.0);
        }
        timer
    }

    /// Starts a timer that was [built](Timer::build).
    pub fn start(&self, now: u64) -> Started {
        let node = &self.0;
        let wait = node.wait().length();
        let exact = |set| match set {
            0 => now.saturating_add(wait).min(NEVER),
            at => at,
        };
        if node.tells() {
            // Before it can be told.
            node.home.owner().owed();
        }
        let armed = node.claim.arm(|set| {
            let deadline = match node.extras() {
                Some(extras) => extras.jittered(exact(set), node.home.owner()),
                None => exact(set),
            };
            let waits = if node.recurs() {
                // As in `reset`.
                wait.min(NEVER.saturating_sub(now))
            } else {
                deadline.saturating_sub(now)
            };
            if node.recurs() && set != 0 {
                // The first deadline is no period from now.
                node.wait().keep(now);
            }
            if waits != wait {
                // Before the deadline: a thread that refreshes the timer relies on it.
                node.wait().set(waits);
            }
            deadline
        });
        match armed {
            Armed::Waiting(_) => {
                node.home.arrive(node);
                Started::Waiting
            }
            Armed::Cancelled => {
                let notice = Notice::new(node.clone(), Outcome::Cancelled);
                node.home.owner().deliver(notice);
                Started::Cancelled
            }
            Armed::Not => {
                if node.tells() {
                    node.home.owner().told();
                }
                match node.claim.load() {
                    // Told or yet to be, the answer is the same.
                    Claim::Over(Outcome::Cancelled)
                    | Claim::Stopping {
                        how: Outcome::Cancelled,
                        ..
                    } => Started::Cancelled,
                    _ => Started::TooLate,
                }
            }
        }
    }

    /// Cancels the timer. Its callback, if this call is what ended the timer, is dropped here; one
    /// that takes an outcome is passed to [`Owner::deliver`].
    ///
    /// # Panics
    ///
    /// As [`Owner::panicked`] does where the callback's destructor panics, which it does by
    /// default.
    #[inline]
    pub fn cancel(&self) -> Cancel {
        cancel(&self.0)
    }

    /// Waits until the callback has returned for the last time and will not be called any more, if
    /// the timer is ending: it runs once and is running, or was cancelled or shut down and is running
    /// or yet to be told. Otherwise this is over at once.
    ///
    /// So after [`cancel`](Timer::cancel) and this, nothing that the callback uses is in use.
    ///
    /// # Errors
    ///
    /// The future's output is an error if it is polled inside of the callback itself.
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
    /// let timer = Timer::build(&shard, 1_000, None, options, Flow::Break);
    /// timer.start(0);
    /// assert_eq!(timer.cancel(), Cancel::Cancelled);
    ///
    /// // The callback is yet to be told.
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

    /// Whether the calling thread is inside of the timer's callback.
    pub fn is_inside(&self) -> bool {
        running::is_inside(&self.0)
    }

    /// Moves the timer to `deadline`. Its wait's length, and its beginning, stay as they are: what
    /// it waits for again when refreshed, and what [`reset_from_start`](Timer::reset_from_start)
    /// counts from.
    #[inline]
    pub fn reset_at(&self, deadline: u64) -> Reset {
        reset_at(&self.0, deadline)
    }

    /// Moves the timer to `now + wait`, and makes `wait` its wait (and, if it recurs, its period).
    /// Its wait begins anew.
    pub fn reset(&self, now: u64, wait: u64) -> Reset {
        // A wait beyond the end of time is as long as there is time left.
        let wait = wait.min(NEVER.saturating_sub(now));
        reset(&self.0, now, wait)
    }

    /// Moves the timer to its present wait's beginning plus `wait`, and makes `wait` its wait.
    ///
    /// A wait begins when the timer is [started](Timer::start), [refreshed](Timer::refresh) or
    /// [reset](Timer::reset), and, if it recurs, with each deadline on its grid, whether it runs
    /// then or skips it.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// use tourbillon_shards::{Owner, Reset, Shard, Timer};
    /// # struct Loop;
    /// # impl Owner for Loop { fn wake(&self) {} fn is_current(&self) -> bool { true } }
    ///
    /// let shard = Arc::new(Shard::new(Loop));
    /// let timer = Timer::once(&shard, 1_010, 10, || ());
    /// assert_eq!(timer.reset_at(1_001), Reset::Waiting);
    /// assert_eq!(timer.reset_from_start(5), Reset::Waiting);
    /// assert_eq!(timer.deadline(), Some(1_005), "its wait began at 1000");
    /// shard.close();
    /// ```
    pub fn reset_from_start(&self, wait: u64) -> Reset {
        reset_from_start(&self.0, wait)
    }

    /// Has what is known of the timer brought into the cache, for who is about to ask or to move it, and has something
    /// else to do meanwhile.
    #[inline]
    pub fn prefetch(&self) {
        self.0.prefetch();
    }

    /// Begins the timer's wait anew: moves it to `now` plus its wait.
    ///
    /// This is the cheap one, from any thread: a later deadline is one compare-exchange, and the
    /// shard hears of it when the old one comes up.
    ///
    /// A refresh undoes no other: where `now` leads to an earlier deadline, the clock is
    /// [read again](Owner::reread), and a deadline that another thread's start or refresh set
    /// meanwhile stays.
    #[inline]
    pub fn refresh(&self, now: u64) -> Reset {
        let node = &self.0;
        // Most have no options, and wait.
        if node.vtable.extras.is_some() {
            return refresh(node, now);
        }
        // SAFETY: timers have callbacks.
        let wait = unsafe { node.wait_of_callback() };
        // It is read behind the claim word, as below. An earlier deadline is looked at twice.
        match node.claim.move_pending(|at| later(wait, now, at)) {
            Some((at, next)) => moved(node, at, next),
            None => refresh(node, now),
        }
    }

    /// The deadline that the timer waits or runs for, in ns, unless it is over (or will be after
    /// this run).
    pub fn deadline(&self) -> Option<u64> {
        self.0.claim.load().deadline()
    }

    /// The timer's wait, or its period, in ns, [`NEVER`] at most.
    pub fn wait(&self) -> u64 {
        self.0.wait().length()
    }

    /// Where the timer stands.
    #[inline]
    pub fn status(&self) -> Status {
        match self.0.claim.load() {
            Claim::Idle(_) => Status::Idle,
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

    /// The shard where the timer waits.
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

/// See [`Timer::cancel`].
#[inline]
pub(crate) fn cancel<O: Owner>(node: &NodeRef<O>) -> Cancel {
    // Most wait, and have no options.
    if node.vtable.extras.is_none() && node.claim.end_pending(Outcome::Cancelled) {
        drop(node.home.hear_gone(node));
        ending::let_go(node, Outcome::Cancelled);
        return Cancel::Cancelled;
    }
    cancel_any(node)
}

/// The same of any.
#[inline(never)]
fn cancel_any<O: Owner>(node: &NodeRef<O>) -> Cancel {
    let end = node
        .claim
        .end(Outcome::Cancelled, node.recurs(), node.tells());
    if end != End::Won {
        return not_won(node, end);
    }
    drop(node.home.hear_gone(node));
    if let Some(notice) = ending::ended(node, Outcome::Cancelled) {
        node.home.owner().deliver(notice);
    }
    Cancel::Cancelled
}

/// What follows where a timer that waits was not what was cancelled.
#[cold]
fn not_won<O: Owner>(node: &NodeRef<O>, end: End) -> Cancel {
    match end {
        End::Won => Cancel::Cancelled,
        End::Unstarted => {
            ending::unstarted(node);
            Cancel::Cancelled
        }
        End::Barred => {
            // It is there to be told alone.
            ending::leave_name(node);
            Cancel::Cancelled
        }
        End::AfterRun => Cancel::AfterRun,
        End::Running => Cancel::Running,
        End::Over => Cancel::Over,
    }
}

impl<O: Owner> std::fmt::Debug for Timer<O> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Timer").field(&self.0.claim.load()).finish()
    }
}
