//! Samples of the workers' activity. They show where time goes without any worker reading a clock.

use std::sync::Mutex;

use serde::Serialize;
use tourbillon::{Handle, metrics::Activity};
use tourbillon_sync::lock;

/// The number of samples of a worker per activity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Samples {
    running: u64,
    firing: u64,
    polling: u64,
    stealing: u64,
    parked: u64,
}

impl Samples {
    fn count(&mut self, activity: Activity) {
        let count = match activity {
            Activity::Running => &mut self.running,
            Activity::Firing => &mut self.firing,
            Activity::Polling => &mut self.polling,
            Activity::Stealing => &mut self.stealing,
            Activity::Parked => &mut self.parked,
            _ => return,
        };
        *count += 1;
    }
}

/// The samples of all workers, by worker number.
#[derive(Debug, Default)]
pub(crate) struct Sampler(Mutex<Vec<Samples>>);

impl Sampler {
    /// Takes one sample of all workers.
    pub(crate) fn sample(&self, handle: &Handle) {
        let activities = handle.activities();
        let mut samples = lock(&self.0);
        // A runtime that has ended has no workers. Keep their samples.
        if samples.len() < activities.len() {
            samples.resize(activities.len(), Samples::default());
        }
        for (samples, (activity, _)) in samples.iter_mut().zip(activities) {
            samples.count(activity);
        }
    }

    pub(crate) fn samples(&self) -> Vec<Samples> {
        lock(&self.0).clone()
    }
}
