//! A notification without a value, for one or all waiting tasks.

use std::{
    collections::BTreeMap,
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker, ready},
};

use crate::{
    sys::sync::Mutex,
    util::{budget, contained::each, lock::lock},
};

/// Notifies one or all waiting tasks that something may have changed. This is a condition variable
/// for tasks, with tokio's names.
///
/// A `Notify` carries no value and stores at most one permit. [`notify_one`](Notify::notify_one)
/// without a waiting task stores the permit, and the next task that waits takes it at once. So a
/// task that checks a condition and then waits does not miss a change made between the two.
///
/// Tasks on any thread and of any runtime may wait and notify. No user code runs while its lock is
/// held.
///
/// ```
/// use std::{collections::VecDeque, sync::{Arc, Mutex}};
/// use tourbillon::sync::Notify;
///
/// /// An unbounded channel with one receiver.
/// #[derive(Default)]
/// struct Channel<T> {
///     values: Mutex<VecDeque<T>>,
///     changed: Notify,
/// }
///
/// impl<T> Channel<T> {
///     fn send(&self, value: T) {
///         self.values.lock().unwrap().push_back(value);
///         self.changed.notify_one();
///     }
///
///     async fn recv(&self) -> T {
///         loop {
///             if let Some(value) = self.values.lock().unwrap().pop_front() {
///                 return value;
///             }
///             self.changed.notified().await;
///         }
///     }
/// }
///
/// # tourbillon::Runtime::new().unwrap().block_on(async {
/// let channel = Arc::new(Channel::default());
/// let sender = channel.clone();
/// tourbillon::spawn(async move { sender.send(7) });
/// assert_eq!(channel.recv().await, 7);
/// # });
/// ```
///
/// With several receivers, one permit can stand for several values. Each receiver must then
/// [`enable`](Notified::enable) its wait before it checks for a value.
pub struct Notify(Mutex<State>);

struct State {
    /// Set if a notification found no waiting task.
    permit: bool,
    /// The waiting tasks by their numbers. Numbers grow, so the map is in the order of arrival.
    waiting: BTreeMap<u64, Option<Waker>>,
    /// The tasks that were notified one by one and have not polled since.
    notified: BTreeMap<u64, Pick>,
    /// The last number given to a waiting task.
    last: u64,
    /// The number of `notify_waiters` calls.
    rounds: u64,
}

/// Selects the waiting task to notify.
#[derive(Clone, Copy, Debug)]
enum Pick {
    First,
    Last,
}

impl State {
    /// Notifies one waiting task, or stores a permit. Returns the waker that the caller must wake.
    fn notify_one(&mut self, pick: Pick) -> Option<Waker> {
        let picked = match pick {
            Pick::First => self.waiting.pop_first(),
            Pick::Last => self.waiting.pop_last(),
        };
        match picked {
            Some((number, waker)) => {
                // Remembered until the task has seen it. If the task stops waiting before, the next
                // one is notified.
                self.notified.insert(number, pick);
                waker
            }
            None => {
                // No task waits. The next one that begins to wait is ready at once.
                self.permit = true;
                None
            }
        }
    }
}

impl Notify {
    /// Creates a `Notify` without waiting tasks and without a permit.
    pub const fn new() -> Self {
        Self(Mutex::new(State {
            permit: false,
            waiting: BTreeMap::new(),
            notified: BTreeMap::new(),
            last: 0,
            rounds: 0,
        }))
    }

    /// Creates a `Notify` in a constant context, under tokio's name. [`new`](Notify::new) is
    /// `const`, too.
    ///
    /// ```
    /// use tourbillon::sync::Notify;
    ///
    /// static CHANGED: Notify = Notify::const_new();
    /// CHANGED.notify_one();
    /// ```
    pub const fn const_new() -> Self {
        Self::new()
    }

    /// Notifies the task that has waited longest, or stores a permit if none waits.
    ///
    /// The next task that waits takes the permit and continues at once. Several calls store a
    /// single permit.
    ///
    /// # Panics
    ///
    /// Panics if the task's waker panics, which wakers of runtimes do not. The task counts as
    /// notified.
    pub fn notify_one(&self) {
        self.notify(Pick::First);
    }

