//! Unit tests of stall reports: fake times and jobs, and one stuck runtime.

use std::{
    panic::Location,
    sync::{
        Mutex,
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
        label::Label,
        spawned::Spawned,
    },
    sys::sync::atomic::Ordering::Relaxed,
    util::lock::lock,
};

const THRESHOLD: u64 = 100;

fn name() -> &'static TypeName {
    TypeName::of::<Option<u8>>()
}

fn other() -> &'static TypeName {
    TypeName::of::<u16>()
}

/// Looks at the worker. Returns what is to be reported, and begins that report.
fn look(watch: &Watch, now: u64) -> Option<Stall> {
    let found = watch.look(3, THRESHOLD, now);
    found.then(|| watch.begin_report()).flatten()
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
        stall.job,
        Some(JobName::new("core::option::Option<u8>", Some(here)))
    );
    assert!(look(&watch, 1_101).is_none());
    assert!(watch.end_report(&numbered(stall)).is_none());
    assert!(look(&watch, 9_000).is_none());
    // The worker reports its end, when it comes back. It was the first job of the turn.
    watch.end();
    let over = away(&watch, (900, 6), (9_000, 7)).unwrap();
    assert_eq!((over.number, over.is_running), (NUMBER, false));
    assert_eq!(over.elapsed, Duration::from_nanos(8_100));
    watch.begin(8, other(), None);
    assert!(look(&watch, 9_001).is_none());
    let stall = look(&watch, 9_101).unwrap();
    assert_eq!(stall.job, Some(JobName::new("u16", None)));
}

/// The number that a report gives to a stall.
const NUMBER: u64 = 40;

fn numbered(stall: Stall) -> Stall {
    let number = NUMBER;
    Stall { number, ..stall }
}

/// Returns a watch whose job 7 was found at 1,100, and is being reported.
fn reporting() -> (Watch, Stall) {
    let watch = Watch::new();
    watch.begin(7, name(), None);
    assert!(look(&watch, 1_000).is_none());
    let stall = look(&watch, 1_100).unwrap();
    (watch, numbered(stall))
}

#[test]
fn a_job_that_ends_before_its_report_is_reported_once() {
    let watch = Watch::new();
    watch.begin(7, name(), None);
    assert!(!watch.look(3, THRESHOLD, 1_000));
    assert!(watch.look(3, THRESHOLD, 1_100));
    watch.end();
    let over = away(&watch, (900, 6), (1_200, 7)).unwrap();
    assert_eq!((over.number, over.is_running), (0, false));
    assert!(watch.begin_report().is_none());
}

#[test]
fn a_job_that_ends_during_its_report_is_over_after_it() {
    let (watch, stall) = reporting();
    watch.end();
    assert!(away(&watch, (900, 6), (1_200, 7)).is_none());
    // A later stall does not wait for the hook of the first one.
    watch.begin(8, other(), None);
    watch.end();
    let later = away(&watch, (1_200, 7), (1_300, 8)).unwrap();
    assert_eq!((later.number, later.job.unwrap().name), (0, "u16"));
    let over = watch.end_report(&stall).unwrap();
    assert_eq!((over.number, over.is_running), (NUMBER, false));
    assert_eq!(over.elapsed, Duration::from_nanos(300));
    assert!(watch.end_report(&stall).is_none());
}

#[test]
fn a_peer_that_sees_a_later_job_ends_the_stall() {
    let (watch, stall) = reporting();
    assert!(watch.end_report(&stall).is_none());
    watch.begin(8, other(), None);
    let over = look(&watch, 2_000).unwrap();
    assert_eq!((over.number, over.is_running), (NUMBER, false));
    assert_eq!(over.elapsed, Duration::from_nanos(1_000));
    assert_eq!(over.job.unwrap().name, name().get());
    // The next job of the turn is a stall of its own.
    let next = look(&watch, 2_100).unwrap();
    assert_eq!((next.number, next.job.unwrap().name), (0, "u16"));
    watch.end_report(&Stall { number: 41, ..next });
    watch.end();
    let over = away(&watch, (900, 5), (2_300, 8)).unwrap();
    assert_eq!((over.number, over.job.unwrap().name), (41, "u16"));
    assert_eq!(over.elapsed, Duration::from_nanos(300));
}

#[test]
fn what_a_peer_has_seen_to_be_over_is_not_reported_again() {
    let (watch, stall) = reporting();
    assert!(watch.end_report(&stall).is_none());
    watch.begin(8, other(), None);
    assert!(look(&watch, 2_000).is_some());
    watch.end();
    assert!(away(&watch, (900, 6), (2_099, 8)).is_none());
    let rest = away(&watch, (900, 6), (2_100, 8)).unwrap();
    assert_eq!((rest.jobs, rest.job.unwrap().name), (1, "u16"));
    assert_eq!(rest.elapsed, Duration::from_nanos(100));
}

