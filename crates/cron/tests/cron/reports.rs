//! Jobs on a real clock: how they start, and the names and numbers that a runtime reports of them.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::mpsc::channel,
    time::Duration,
};

use tourbillon::{ArmError, metrics::JobName, runtime::Builder, timer::Outcome};
use tourbillon_cron::{Cron, CronError, Overlap};
use tourbillon_support::{PATIENCE, alarm, runtime};

const THRESHOLD: Duration = Duration::from_millis(50);
/// The jobs that the watchdog has to find block for this long.
const BLOCKED: Duration = Duration::from_millis(300);

fn each_second() -> Cron {
    Cron::parse("* * * * * *").unwrap()
}

mod named {
    pub fn callback() {
        std::thread::sleep(super::BLOCKED);
    }
}

#[test]
fn jobs_are_reported_by_the_names_of_their_callbacks() {
    let _alarm = alarm();
    let (sender, stalls) = channel();
    let runtime = Builder::new()
        .worker_threads(1)
        .stall_threshold(THRESHOLD)
        .on_stall(move |stall| _ = sender.send(stall.clone()))
        .build()
        .unwrap();
    let job = each_second().on(runtime.handle()).start(named::callback);
    let stall = loop {
        let stall = stalls.recv_timeout(PATIENCE).expect("it is reported");
        let ends = |job: JobName| job.name.ends_with("named::callback");
        if stall.job.is_some_and(ends) {
            break stall;
        }
    };
    assert!(stall.elapsed >= BLOCKED);
    job.cancel();
}

#[test]
fn a_job_starts_on_the_given_or_the_current_runtime() {
    let _alarm = alarm();
    let runtime = runtime(1);
    let (sender, ticks) = channel();
    let of = |name| {
        let sender = sender.clone();
        move || _ = sender.send((name, tourbillon::Handle::current().id()))
    };
    let cron = each_second().overlap(Overlap::Queue);
    let given = cron.clone().on(runtime.handle()).start(of("given"));
    let current = runtime.block_on(async { cron.try_start(of("current")).unwrap() });
    for name in ["given", "current"] {
        let id = runtime.id();
        let mut ticks = std::iter::from_fn(|| ticks.recv_timeout(PATIENCE).ok());
        assert!(ticks.any(|tick| tick == (name, id)), "{name}");
    }
    // Each wait is a timer of the wall clock.
    given.cancel();
    current.cancel();
    assert!(runtime.metrics().wall_clock().counts().armed() >= 2);
}

#[test]
fn a_job_that_cannot_start_is_an_error_or_a_panic() {
    let _alarm = alarm();
    let message = |cron: &Cron| {
        let started = catch_unwind(AssertUnwindSafe(|| cron.start(|| ())));
        let panic = started.expect_err("it does not start");
        panic.downcast_ref::<String>().unwrap().clone()
    };
    // 1. This thread is in no runtime.
    let error = each_second().try_start(|| ()).unwrap_err();
    assert_eq!(error, CronError::Arm(ArmError::NoRuntime));
    assert_eq!(message(&each_second()), error.to_string());
    // 2. There is no such day.
    let ended = runtime(1);
    let never = Cron::parse("0 0 30 2 *").unwrap().on(ended.handle());
    let error = never.try_start_with(|_| ()).unwrap_err();
    assert!(matches!(error, CronError::Never { .. }));
    assert_eq!(message(&never), error.to_string());
    // 3. The runtime has been shut down: the rule of timers.
    let late = each_second().on(ended.handle());
    drop(ended);
    let error = late.try_start(|| ()).unwrap_err();
    assert_eq!(error, CronError::Arm(ArmError::Shutdown));
    for job in [late.start(|| ()), late.start_with(|_| ())] {
        assert_eq!(
            (job.outcome(), job.next_at()),
            (Some(Outcome::Shutdown), None)
        );
    }
}