    /// Notifies the task that began to wait last. See [`notify_one`](Notify::notify_one).
    ///
    /// # Panics
    ///
    /// See [`notify_one`](Notify::notify_one).
    pub fn notify_last(&self) {
        self.notify(Pick::Last);
    }

    fn notify(&self, pick: Pick) {
        // Wakers are user code: wake after unlocking.
        let waker = lock(&self.0).notify_one(pick);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Wakes all waiting tasks.
    ///
    /// This also completes each [`notified`](Notify::notified) future that exists but has not been
    /// polled. It neither stores a permit nor takes one.
    ///
    /// ```
    /// use tourbillon::sync::Notify;
    ///
    /// # tourbillon::Runtime::new().unwrap().block_on(async {
    /// let notify = Notify::new();
    /// let (one, other) = (notify.notified(), notify.notified());
    /// notify.notify_waiters();
    /// one.await;
    /// other.await;
    /// # });
    /// ```
    ///
    /// # Panics
    ///
    /// Panics with the first panic of a waker, after all tasks have been woken.
    pub fn notify_waiters(&self) {
        let woken = {
            let mut state = lock(&self.0);
            // This also completes futures that exist and were not polled yet: they compare this
            // number.
            state.rounds += 1;
            std::mem::take(&mut state.waiting)
        };
        // A waker that panics must not keep the tasks after it from being woken.
        each(woken.into_values().flatten(), Waker::wake);
    }

    /// Waits for a notification, or takes the permit if there is one.
    ///
    /// Tasks are notified in the order in which they first polled or [enabled](Notified::enable)
    /// their futures. Dropping a waiting future gives up its place in this order. If it was
    /// notified already, it passes the notification on to the next task.
    pub fn notified(&self) -> Notified<'_> {
        Notified {
            notify: self,
            stage: self.new_stage(),
        }
    }

    /// Returns a future that waits for a notification, as [`notified`](Notify::notified) does, and
    /// owns its `Notify`. So a spawned task can wait by it.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use tourbillon::sync::Notify;
    ///
    /// # tourbillon::Runtime::new().unwrap().block_on(async {
    /// let notify = Arc::new(Notify::new());
    /// let task = tourbillon::spawn(notify.clone().notified_owned());
    /// notify.notify_one();
    /// task.await.unwrap();
    /// # });
    /// ```
    pub fn notified_owned(self: Arc<Self>) -> OwnedNotified {
        OwnedNotified {
            stage: self.new_stage(),
            notify: self,
        }
    }

    fn new_stage(&self) -> Stage {
        Stage::New {
            rounds: lock(&self.0).rounds,
        }
    }

    /// Polls the wait at `stage`, if the calling task has units of its budget left.
    fn poll_in_budget(&self, stage: &mut Stage, cx: &Context<'_>) -> Poll<()> {
        ready!(budget::check(cx));
        ready!(self.poll(stage, Some(cx.waker())));
        budget::spend();
        Poll::Ready(())
    }

    /// Returns whether the wait at `stage` was notified. If not, stores `waker` to be woken by the
    /// notification.
    fn poll(&self, stage: &mut Stage, waker: Option<&Waker>) -> Poll<()> {
        // Wakers are user code: clone before locking, drop after unlocking.
        let mut cloned = None;
        loop {
            let mut state = lock(&self.0);
            let number = match *stage {
                Stage::Over => return Poll::Ready(()),
                // This comes before the permit: a future that `notify_waiters` completes leaves the
                // permit to the next task.
                Stage::New { rounds } if rounds != state.rounds => {
                    *stage = Stage::Over;
                    return Poll::Ready(());
                }
                Stage::New { .. } if std::mem::take(&mut state.permit) => {
                    *stage = Stage::Over;
                    return Poll::Ready(());
                }
                Stage::New { .. } => {
                    state.last += 1;
                    let number = state.last;
                    state.waiting.insert(number, None);
                    *stage = Stage::Waiting { number };
                    number
                }
                Stage::Waiting { number } => number,
            };
            let Some(place) = state.waiting.get_mut(&number) else {
                // The entry is gone: `notify_one` or `notify_waiters` removed it.
                state.notified.remove(&number);
                *stage = Stage::Over;
                return Poll::Ready(());
            };
            // `enable` has no waker to store.
            let Some(waker) = waker else {
                return Poll::Pending;
            };
            if place.as_ref().is_some_and(|there| there.will_wake(waker)) {
                return Poll::Pending;
            }
            // First pass: clone the waker without the lock. Second pass: store the clone.
            if let Some(cloned) = cloned.take() {
                let before = place.replace(cloned);
                drop(state);
                drop(before);
                return Poll::Pending;
            }
            drop(state);
            cloned = Some(waker.clone());
        }
    }

