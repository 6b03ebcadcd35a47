//! Each cause happens, and is found.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use tourbillon::{
    Runtime, Timer,
    flight::Recording,
    runtime::Builder,
    task::{self, Group},
    time,
};
use tourbillon_flight::{Cause, LateTimer, NotTaken, jobs, late_timers};

use super::{
    common::{PATIENCE, eventually, runtime, spin},
    late_by,
};

const MS: Duration = Duration::from_millis(1);

/// Blocks its worker.
fn parse() {
    thread::sleep(20 * MS);
}

fn full(workers: usize) -> Runtime {
    let mut builder = Builder::new();
    builder.worker_threads(workers);
    builder.flight_recorder(Recording::Full).build().unwrap()
}

#[test]
fn a_worker_stuck_in_a_job_names_the_job() {
    let runtime = runtime(1);
    let (sender, ran) = mpsc::channel();
    runtime.spawn(async move {
        tourbillon::after(MS, move || sender.send(()).unwrap());
        parse();
    });
    ran.recv_timeout(PATIENCE).unwrap();
    eventually("the timer is explained", || {
        let late = late_by(&runtime, |cause| {
            let Cause::StuckInJob(Some(job)) = cause else {
                return false;
            };
            job.spawned
                .is_some_and(|at| at.file().ends_with("causes.rs"))
        });
        late.iter().any(|timer| {
            let is_ours = |name: &str| name.contains("a_worker_stuck_in_a_job");
            let only = |why| why == Some(NotTaken::OnlyWorker);
            timer.timer.is_some_and(|job| is_ours(job.name))
                && timer.spans.iter().any(|span| only(span.not_taken))
                && timer.to_string().contains(" behind task ")
        })
    });
}

#[test]
fn a_task_that_sleeps_is_named_with_its_place() {
    let runtime = runtime(1);
    eventually("the sleep is explained", || {
        let sleeper = runtime.spawn(time::sleep(5 * MS));
        // The worker is idle when the job comes that blocks it.
        thread::sleep(MS);
        runtime.block_on(runtime.spawn(async { parse() })).unwrap();
        runtime.block_on(sleeper).unwrap();
        let late = late_by(&runtime, |cause| matches!(cause, Cause::StuckInJob(_)));
        let at = |timer: &LateTimer| timer.timer.and_then(|job| job.spawned);
        late.iter()
            .any(|timer| at(timer).is_some_and(|at| at.file().ends_with("causes.rs")))
    });
}

#[test]
fn a_job_that_holds_the_worker_is_named_with_its_group() {
    let runtime = runtime(1);
    let groups = ["batch", "backup"].map(|name| {
        let group = Group::builder(name).build_on(runtime.handle());
        group.unwrap()
    });
    for group in &groups {
        let (sender, ran) = mpsc::channel();
        let holder = group.spawn(async move {
            tourbillon::after(MS, move || sender.send(()).unwrap());
            parse();
        });
        runtime.block_on(holder).unwrap();
        ran.recv_timeout(PATIENCE).unwrap();
    }
    // Both tasks have one type and one place. Their groups tell them apart.
    eventually("both groups are named", || {
        let late = late_by(&runtime, |cause| matches!(cause, Cause::StuckInJob(_)));
        let lines: Vec<_> = late.iter().map(|timer| timer.to_string()).collect();
        let has = |text: &str| lines.iter().any(|line| line.contains(text));
        let jobs = jobs(&late);
        let is_summed = |group: &Group| {
            let name = Some(group.name());
            jobs.iter().any(|it| it.job.group == name && it.timers == 1)
        };
        has(" of group batch (spawned at ")
            && has(" of group backup (spawned at ")
            && groups.iter().all(is_summed)
    });
}

#[test]
fn a_queue_of_short_jobs_is_a_queue() {
    let runtime = full(1);
    eventually("a timer waits for other jobs", || {
        let (sender, ran) = mpsc::channel();
        runtime.spawn(async move {
            for _ in 0..30 {
                tourbillon::spawn(async { spin(MS / 20) });
            }
            tourbillon::after(Duration::ZERO, move || sender.send(()).unwrap());
        });
        ran.recv_timeout(PATIENCE).unwrap();
        !late_by(&runtime, |cause| {
            matches!(cause, Cause::QueuedBehindOthers { .. })
        })
        .is_empty()
    });
}

/// Returns a runtime whose worker the kernel wakes late.
fn woken_late() -> Runtime {
    // The hook runs after the worker has asked for exact wake-ups. With so much slack the kernel
    // ends its sleeps together with something else.
    let slack = || {
        // SAFETY: the call takes no pointers.
        unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 200_000_000_u64) };
    };
    let mut builder = Builder::new();
    builder.worker_threads(1).on_thread_start(slack);
    builder.build().unwrap()
}

#[test]
fn a_kernel_that_wakes_late_is_named() {
    let runtime = woken_late();
    eventually("the kernel wakes the worker late", || {
        runtime
            .block_on(runtime.spawn(time::sleep(3 * MS)))
            .unwrap();
        !late_by(&runtime, |cause| *cause == Cause::KernelWokeLate).is_empty()
    });
}

