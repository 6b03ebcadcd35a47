//! Under each kind of flood a worker serves its timers, sockets, tasks and remote spawns after a
//! bounded number of jobs. The tests count jobs on one worker. None depends on time.
//!
//! `docs/reference/limits.md` has the bounds.

use std::{
    future::{Future, poll_fn},
    io::Write,
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
        mpsc,
    },
    task::{Context, Poll, Wake, Waker},
    time::{Duration, Instant},
};

use crate::common::{
    PATIENCE, alarm,
    course::{
        A_FEW, Course, EVENT_INTERVAL, GLOBAL_QUEUE_INTERVAL, assert_within, serve_a_socket,
        serve_a_task, serve_a_timer, serve_an_outsider,
    },
    net::pair_with_std,
    on_worker, spin,
};
use futures_lite::AsyncReadExt;
use tourbillon::{
    Runtime,
    runtime::{Builder, worker_index},
    task::yield_now,
    time,
};

/// An upper bound on how many due timers a worker queues at a time. The others wait in the shard.
const DUE_QUEUED: usize = 16;

fn runtime() -> Runtime {
    crate::common::runtime(1)
}

/// How many tasks yield in turns.
const YIELDING: usize = 8;

fn flood_by_yielding(runtime: &Runtime, course: &Course) {
    flood_by(YIELDING, runtime, course);
}

fn flood_by(tasks: usize, runtime: &Runtime, course: &Course) {
    let course = course.clone();
    on_worker(runtime, move || {
        for _ in 0..tasks {
            let course = course.clone();
            tourbillon::spawn(async move {
                while !course.job() {
                    yield_now().await;
                }
            });
        }
    });
}

/// Floods the worker with two tasks that wake each other through the LIFO slot.
fn flood_by_waking(runtime: &Runtime, course: &Course) {
    let wakers: Arc<Mutex<[Option<Waker>; 2]>> = Arc::default();
    for me in [0, 1] {
        let (course, wakers) = (course.clone(), wakers.clone());
        runtime.spawn(poll_fn(move |cx| {
            let over = course.job();
            let other = {
                let mut wakers = wakers.lock().unwrap();
                wakers[me] = Some(cx.waker().clone());
                wakers[1 - me].take()
            };
            if let Some(other) = other {
                other.wake();
            }
            if over { Poll::Ready(()) } else { Poll::Pending }
        }));
    }
}

/// Floods the worker with recurring timers that are always due. Returns the timers.
fn flood_by_timers(runtime: &Runtime, course: &Course) -> Vec<tourbillon::Timer> {
    let course = course.clone();
    on_worker(runtime, move || {
        let timers = (0..3_000).map(|_| {
            let course = course.clone();
            tourbillon::every(Duration::from_nanos(1), move || {
                course.job();
            })
        });
        timers.collect()
    })
}

/// Floods the worker with 100,000 timers that come due at the same moment.
fn flood_by_one_moment(runtime: &Runtime, course: &Course) {
    let course = course.clone();
    on_worker(runtime, move || {
        let at = Instant::now() + Duration::from_millis(1);
        for _ in 0..100_000 {
            let course = course.clone();
            drop(tourbillon::at(at, move || {
                course.job();
            }));
        }
        while Instant::now() < at {}
    });
}

#[test]
fn ready_tasks_delay_a_socket_by_one_interval() {
    let _alarm = alarm();
    for interval in [1, 5, 61] {
        let runtime = Builder::new()
            .worker_threads(1)
            .event_interval(interval)
            .build()
            .unwrap();
        let course = Course::default();
        serve_a_socket(&runtime, &course);
        flood_by_yielding(&runtime, &course);
        assert_within(&course, interval as usize + YIELDING + A_FEW);
    }
}

#[test]
fn ready_tasks_delay_a_timer_by_one_interval() {
    let _alarm = alarm();
    let (runtime, course) = (runtime(), Course::default());
    serve_a_timer(&course);
    flood_by_yielding(&runtime, &course);
    assert_within(&course, EVENT_INTERVAL + YIELDING + A_FEW);
}

