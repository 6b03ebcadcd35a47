//! Options of the flight recorder.

use std::time::Duration;

use crate::{api::builder::Builder, engine::recorder::Recording, util::nanos::nanos};

/// The flight recorder.
impl Builder {
    /// Sets how much the [flight recorder](crate::Handle::flight_recorder) records. The default is
    /// [`Recording::Light`].
    ///
    /// ```
    /// # fn main() -> Result<(), tourbillon::BuildError> {
    /// use tourbillon::{flight::Recording, runtime::Builder};
    ///
    /// let runtime = Builder::new().flight_recorder(Recording::Full).build()?;
    /// assert_eq!(runtime.handle().flight_recorder().recording(), Recording::Full);
    /// # Ok(())
    /// # }
    /// ```
    pub fn flight_recorder(&mut self, recording: Recording) -> &mut Self {
        self.config.recording = recording;
        self
    }

    /// Sets how many events the flight recorder keeps for each worker: the last ones. It rounds up
    /// to one less than a power of two. The default is 65,535, and the most is 16,777,215.
    ///
    /// An event takes 16 bytes, and a timer that runs takes up to four events. The memory becomes
    /// resident as the ring fills: in light mode, only as timers are late.
    pub fn flight_recorder_events(&mut self, events: usize) -> &mut Self {
        self.config.recorded_events = events.min((1 << 24) - 1);
        self
    }

    /// Sets from which lateness of a timer on the flight recorder keeps a copy of what happened
    /// before. The default is 100 ms. `Duration::MAX` turns this off.
    ///
    /// With feature `tracing` such a timer is also a warning, at most one a second, of target
    /// `tourbillon::late`.
    ///
    /// A [stall](Builder::stall_threshold) also makes a copy. The recorder makes one copy a second
    /// at most, and keeps the last four: see
    /// [`FlightRecorder::kept`](crate::flight::FlightRecorder::kept).
    pub fn late_threshold(&mut self, late: Duration) -> &mut Self {
        self.config.late_threshold = nanos(late);
        self
    }
}
