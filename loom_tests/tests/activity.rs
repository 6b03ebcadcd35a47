//! The job that a worker publishes for its peers: a peer never takes the name that it reads for
//! the name of another job. And the report of a stall: its end comes last, and once.
//!
//! The source is the runtime's files `watch.rs` and `seen.rs` in `src/engine/watchdog/`, with loom's
//! atomics in place of `sys::sync`. The runtime itself is not built with loom.
#![cfg(loom)]

#[path = "../../src/metrics/activity.rs"]
#[allow(dead_code, reason = "the model uses a part")]
mod activity;
#[path = "../../src/metrics/label.rs"]
#[allow(dead_code, reason = "the models use a part")]
mod label;
#[path = "../../src/util/lock.rs"]
mod lock;
#[path = "../../src/engine/watchdog/seen.rs"]
mod seen;
#[path = "../../src/metrics/spawned.rs"]
#[allow(dead_code, reason = "the model gives no names")]
mod spawned;
#[path = "../../src/engine/watchdog/watch.rs"]
#[allow(
    dead_code,
    unexpected_cfgs,
    reason = "the model uses a part, and has none of the runtime's features"
)]
mod watch;

mod sys {
    pub mod sync {
        pub use loom::sync::{Mutex, MutexGuard, atomic};
    }
}

mod util {
    pub(crate) use crate::lock;
}

mod metrics {
    pub(crate) use crate::{activity, label, spawned};
}

mod engine {
    pub mod watchdog {
        pub(crate) use crate::seen;

        pub mod stall {
            use std::{num::NonZeroU64, time::Duration};

            use crate::metrics::activity::{JobName, JobRef};

            /// The fields of the runtime's report.
            #[derive(Clone, Debug)]
            #[allow(dead_code, reason = "the models read some of them")]
            pub struct Stall {
                pub number: u64,
                pub worker: usize,
                pub is_helper: bool,
                pub thread: u32,
                pub job_number: u64,
                pub job: Option<JobName>,
                pub elapsed: Duration,
                pub is_running: bool,
                pub jobs: u64,
                pub stacks: Vec<std::sync::Arc<str>>,
                pub what: Option<JobRef>,
                pub origin: Option<NonZeroU64>,
            }
        }
    }
}

use std::num::NonZeroU64;

use loom::{
    sync::{Arc, Mutex},
    thread,
};
use loom_tests::model;
use tourbillon_shards::TypeName;

use crate::{
    label::Label, metrics::activity::Activity, seen::InLoop, spawned::Spawned, watch::Watch,
};

struct First;
struct Second;
struct Third;

fn names() -> [&'static TypeName; 3] {
    [
        TypeName::of::<First>(),
        TypeName::of::<Second>(),
        TypeName::of::<Third>(),
    ]
}

/// Starts a worker that runs `jobs` jobs, one after the other, with the numbers from 1 on.
fn worker(jobs: usize) -> (Arc<Watch>, thread::JoinHandle<()>) {
    let watch = Arc::new(Watch::new());
    let running = thread::spawn({
        let watch = watch.clone();
        move || {
            for (number, name) in (1..).zip(names()).take(jobs) {
                watch.begin(number, name, None);
            }
            watch.end();
        }
    });
    (watch, running)
}

/// A peer that reads the number of a job and then a name gets the name of that job, or none. The
/// report of a stall reads the two in this order.
#[test]
fn a_name_belongs_to_the_number_that_was_read() {
    model!(None, || {
        let (watch, running) = worker(3);
        if let Some(number) = watch.number()
            && let Some(job) = watch.job_of(number)
        {
            assert_eq!(job.name().name, names()[number as usize - 1].get());
            assert_eq!(job.spawned, None);
        }
        running.join().unwrap();
        assert_eq!(watch.number(), None);
    });
}

/// A peer that reads the number of a job and then a span gets the span that armed the timer of
/// that job, or none. The second of the three jobs has no span.
#[test]
fn a_span_belongs_to_the_number_that_was_read() {
    let span = |number: u64| {
        (number != 2)
            .then(|| NonZeroU64::new(10 * number))
            .flatten()
    };
    model!(None, move || {
        let watch = Arc::new(Watch::new());
        let running = thread::spawn({
            let watch = watch.clone();
            move || {
                for (number, name) in (1..).zip(names()) {
                    watch.begin(number, name, None);
                    if let Some(span) = span(number) {
                        watch.comes_from(span);
                    }
                }
            }
        });
        if let Some(number) = watch.number()
            && let Some(origin) = watch.origin_of(number)
        {
            assert_eq!(Some(origin), span(number));
        }
        running.join().unwrap();
        assert_eq!(watch.origin_of(3), span(3));
    });
}

/// A peer that reads the number of a job and then its label gets that of this job, or none. The
/// second job has two labels, and so none from then on.
#[test]
fn a_label_belongs_to_the_number_that_was_read() {
    model!(None, || {
        let labels = ["first", "second", "other"].map(Label::new);
        let watch = Arc::new(Watch::new());
        let running = thread::spawn({
            let watch = watch.clone();
            move || {
                watch.begin(1, names()[0], None);
                watch.set_label(labels[0]);
                watch.begin(2, names()[1], None);
                watch.set_label(labels[1]);
                watch.set_label(labels[2]);
            }
        });
        if let Some(number) = watch.number()
            && let Some(label) = watch.job_of(number).and_then(|job| job.label)
        {
            assert_eq!(label.text(), labels[number as usize - 1].text());
        }
        running.join().unwrap();
        assert!(watch.job_of(2).is_some_and(|job| job.label.is_none()));
    });
}

