//! A job that holds its worker too long is reported. Here the worker itself finds it, when it
//! returns to its loop: a runtime of one worker has no peer to watch it.

use std::{
    sync::mpsc::{Receiver, channel},
    thread,
    time::Duration,
};

use crate::common::{
    PATIENCE, alarm, blocked::AllBlocked, eventually, on_worker, panics::assert_alive,
};
use tourbillon::{
    BuildError, Runtime, Timer,
    runtime::{Builder, Stall},
};

const THRESHOLD: Duration = Duration::from_millis(50);
/// The jobs that the watchdog has to find block for this long.
const BLOCKED: Duration = Duration::from_millis(300);

fn block() {
    thread::sleep(BLOCKED);
}

/// Returns a runtime of one worker, and the receiver of its reports.
fn watched(threshold: Duration) -> (Runtime, Receiver<Stall>) {
    watched_with(Builder::new().worker_threads(1), threshold)
}

fn watched_with(builder: &mut Builder, threshold: Duration) -> (Runtime, Receiver<Stall>) {
    let (sender, stalls) = channel();
    let runtime = builder
        .stall_threshold(threshold)
        .on_stall(move |stall| {
            let _ = sender.send(stall.clone());
        })
        .build()
        .unwrap();
    (runtime, stalls)
}

/// Waits for the report of a job named `job`, and checks that there is only one. If the machine
/// stops the worker for long, other jobs may be reported, too.
#[track_caller]
fn one(runtime: &Runtime, stalls: &Receiver<Stall>, job: &str) -> Stall {
    let is_it = |stall: &Stall| name(stall).contains(job);
    let stall = loop {
        let stall = stalls.recv_timeout(PATIENCE).expect("it is reported");
        if is_it(&stall) {
            break stall;
        }
    };
    // A second report would have come by now.
    on_worker(runtime, || ());
    on_worker(runtime, || ());
    assert!(!stalls.try_iter().any(|stall| is_it(&stall)), "once");
    stall
}

/// Returns the name of the job of a stall, or an empty text if it has none.
fn name(stall: &Stall) -> &'static str {
    stall.job.map_or("", |job| job.name)
}

mod named {
    //! Callbacks and futures that a report can name.

    pub fn callback() {
        super::block();
    }

    pub async fn task() {
        super::block();
    }
}

#[test]
fn a_blocking_callback_is_reported_by_name() {
    let _alarm = alarm();
    let (runtime, stalls) = watched(THRESHOLD);
    runtime.handle().after(Duration::ZERO, named::callback);
    let stall = one(&runtime, &stalls, "named::callback");
    assert_eq!((stall.worker, stall.job.unwrap().spawned), (0, None));
    assert!(stall.elapsed >= BLOCKED, "{stall}");
    assert!(!stall.is_running);
    assert!(runtime.metrics().total().stalls() >= 1);
    assert!(runtime.metrics().workers()[0].counts().stalls() >= 1);
    let line = stall.to_string();
    assert!(
        line.contains("callback ") && line.contains("worker 0"),
        "{line}"
    );
}

#[test]
fn a_blocking_task_is_reported_with_its_spawn_location() {
    let _alarm = alarm();
    let (runtime, stalls) = watched(THRESHOLD);
    let mut lines = vec![line!() + 1];
    runtime.spawn(named::task());
    let first = one(&runtime, &stalls, "named::task");
    lines.push(line!() + 1);
    runtime.handle().spawn(named::task());
    let second = one(&runtime, &stalls, "named::task");
    lines.push(line!() + 2);
    runtime.block_on(async {
        tourbillon::spawn(named::task());
    });
    let third = one(&runtime, &stalls, "named::task");
    for (stall, line) in [first, second, third].into_iter().zip(lines) {
        let at = stall.job.unwrap().spawned.expect("it is a task");
        assert_eq!((at.file(), at.line()), (file!(), line));
        assert!(stall.to_string().contains(&at.to_string()), "{stall}");
        assert!(stall.elapsed >= BLOCKED, "{stall}");
    }
}

#[test]
fn timers_are_reported_by_the_names_of_their_callbacks() {
    let _alarm = alarm();
    let (runtime, stalls) = watched(THRESHOLD);
    let after = || Timer::after(Duration::ZERO).on(runtime.handle());
    after().start(named::callback);
    one(&runtime, &stalls, "named::callback");
    // A callback that takes an outcome.
    let timer = Timer::after(PATIENCE).on(runtime.handle());
    fn told(_: tourbillon::timer::Outcome) {
        block();
    }
    timer.start_with(told).cancel();
    one(&runtime, &stalls, "::told");
    // A timer on another clock.
    let boot = Timer::after_boot(Duration::ZERO).on(runtime.handle());
    boot.start(named::callback);
    one(&runtime, &stalls, "named::callback");
    let every = Timer::every(Duration::from_millis(1)).on(runtime.handle());
    every.times(1).start(named::callback);
    let stall = one(&runtime, &stalls, "named::callback");
    assert!(name(&stall).ends_with("named::callback"), "{stall}");
}

