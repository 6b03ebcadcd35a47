//! A descriptor's place in a reactor.

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
    },
    error::ArmError,
    reactor::{
        Token,
        readiness::{Direction, Directions, Readiness, Ready, Waiter},
        timeouts::Timeouts,
    },
    util::budget,
};

/// Something with a descriptor, watched by the reactor of the worker that it was made on.
///
/// It stays with that worker, while its task may go elsewhere.
pub(crate) struct Registration<T: AsFd> {
    /// Taken only by [`Registration::into_inner`] and when dropped.
    source: Option<T>,
    token: Token,
    home: Arc<WorkerShard>,
    readiness: Arc<Readiness>,
    timeouts: Timeouts,
}

// As for `Handle`: what it shares changes under locks, in which no user code runs, or is atomic.
impl<T: AsFd + UnwindSafe> UnwindSafe for Registration<T> {}
impl<T: AsFd + RefUnwindSafe> RefUnwindSafe for Registration<T> {}

impl<T: AsFd> Registration<T> {
    /// Registers a non-blocking descriptor with the calling worker, or one of the runtime that the
    /// thread is in.
    pub(crate) fn new(source: T) -> io::Result<Self> {
        Self::with_directions(source, Directions::BOTH).map_err(|(_, error)| error)
    }

    /// As [`Registration::new`], for some directions alone. What fails gives back the source.
    pub(crate) fn with_directions(
        source: T,
        directions: Directions,
    ) -> Result<Self, (T, io::Error)> {
        match with_home(Choice::NotAwake, Arc::clone).map_err(ArmError::from) {
            Ok(home) => Self::on(home, source, directions),
            Err(error) => Err((source, io::Error::other(error))),
        }
    }

    /// As [`Registration::with_directions`], with a certain worker.
    pub(crate) fn on(
        home: Arc<WorkerShard>,
        source: T,
        directions: Directions,
    ) -> Result<Self, (T, io::Error)> {
        let fd = source.as_fd().as_raw_fd();
        match home.owner().reactor.register(fd, directions) {
            Ok((token, readiness)) => Ok(Self {
                source: Some(source),
                token,
                home,
                readiness,
                timeouts: Timeouts::default(),
            }),
            Err(error) => Err((source, error)),
        }
    }

    pub(crate) fn get(&self) -> &T {
        self.source
            .as_ref()
            .expect("only a consuming method takes the source")
    }

    /// What is known of it.
    pub(crate) fn readiness(&self) -> &Readiness {
        &self.readiness
    }

    pub(crate) fn get_mut(&mut self) -> &mut T {
        self.source
            .as_mut()
            .expect("only a consuming method takes the source")
    }

    fn deregister(&mut self) -> Option<T> {
        let source = self.source.take()?;
        self.home
            .owner()
            .reactor
            .deregister(self.token, source.as_fd().as_raw_fd());
        Some(source)
    }

    /// Ends the registration, and gives back the source.
    pub(crate) fn into_inner(mut self) -> T {
        self.deregister()
            .expect("only a consuming method takes the source")
    }

    /// Tries `operation` when the descriptor seems ready, and waits when it turns out not to be. One
    /// task at a time in each direction.
    ///
    /// `used_up` is asked of a success whether it has taken all that there was, so that the next
    /// try can wait at once.
    pub(crate) fn poll_io<R>(
        &self,
        cx: &Context<'_>,
        direction: Direction,
        operation: impl FnMut(&T) -> io::Result<R>,
        used_up: impl Fn(&R) -> bool,
    ) -> Poll<io::Result<R>> {
        let wait = || match self.readiness.poll(cx, direction) {
            Poll::Pending => self.timeouts.poll(cx, direction, &self.home),
            ready => ready,
        };
        self.try_io(cx, direction.into(), operation, used_up, wait)
    }

    /// Waits until the descriptor seems ready. One task at a time in each direction.
    pub(crate) fn poll_ready(
        &self,
        cx: &Context<'_>,
        direction: Direction,
    ) -> Poll<io::Result<Ready>> {
        ready!(budget::check(cx));
        let ready = ready!(self.readiness.poll(cx, direction));
        budget::spend();
        Poll::Ready(ready)
    }