/// A peer that reads the number of a job and then the job gets the group of this job, or no job. The
/// second job is in the default group, which has no name.
#[test]
fn a_group_belongs_to_the_number_that_was_read() {
    model!(None, || {
        let groups = [Some(Label::new("first")), None];
        let watch = Arc::new(Watch::new());
        let running = thread::spawn({
            let watch = watch.clone();
            move || {
                for ((number, name), group) in (1..).zip(names()).zip(groups) {
                    watch.begin_in(number, group);
                    watch.begin(number, name, None);
                }
            }
        });
        if let Some(number) = watch.number()
            && let Some(job) = watch.job_of(number)
        {
            let group = groups[number as usize - 1];
            assert_eq!(job.group.map(Label::text), group.map(Label::text));
        }
        running.join().unwrap();
        assert!(watch.job_of(2).is_some_and(|job| job.group.is_none()));
    });
}

/// So it is if the peer reads which job has begun, as for the report of a rescue. This job may not
/// be published yet.
#[test]
fn a_group_belongs_to_the_job_that_has_begun() {
    model!(None, || {
        let labels = ["first", "second"].map(Label::new);
        let watch = Arc::new(Watch::new());
        let running = thread::spawn({
            let watch = watch.clone();
            move || {
                for ((number, name), label) in (1..).zip(names()).zip(labels) {
                    watch.begin_in(number, Some(label));
                    watch.begin(number, name, None);
                }
            }
        });
        let number = watch.begun();
        if let Some(group) = watch.group_of(number) {
            assert_eq!(group.text(), labels[number as usize - 1].text());
        }
        running.join().unwrap();
        assert_eq!(watch.group_of(2).map(Label::text), Some("second"));
    });
}

/// A job that says nothing of a group is in the default one, whatever the job before it said.
#[test]
fn a_job_that_names_no_group_has_none() {
    model!(None, || {
        let watch = Arc::new(Watch::new());
        let running = thread::spawn({
            let watch = watch.clone();
            move || {
                watch.begin_in(1, Some(Label::new("first")));
                watch.begin(1, names()[0], None);
                watch.begin(2, names()[1], None);
            }
        });
        if let Some(number) = watch.number()
            && let Some(job) = watch.job_of(number)
        {
            let group = job.group.map(Label::text);
            assert_eq!(group, (number == 1).then_some("first"));
        }
        running.join().unwrap();
        assert!(watch.job_of(2).is_some_and(|job| job.group.is_none()));
    });
}

/// A peer that reads the activity of a worker and the name of its job gets the two from one job.
/// The worker runs a callback and then a task.
#[test]
fn an_activity_has_the_name_of_one_job() {
    let place = Spawned::here();
    model!(None, move || {
        let watch = Arc::new(Watch::new());
        let running = thread::spawn({
            let watch = watch.clone();
            move || {
                watch.begin(1, TypeName::of::<First>(), None);
                watch.begin(2, TypeName::of::<Second>(), Some(place));
            }
        });
        let (activity, name) = watch.activity();
        match name {
            None => assert_ne!(activity, Activity::Parked),
            Some(job) if job.name == TypeName::of::<First>().get() => {
                assert_eq!((activity, job.spawned), (Activity::Firing, None));
            }
            Some(job) => {
                assert_eq!(job.name, TypeName::of::<Second>().get());
                let spawned = Some(place.place());
                assert_eq!((activity, job.spawned), (Activity::Running, spawned));
            }
        }
        running.join().unwrap();
    });
}

/// A peer finds that a job takes too long, and reports it, while the worker goes on to another job,
/// or comes back and reports the end. That the job runs is reported first or not at all, and its
/// end is reported once.
#[test]
fn the_end_of_a_stall_is_reported_last_and_once() {
    const THRESHOLD: u64 = 5;
    for jobs in [1, 2] {
        model!(None, move || {
            let watch = Arc::new(Watch::new());
            let reports = Arc::new(Mutex::new(Vec::new()));
            watch.begin(1, names()[0], None);
            assert!(!watch.look(0, THRESHOLD, 0));
            let worker = thread::spawn({
                let (watch, reports) = (watch.clone(), reports.clone());
                move || {
                    if jobs == 2 {
                        watch.begin(2, names()[1], None);
                    }
                    watch.end();
                    let (from, to) = (InLoop::at(0, 0), InLoop::at(15, jobs));
                    if let Some(stall) = watch.away(0, THRESHOLD, from, to) {
                        reports.lock().unwrap().push(stall.is_running);
                    }
                }
            });
            for now in [10, 11] {
                if watch.look(0, THRESHOLD, now)
                    && let Some(stall) = watch.begin_report()
                {
                    reports.lock().unwrap().push(stall.is_running);
                    if stall.is_running
                        && let Some(over) = watch.end_report(&stall)
                    {
                        reports.lock().unwrap().push(over.is_running);
                    }
                }
            }
            worker.join().unwrap();
            let reports = reports.lock().unwrap();
            assert!(
                matches!(reports[..], [false] | [true, false]),
                "{reports:?}"
            );
        });
    }
}
