//! What the network between the hosts does.

use std::{ops::Range, time::Duration};

/// What the network between the hosts does to what they send.
///
/// ```
/// # #[cfg(tourbillon_sim)] {
/// use std::time::Duration;
/// use tourbillon_sim::{Network, Simulation};
///
/// let mut network = Network::new();
/// network.delay(Duration::from_millis(1)..Duration::from_millis(50)).loss(0.01);
/// let mut sim = Simulation::new(1);
/// sim.network(network);
/// # }
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Network {
    pub(crate) delay: Range<u64>,
    pub(crate) loss: f64,
    pub(crate) resets: f64,
    pub(crate) window: usize,
}

impl Default for Network {
    fn default() -> Self {
        Self {
            delay: 50_000..1_000_000,
            loss: 0.0,
            resets: 0.0,
            window: 65_536,
        }
    }
}

/// Returns a range of delays in ns.
#[track_caller]
pub(crate) fn delays(range: Range<Duration>) -> Range<u64> {
    let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    assert!(range.start < range.end, "the range of delays is empty");
    nanos(range.start)..nanos(range.end)
}

/// Checks a part of all.
#[track_caller]
pub(crate) fn part_of_all(part: f64) -> f64 {
    assert!((0.0..=1.0).contains(&part), "{part} is not from 0 to 1");
    part
}

impl Network {
    /// A network that loses nothing, and delays by 50 µs to 1 ms.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets by how much each segment or datagram is delayed. Datagrams overtake each other; the
    /// bytes of a connection do not.
    ///
    /// # Panics
    ///
    /// Panics if the range is empty.
    pub fn delay(&mut self, delay: Range<Duration>) -> &mut Self {
        self.delay = delays(delay);
        self
    }

    /// Sets which part of the datagrams is lost, from 0 to 1. A segment of a connection that is
    /// lost comes 200 ms later, and so does what is behind it.
    ///
    /// # Panics
    ///
    /// Panics if `part` is not from 0 to 1.
    pub fn loss(&mut self, part: f64) -> &mut Self {
        self.loss = part_of_all(part);
        self
    }

    /// Sets which part of the writes to connections resets the connection, from 0 to 1.
    ///
    /// # Panics
    ///
    /// Panics if `part` is not from 0 to 1.
    pub fn resets(&mut self, part: f64) -> &mut Self {
        self.resets = part_of_all(part);
        self
    }

    /// Sets how many bytes of a direction of a connection may be under way or unread. A writer
    /// waits if there are more.
    ///
    /// # Panics
    ///
    /// Panics if `bytes` is 0.
    pub fn window(&mut self, bytes: usize) -> &mut Self {
        assert!(
            bytes > 0,
            "a connection needs a window of at least one byte"
        );
        self.window = bytes;
        self
    }
}