#[test]
fn a_job_is_reported_by_the_name_that_it_takes() {
    fn run<F: Fn() + Send + 'static>(runtime: &Runtime, f: F) {
        runtime.handle().after(Duration::ZERO, move || {
            tourbillon::runtime::name_job::<F>();
            f();
        });
    }
    let _alarm = alarm();
    let (runtime, stalls) = watched(THRESHOLD);
    run(&runtime, named::callback);
    let stall = one(&runtime, &stalls, "named::callback");
    assert!(name(&stall).ends_with("named::callback"), "{stall}");
    // The next job has its own name again.
    runtime.spawn(named::task());
    one(&runtime, &stalls, "named::task");
    // This thread is no worker.
    tourbillon::runtime::name_job::<u8>();
}

/// Queues tasks behind the task that calls this, which then blocks.
fn block_before_others() {
    for _ in 0..3 {
        tourbillon::spawn(async {});
    }
    block();
}

/// The worker finds a turn of several jobs that was long. It names none of them, and times each job
/// from then on.
#[test]
fn of_several_jobs_none_is_named_before_jobs_are_timed() {
    let _alarm = alarm();
    // With a latency, the worker would look up after each long job.
    let mut builder = Builder::new();
    builder.worker_threads(1).rescue_latency(Duration::MAX);
    let (runtime, stalls) = watched_with(&mut builder, THRESHOLD);
    runtime.spawn(async { block_before_others() });
    let stall = stalls.recv_timeout(PATIENCE).unwrap();
    assert!(stall.jobs > 1 && stall.job.is_none(), "{stall}");
    assert!(stall.elapsed >= BLOCKED);
    assert!(stall.to_string().contains("jobs"), "{stall}");
    // The next time it is known which one it was: a task, or a callback.
    let first = stall.number;
    let line = line!() + 1;
    runtime.spawn(async { block_before_others() });
    let stall = one(&runtime, &stalls, "of_several_jobs");
    assert_eq!((stall.jobs, stall.number), (1, first + 1), "{stall}");
    assert_eq!(stall.job.unwrap().spawned.unwrap().line(), line);
    fn callback() {
        block_before_others();
    }
    runtime.handle().after(Duration::ZERO, callback);
    let stall = one(&runtime, &stalls, "callback");
    assert_eq!((stall.jobs, stall.job.unwrap().spawned), (1, None));
}

/// Both workers are stuck, so no peer sees for how long. Innocent tasks run before the workers look
/// up.
#[test]
fn innocent_tasks_are_not_named() {
    let _alarm = alarm();
    let (runtime, stalls) = watched_with(Builder::new().worker_threads(2), THRESHOLD);
    async fn innocent() {}
    let stuck = AllBlocked::all(&runtime);
    for _ in 0..50 {
        runtime.spawn(innocent());
    }
    thread::sleep(BLOCKED);
    drop(stuck);
    for _ in 0..2 {
        let stall = stalls.recv_timeout(PATIENCE).expect("both are reported");
        assert!(!name(&stall).contains("innocent"), "{stall}");
    }
}

/// A peer reports the job while it runs, and the worker its end.
#[test]
fn a_stall_is_reported_when_it_is_seen_and_when_it_ends() {
    let _alarm = alarm();
    let (runtime, stalls) = watched_with(Builder::new().worker_threads(2), THRESHOLD);
    let (release, released) = channel::<()>();
    runtime.spawn(async move { _ = released.recv() });
    // On a busy machine, other stalls may be reported, too.
    let next = |number: Option<u64>| loop {
        let stall = stalls.recv_timeout(PATIENCE).expect("it is reported");
        let is_it = name(&stall).contains("a_stall_is_reported_when");
        if is_it && number.is_none_or(|number| number == stall.number) {
            break stall;
        }
    };
    let recent = |number| {
        let mut all = runtime.recent_stalls();
        all.retain(|recent| recent.stall.number == number);
        assert_eq!(all.len(), 1);
        all.remove(0)
    };
    let seen = next(None);
    assert!(seen.is_running, "{seen}");
    let former = recent(seen.number);
    assert!(former.stall.is_running);
    thread::sleep(BLOCKED);
    drop(release);
    let over = next(Some(seen.number));
    assert!(!over.is_running && over.jobs == 1, "{over}");
    assert!(over.elapsed >= seen.elapsed + BLOCKED, "{seen}; {over}");
    assert_eq!((over.worker, over.job), (seen.worker, seen.job));
    let now = recent(seen.number);
    assert_eq!((now.at, now.stall.elapsed), (former.at, over.elapsed));
}

