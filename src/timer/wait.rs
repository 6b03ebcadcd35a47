//! Cancelling a timer, and waiting until its callback is certainly not running.

use std::{error::Error, fmt};

use crate::{
    engine::{block_on::drive, context::entered::is_worker, core::TimerOwner as _},
    timer::{Cancel, Timer, clock::TimerClock},
};

/// Why [`Timer::cancel_and_wait`] or [`Timer::blocking_cancel_and_wait`] did not wait. The timer was
/// cancelled all the same, if it could be: each has the answer of [`Timer::cancel`] with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WaitError {
    /// It was called inside of the timer's own callback, which would have waited for itself.
    InsideCallback(Cancel),
    /// The calling thread is a worker, which must not block: what it would wait for may stand in
    /// its own queue. Use the asynchronous one, in a task.
    OnWorker(Cancel),
}

impl WaitError {
    /// What the cancellation came to.
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
    /// Cancels the timer, and waits until its callback is certainly not running and will not be
    /// called any more; one that takes an outcome has been told it then. What the callback uses can
    /// be taken away after this.
    ///
    /// (A timer that was not started, and whose callback takes an outcome, is told when it is.)
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon::{Cancel, Runtime};
    ///
    /// let runtime = Runtime::new().unwrap();
    /// let timer = runtime.every(Duration::from_micros(50), || { /* … */ });
    /// runtime.block_on(async {
    ///     let answer = timer.cancel_and_wait().await.unwrap();
    ///     assert!(matches!(answer, Cancel::Cancelled | Cancel::AfterRun));
    /// });
    /// ```
    ///
    /// # Errors
    ///
    /// If it is awaited inside of the callback itself.
    pub async fn cancel_and_wait(&self) -> Result<Cancel, WaitError> {
        let answer = self.cancel();
        let Some(timer) = &self.0 else {
            return Ok(answer);
        };
        match timer.ended().await {
            Ok(()) => Ok(answer),
            Err(_) => Err(WaitError::InsideCallback(answer)),
        }
    }

    /// As [`cancel_and_wait`](Timer::cancel_and_wait), blocking the calling thread.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon::{Cancel, Runtime};
    ///
    /// let runtime = Runtime::new().unwrap();
    /// let timer = runtime.after(Duration::from_secs(1), || unreachable!());
    /// assert_eq!(timer.blocking_cancel_and_wait(), Ok(Cancel::Cancelled));
    /// ```
    ///
    /// # Errors
    ///
    /// If the calling thread is inside of the callback itself, or a worker.
    pub fn blocking_cancel_and_wait(&self) -> Result<Cancel, WaitError> {
        let answer = self.cancel();
        let Some(timer) = &self.0 else {
            return Ok(answer);
        };
        if timer.is_inside() {
            return Err(WaitError::InsideCallback(answer));
        }
        if is_worker() {
            return Err(WaitError::OnWorker(answer));
        }
        match drive(timer.home().owner().shared(), timer.ended()) {
            Ok(()) => Ok(answer),
            Err(_) => Err(WaitError::InsideCallback(answer)),
        }
    }
}
