//! A notice that something may have changed.

use std::{
    collections::BTreeMap,
    fmt,
    future::Future,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    pin::Pin,
    task::{Context, Poll, Waker, ready},
};

use crate::{
    sys::sync::Mutex,
    util::{budget, lock::lock},
};

/// Tells one task, or all that wait, that something may have changed: a condition variable for tasks, under
/// tokio's names.
///
/// It carries no value. It has room for one permit: who [notifies](Notify::notify_one) when nobody waits
/// leaves it there, and the next who waits takes it at once. So a task that looks, finds nothing, and waits
/// then misses nothing that was changed before it waits.
///
/// Tasks on any thread, and of any runtime, wait and notify. Nothing is called while its lock is held.
///
/// ```
/// use std::{collections::VecDeque, sync::{Arc, Mutex}};
/// use tourbillon::sync::Notify;
///
/// /// A channel without a bound, for one receiver.
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
/// With several receivers a permit may be used up by one that then finds two values: they have to
/// [`enable`](Notified::enable) their wait before they look.
pub struct Notify(Mutex<State>);

struct State {
    /// Whether somebody notified when nobody waited.
    permit: bool,
    /// Those that wait, by their numbers, and so in the order in which they began to.
    waiting: BTreeMap<u64, Option<Waker>>,
    /// Those that were told, one by one, and have not looked since.
    told: BTreeMap<u64, Pick>,
    /// The last number.
    last: u64,
    /// How often all were told.
    rounds: u64,
}

/// Who of those that wait is told.
#[derive(Clone, Copy, Debug)]
enum Pick {
    First,
    Last,
}

impl State {
    /// Tells one, or leaves a permit. Who is told is to be woken.
    fn tell(&mut self, pick: Pick) -> Option<Waker> {
        let picked = match pick {
            Pick::First => self.waiting.pop_first(),
            Pick::Last => self.waiting.pop_last(),
        };
        match picked {
            Some((number, waker)) => {
                self.told.insert(number, pick);
                waker
            }
            None => {
                self.permit = true;
                None
            }
        }
    }
}

impl Notify {
    /// Nobody waits, and there is no permit.
    pub const fn new() -> Self {
        Self(Mutex::new(State {
            permit: false,
            waiting: BTreeMap::new(),
            told: BTreeMap::new(),
            last: 0,
            rounds: 0,
        }))
    }

    /// The same, as tokio has it for statics; [`new`](Notify::new) does for them, too.
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

    /// Tells the task that has waited longest. If none waits, the next that does goes on at once: one,
    /// however often this is called.
    ///
    /// # Panics
    ///
    /// As the task's waker does; those of runtimes do not. The task counts as told.
    pub fn notify_one(&self) {
        self.notify(Pick::First);
    }

    /// As [`notify_one`](Notify::notify_one), but tells the task that began to wait last.
    ///
    /// # Panics
    ///
    /// As for [`notify_one`](Notify::notify_one).
    pub fn notify_last(&self) {
        self.notify(Pick::Last);
    }

