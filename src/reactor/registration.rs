//! A descriptor's place in a reactor.

use std::{
    future::poll_fn,
    io,
    os::fd::{AsFd, AsRawFd},
    sync::Arc,
    task::{Context, Poll, ready},
};

use super::{
    Direction, Readiness, Token,
    readiness::{Ready, Waiter},
};
use crate::{
    error::ArmError,
    runtime::{Choice, WorkerShard, with_home},
    task::budget,
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
}

impl<T: AsFd> Registration<T> {
    /// Registers a non-blocking descriptor with the calling worker, or one of the runtime that the
    /// thread is in.
    pub(crate) fn new(source: T) -> io::Result<Self> {
        let home = with_home(Choice::NotAwake, Arc::clone)
            .map_err(ArmError::from)
            .map_err(io::Error::other)?;
        let fd = source.as_fd().as_raw_fd();
        let (token, readiness) = home.owner().reactor.register(fd)?;
        Ok(Self {
            source: Some(source),
            token,
            home,
            readiness,
        })
    }

    pub(crate) fn get(&self) -> &T {
        self.source
            .as_ref()
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
        let wait = || self.readiness.poll(cx, direction);
        self.try_io(cx, direction, operation, used_up, wait)
    }

    fn try_io<R>(
        &self,
        cx: &Context<'_>,
        direction: Direction,
        operation: impl FnMut(&T) -> io::Result<R>,
        used_up: impl Fn(&R) -> bool,
        wait: impl FnMut() -> Poll<io::Result<Ready>>,
    ) -> Poll<io::Result<R>> {
        ready!(budget::check(cx));
        let answer = ready!(self.try_until(direction, operation, used_up, wait));
        budget::spend();
        Poll::Ready(answer)
    }

    fn try_until<R>(
        &self,
        direction: Direction,
        mut operation: impl FnMut(&T) -> io::Result<R>,
        used_up: impl Fn(&R) -> bool,
        mut wait: impl FnMut() -> Poll<io::Result<Ready>>,
    ) -> Poll<io::Result<R>> {
        loop {
            let ready = ready!(wait())?;
            match operation(self.get()) {
                Ok(result) => {
                    if used_up(&result) && !ready.reads_stop_short() {
                        self.readiness.clear(ready, direction);
                    }
                    return Poll::Ready(Ok(result));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.readiness.clear(ready, direction);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }

    /// Waits until an operation may succeed.
    pub(crate) async fn ready(&self, direction: Direction) -> io::Result<()> {
        let mut waiter = Waiter::new(&self.readiness);
        poll_fn(|cx| waiter.poll(cx, direction)).await?;
        Ok(())
    }

    /// As [`Registration::poll_io`], as a future, of which there may be any number.
    pub(crate) async fn io<R>(
        &self,
        direction: Direction,
        mut operation: impl FnMut(&T) -> io::Result<R>,
    ) -> io::Result<R> {
        let mut waiter = Waiter::new(&self.readiness);
        poll_fn(|cx| {
            let wait = || waiter.poll(cx, direction);
            self.try_io(cx, direction, &mut operation, |_| false, wait)
        })
        .await
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
