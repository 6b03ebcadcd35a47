//! A flood of local tasks delays other work of its worker by a bounded number of jobs. Other
//! floods delay a local task by a bounded number of jobs, too.
//!
//! `docs/reference/limits.md` has the bounds. `fairness.rs` has the tests without local tasks.

use std::{
    future::poll_fn,
    sync::{Arc, Mutex},
    task::{Poll, Waker},
    time::Duration,
};

use crate::common::{
    alarm,
    course::{
        A_FEW, Course, EVENT_INTERVAL, GLOBAL_QUEUE_INTERVAL, assert_within, serve_a_socket,
        serve_a_task, serve_a_timer, serve_an_outsider,
    },
    on_worker,
};
use tourbillon::{
    Runtime,
    task::{LocalSet, consume_budget, spawn_local, yield_now},
};

/// How many local tasks yield in turns.
const YIELDING: usize = 8;
/// How many of a worker's local tasks run between two checks for tasks that other threads have
/// woken.
const LOOK_INTERVAL: usize = 31;
/// The number of operations in one poll of a task.
const BUDGET: usize = 128;
/// How many tasks a set polls before others get their turn.
const TASKS_PER_POLL: usize = 61;

fn flood_by_local_tasks(runtime: &Runtime, course: &Course) {
    let course = course.clone();
    let flood = runtime.handle().spawn_pinned(move || async move {
        for _ in 0..YIELDING {
            let course = course.clone();
            spawn_local(async move {
                while !course.job() {
                    yield_now().await;
                }
            });
        }
    });
    runtime.block_on(flood).unwrap();
}

#[test]
fn ready_local_tasks_delay_timers_and_sockets_by_one_interval() {
    let _alarm = alarm();
    let (runtime, course) = (crate::common::runtime(1), Course::default());
    serve_a_timer(&course);
    flood_by_local_tasks(&runtime, &course);
    // The job of the timer is in the deque, which takes turns with the local tasks.
    assert_within(&course, EVENT_INTERVAL + YIELDING + A_FEW);

    let (runtime, course) = (crate::common::runtime(1), Course::default());
    serve_a_socket(&runtime, &course);
    flood_by_local_tasks(&runtime, &course);
    assert_within(&course, EVENT_INTERVAL + YIELDING + A_FEW);
}

#[test]
fn ready_local_tasks_take_turns_with_global_tasks() {
    let _alarm = alarm();
    let (runtime, course) = (crate::common::runtime(1), Course::default());
    serve_a_task(&course);
    flood_by_local_tasks(&runtime, &course);
    assert_within(&course, A_FEW);

    let (runtime, course) = (crate::common::runtime(1), Course::default());
    serve_an_outsider(&runtime, &course);
    flood_by_local_tasks(&runtime, &course);
    assert_within(&course, GLOBAL_QUEUE_INTERVAL + A_FEW);
}

/// The test counts each operation of the local task as a job.
#[test]
fn a_local_task_that_never_waits_has_a_budget() {
    let _alarm = alarm();
    let (runtime, course) = (crate::common::runtime(1), Course::default());
    serve_a_task(&course);
    let flood = course.clone();
    drop(runtime.handle().spawn_pinned(move || async move {
        while !flood.job() {
            consume_budget().await;
        }
    }));
    assert_within(&course, BUDGET + A_FEW);
}

/// Sets up a local task that another thread wakes during the flood.
fn serve_a_local_task(runtime: &Runtime, course: &Course) {
    let (this, waker) = (course.clone(), Arc::new(Mutex::new(None::<Waker>)));
    let slot = waker.clone();
    let mut waits = true;
    let create = move || {
        poll_fn(move |cx| {
            if std::mem::take(&mut waits) {
                *slot.lock().unwrap() = Some(cx.waker().clone());
                return Poll::Pending;
            }
            this.served();
            Poll::Ready(())
        })
    };
    drop(runtime.handle().spawn_pinned(create));
    crate::common::eventually("it waits", || waker.lock().unwrap().is_some());
    // When this returns, the first poll of the local task has ended.
    on_worker(runtime, || ());
    course.begins_by(move || {
        let waker = waker.lock().unwrap().take().expect("it has left it");
        std::thread::spawn(move || waker.wake()).join().unwrap();
    });
}

#[test]
fn a_remotely_woken_local_task_waits_for_a_bounded_number_of_jobs() {
    let _alarm = alarm();
    let (runtime, course) = (crate::common::runtime(1), Course::default());
    serve_a_local_task(&runtime, &course);
    flood_by_local_tasks(&runtime, &course);
    assert_within(&course, LOOK_INTERVAL + YIELDING + A_FEW);
}

#[test]
fn ready_global_tasks_take_turns_with_a_local_task() {
    let _alarm = alarm();
    let (runtime, course) = (crate::common::runtime(1), Course::default());
    serve_a_local_task(&runtime, &course);
    let flood = course.clone();
    on_worker(&runtime, move || {
        for _ in 0..YIELDING {
            let course = flood.clone();
            tourbillon::spawn(async move {
                while !course.job() {
                    yield_now().await;
                }
            });
        }
    });
    assert_within(&course, A_FEW);
}

#[test]
fn due_timers_take_turns_with_a_local_task() {
    let _alarm = alarm();
    let (runtime, course) = (crate::common::runtime(1), Course::default());
    serve_a_local_task(&runtime, &course);
    let flood = course.clone();
    let timers: Vec<_> = on_worker(&runtime, move || {
        let timers = (0..3_000).map(|_| {
            let course = flood.clone();
            tourbillon::every(Duration::from_nanos(1), move || _ = course.job())
        });
        timers.collect()
    });
    assert_within(&course, A_FEW);
    for timer in timers {
        timer.cancel();
    }
}

#[test]
fn a_ready_local_set_yields_to_the_tasks_of_its_worker() {
    let _alarm = alarm();
    let (runtime, course) = (crate::common::runtime(1), Course::default());
    serve_a_task(&course);
    let flood = course.clone();
    drop(runtime.handle().spawn_pinned(move || async move {
        let set = LocalSet::new();
        for _ in 0..YIELDING {
            let course = flood.clone();
            set.spawn_local(async move {
                while !course.job() {
                    yield_now().await;
                }
            });
        }
        set.await;
    }));
    assert_within(&course, TASKS_PER_POLL + A_FEW);
}
