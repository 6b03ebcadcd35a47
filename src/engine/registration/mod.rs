//! The registration of a descriptor with a reactor.

mod timeouts;

use std::{
    future::poll_fn,
    io,
    os::fd::{AsFd, AsRawFd},
    panic::{RefUnwindSafe, UnwindSafe},
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use crate::{
    engine::{
        context::placement::{Choice, with_home},
        core::WorkerShard,
        registration::timeouts::Timeouts,
    },
    error::ArmError,
    reactor::{
        Token,
        bits::{Direction, Directions, Ready},
        readiness::{Readiness, Waiter},
    },
    util::{budget, contained::contained},
};

/// A value with a descriptor, watched by the reactor of the worker that creates it.
///
/// It stays with this worker even if its task moves to another one.
pub(crate) struct Registration<T: AsFd> {
    /// `None` only after [`Registration::into_inner`], and during drop.
    source: Option<T>,
    token: Token,
    home: Arc<WorkerShard>,
    readiness: Arc<Readiness>,
    timeouts: Timeouts,
}

// Panic safety: like `Handle`, all shared state is atomic or changes under locks, and no user code
// runs under a lock.
impl<T: AsFd + UnwindSafe> UnwindSafe for Registration<T> {}
impl<T: AsFd + RefUnwindSafe> RefUnwindSafe for Registration<T> {}

impl<T: AsFd> Registration<T> {
    /// Registers a non-blocking descriptor with the calling worker, or with a worker of the runtime
    /// that the thread is in.
    pub(crate) fn new(source: T) -> io::Result<Self> {
        Self::with_directions(source, Directions::BOTH).map_err(|(_, error)| error)
    }

    /// Registers a descriptor for some directions alone. An error returns the source.
    pub(crate) fn with_directions(
        source: T,
        directions: Directions,
    ) -> Result<Self, (T, io::Error)> {
        // Only the chosen worker polls this descriptor, so prefer one that is surely not stuck.
        match with_home(Choice::NotAwake, Arc::clone).map_err(ArmError::from) {
            Ok(home) => Self::on(home, source, directions),
            Err(error) => Err((source, io::Error::other(error))),
        }
    }

    /// Registers a descriptor with a given worker. An error returns the source.
    pub(crate) fn on(
        home: Arc<WorkerShard>,
        source: T,
        directions: Directions,
    ) -> Result<Self, (T, io::Error)> {
        let fd = source.as_fd().as_raw_fd();
        match home.owner().reactor.register(fd, directions) {
            Ok((token, readiness)) => {
                #[cfg(all(feature = "facade", tokio_unstable))]
                home.owner().shared.unstable.registered.add(1);
                Ok(Self {
                    source: Some(source),
                    token,
                    home,
                    readiness,
                    timeouts: Timeouts::default(),
                })
            }
            // The caller gets the source back, and may use it elsewhere.
            Err(error) => Err((source, error)),
        }
    }

    pub(crate) fn get(&self) -> &T {
        self.source
            .as_ref()
            .expect("only a consuming method takes the source")
    }

    /// Takes `directions` for ready, so that the first operation tries at once. Without this it
    /// waits until the worker asks epoll, which is after the current job at the earliest.
    pub(crate) fn assuming(self, directions: impl Into<Directions>) -> Self {
        self.readiness.assume(directions.into());
        self
    }

    /// Returns the recorded readiness.
    pub(crate) fn readiness(&self) -> &Readiness {
        &self.readiness
    }

    pub(crate) fn get_mut(&mut self) -> &mut T {
        self.source
            .as_mut()
            .expect("only a consuming method takes the source")
    }

    fn deregister(&mut self) -> Option<T> {
        // `into_inner` has taken the source before the drop.
        let source = self.source.take()?;
        let mut fd = None;
        // `as_fd` is user code, and may panic if the descriptor is gone. This may be a destructor.
        contained(|| fd = Some(source.as_fd().as_raw_fd()));
        self.home.owner().reactor.deregister(self.token, fd);
        #[cfg(all(feature = "facade", tokio_unstable))]
        self.home.owner().shared.unstable.deregistered.add(1);
        Some(source)
    }

    /// Ends the registration, and gives back the source.
    pub(crate) fn into_inner(mut self) -> T {
        self.deregister()
            .expect("only a consuming method takes the source")
    }

    /// Runs `operation` when the descriptor seems ready, and waits each time it returns
    /// `WouldBlock`. One task at a time per direction.
    ///
    /// `used_up` tells of a success whether it exhausted the descriptor. If so, the next operation
    /// waits without a system call.
    #[inline]
    pub(crate) fn poll_io<R>(
        &self,
        cx: &Context<'_>,
        direction: Direction,
        operation: impl FnMut(&T) -> io::Result<R>,
        used_up: impl Fn(&R) -> bool,
    ) -> Poll<io::Result<R>> {
        // Ask for the time limit only if the descriptor is not ready: an operation that need not
        // wait touches no timer.
        let wait = |_| match self.readiness.poll(cx, direction) {
            Poll::Pending => self.timeouts.poll(cx, direction, &self.home),
            ready => ready,
        };
        self.try_io(cx, direction.into(), operation, used_up, wait)
    }

    /// Waits until the descriptor seems ready. One task at a time per direction.
    pub(crate) fn poll_ready(
        &self,
        cx: &Context<'_>,
        direction: Direction,
    ) -> Poll<io::Result<Ready>> {
        ready!(budget::check(cx));
        // A wait for readiness alone has no time limit.
        let ready = ready!(self.readiness.poll(cx, direction));
        budget::spend();
        Poll::Ready(ready)
    }

    /// Waits until the descriptor seems ready in at least one of `directions`. Any number of tasks
    /// may wait.
    ///
    /// The future keeps no reference to the value, so it is `Send` although the value may not be
    /// `Sync`.
    pub(crate) fn ready(
        &self,
        directions: impl Into<Directions>,
    ) -> impl Future<Output = io::Result<Ready>> {
        let directions = directions.into();
        let mut waiter = Waiter::new(&self.readiness);
        poll_fn(move |cx| {
            ready!(budget::check(cx));
            let ready = ready!(waiter.poll(cx, directions));
            budget::spend();
            Poll::Ready(ready)
        })
    }

    /// Runs `operation` like [`Registration::poll_io`]. Any number of tasks may wait.
    pub(crate) async fn io<R>(
        &self,
        directions: impl Into<Directions>,
        mut operation: impl FnMut(&T) -> io::Result<R>,
    ) -> io::Result<R> {
        let directions = directions.into();
        let mut waiter = Waiter::new(&self.readiness);
        // The waiter and the timer belong to this future. Dropping it ends its wait.
        let mut timer = None;
        poll_fn(|cx| {
            let wait = |blocked| match waiter.poll_after(cx, directions, blocked) {
                Poll::Pending => {
                    let timeouts = &self.timeouts;
                    timeouts.poll_own(&mut timer, cx, directions, &self.home)
                }
                ready => ready,
            };
            self.try_io(cx, directions, &mut operation, |_| false, wait)
        })
        .await
    }

    /// Runs `operation` once without waiting, whatever the recorded readiness. If it would block,
    /// the next wait is for a new event.
    pub(crate) fn try_once<R>(
        &self,
        directions: impl Into<Directions>,
        operation: impl FnOnce(&T) -> io::Result<R>,
    ) -> io::Result<R> {
        // Read before the operation: an event that arrives during it must not be cleared.
        let ready = self.readiness.now()?;
        let result = operation(self.get());
        let directions = directions.into();
        let blocked = |error| self.clear_if_blocked(error, ready, directions);
        // Any result but `WouldBlock` ends a wait in progress, so the time limit starts anew.
        if !result.as_ref().is_err_and(blocked) {
            self.timeouts.end_wait(directions);
        }
        result
    }

    /// Clears the readiness that an operation acted on, except for the end of the stream.
    pub(crate) fn clear(&self, ready: Ready, directions: Directions) {
        self.readiness.clear(ready, directions);
    }

    /// Clears the readiness that an operation acted on, after it returned `WouldBlock`.
    pub(crate) fn clear_blocked(&self, ready: Ready, directions: Directions) {
        self.readiness.clear_blocked(ready, directions);
    }

    /// On `WouldBlock`, clears the readiness and returns `true`.
    fn clear_if_blocked(&self, error: &io::Error, ready: Ready, directions: Directions) -> bool {
        let not_ready = error.kind() == io::ErrorKind::WouldBlock;
        if not_ready {
            self.readiness.clear_blocked(ready, directions);
        }
        not_ready
    }

    /// Charges the operation to the task's budget. See [`Registration::try_until`].
    #[inline]
    fn try_io<R>(
        &self,
        cx: &Context<'_>,
        directions: Directions,
        operation: impl FnMut(&T) -> io::Result<R>,
        used_up: impl Fn(&R) -> bool,
        wait: impl FnMut(Option<Ready>) -> Poll<io::Result<Ready>>,
    ) -> Poll<io::Result<R>> {
        ready!(budget::check(cx));
        // The budget was checked before the operation: a refused task must not take data that it
        // cannot return.
        let answer = ready!(self.try_until(directions, operation, used_up, wait));
        budget::spend();
        Poll::Ready(answer)
    }

    /// Alternates between `wait` and `operation` until the operation returns anything but
    /// `WouldBlock`. `wait` gets the readiness with which the operation would block.
    #[inline]
    fn try_until<R>(
        &self,
        directions: Directions,
        mut operation: impl FnMut(&T) -> io::Result<R>,
        used_up: impl Fn(&R) -> bool,
        mut wait: impl FnMut(Option<Ready>) -> Poll<io::Result<Ready>>,
    ) -> Poll<io::Result<R>> {
        let mut blocked = None;
        loop {
            let ready = ready!(wait(blocked))?;
            match operation(self.get()) {
                Ok(result) => {
                    // The operation is over: the next one that waits gets the full time.
                    self.timeouts.end_wait(directions);
                    // With urgent data in the queue, a partial read does not mean that it is empty.
                    if used_up(&result) && !ready.reads_stop_short() {
                        self.readiness.clear(ready, directions);
                    }
                    return Poll::Ready(Ok(result));
                }
                // The readiness is cleared. Wait again: an event may have arrived meanwhile.
                Err(error) if self.clear_if_blocked(&error, ready, directions) => {
                    blocked = Some(ready);
                }
                // A signal came first. The readiness is still recorded, so the operation runs again
                // at once.
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    self.timeouts.end_wait(directions);
                    return Poll::Ready(Err(error));
                }
            }
        }
    }

    /// Returns the time limit of operations in a direction, if there is one.
    pub(crate) fn timeout(&self, direction: Direction) -> Option<Duration> {
        self.timeouts.get(direction)
    }

    /// Sets the time limit of operations in a direction. Tasks that wait start their wait anew.
    ///
    /// # Errors
    ///
    /// Returns `InvalidInput` for zero, like the standard library.
    pub(crate) fn set_timeout(
        &self,
        direction: Direction,
        limit: Option<Duration>,
    ) -> io::Result<()> {
        if limit.is_some_and(|limit| limit.is_zero()) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "a timeout of zero: use `None` for no limit, or a `try_` method to not wait",
            ));
        }
        self.timeouts.set(direction, limit);
        // Tasks that wait have a timer for the old limit, or none. They poll again and take the new
        // one.
        self.readiness.wake_all(direction);
        Ok(())
    }
}

impl<T: AsFd> Drop for Registration<T> {
    fn drop(&mut self) {
        drop(self.deregister());
    }
}

impl<T: AsFd + std::fmt::Debug> std::fmt::Debug for Registration<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.get().fmt(f)
    }
}
