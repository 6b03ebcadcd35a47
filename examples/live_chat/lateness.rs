//! How late this server's timers are.

use std::{collections::VecDeque, sync::Mutex, time::Duration};

use tourbillon::time::{Instant, interval_at};

const PERIOD: Duration = Duration::from_secs(1);
/// A minute of measurements.
const KEPT: usize = 60;

/// The latest measurements, one for each second.
#[derive(Default)]
pub struct Lateness(Mutex<VecDeque<Duration>>);

impl Lateness {
    /// Measures for ever how late this task runs after each tick.
    pub async fn measure(&self) {
        let mut ticks = interval_at(Instant::now() + PERIOD, PERIOD);
        loop {
            let due = ticks.tick().await;
            let late = due.elapsed();
            let mut measured = self.0.lock().expect("no thread panics with it");
            if measured.len() == KEPT {
                measured.pop_front();
            }
            measured.push_back(late);
        }
    }

    /// Returns the latest measurement and the longest one, or `None` if there is none yet.
    pub fn last_and_worst(&self) -> Option<(Duration, Duration)> {
        let measured = self.0.lock().expect("no thread panics with it");
        Some((*measured.back()?, *measured.iter().max()?))
    }
}