/// A helper takes a job that is queued while the only worker is stuck.
#[test]
fn a_blocking_helper_is_reported_as_a_helper() {
    let _alarm = alarm();
    let (runtime, stalls) =
        watched_with(Builder::new().worker_threads(1).helpers(0..=1), THRESHOLD);
    let stuck = AllBlocked::all(&runtime);
    runtime.spawn(named::task());
    let stall = loop {
        let stall = stalls.recv_timeout(PATIENCE).expect("it is reported");
        // The worker's stall may be reported, too.
        if name(&stall).contains("named::task") {
            break stall;
        }
    };
    assert!(stall.is_helper && stall.worker > 0, "{stall}");
    assert!(stall.to_string().starts_with("helper "), "{stall}");
    let recent = runtime.recent_stalls();
    assert!(recent.iter().any(|recent| recent.stall.is_helper));
    drop(stuck);
}

#[test]
fn jobs_below_the_threshold_are_not_reported() {
    let _alarm = alarm();
    let (runtime, stalls) = watched(Duration::from_secs(3600));
    runtime
        .handle()
        .after(Duration::ZERO, || thread::sleep(THRESHOLD));
    on_worker(&runtime, || ());
    on_worker(&runtime, || ());
    assert_eq!(runtime.metrics().total().stalls(), 0);
    assert!(stalls.try_recv().is_err());
}

#[test]
fn a_stall_during_shutdown_is_reported() {
    let _alarm = alarm();
    let (runtime, stalls) = watched(THRESHOLD);
    let (sender, begun) = channel();
    runtime.handle().after(Duration::ZERO, move || {
        sender.send(()).unwrap();
        named::callback();
    });
    begun.recv_timeout(PATIENCE).unwrap();
    drop(runtime);
    assert!(stalls.iter().any(|stall| stall.elapsed >= BLOCKED));
}

#[test]
fn a_sleeping_worker_is_not_stalled() {
    let _alarm = alarm();
    let (runtime, stalls) = watched(Duration::from_secs(1));
    on_worker(&runtime, || ());
    let slept = Duration::from_millis(2500);
    thread::sleep(slept);
    on_worker(&runtime, || ());
    on_worker(&runtime, || ());
    assert!(!stalls.try_iter().any(|stall| stall.elapsed >= slept));
}

#[test]
fn without_a_threshold_nothing_is_reported() {
    let _alarm = alarm();
    let (runtime, stalls) = watched(Duration::MAX);
    on_worker(&runtime, block);
    on_worker(&runtime, || ());
    on_worker(&runtime, || ());
    assert_eq!(runtime.metrics().total().stalls(), 0);
    assert!(stalls.try_recv().is_err());
}

#[test]
fn a_panicking_hook_is_contained_and_counted() {
    let _alarm = alarm();
    let mut builder = Builder::new();
    builder.worker_threads(1);
    let runtime = builder
        .stall_threshold(THRESHOLD)
        .on_stall(|stall| panic!("on purpose: {stall}"))
        .build()
        .unwrap();
    runtime.handle().after(Duration::ZERO, block);
    eventually("it is counted", || {
        let total = runtime.metrics().total();
        total.panics() >= 1 && total.stalls() == total.panics()
    });
    assert_alive(&runtime);
}

#[test]
fn a_hook_can_use_the_runtime() {
    let _alarm = alarm();
    let (sender, ran) = channel();
    let runtime = Builder::new()
        .worker_threads(1)
        .stall_threshold(THRESHOLD)
        .on_stall(move |_| {
            let sender = sender.clone();
            tourbillon::spawn(async move { sender.send("task").unwrap() });
        })
        .build()
        .unwrap();
    runtime.handle().after(Duration::ZERO, block);
    assert_eq!(ran.recv_timeout(PATIENCE), Ok("task"));
}

#[test]
fn a_threshold_of_zero_is_refused() {
    let built = Builder::new().stall_threshold(Duration::ZERO).build();
    let error = built.unwrap_err();
    assert!(matches!(error, BuildError::ZeroStallThreshold));
    assert!(error.to_string().contains("stall_threshold"), "{error}");
}
