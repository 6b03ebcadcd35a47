//! Waiting for a thread that will be through in a moment.

/// How many times a thread yields before it sleeps.
#[cfg(not(any(loom, tourbillon_sim)))]
const YIELDS: u32 = 32;
/// How long a thread sleeps then. A batch of updates takes some 10 µs.
#[cfg(not(any(loom, tourbillon_sim)))]
const NAP: std::time::Duration = std::time::Duration::from_micros(50);

/// Waits for another thread, which holds a lock for a few µs and needs a core for that.
///
/// A thread that only yields may wait for ever: a yield of a thread of a real-time class leaves the
/// core to threads of its own priority alone. If the other thread is a normal one of the same core,
/// it never runs. So after some yields in a row the thread sleeps, for a moment each time.
#[derive(Debug, Default)]
pub struct Patience {
    #[cfg(not(any(loom, tourbillon_sim)))]
    yields: u32,
}

impl Patience {
    /// Waits for a moment.
    pub fn wait(&mut self) {
        #[cfg(not(any(loom, tourbillon_sim)))]
        if self.yields == YIELDS {
            return std::thread::sleep(NAP);
        } else {
            self.yields += 1;
        }
        // Models and simulations know no priorities.
        crate::yield_now();
    }

    /// Ends a row of waits.
    pub fn reset(&mut self) {
        *self = Self::default();
    }
}
