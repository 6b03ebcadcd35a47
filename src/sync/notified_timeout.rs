//! A wait for a notification that has a limit.

use std::time::Duration;

use crate::{
    sync::Notify,
    time::{Elapsed, timeout},
};

impl Notify {
    /// Waits to be notified, for `duration` at most: a condition variable's wait with a limit.
    ///
    /// Like [`timeout`], it arms its timer only if it has to wait.
    ///
    /// Who is told at the last moment is told: it does not elapse, and no permit is lost.
    ///
    /// # Errors
    ///
    /// [`Elapsed`], if nobody has told it for so long (or the runtime is shut down).
    ///
    /// # Panics
    ///
    /// If it has to wait outside of a runtime.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon::sync::Notify;
    ///
    /// # tourbillon::Runtime::new().unwrap().block_on(async {
    /// let notify = Notify::new();
    /// let brief = Duration::from_millis(1);
    /// assert!(notify.notified_timeout(brief).await.is_err());
    /// notify.notify_one();
    /// assert!(notify.notified_timeout(brief).await.is_ok());
    /// # });
    /// ```
    pub async fn notified_timeout(&self, duration: Duration) -> Result<(), Elapsed> {
        timeout(duration, self.notified()).await
    }
}