    /// Ends the wait at `stage`, whose future is dropped.
    fn leave(&self, stage: Stage) {
        let Stage::Waiting { number } = stage else {
            return;
        };
        let mut state = lock(&self.0);
        let left = state.waiting.remove(&number);
        // A notification that was meant for this task passes to the next waiter: the first or the
        // last one, as before.
        let next = state
            .notified
            .remove(&number)
            .and_then(|pick| state.notify_one(pick));
        // Wakers are user code: drop and wake after unlocking. There is one of the two at most: a
        // task that was notified has no waker here any more.
        drop(state);
        drop(left);
        if let Some(waker) = next {
            waker.wake();
        }
    }
}

/// Drops the wakers that futures which were forgotten have left.
impl Drop for Notify {
    fn drop(&mut self) {
        let left = std::mem::take(&mut lock(&self.0).waiting);
        each(left.into_values().flatten(), drop);
    }
}

impl Default for Notify {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Notify {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = lock(&self.0);
        f.debug_struct("Notify")
            .field("permit", &state.permit)
            .field("waiting", &state.waiting.len())
            .finish()
    }
}

/// The future of [`Notify::notified`].
#[must_use = "futures do nothing unless polled"]
pub struct Notified<'a> {
    notify: &'a Notify,
    stage: Stage,
}

#[derive(Clone, Copy, Debug)]
enum Stage {
    /// Not polled yet. `rounds` is the count of `notify_waiters` calls when it was created.
    New { rounds: u64 },
    /// Waiting, or notified and not polled since.
    Waiting { number: u64 },
    /// Complete.
    Over,
}

impl Notified<'_> {
    /// Begins to wait without polling. Returns `true` if the future is ready: it was notified, or
    /// it took the permit.
    ///
    /// Call this before checking a condition: no notification from then on is missed.
    ///
    /// ```
    /// use std::{pin::pin, sync::Mutex};
    /// use tourbillon::sync::Notify;
    ///
    /// async fn take(values: &Mutex<Vec<u32>>, changed: &Notify) -> u32 {
    ///     loop {
    ///         let mut notified = pin!(changed.notified());
    ///         notified.as_mut().enable();
    ///         if let Some(value) = values.lock().unwrap().pop() {
    ///             return value;
    ///         }
    ///         notified.await;
    ///     }
    /// }
    /// # tourbillon::Runtime::new().unwrap().block_on(async {
    /// # assert_eq!(take(&Mutex::new(vec![7]), &Notify::new()).await, 7);
    /// # });
    /// ```
    pub fn enable(mut self: Pin<&mut Self>) -> bool {
        let this = &mut *self;
        this.notify.poll(&mut this.stage, None).is_ready()
    }
}

impl Future for Notified<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        this.notify.poll_in_budget(&mut this.stage, cx)
    }
}

impl Drop for Notified<'_> {
    fn drop(&mut self) {
        self.notify.leave(self.stage);
    }
}

impl fmt::Debug for Notified<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Notified")
            .field("stage", &self.stage)
            .finish_non_exhaustive()
    }
}

/// The future of [`Notify::notified_owned`].
#[must_use = "futures do nothing unless polled"]
pub struct OwnedNotified {
    notify: Arc<Notify>,
    stage: Stage,
}

impl OwnedNotified {
    /// Begins to wait without polling. Returns `true` if the future is ready. See
    /// [`Notified::enable`].
    pub fn enable(mut self: Pin<&mut Self>) -> bool {
        let this = &mut *self;
        this.notify.poll(&mut this.stage, None).is_ready()
    }
}

impl Future for OwnedNotified {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        this.notify.poll_in_budget(&mut this.stage, cx)
    }
}

impl Drop for OwnedNotified {
    fn drop(&mut self) {
        self.notify.leave(self.stage);
    }
}

impl fmt::Debug for OwnedNotified {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnedNotified")
            .field("stage", &self.stage)
            .finish_non_exhaustive()
    }
}
