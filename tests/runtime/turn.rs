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
use tourbillon::{runtime::Builder, task::yield_now, time::sleep};

use crate::common::{Gate, PATIENCE, alarm, net::pair_with_std};

/// A worker runs the tasks that its jobs have spawned, then its due timers, and only then a job
/// from outside.
#[test]
fn own_jobs_come_first_then_due_timers_then_jobs_from_outside() {
    let _alarm = alarm();
    let builder = Builder::new().worker_threads(1).helpers(0..=0);
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

/// Notes how many jobs had run when it was woken. It is no task, so no job is queued.
struct Noted {
    jobs: Arc<AtomicUsize>,
    at: Arc<Mutex<Vec<usize>>>,
}

impl Wake for Noted {
    fn wake(self: Arc<Self>) {
        self.at.lock().unwrap().push(self.jobs.load(SeqCst));
    }
}

/// Runs `TASKS` tasks that yield, each of whose jobs takes longer than a worker may be away from
/// its loop. Each job leaves a sleep that the next poll finds due. Returns after how many jobs the
/// polls came.
async fn polls_between_slow_jobs() -> Vec<usize> {
    const TASKS: usize = 4;
    const ROUNDS: usize = 16;
    let (jobs, at) = (Arc::new(AtomicUsize::new(0)), Arc::default());
    let tasks: Vec<_> = (0..TASKS)
        .map(|_| {
            let (jobs, at): (_, Arc<Mutex<Vec<usize>>>) = (jobs.clone(), Arc::clone(&at));
            tourbillon::spawn(async move {
                // Each is kept, since a sleep that is dropped wakes nobody.
                let mut sleeps = Vec::new();
                for _ in 0..ROUNDS {
                    let (jobs, at) = (jobs.clone(), at.clone());
                    jobs.fetch_add(1, SeqCst);
                    let waker = Waker::from(Arc::new(Noted { jobs, at }));
                    let mut sleep = Box::pin(sleep(Duration::from_micros(50)));
                    let _ = sleep.as_mut().poll(&mut Context::from_waker(&waker));
                    sleeps.push(sleep);
                    let since = Instant::now();
                    while since.elapsed() < Duration::from_millis(1) {}
                    yield_now().await;
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    let mut at = std::mem::take(&mut *at.lock().unwrap());
    at.dedup();
    at
}

#[test]
fn long_jobs_let_the_worker_poll_more_often_if_a_peer_would_come_otherwise() {
    let _alarm = alarm();
    let runtime = Builder::new()
        .worker_threads(1)
        .event_interval(8)
        .build()
        .unwrap();
    let task = runtime.spawn(polls_between_slow_jobs());
    let at = runtime.block_on(task).unwrap();
    assert!(at.len() > 40, "{at:?}");
}

/// No peer comes to such a worker. So its turns depend on the program alone.
#[test]
fn long_jobs_change_no_turn_of_a_current_thread_runtime() {
    let _alarm = alarm();
    let builder = Builder::new_current_thread();
    let runtime = builder.event_interval(8).build().unwrap();
    assert_apart(&runtime.block_on(polls_between_slow_jobs()), 8);
}

#[test]
fn long_jobs_change_no_turn_if_the_clock_was_ever_paused() {
    let _alarm = alarm();
    let builder = Builder::new();
    let builder = builder
        .worker_threads(1)
        .event_interval(8)
        .start_paused(true);
    let runtime = builder.build().unwrap();
    let task = runtime.spawn(async {
        tourbillon::time::resume();
        polls_between_slow_jobs().await
    });
    assert_apart(&runtime.block_on(task).unwrap(), 8);
}

/// Requires that so many jobs ran between each two polls. The queue runs empty after the last one.
fn assert_apart(polls: &[usize], jobs: usize) {
    let gaps: Vec<_> = polls.windows(2).map(|two| two[1] - two[0]).collect();
    let (last, others) = gaps.split_last().unwrap();
    assert!(others.len() >= 4, "{polls:?}");
    assert!(
        others.iter().all(|&gap| gap == jobs) && *last <= jobs,
        "{polls:?}"
    );
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
    let builder = Builder::new().worker_threads(2).helpers(0..=0);
    let runtime = builder.rescue_latency(Duration::MAX).build().unwrap();
    let mut pairs = [0, 1].map(|worker| {
        let pair = runtime.spawn_pinned_by_idx(pair_with_std, worker).unwrap();
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