/// The length of the deque does not matter: a poll takes at least as many timers as jobs have run
/// since the last poll.
#[test]
fn ready_tasks_leave_half_of_the_worker_to_timers() {
    const TIMERS: usize = 3_000;
    let _alarm = alarm();
    for tasks in [
        1,
        YIELDING,
        DUE_QUEUED - 6,
        DUE_QUEUED - 1,
        DUE_QUEUED,
        50,
        200,
    ] {
        let (runtime, course) = (runtime(), Course::default());
        let (left, this) = (Arc::new(AtomicUsize::new(TIMERS)), course.clone());
        course.begins_by(move || {
            let at = Instant::now() + Duration::from_millis(5);
            for _ in 0..TIMERS {
                let (left, course) = (left.clone(), this.clone());
                let ran = move || {
                    if left.fetch_sub(1, SeqCst) == 1 {
                        course.served();
                    }
                };
                drop(tourbillon::at(at, ran));
            }
            while Instant::now() < at {}
        });
        flood_by(tasks, &runtime, &course);
        assert_within(&course, TIMERS + TIMERS / 2 + 2 * tasks);
    }
}

#[test]
fn ready_tasks_delay_a_remote_spawn_by_one_interval() {
    let _alarm = alarm();
    let (runtime, course) = (runtime(), Course::default());
    serve_an_outsider(&runtime, &course);
    flood_by_yielding(&runtime, &course);
    assert_within(&course, GLOBAL_QUEUE_INTERVAL + A_FEW);
}

#[test]
fn tasks_that_wake_each_other_cause_no_longer_delay() {
    let _alarm = alarm();
    let runtime = runtime();
    let course = Course::default();
    serve_a_task(&course);
    flood_by_waking(&runtime, &course);
    // The worker runs three jobs from the LIFO slot for each job from the deque.
    assert_within(&course, 4 + A_FEW);

    let course = Course::default();
    serve_a_timer(&course);
    flood_by_waking(&runtime, &course);
    assert_within(&course, EVENT_INTERVAL + 4 + A_FEW);

    let course = Course::default();
    serve_a_socket(&runtime, &course);
    flood_by_waking(&runtime, &course);
    assert_within(&course, EVENT_INTERVAL + 4 + A_FEW);

    let course = Course::default();
    serve_an_outsider(&runtime, &course);
    flood_by_waking(&runtime, &course);
    assert_within(&course, GLOBAL_QUEUE_INTERVAL + A_FEW);
}

/// The bound for work behind timers: the timers that are queued when the work becomes ready, and
/// the timers of the poll that finds the work.
const BEHIND_TIMERS: usize = DUE_QUEUED + 2 * EVENT_INTERVAL + A_FEW;

#[test]
fn due_timers_delay_other_work_by_the_queue_only() {
    let _alarm = alarm();
    for serve in [
        |_: &Runtime, course: &Course| serve_a_task(course),
        serve_a_socket,
        serve_an_outsider,
    ] {
        let (runtime, course) = (runtime(), Course::default());
        serve(&runtime, &course);
        let timers = flood_by_timers(&runtime, &course);
        assert_within(&course, BEHIND_TIMERS);
        for timer in timers {
            timer.cancel();
        }
    }
}

/// The worker queues due timers in batches, so other work waits for one batch and not for all
/// timers.
#[test]
fn a_hundred_thousand_due_timers_delay_other_work_by_a_batch_only() {
    let _alarm = alarm();
    for serve in [
        |_: &Runtime, course: &Course| serve_a_task(course),
        serve_a_socket,
        serve_an_outsider,
    ] {
        let (runtime, course) = (runtime(), Course::default());
        serve(&runtime, &course);
        flood_by_one_moment(&runtime, &course);
        assert_within(&course, BEHIND_TIMERS);
    }
}