    /// As [`Registration::poll_ready`], as a future, of which there may be any number, for the first
    /// of so many directions.
    pub(crate) async fn ready(&self, directions: impl Into<Directions>) -> io::Result<Ready> {
        let directions = directions.into();
        let mut waiter = Waiter::new(&self.readiness);
        poll_fn(|cx| {
            ready!(budget::check(cx));
            let ready = ready!(waiter.poll(cx, directions));
            budget::spend();
            Poll::Ready(ready)
        })
        .await
    }

    /// As [`Registration::poll_io`], as a future, of which there may be any number.
    pub(crate) async fn io<R>(
        &self,
        directions: impl Into<Directions>,
        mut operation: impl FnMut(&T) -> io::Result<R>,
    ) -> io::Result<R> {
        let directions = directions.into();
        let mut waiter = Waiter::new(&self.readiness);
        let mut timer = None;
        poll_fn(|cx| {
            let wait = || match waiter.poll(cx, directions) {
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

    /// Tries `operation` once, whether or not the descriptor seems ready, and does not wait. Where it
    /// turns out not to be, who waits next waits for an event.
    pub(crate) fn try_once<R>(
        &self,
        directions: impl Into<Directions>,
        operation: impl FnOnce(&T) -> io::Result<R>,
    ) -> io::Result<R> {
        // Before the operation: an event that comes during it is not taken back.
        let ready = self.readiness.now()?;
        let result = operation(self.get());
        let directions = directions.into();
        let blocked = |error| self.clear_if_blocked(error, ready, directions);
        if !result.as_ref().is_err_and(blocked) {
            self.timeouts.over(directions);
        }
        result
    }

    /// Takes back what an operation acted on, but for the end.
    pub(crate) fn clear(&self, ready: Ready, directions: Directions) {
        self.readiness.clear(ready, directions);
    }

    /// Takes back what an operation acted on that would have blocked.
    pub(crate) fn clear_blocked(&self, ready: Ready, directions: Directions) {
        self.readiness.clear_blocked(ready, directions);
    }

    /// Whether `error` says that the descriptor was not ready, which is then taken back.
    fn clear_if_blocked(&self, error: &io::Error, ready: Ready, directions: Directions) -> bool {
        let not_ready = error.kind() == io::ErrorKind::WouldBlock;
        if not_ready {
            self.readiness.clear_blocked(ready, directions);
        }
        not_ready
    }

    fn try_io<R>(
        &self,
        cx: &Context<'_>,
        directions: Directions,
        operation: impl FnMut(&T) -> io::Result<R>,
        used_up: impl Fn(&R) -> bool,
        wait: impl FnMut() -> Poll<io::Result<Ready>>,
    ) -> Poll<io::Result<R>> {
        ready!(budget::check(cx));
        let answer = ready!(self.try_until(directions, operation, used_up, wait));
        budget::spend();
        Poll::Ready(answer)
    }

    fn try_until<R>(
        &self,
        directions: Directions,
        mut operation: impl FnMut(&T) -> io::Result<R>,
        used_up: impl Fn(&R) -> bool,
        mut wait: impl FnMut() -> Poll<io::Result<Ready>>,
    ) -> Poll<io::Result<R>> {
        loop {
            let ready = ready!(wait())?;
            match operation(self.get()) {
                Ok(result) => {
                    self.timeouts.over(directions);
                    if used_up(&result) && !ready.reads_stop_short() {
                        self.readiness.clear(ready, directions);
                    }
                    return Poll::Ready(Ok(result));
                }
                Err(error) if self.clear_if_blocked(&error, ready, directions) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    self.timeouts.over(directions);
                    return Poll::Ready(Err(error));
                }
            }
        }
    }

    /// How long operations in a direction may wait, if that has a limit.
    pub(crate) fn timeout(&self, direction: Direction) -> Option<Duration> {
        self.timeouts.get(direction)
    }

    /// Sets how long operations in a direction may wait. Who waits begins to wait anew.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for zero, as the standard library has it.
    pub(crate) fn set_timeout(
        &self,
        direction: Direction,
        limit: Option<Duration>,
    ) -> io::Result<()> {
        if limit.is_some_and(|limit| limit.is_zero()) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "a timeout of zero: `None` is without one, and the `try_` methods do not wait",
            ));
        }
        self.timeouts.set(direction, limit);
        self.readiness.rouse(direction);
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
