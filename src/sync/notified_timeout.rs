//! A wait for a notification that has a limit.

use std::time::Duration;

use crate::{
    sync::Notify,
    time::{Elapsed, timeout},
};

impl Notify {
    /// Waits for a notification for at most `duration`. Like [`timeout`], it arms its timer only if
    /// it has to wait.
    ///
    /// A notification that arrives at the last moment counts: the call succeeds, and no permit is
    /// lost.
    ///
    /// # Errors
    ///
    /// Returns [`Elapsed`] if no notification arrived within `duration`, or if the runtime is shut
    /// down.
    ///
    /// # Panics
    ///
    /// Panics if it has to wait outside of a runtime.
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