#[test]
fn of_several_jobs_the_one_that_peers_saw_for_most_of_the_time_is_named() {
    for (last, is_known) in [(1_150, false), (1_151, true)] {
        let watch = Watch::new();
        watch.begin(1, other(), None);
        watch.begin(2, name(), None);
        assert!(look(&watch, 1_100).is_none());
        assert!(look(&watch, last).is_none());
        watch.begin(3, other(), None);
        watch.end();
        let stall = away(&watch, (1_080, 0), (1_180, 3)).unwrap();
        let of_two = stall.job.map(|job| job.name);
        assert_eq!(of_two, is_known.then(|| name().get()), "{last}");
        assert_eq!(stall.jobs, if is_known { 1 } else { 3 });
    }
    // The first job of a turn began when the turn did.
    let watch = Watch::new();
    watch.begin(1, name(), None);
    assert!(look(&watch, 1_160).is_none());
    watch.begin(2, other(), None);
    watch.end();
    let stall = away(&watch, (1_080, 0), (1_200, 2)).unwrap();
    assert_eq!(stall.job.unwrap().name, name().get());
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
    assert_eq!((stall.job.unwrap().name, stall.jobs), (name().get(), 1));
    assert!(!stall.is_running);
    assert!(away(&watch, (1_100, 1), (9_000, 1)).is_none(), "no job ran");
    // Of several jobs, none is named.
    for number in 2..=5 {
        watch.begin(number, other(), None);
    }
    watch.end();
    let stall = away(&watch, (9_000, 1), (9_200, 5)).unwrap();
    assert_eq!((stall.job, stall.jobs), (None, 4));
}

#[test]
fn a_new_name_applies_to_the_present_job_only() {
    let watch = Watch::new();
    watch.begin(1, other(), None);
    watch.rename(name());
    assert!(look(&watch, 0).is_none());
    let stall = look(&watch, 100).unwrap();
    assert_eq!(stall.job.unwrap().name, name().get());
    assert!(watch.end_report(&stall).is_none());
    watch.begin(2, other(), None);
    assert!(look(&watch, 200).is_some_and(|stall| !stall.is_running));
    assert_eq!(look(&watch, 300).unwrap().job.unwrap().name, "u16");
}

#[test]
fn a_label_is_that_of_one_job_and_of_its_whole_length() {
    let watch = Watch::new();
    let labels = || watch.activity().1.map(|job| job.label);
    watch.set_label(Label::new("before any job"));
    watch.begin(1, other(), None);
    assert_eq!(labels(), Some(None));
    watch.set_label(Label::new("first"));
    watch.set_label(Label::new("first"));
    assert_eq!(labels(), Some(Some("first")));
    assert!(look(&watch, 0).is_none());
    let stall = look(&watch, 100).unwrap();
    let text = "worker 3 is stuck in first in callback u16, for 100.0ns so far";
    assert_eq!(stall.to_string(), text);
    // With a second one, it is not known which of them takes the time.
    for label in ["second", "first", "first"] {
        watch.set_label(Label::new(label));
        assert_eq!(labels(), Some(None));
    }
    watch.begin(2, other(), None);
    assert_eq!(labels(), Some(None));
    watch.set_label(Label::new("third"));
    assert_eq!(labels(), Some(Some("third")));
}

/// Returns a runtime whose one worker is in a job until the sender is dropped, and a receiver of
/// its stalls with the threads that report them. Tests reach the threshold of an hour with fake
/// times only.
fn stuck(threshold: Duration) -> (Runtime, mpsc::Sender<()>, mpsc::Receiver<(Stall, ThreadId)>) {
    let (sender, stalls) = mpsc::channel();
    let (runtime, free) = stuck_with(threshold, move |stall| {
        let _ = sender.send((stall.clone(), thread::current().id()));
    });
    (runtime, free, stalls)
}

fn stuck_with(
    threshold: Duration,
    hook: impl Fn(&Stall) + Send + Sync + 'static,
) -> (Runtime, mpsc::Sender<()>) {
    let mut builder = Builder::new();
    builder.worker_threads(1).stall_threshold(threshold);
    builder.on_stall(hook);
    let runtime = builder.build().unwrap();
    let (begun, has_begun) = mpsc::channel();
    let (free, until) = mpsc::channel();
    runtime.spawn(async move {
        begun.send(()).unwrap();
        let _ = until.recv();
    });
    has_begun.recv().unwrap();
    (runtime, free)
}

const HOUR: u64 = 3_600_000_000_000;
const AN_HOUR: Duration = Duration::from_nanos(HOUR);

