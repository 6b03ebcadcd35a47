//! What one turn of a worker does, and in which order.

use std::{
    future::Future,
    io::Write,
    pin::pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
        mpsc,
    },
    task::{Context, Wake, Waker},
    thread,
    time::{Duration, Instant},
};

use futures_lite::AsyncReadExt;
use tourbillon::{Runtime, runtime::Builder, task::yield_now, time::sleep};

use crate::common::{Gate, PATIENCE, alarm, net::pair_with_std, spin};

/// A worker runs the tasks that its jobs have spawned, then its due timers, and only then a job
/// from outside.
#[test]
fn own_jobs_come_first_then_due_timers_then_jobs_from_outside() {
    let _alarm = alarm();
    let mut builder = Builder::new();
    builder.worker_threads(1).helpers(0..=0);
    // The worker never prefers the injector, nor polls before its queues are empty.
    let runtime = builder
        .global_queue_interval(u32::MAX)
        .event_interval(u32::MAX)
        .build()
        .unwrap();
    let (sender, ran) = mpsc::channel();
    let (begun, begins) = mpsc::channel();
    let (go_on, waits) = mpsc::channel::<()>();
    let ours = sender.clone();
    runtime.spawn(async move {
        let due = Instant::now();
        let timers = ours.clone();
        drop(tourbillon::at(due, move || timers.send("timer").unwrap()));
        for _ in 0..3 {
            let own = ours.clone();
            tourbillon::spawn(async move { own.send("own").unwrap() });
        }
        begun.send(()).unwrap();
        waits.recv_timeout(PATIENCE).unwrap();
        while Instant::now() <= due {}
    });
    begins.recv_timeout(PATIENCE).unwrap();
    runtime.spawn(async move { sender.send("outside").unwrap() });
    go_on.send(()).unwrap();
    let order: Vec<_> = ran.iter().take(5).collect();
    assert_eq!(order, ["own", "own", "own", "timer", "outside"]);
}

/// How many jobs may run between two polls.
const INTERVAL: usize = 8;

fn build(builder: &mut Builder) -> Runtime {
    builder.event_interval(INTERVAL as u32).build().unwrap()
}

/// Counts jobs, and notes how many had run each time that it was woken. It is no task, so a wake
/// queues no job.
#[derive(Default)]
struct Noted {
    jobs: AtomicUsize,
    woken_after: Mutex<Vec<usize>>,
}

impl Wake for Noted {
    fn wake(self: Arc<Self>) {
        let jobs = self.jobs.load(SeqCst);
        self.woken_after.lock().unwrap().push(jobs);
    }
}

/// How many tasks yield.
const TASKS: usize = 4;

/// Runs tasks that yield, each of whose jobs takes longer than a worker may be away from its loop.
/// Each job leaves a sleep that the next poll finds due. Returns after how many jobs the polls
/// came.
fn polls_between_slow_jobs(runtime: &Runtime) -> Vec<usize> {
    const ROUNDS: usize = 16;
    let noted = Arc::new(Noted::default());
    let (noting, waker) = (noted.clone(), Waker::from(noted.clone()));
    let all = runtime.spawn(async move {
        let task = |_| {
            let (noted, waker) = (noting.clone(), waker.clone());
            tourbillon::spawn(async move {
                // Each is kept, since a sleep that is dropped wakes nobody.
                let mut sleeps = Vec::new();
                for _ in 0..ROUNDS {
                    noted.jobs.fetch_add(1, SeqCst);
                    let mut sleep = Box::pin(sleep(Duration::from_micros(50)));
                    let _ = sleep.as_mut().poll(&mut Context::from_waker(&waker));
                    sleeps.push(sleep);
                    spin(Duration::from_millis(1));
                    yield_now().await;
                }
            })
        };
        let tasks: Vec<_> = (0..TASKS).map(task).collect();
        for task in tasks {
            task.await.unwrap();
        }
    });
    runtime.block_on(all).unwrap();
    let mut polls = std::mem::take(&mut *noted.woken_after.lock().unwrap());
    // A poll wakes several.
    polls.dedup();
    polls
}

#[test]
fn long_jobs_let_the_worker_poll_more_often_if_a_peer_would_come_otherwise() {
    let _alarm = alarm();
    let runtime = build(Builder::new().worker_threads(1));
    let polls = polls_between_slow_jobs(&runtime);
    assert!(polls.len() > 40, "{polls:?}");
}

/// No peer comes to such a worker. So its turns depend on the program alone: it polls before a task
/// that has yielded runs again.
#[test]
fn long_jobs_change_no_turn_of_a_current_thread_runtime() {
    let _alarm = alarm();
    let runtime = build(&mut Builder::new_current_thread());
    assert_apart(&polls_between_slow_jobs(&runtime), TASKS);
}

#[test]
fn long_jobs_change_no_turn_if_the_clock_was_ever_paused() {
    let _alarm = alarm();
    let runtime = build(Builder::new().worker_threads(1).start_paused(true));
    runtime.resume_clock();
    assert_apart(&polls_between_slow_jobs(&runtime), INTERVAL);
}

/// Requires that so many jobs ran between each two polls. The queue runs empty after the last one.
fn assert_apart(polls: &[usize], jobs: usize) {
    let gaps: Vec<_> = polls.windows(2).map(|two| two[1] - two[0]).collect();
    let (last, others) = gaps.split_last().unwrap();
    assert!(others.len() >= 4, "{polls:?}");
    assert!(others.iter().all(|&gap| gap == jobs), "{polls:?}");
    assert!(*last <= jobs, "{polls:?}");
}

/// Blocks the thread that wakes it until a task has run.
struct Blocking {
    ran: Gate,
    woken: Gate,
}

impl Wake for Blocking {
    fn wake(self: Arc<Self>) {
        self.ran.wait();
        self.woken.open();
    }
}

/// A worker that is woken to search may find a ready socket at the same moment. The waker of the
/// socket is user code: while the worker still counted as a searcher, no other one would be woken.
#[test]
fn a_waker_that_blocks_keeps_no_worker_from_being_woken() {
    let _alarm = alarm();
    // Otherwise a peer would find the task when the worker is away for too long.
    let mut builder = Builder::new();
    builder.worker_threads(2).helpers(0..=0);
    let runtime = builder.rescue_latency(Duration::MAX).build().unwrap();
    let mut pairs = [0, 1].map(|worker| {
        let pair = runtime
            .handle()
            .spawn_pinned_by_idx(pair_with_std, worker)
            .unwrap();
        runtime.block_on(pair).unwrap()
    });
    for round in 0..400 {
        let (ours, theirs) = &mut pairs[round % 2];
        let (ran, woken) = (Gate::new(), Gate::new());
        let open = ran.clone();
        let waker = Waker::from(Arc::new(Blocking {
            ran: ran.clone(),
            woken: woken.clone(),
        }));
        let mut byte = [0];
        let mut read = pin!(ours.read(&mut byte));
        let cx = &mut Context::from_waker(&waker);
        assert!(read.as_mut().poll(cx).is_pending());
        // Let both workers go to sleep.
        thread::sleep(Duration::from_micros(200));
        theirs.write_all(&[1]).unwrap();
        runtime.spawn(async move { open.open() });
        assert!(ran.wait_for(PATIENCE), "no worker was woken for the task");
        woken.wait();
        assert!(read.poll(cx).is_ready());
    }
}
