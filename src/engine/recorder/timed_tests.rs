//! What a worker records of its jobs while it times each of them.

use std::time::Duration;

use tourbillon_support::{eventually, spin};

use crate::{
    api::{builder::Builder, runtime::Runtime},
    engine::recorder::event::Event,
    task::spawn,
};

const SHORT: Duration = Duration::from_micros(20);
const LONG: Duration = Duration::from_millis(5);

/// Returns a runtime whose only worker times each of its jobs.
fn timed() -> Runtime {
    let runtime = Builder::new()
        .worker_threads(1)
        .rescue_latency(Duration::MAX)
        .build()
        .unwrap();
    let shared = runtime.handle().shared();
    shared.each_core(|core| core.track.time_jobs(u64::MAX));
    runtime
}

async fn short() {
    spin(SHORT);
}

/// Has the worker run forty short jobs in a row, and then returns whether one of the recorded turns
/// is such that `is_it` says so: of its jobs, its length, and the name of its last job.
fn has_turn(runtime: &Runtime, is_it: impl Fn(u64, Duration, Option<&str>) -> bool) -> bool {
    let jobs = async {
        let spawned: Vec<_> = (0..40).map(|_| spawn(short())).collect();
        for task in spawned {
            task.await.unwrap();
        }
    };
    runtime.block_on(runtime.spawn(jobs)).unwrap();
    let snapshot = runtime.handle().flight_recorder().snapshot();
    let mut events = snapshot.tracks.iter().flat_map(|track| &track.events);
    events.any(|(_, event)| match event {
        Event::Turn {
            took, jobs, last, ..
        } => is_it(
            *jobs,
            Duration::from_nanos(*took),
            last.as_ref().map(|job| job.name),
        ),
        _ => false,
    })
}

/// A timer that waited for many short jobs finds them in the record.
#[test]
fn short_jobs_are_recorded_together() {
    let runtime = timed();
    eventually("a turn of many short jobs is recorded", || {
        has_turn(&runtime, |jobs, took, _| jobs >= 20 && took >= 20 * SHORT)
    });
}

#[test]
fn a_long_job_is_recorded_apart_from_the_short_ones_before_it() {
    async fn long() {
        spin(LONG);
    }
    let runtime = timed();
    eventually("both are recorded", || {
        let jobs = async {
            for _ in 0..30 {
                spawn(short());
            }
            spawn(long()).await.unwrap();
        };
        runtime.block_on(runtime.spawn(jobs)).unwrap();
        let is_long = |jobs: u64, took, last: Option<&str>| {
            jobs == 1 && took >= LONG && last.is_some_and(|name| name.contains("long"))
        };
        // The jobs before it are not called by its name.
        let are_short =
            |jobs: u64, took, last: Option<&str>| jobs >= 20 && took < LONG && last.is_none();
        has_turn(&runtime, is_long) && has_turn(&runtime, are_short)
    });
}
