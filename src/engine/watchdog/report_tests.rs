//! Unit tests of stall reports: fake times and jobs, and one stuck runtime.

use std::{
    panic::Location,
    sync::{
        atomic::{AtomicBool, Ordering::SeqCst},
        mpsc,
    },
    thread::{self, ThreadId},
    time::Duration,
};

use tourbillon_shards::TypeName;

use super::*;
use crate::{
    api::{builder::Builder, runtime::Runtime},
    engine::watchdog::watch::Watch,
    metrics::{
        activity::{Activity, JobName, JobRef},
        spawned::Spawned,
    },
    sys::sync::atomic::Ordering::Relaxed,
};

const THRESHOLD: u64 = 100;

fn name() -> &'static TypeName {
    TypeName::of::<Option<u8>>()
}

fn other() -> &'static TypeName {
    TypeName::of::<u16>()
}

fn look(watch: &Watch, now: u64) -> Option<Stall> {
    watch.look(3, THRESHOLD, now)
}

fn away(watch: &Watch, from: (u64, u64), to: (u64, u64)) -> Option<Stall> {
    let in_loop = |(at, jobs)| InLoop { at, jobs };
    watch.away(3, THRESHOLD, in_loop(from), in_loop(to))
}

#[test]
fn a_long_job_is_reported_once() {
    let watch = Watch::new();
    let here = Location::caller();
    watch.begin(7, name(), Some(Spawned::at(here)));
    assert!(
        look(&watch, 1_000).is_none(),
        "the job may have begun just now"
    );
    assert!(look(&watch, 1_099).is_none());
    let stall = look(&watch, 1_100).unwrap();
    assert_eq!((stall.worker, stall.jobs, stall.is_running), (3, 1, true));
    assert_eq!(stall.elapsed, Duration::from_nanos(100));
    assert_eq!(
        (stall.job, stall.spawned),
        ("core::option::Option<u8>", Some(here))
    );
    assert!(look(&watch, 1_101).is_none());
    assert!(look(&watch, 9_000).is_none());
    // The worker does not report it either, when it comes back.
    watch.end();
    assert!(away(&watch, (900, 6), (9_000, 7)).is_none());
    watch.begin(8, other(), None);
    assert!(look(&watch, 9_001).is_none());
    let stall = look(&watch, 9_101).unwrap();
    assert_eq!((stall.job, stall.spawned), ("u16", None));
}

#[test]
fn jobs_that_change_are_not_reported() {
    let watch = Watch::new();
    assert!(look(&watch, 0).is_none(), "no job has run");
    assert!(look(&watch, 1_000).is_none());
    for number in 1..10 {
        watch.begin(number, name(), None);
        assert!(look(&watch, number * THRESHOLD).is_none());
        assert!(look(&watch, number * THRESHOLD + 99).is_none());
    }
    // The worker is back in its loop, and in no job.
    watch.end();
    assert!(look(&watch, 1_200).is_none());
}

#[test]
fn a_look_with_an_older_time_reports_nothing() {
    let watch = Watch::new();
    watch.begin(1, name(), None);
    assert!(look(&watch, 1_000).is_none());
    assert!(look(&watch, 900).is_none(), "an older time, seen later");
    assert!(look(&watch, 1_100).is_some());
}

#[test]
fn a_look_during_another_look_reports_nothing() {
    let watch = Watch::new();
    watch.begin(1, name(), None);
    assert!(look(&watch, 0).is_none());
    let held = watch.seen.lock().unwrap();
    assert!(look(&watch, 1_000).is_none());
    drop(held);
    assert!(look(&watch, 1_000).is_some());
}

#[test]
fn the_worker_reports_a_long_job_when_it_comes_back() {
    let watch = Watch::new();
    watch.begin(1, name(), None);
    watch.end();
    assert!(
        away(&watch, (1_000, 0), (1_099, 1)).is_none(),
        "below the threshold"
    );
    let stall = away(&watch, (1_000, 0), (1_100, 1)).unwrap();
    assert_eq!((stall.job, stall.jobs), ("core::option::Option<u8>", 1));
    assert!(!stall.is_running);
    assert!(away(&watch, (1_100, 1), (9_000, 1)).is_none(), "no job ran");
    // Of several jobs, the last one is named.
    for number in 2..=5 {
        watch.begin(number, other(), None);
    }
    watch.end();
    let stall = away(&watch, (9_000, 1), (9_200, 5)).unwrap();
    assert_eq!((stall.job, stall.jobs), ("u16", 4));
}

#[test]
fn the_worker_does_not_report_again_what_a_peer_has_reported() {
    let watch = Watch::new();
    watch.begin(4, name(), None);
    assert!(look(&watch, 1_000).is_none());
    assert!(look(&watch, 1_200).is_some());
    watch.begin(5, other(), None);
    watch.end();
    assert!(away(&watch, (900, 3), (1_300, 5)).is_none());
    // The earlier report does not suppress a later stall.
    watch.begin(6, other(), None);
    watch.end();
    assert!(away(&watch, (1_300, 5), (1_500, 6)).is_some());
}

#[test]
fn a_new_name_applies_to_the_present_job_only() {
    let watch = Watch::new();
    watch.begin(1, other(), None);
    watch.rename(name());
    assert!(look(&watch, 0).is_none());
    assert_eq!(look(&watch, 100).unwrap().job, "core::option::Option<u8>");
    watch.begin(2, other(), None);
    assert!(look(&watch, 200).is_none());
    assert_eq!(look(&watch, 300).unwrap().job, "u16");
}