#[test]
fn a_report_calls_the_hook_and_counts() {
    let (runtime, free, stalls) = stuck(AN_HOUR);
    let workers = runtime.handle().shared().workers();
    let core = workers[0].owner();
    assert!(!super::look(core, 5));
    assert!(!super::look(core, HOUR + 4));
    report_found(core);
    assert_eq!(runtime.metrics().total().stalls(), 0);
    assert!(super::look(core, HOUR + 5));
    report_found(core);
    assert!(!super::look(core, 3 * HOUR));
    report_found(core);
    let (stall, thread) = stalls.try_recv().unwrap();
    assert_eq!(thread, thread::current().id());
    assert_eq!((stall.worker, stall.jobs, stall.is_running), (0, 1, true));
    assert_eq!(
        (stall.number, stall.elapsed),
        (1, Duration::from_nanos(HOUR))
    );
    assert_eq!(stall.job.unwrap().spawned.unwrap().file(), file!());
    assert!(stalls.try_recv().is_err());
    assert_eq!(runtime.metrics().workers()[0].counts.stalls, 1);
    drop(free);
}

/// The hook of the first report is still running when the job ends.
#[test]
fn the_end_is_told_after_the_beginning() {
    let (told, tells) = mpsc::channel();
    let (go, until) = mpsc::channel::<()>();
    let until = Mutex::new(until);
    let (runtime, free) = stuck_with(AN_HOUR, move |stall| {
        told.send(stall.clone()).unwrap();
        if stall.is_running {
            let _ = lock(&until).recv();
        }
    });
    let workers = runtime.handle().shared().workers();
    let core = workers[0].owner();
    assert!(!super::look(core, 0));
    assert!(super::look(core, HOUR));
    thread::scope(|scope| {
        scope.spawn(|| report_found(core));
        assert!(tells.recv().unwrap().is_running);
        // As the worker does when it comes back.
        let number = core.watchdog.watch.number().unwrap();
        let mut last = InLoop::at(0, number - 1);
        was_away_at(core, &mut last, InLoop::at(2 * HOUR, number));
        assert!(tells.try_recv().is_err(), "the hook runs");
        let seen = &runtime.recent_stalls()[0].stall;
        for text in 0..20 {
            let text = text.to_string().into();
            runtime.handle().add_stack(seen, text);
        }
        drop(go);
    });
    let over = tells.recv().unwrap();
    // The end has the stacks of the beginning, but for the oldest.
    let stacks: Vec<_> = (4..20).map(|text| text.to_string()).collect();
    assert!(over.stacks.iter().map(|it| &**it).eq(&stacks), "{over:?}");
    let recorded = runtime.flight_recorder().snapshot().stacks;
    assert_eq!((recorded.len(), &*recorded[15].1), (16, "19"));
    assert_eq!((over.number, over.is_running), (1, false));
    assert_eq!(over.elapsed, Duration::from_nanos(2 * HOUR));
    let recent = runtime.recent_stalls();
    assert_eq!((recent.len(), recent[0].stall.is_running), (1, false));
    assert_eq!(runtime.metrics().total().stalls(), 1);
    drop(free);
}

#[test]
fn without_a_threshold_nothing_is_reported() {
    let (runtime, free, stalls) = stuck(Duration::MAX);
    let workers = runtime.handle().shared().workers();
    for now in [0, HOUR, u64::MAX - 1, u64::MAX] {
        assert!(!super::look(workers[0].owner(), now));
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
                Some(job) if number % 2 == 0 => {
                    assert_eq!((job.name, job.spawned), (name().get(), None));
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
    let job = |spawned| Some(JobName::new("shop::expire", spawned));
    let mut stall = Stall {
        number: 5,
        worker: 2,
        is_helper: false,
        thread: 0,
        job_number: 0,
        job: job(None),
        elapsed: Duration::from_micros(312_040),
        is_running: false,
        jobs: 1,
        stacks: Vec::new(),
        what: None,
        origin: None,
    };
    assert_eq!(
        stall.to_string(),
        "worker 2 was stuck in callback shop::expire, for 312.0ms"
    );
    (stall.jobs, stall.job) = (9, None);
    assert_eq!(
        stall.to_string(),
        "worker 2 was away for 312.0ms and ran 9 jobs, which were not timed"
    );
    (stall.jobs, stall.is_running, stall.job) = (1, true, job(Some(here)));
    assert_eq!(
        stall.to_string(),
        format!("worker 2 is stuck in task shop::expire (spawned at {here}), for 312.0ms so far")
    );
    (stall.is_helper, stall.job, stall.is_running) = (true, job(None), false);
    assert_eq!(
        stall.to_string(),
        "helper 2 was stuck in callback shop::expire, for 312.0ms"
    );
}
