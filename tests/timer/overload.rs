//! More timers come due than the machine can run. They are late, but each runs once, in the order
//! of the deadlines, and the queue stays within its bound. Afterwards the runtime is as before.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
        mpsc,
    },
    time::{Duration, Instant},
};

use crate::common::{PATIENCE, alarm, eventually, on_worker, runtime, spin, told::read_inboxes};
use tourbillon::Runtime;

const TIMERS: usize = 15_000;
/// The time in which the timers come due. Their work takes five times as long.
const SPREAD: Duration = Duration::from_millis(200);
const WORK: Duration = Duration::from_micros(66);
/// The number of recurring timers, each of which wants to run every millisecond.
const RECURRING: usize = 40;
/// The most jobs that are queued at one time: a batch of due timers, and the jobs of two intervals.
const QUEUED: usize = 256 + 2 * 61;

/// Checks that nothing is left of the burst and that a fresh timer fires.
fn assert_recovered(runtime: &Runtime) {
    eventually("nothing is pending", || {
        // A worker that sleeps does not learn of a cancelled timer until it wakes.
        read_inboxes(runtime.handle());
        let metrics = runtime.metrics();
        let left = |worker: &tourbillon::metrics::WorkerMetrics| {
            worker.stored() + worker.garbage() + worker.queue_depth()
        };
        metrics.workers().iter().map(left).sum::<usize>() == 0
    });
    let (sender, receiver) = mpsc::channel();
    let asked = Instant::now() + Duration::from_millis(5);
    drop(
        runtime
            .handle()
            .at(asked, move || sender.send(Instant::now()).unwrap()),
    );
    let ran = receiver.recv_timeout(PATIENCE).expect("it runs");
    assert!(ran >= asked);
}

#[test]
fn one_overloaded_worker_runs_all_timers_once_in_deadline_order() {
    let _alarm = alarm();
    let runtime = runtime(1);
    let ran: Arc<Mutex<Vec<usize>>> = Arc::default();
    let (deepest, again) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let recurring = {
        let (ran, deepest, again) = (ran.clone(), deepest.clone(), again.clone());
        let handle = runtime.handle().clone();
        // One job on the worker arms all timers, so they are all in its shard before any can run.
        on_worker(&runtime, move || {
            // The recurring timers come first, so that their turn is before that of the rest.
            let recurring = (0..RECURRING).map(|_| {
                let again = again.clone();
                tourbillon::every(Duration::from_millis(1), move || {
                    spin(WORK);
                    again.fetch_add(1, SeqCst);
                })
            });
            let recurring: Vec<_> = recurring.collect();
            let start = Instant::now() + Duration::from_millis(10);
            // The stride and the number of timers are coprime, so all timers are armed, but not in
            // order.
            for i in (0..TIMERS).map(|i| i * 7_919 % TIMERS) {
                let (ran, deepest, handle) = (ran.clone(), deepest.clone(), handle.clone());
                let at = start + SPREAD * i as u32 / TIMERS as u32;
                drop(tourbillon::at(at, move || {
                    assert!(Instant::now() >= at, "early");
                    spin(WORK);
                    let depth = handle.metrics().workers()[0].queue_depth();
                    deepest.fetch_max(depth, SeqCst);
                    ran.lock().unwrap().push(i);
                }));
            }
            recurring
        })
    };
    eventually("all have run", || ran.lock().unwrap().len() >= TIMERS);
    for timer in recurring {
        timer.blocking_cancel_and_wait().unwrap();
    }
    assert_recovered(&runtime);
    let ran = ran.lock().unwrap();
    assert!(ran.iter().copied().eq(0..TIMERS), "each once, in order");
    let deepest = deepest.load(SeqCst);
    assert!(deepest <= QUEUED, "{deepest} were queued");
    assert!(
        again.load(SeqCst) >= RECURRING,
        "and those that recur had their turns"
    );
}

#[test]
fn overloaded_workers_run_all_timers_once() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let runs: Arc<Vec<AtomicUsize>> = Arc::new((0..2 * TIMERS).map(|_| 0.into()).collect());
    let over = Arc::new(AtomicUsize::new(0));
    let recurring: Vec<_> = (0..2 * RECURRING)
        .map(|_| {
            runtime
                .handle()
                .every(Duration::from_millis(1), || spin(WORK))
        })
        .collect();
    let start = Instant::now();
    for i in 0..2 * TIMERS {
        let (runs, over) = (runs.clone(), over.clone());
        let at = start + SPREAD * i as u32 / TIMERS as u32;
        drop(runtime.handle().at(at, move || {
            spin(WORK);
            runs[i].fetch_add(1, SeqCst);
            over.fetch_add(1, SeqCst);
        }));
    }
    eventually("all have run", || over.load(SeqCst) >= 2 * TIMERS);
    for timer in recurring {
        timer.blocking_cancel_and_wait().unwrap();
    }
    assert_recovered(&runtime);
    assert!(runs.iter().all(|runs| runs.load(SeqCst) == 1));
    assert_eq!(over.load(SeqCst), 2 * TIMERS);
}