/// Returns a runtime whose one worker is in a job until the sender is dropped, and a receiver of
/// its stalls with the threads that report them. Tests reach the threshold of an hour with fake
/// times only.
fn stuck(threshold: Duration) -> (Runtime, mpsc::Sender<()>, mpsc::Receiver<(Stall, ThreadId)>) {
    let (sender, stalls) = mpsc::channel();
    let mut builder = Builder::new();
    builder.worker_threads(1).stall_threshold(threshold);
    builder.on_stall(move |stall| {
        let _ = sender.send((stall.clone(), thread::current().id()));
    });
    let runtime = builder.build().unwrap();
    let (begun, has_begun) = mpsc::channel();
    let (free, until) = mpsc::channel();
    runtime.spawn(async move {
        begun.send(()).unwrap();
        let _ = until.recv();
    });
    has_begun.recv().unwrap();
    (runtime, free, stalls)
}

const HOUR: u64 = 3_600_000_000_000;

#[test]
fn a_report_calls_the_hook_and_counts() {
    let (runtime, free, stalls) = stuck(Duration::from_nanos(HOUR));
    let workers = runtime.handle().shared().workers();
    let core = workers[0].owner();
    assert!(super::look(core, 5).is_none());
    assert!(super::look(core, HOUR + 4).is_none());
    assert_eq!(runtime.metrics().total().stalls(), 0);
    report(core, &super::look(core, HOUR + 5).unwrap());
    assert!(super::look(core, 3 * HOUR).is_none());
    let (stall, thread) = stalls.try_recv().unwrap();
    assert_eq!(thread, thread::current().id());
    assert_eq!((stall.worker, stall.jobs, stall.is_running), (0, 1, true));
    assert_eq!(stall.elapsed, Duration::from_nanos(HOUR));
    assert_eq!(stall.spawned.unwrap().file(), file!());
    assert!(stalls.try_recv().is_err());
    assert_eq!(runtime.metrics().workers()[0].counts.stalls, 1);
    drop(free);
}

#[test]
fn without_a_threshold_nothing_is_reported() {
    let (runtime, free, stalls) = stuck(Duration::MAX);
    let workers = runtime.handle().shared().workers();
    for now in [0, HOUR, u64::MAX - 1, u64::MAX] {
        assert!(super::look(workers[0].owner(), now).is_none());
    }
    assert!(stalls.try_recv().is_err());
    drop(free);
}

#[test]
fn a_worker_that_changes_jobs_is_seen_in_a_job() {
    let watch = Watch::new();
    let here = Location::caller();
    assert_eq!(watch.activity(), (Activity::Polling, None));
    watch.searches(true);
    assert_eq!(watch.activity(), (Activity::Stealing, None));
    watch.begin(1, name(), Some(Spawned::at(here)));
    let (activity, job) = watch.activity();
    assert_eq!(
        (activity, job.unwrap().name),
        (Activity::Running, name().get())
    );
    // `begin` has published the number of the next job, but not its name.
    watch.job.begun.store(2, Relaxed);
    assert_eq!(watch.activity(), (Activity::Running, None));
    watch.begin(2, other(), None);
    assert_eq!(watch.activity().0, Activity::Firing);
    watch.job.begun.store(3, Relaxed);
    assert_eq!(watch.activity(), (Activity::Firing, None));
    watch.end();
    assert_eq!(watch.activity(), (Activity::Stealing, None));
}

#[test]
fn a_name_is_read_with_its_own_number_only() {
    let watch = Watch::new();
    let (here, done) = (Location::caller(), AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| {
            for number in 1..200_000 {
                match number % 2 {
                    0 => watch.begin(number, name(), None),
                    _ => watch.begin(number, other(), Some(Spawned::at(here))),
                }
                if number % 7 == 0 {
                    watch.end();
                }
            }
            done.store(true, SeqCst);
        });
        while !done.load(SeqCst) {
            let Some(number) = watch.number() else {
                continue;
            };
            match watch.job_of(number).map(JobRef::name) {
                Some(JobName { name: job, spawned }) if number % 2 == 0 => {
                    assert_eq!((job, spawned), (name().get(), None));
                }
                Some(job) => assert_eq!((job.name, job.spawned), ("u16", Some(here))),
                None => {}
            }
        }
    });
}

#[test]
fn a_stall_is_displayed_as_one_line() {
    let here = Location::caller();
    let mut stall = Stall {
        worker: 2,
        is_helper: false,
        job: "shop::expire",
        spawned: None,
        elapsed: Duration::from_micros(312_040),
        is_running: false,
        jobs: 1,
        origin: None,
    };
    assert_eq!(
        stall.to_string(),
        "worker 2 was stuck in callback shop::expire, for 312.0ms"
    );
    stall.jobs = 9;
    assert_eq!(
        stall.to_string(),
        "worker 2 was away for 312.0ms and ran 9 jobs, the last of them callback shop::expire"
    );
    (stall.jobs, stall.is_running, stall.spawned) = (1, true, Some(here));
    assert_eq!(
        stall.to_string(),
        format!("worker 2 is stuck in task shop::expire (spawned at {here}), for 312.0ms so far")
    );
    (stall.is_helper, stall.spawned, stall.is_running) = (true, None, false);
    assert_eq!(
        stall.to_string(),
        "helper 2 was stuck in callback shop::expire, for 312.0ms"
    );
}
