//! Cancelling a timer and waiting until its callback has ended.

use std::{error::Error, fmt};

use crate::{
    engine::{block_on::drive, context::entered::is_worker},
    timer::{Cancel, Timer, clock::TimerClock},
};

/// Why [`Timer::cancel_and_wait`] or [`Timer::blocking_cancel_and_wait`] did not wait.
///
/// The timer was cancelled all the same, if that was possible. Each variant holds the answer of
/// [`Timer::cancel`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WaitError {
    /// The call came from the timer's own callback, which would have waited for itself.
    InsideCallback(Cancel),
    /// The calling thread is a worker, which must not block: the callback may be in its own queue.
    /// Use [`Timer::cancel_and_wait`] in a task instead.
    OnWorker(Cancel),
}

impl WaitError {
    /// Returns the answer of the cancellation.
    pub fn cancel(&self) -> Cancel {
        match self {
            Self::InsideCallback(cancel) | Self::OnWorker(cancel) => *cancel,
        }
    }
}

impl fmt::Display for WaitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::InsideCallback(_) => {
                "a callback cannot wait for its own end: use `cancel` there, and wait elsewhere"
            }
            Self::OnWorker(_) => {
                "a worker must not block until a callback has ended: await `cancel_and_wait` in a \
                 task instead"
            }
        })
    }
}

impl Error for WaitError {}

impl<C: TimerClock> Timer<C> {
    /// Cancels the timer, and waits until its callback is not running and will never run again.
    ///
    /// After this, the resources that the callback uses can be taken away. A callback that takes an
    /// outcome has received it by then. (If the timer was built and not started, the callback
    /// receives the outcome when the timer is started.)
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon::{Runtime, timer::Cancel};
    ///
    /// let runtime = Runtime::new().unwrap();
    /// let timer = runtime.handle().every(Duration::from_micros(50), || { /* … */ });
    /// runtime.block_on(async {
    ///     let answer = timer.cancel_and_wait().await.unwrap();
    ///     assert!(matches!(answer, Cancel::Cancelled | Cancel::AfterRun));
    /// });
    /// ```
    ///
    /// # Errors
    ///
    /// Returns [`WaitError::InsideCallback`] if it is awaited inside of the callback itself.
    pub async fn cancel_and_wait(&self) -> Result<Cancel, WaitError> {
        // Cancel first. From here on no new run begins, so the wait below has an end.
        let answer = self.cancel();
        // The runtime had been shut down when the timer was armed, so it has no callback. (One that
        // a full runtime refused may have a callback, which has yet to take the outcome.)
        let Some(timer) = &self.0 else {
            return Ok(answer);
        };
        match timer.ended().await {
            Ok(()) => Ok(answer),
            // The callback would wait for its own end.
            Err(_) => Err(WaitError::InsideCallback(answer)),
        }
    }

    /// Cancels the timer like [`cancel_and_wait`](Timer::cancel_and_wait), and blocks the calling
    /// thread.
    ///
    /// A callback that takes an outcome is called on a worker. So in a
    /// [current-thread](crate::runtime::Builder::new_current_thread) runtime, this waits until
    /// another thread is in [`Runtime::block_on`](crate::Runtime::block_on).
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon::{Runtime, timer::Cancel};
    ///
    /// let runtime = Runtime::new().unwrap();
    /// let timer = runtime.handle().after(Duration::from_secs(1), || unreachable!());
    /// assert_eq!(timer.blocking_cancel_and_wait(), Ok(Cancel::Cancelled));
    /// ```
    ///
    /// # Errors
    ///
    /// Returns an error if the calling thread is inside of the callback itself, or is a worker.
    pub fn blocking_cancel_and_wait(&self) -> Result<Cancel, WaitError> {
        let answer = self.cancel();
        // As above: such a timer has no callback.
        let Some(timer) = &self.0 else {
            return Ok(answer);
        };
        // Check before blocking: both kinds of callers could wait for ever.
        if timer.is_inside() {
            return Err(WaitError::InsideCallback(answer));
        }
        if is_worker() {
            return Err(WaitError::OnWorker(answer));
        }
        // On a paused clock this thread counts as waiting, so time can pass meanwhile.
        match drive(&timer.home().owner().shared, timer.ended()) {
            Ok(()) => Ok(answer),
            Err(_) => Err(WaitError::InsideCallback(answer)),
        }
    }
}