/// Each socket is always ready and has a task that reads it.
#[test]
fn ready_sockets_delay_a_timer_by_one_interval() {
    const SOCKETS: usize = 32;
    let _alarm = alarm();
    let (runtime, course) = (runtime(), Course::default());
    serve_a_timer(&course);
    let mut pairs = Vec::new();
    for _ in 0..SOCKETS {
        pairs.push(runtime.block_on(runtime.spawn(pair_with_std())).unwrap());
    }
    for (mut ours, mut theirs) in pairs {
        let course = course.clone();
        runtime.spawn(async move {
            // Each byte causes one event and one poll of the task.
            while !course.job() {
                theirs.write_all(&[1]).unwrap();
                ours.read_exact(&mut [0]).await.unwrap();
                yield_now().await;
            }
        });
    }
    assert_within(&course, EVENT_INTERVAL + SOCKETS + A_FEW);
}

/// A sleep without a task. Its waker arms the next sleep.
struct Restless {
    sleep: Mutex<Option<Pin<Box<time::Sleep>>>>,
    course: Course,
}

impl Restless {
    fn arm(self: &Arc<Self>) {
        let waker = Waker::from(self.clone());
        let mut wait = Duration::from_micros(1);
        loop {
            let mut sleep = Box::pin(time::sleep(wait));
            wait *= 2;
            // If the deadline has already passed, the sleep is ready in this poll and never calls
            // the waker. In that case, arm a longer sleep.
            if sleep
                .as_mut()
                .poll(&mut Context::from_waker(&waker))
                .is_pending()
            {
                *self.sleep.lock().unwrap() = Some(sleep);
                return;
            }
        }
    }
}

impl Wake for Restless {
    fn wake(self: Arc<Self>) {
        if !self.course.job() {
            self.arm();
        }
    }
}

/// Sleeps without tasks run no jobs. The worker must still poll for other work after one round.
#[test]
fn sleeps_without_tasks_delay_other_work_by_one_round_only() {
    let _alarm = alarm();
    for serve in [serve_a_socket, serve_an_outsider] {
        let (runtime, course) = (runtime(), Course::default());
        serve(&runtime, &course);
        let this = course.clone();
        on_worker(&runtime, move || {
            for _ in 0..3_000 {
                let restless = Restless {
                    sleep: Mutex::default(),
                    course: this.clone(),
                };
                Arc::new(restless).arm();
            }
        });
        assert_within(&course, 2 * DUE_QUEUED);
    }
}

/// A long job is not interrupted. Events that are due during the job are served after it.
#[test]
fn a_long_job_is_not_interrupted() {
    let _alarm = alarm();
    let runtime = runtime();
    let (sender, receiver) = mpsc::channel();
    let ran = on_worker(&runtime, move || {
        let at = Instant::now();
        let timer = tourbillon::at(at, move || sender.send(()).unwrap());
        spin(Duration::from_millis(20));
        timer.is_pending()
    });
    assert!(ran, "it waits");
    receiver.recv_timeout(PATIENCE).unwrap();
}

/// While one of the two runs, the queue of its worker holds only the other one.
#[test]
fn two_tasks_that_yield_get_a_worker_each() {
    let _alarm = alarm();
    let runtime = crate::common::runtime(2);
    // The worker, from one, that polled each task last.
    let polled = Arc::new([AtomicUsize::new(0), AtomicUsize::new(0)]);
    let (sender, receiver) = mpsc::channel();
    let tasks = [0, 1].map(|me| {
        let (polled, sender) = (polled.clone(), sender.clone());
        async move {
            loop {
                let here = worker_index().map_or(0, |index| index + 1);
                polled[me].store(here, SeqCst);
                if ![0, here].contains(&polled[1 - me].load(SeqCst)) {
                    // The test may have ended.
                    let _ = sender.send(());
                }
                yield_now().await;
            }
        }
    });
    on_worker(&runtime, || drop(tasks.map(tourbillon::spawn)));
    receiver.recv_timeout(PATIENCE).unwrap();
}