    fn notify(&self, pick: Pick) {
        let waker = lock(&self.0).tell(pick);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Wakes all that wait, and completes each [`notified`](Notify::notified) that was made before
    /// and not yet polled. It neither leaves a permit nor takes one: such a wait leaves the permit
    /// of a [`notify_one`](Notify::notify_one) to the next.
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
    /// As the first waker that does, when all have been woken.
    pub fn notify_waiters(&self) {
        let woken = {
            let mut state = lock(&self.0);
            state.rounds += 1;
            std::mem::take(&mut state.waiting)
        };
        let mut panic = None;
        for waker in woken.into_values().flatten() {
            // Who comes after it waits as rightly.
            if let Err(caught) = catch_unwind(AssertUnwindSafe(|| waker.wake())) {
                panic.get_or_insert(caught);
            }
        }
        if let Some(panic) = panic {
            resume_unwind(panic);
        }
    }

    /// Waits to be told, or takes the permit if there is one.
    ///
    /// Those that wait are told in the order in which they were first polled, or
    /// [enabled](Notified::enable). It can be given up: dropped while it waits it loses its place in
    /// that order and nothing else, and if it had been told already, it tells the next instead.
    pub fn notified(&self) -> Notified<'_> {
        Notified {
            notify: self,
            stage: Stage::New {
                rounds: lock(&self.0).rounds,
            },
        }
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
    /// Made when all had been told so often.
    New {
        rounds: u64,
    },
    /// Waits, or was told and does not know yet.
    Waiting {
        number: u64,
    },
    Over,
}

impl Notified<'_> {
    /// Begins to wait, without a poll; true if it has been told already (or took the permit), and so is
    /// ready.
    ///
    /// For who looks whether there is anything to wait for: what is told from here on is not missed.
    ///
    /// ```
    /// use std::{pin::pin, sync::Mutex};
    /// use tourbillon::sync::Notify;
    ///
    /// async fn take(values: &Mutex<Vec<u32>>, changed: &Notify) -> u32 {
    ///     loop {
    ///         let mut told = pin!(changed.notified());
    ///         told.as_mut().enable();
    ///         if let Some(value) = values.lock().unwrap().pop() {
    ///             return value;
    ///         }
    ///         told.await;
    ///     }
    /// }
    /// # tourbillon::Runtime::new().unwrap().block_on(async {
    /// # assert_eq!(take(&Mutex::new(vec![7]), &Notify::new()).await, 7);
    /// # });
    /// ```
    pub fn enable(mut self: Pin<&mut Self>) -> bool {
        self.look(None).is_ready()
    }

    /// Whether it was told; if not, `waker` is woken when it is.
    fn look(&mut self, waker: Option<&Waker>) -> Poll<()> {
        // Wakers are foreign code: cloned before the lock is taken, and dropped after it.
        let mut cloned = None;
        loop {
            let mut state = lock(&self.notify.0);
            let number = match self.stage {
                Stage::Over => return Poll::Ready(()),
                // Before the permit: a wait that ends with all others leaves it to the next.
                Stage::New { rounds } if rounds != state.rounds => {
                    self.stage = Stage::Over;
                    return Poll::Ready(());
                }
                Stage::New { .. } if std::mem::take(&mut state.permit) => {
                    self.stage = Stage::Over;
                    return Poll::Ready(());
                }
                Stage::New { .. } => {
                    state.last += 1;
                    let number = state.last;
                    state.waiting.insert(number, None);
                    self.stage = Stage::Waiting { number };
                    number
                }
                Stage::Waiting { number } => number,
            };
            let Some(place) = state.waiting.get_mut(&number) else {
                // Told by itself, or with all.
                state.told.remove(&number);
                self.stage = Stage::Over;
                return Poll::Ready(());
            };
            let Some(waker) = waker else {
                return Poll::Pending;
            };
            if place.as_ref().is_some_and(|there| there.will_wake(waker)) {
                return Poll::Pending;
            }
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
}

impl Future for Notified<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        ready!(budget::check(cx));
        ready!(self.look(Some(cx.waker())));
        budget::spend();
        Poll::Ready(())
    }
}

impl Drop for Notified<'_> {
    fn drop(&mut self) {
        let Stage::Waiting { number } = self.stage else {
            return;
        };
        let mut state = lock(&self.notify.0);
        let left = state.waiting.remove(&number);
        // Told by itself, which it passes on, in the way that it was told.
        let next = state.told.remove(&number).and_then(|pick| state.tell(pick));
        // Foreign code runs under no lock.
        drop(state);
        drop(left);
        if let Some(waker) = next {
            waker.wake();
        }
    }
}

impl fmt::Debug for Notified<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Notified")
            .field("stage", &self.stage)
            .finish_non_exhaustive()
    }
}