#[test]
fn a_worker_without_a_core_is_named() {
    if std::fs::read_to_string("/proc/thread-self/schedstat").is_err() {
        return super::common::skip("the system has no schedstat");
    }
    let over = Arc::new(AtomicBool::new(false));
    // Threads that the worker starts inherit its core.
    let crowd = {
        let over = over.clone();
        move || {
            for _ in 0..3 {
                let over = over.clone();
                thread::spawn(move || while !over.load(SeqCst) {});
            }
        }
    };
    let mut builder = Builder::new();
    builder.worker_threads(1).on_thread_start(crowd);
    let runtime = builder.build().unwrap();
    eventually("the worker is preempted", || {
        let sleeper = runtime.spawn(time::sleep(5 * MS));
        runtime
            .block_on(runtime.spawn(async { spin(20 * MS) }))
            .unwrap();
        runtime.block_on(sleeper).unwrap();
        !late_by(&runtime, |cause| *cause == Cause::Preempted).is_empty()
    });
    over.store(true, SeqCst);
}

#[test]
fn a_step_of_the_clock_is_named() {
    let hour = Duration::from_secs(3_600);
    let runtime = runtime(1);
    runtime.block_on(async {
        time::pause();
        let timer = Timer::at_wall(time::wall_clock() + hour).start(|| ());
        time::set_wall_clock(time::wall_clock() + 3 * hour).unwrap();
        drop(timer);
    });
    let late = late_by(&runtime, |cause| *cause == Cause::ClockStep);
    assert_eq!(late.len(), 1);
    assert!(late[0].late >= 2 * hour, "{}", late[0]);
    assert!(late[0].spans[0].cause == Cause::ClockStep);
}

/// Runs a timer with a tolerance.
fn run_tolerant(runtime: &Runtime, tolerance: Duration) {
    let (sender, ran) = mpsc::channel();
    let entered = runtime.handle().enter();
    let timer = Timer::after(3 * MS).tolerance(tolerance);
    timer.start(move || sender.send(()).unwrap());
    drop(entered);
    ran.recv_timeout(PATIENCE).unwrap();
}

#[test]
fn a_tolerance_is_named_and_is_no_lateness() {
    let runtime = full(1);
    eventually("a timer runs within its tolerance", || {
        run_tolerant(&runtime, 100 * MS);
        let snapshot = runtime.flight_recorder().snapshot();
        let is_it = |timer: &LateTimer| {
            let mut spans = timer.spans.iter();
            timer.late > MS && spans.any(|span| span.cause == Cause::Tolerance)
        };
        // The timer is explained, but the list of late timers does not have it.
        late_timers(&snapshot, Duration::ZERO).iter().any(is_it)
            && !late_timers(&snapshot, MS).iter().any(is_it)
    });
}

#[test]
fn a_tolerance_is_named_beside_what_came_after_it() {
    let runtime = woken_late();
    eventually("a timer runs after its tolerance", || {
        run_tolerant(&runtime, 2 * MS);
        let late = late_by(&runtime, |cause| *cause == Cause::Tolerance);
        late.iter().any(|timer| timer.late > 3 * MS)
    });
}

#[test]
fn timers_that_are_due_together_wait_for_their_batch() {
    let runtime = runtime(1);
    eventually("a timer waits for its batch", || {
        let (sender, ran) = mpsc::channel();
        runtime.spawn(async move {
            for _ in 0..1_000 {
                let sender = sender.clone();
                tourbillon::after(MS, move || {
                    spin(MS / 100);
                    let _ = sender.send(());
                });
            }
        });
        (0..1_000).for_each(|_| ran.recv_timeout(PATIENCE).unwrap());
        !late_by(&runtime, |cause| *cause == Cause::Batch).is_empty()
    });
}

#[test]
fn a_rescue_is_named_with_what_the_worker_was_stuck_in() {
    let runtime = runtime(2);
    eventually("a peer takes timers over", || {
        let (sender, ran) = mpsc::channel();
        runtime.spawn(async move {
            for _ in 0..2_000 {
                let sender = sender.clone();
                tourbillon::after(MS, move || sender.send(()).unwrap());
            }
            parse();
        });
        (0..2_000).for_each(|_| ran.recv_timeout(PATIENCE).unwrap());
        let late = late_by(&runtime, |cause| *cause == Cause::Rescue);
        late.iter().any(|timer| {
            let spans = timer.spans.iter();
            spans
                .map(|span| span.cause)
                .any(|cause| matches!(cause, Cause::StuckInJob(Some(_))))
        })
    });
}

#[test]
fn a_late_timer_and_its_culprit_have_names() {
    let runtime = runtime(1);
    let spawn = |name, blocks: bool| {
        let future = async move {
            match blocks {
                true => thread::sleep(Duration::from_millis(20)),
                false => time::sleep(Duration::from_millis(1)).await,
            }
        };
        let named = task::Builder::new().name(name);
        named.spawn_on(future, runtime.handle())
    };
    // Repeat this: if this thread or the worker loses its core in between, the sleep ends before
    // the blocker runs.
    let start = Instant::now();
    let late = loop {
        assert!(start.elapsed() < PATIENCE);
        let (sleeper, blocker) = (spawn("sleeper", false), spawn("blocker", true));
        runtime.block_on(async { (sleeper.await.unwrap(), blocker.await.unwrap()) });
        let snapshot = runtime.flight_recorder().snapshot();
        let late = late_timers(&snapshot, Duration::from_millis(5));
        let mut words = late.iter().map(ToString::to_string);
        if let Some(words) = words.find(|it| it.contains("behind task blocker")) {
            break words;
        }
    };
    let begin = "a sleep of task sleeper (spawned at ";
    assert!(late.starts_with(begin), "{late}");
}
