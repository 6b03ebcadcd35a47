//! The clocks of a runtime by a handle.

use std::time::SystemTime;

use crate::{
    clock::{other::OtherClock, wall},
    engine::handle::Handle,
    error::NotPaused,
};

impl Handle {
    /// Returns the time of the runtime's wall clock: that of the system, or once the runtime's
    /// clock was paused, the one that moves with it. See
    /// [`time::wall_clock`](crate::time::wall_clock).
    ///
    /// ```
    /// use std::time::{Duration, SystemTime};
    ///
    /// let runtime = tourbillon::Runtime::new().unwrap();
    /// let before = SystemTime::now();
    /// assert!(runtime.handle().wall_clock() >= before);
    ///
    /// runtime.handle().pause_clock();
    /// let tomorrow = before + Duration::from_secs(24 * 3600);
    /// runtime.handle().set_wall_clock(tomorrow).unwrap();
    /// assert_eq!(runtime.handle().wall_clock(), tomorrow);
    /// ```
    pub fn wall_clock(&self) -> SystemTime {
        wall::time(self.shared().clock.other(OtherClock::Wall))
    }

    /// Pauses the runtime's clock, for tests: see [`time::pause`](crate::time::paused::pause). Does
    /// nothing if the clock is paused already.
    ///
    /// A caller outside of the runtime does not wait for the workers: a callback that began before
    /// this call may see the time advance once more.
    pub fn pause_clock(&self) {
        self.shared().quiescence.pause(self.shared());
    }

    /// Sets the runtime's wall clock while its clock is paused: see
    /// [`time::set_wall_clock`](crate::time::paused::set_wall_clock).
    ///
    /// # Errors
    ///
    /// Returns [`NotPaused`] if the clock is not paused.
    pub fn set_wall_clock(&self, time: SystemTime) -> Result<(), NotPaused> {
        let set = self
            .shared()
            .quiescence
            .set_wall(self.shared(), wall::nanos(time));
        if set { Ok(()) } else { Err(NotPaused) }
    }

    /// Resumes the runtime's clock from the time that it shows: see
    /// [`time::resume`](crate::time::paused::resume). Does nothing if the clock is running already.
    pub fn resume_clock(&self) {
        self.shared().quiescence.resume(self.shared());
    }
}
