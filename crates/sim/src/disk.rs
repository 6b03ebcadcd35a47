//! What the disk of a host does.

use std::{ops::Range, time::Duration};

use crate::network::{delays, part_of_all};

/// What the disk of a host does. See [`Simulation::disk`](crate::Simulation::disk).
///
/// ```
/// # #[cfg(tourbillon_sim)] {
/// use std::time::Duration;
/// use tourbillon_sim::{Disk, Simulation};
///
/// let mut disk = Disk::new();
/// disk.delay(Duration::from_millis(1)..Duration::from_millis(100)).capacity(1_000_000);
/// let mut sim = Simulation::new(1);
/// sim.disk("/var/lib/store", disk);
/// # }
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Disk {
    pub(crate) delay: Range<u64>,
    pub(crate) capacity: u64,
    pub(crate) sync_errors: f64,
}

impl Default for Disk {
    fn default() -> Self {
        Self {
            delay: 100_000..5_000_000,
            capacity: u64::MAX,
            sync_errors: 0.0,
        }
    }
}

impl Disk {
    /// A disk without a limit and without errors, that takes 100 µs to 5 ms to sync a file.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets how long each sync of a file or a directory takes (`File::sync_all`, `sync_data`).
    ///
    /// # Panics
    ///
    /// Panics if the range is empty.
    pub fn delay(&mut self, delay: Range<Duration>) -> &mut Self {
        self.delay = delays(delay);
        self
    }

    /// Sets for how many bytes of files the disk has room. A write beyond that fails with
    /// [`StorageFull`](std::io::ErrorKind::StorageFull).
    pub fn capacity(&mut self, bytes: u64) -> &mut Self {
        self.capacity = bytes;
        self
    }

    /// Sets which part of the syncs fails with the system's error `EIO`, from 0 to 1. As on Linux,
    /// nobody knows what such a sync has written of a file, and the next one does not write it
    /// either, though it is read until the host crashes: the program has to write it again. Each
    /// open file reports the failure once. Names of a directory are written by the next sync.
    ///
    /// # Panics
    ///
    /// Panics if `part` is not from 0 to 1.
    pub fn sync_errors(&mut self, part: f64) -> &mut Self {
        self.sync_errors = part_of_all(part);
        self
    }
}
