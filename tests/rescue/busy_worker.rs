//! A timer that is armed remotely while one worker is blocked goes to a worker that sleeps.
//!
//! The runtime promises to choose a worker that sleeps, or that was woken and has not run yet,
//! before one that is awake. With more than two workers this holds if it is the next in turn or the
//! one after.
//!
//! It does not promise that timers on the shard of the blocked worker fire in time: those that were
//! armed before, or while all workers were awake. `blocked_worker.rs` has the tests for these.

use std::{
    fs,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    time::{Duration, Instant},
};

use crate::common::{
    HOUR, PATIENCE, alarm, eventually, rounds,
    timers::{Report, reporter},
    told::worker_number,
};
use tourbillon::{Runtime, metrics::Activity, runtime::Builder, time::sleep};

/// A runtime of two workers. One worker runs in circles until this is dropped. The other has only
/// a timer that is an hour away.
struct HalfBusy {
    runtime: Runtime,
    let_go: Arc<AtomicBool>,
    /// The number of the worker that runs in circles, and that of the other one.
    numbers: [usize; 2],
    /// The id of the other worker's thread.
    other: libc::pid_t,
}

fn thread_id() -> libc::pid_t {
    // SAFETY: `gettid` has no preconditions.
    unsafe { libc::gettid() }
}

impl HalfBusy {
    fn new() -> Self {
        let threads: Arc<Mutex<Vec<libc::pid_t>>> = Arc::default();
        let started = threads.clone();
        let runtime = Builder::new()
            .worker_threads(2)
            .on_thread_start(move || started.lock().unwrap().push(thread_id()))
            .build()
            .unwrap();
        eventually("both workers started", || {
            threads.lock().unwrap().len() == 2
        });
        let let_go = Arc::new(AtomicBool::new(false));
        let stop = let_go.clone();
        let (sender, receiver) = mpsc::channel();
        runtime.handle().after(Duration::ZERO, move || {
            sender.send((thread_id(), worker_number())).unwrap();
            while !stop.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        });
        let (busy, number) = receiver.recv_timeout(PATIENCE).unwrap();
        let number = number.expect("a callback runs on a worker");
        let threads = threads.lock().unwrap();
        let other = *threads.iter().find(|&&thread| thread != busy).unwrap();
        let this = Self {
            runtime,
            let_go,
            numbers: [number, 1 - number],
            other,
        };
        this.wait_until_the_other_sleeps();
        drop(this.runtime.handle().after(HOUR, || ()));
        this.wait_until_the_other_sleeps();
        this
    }

    /// Waits until the thread of the other worker sleeps. It then waits in epoll, as a rule, and a
    /// thread that arms a timer there wakes it.
    fn wait_until_the_other_sleeps(&self) {
        eventually("the other worker sleeps", || self.other_sleeps());
    }

    fn other_sleeps(&self) -> bool {
        let stat = fs::read_to_string(format!("/proc/self/task/{}/stat", self.other)).unwrap();
        // The state follows the thread's name, which is in brackets.
        stat.rsplit(") ").next().unwrap().starts_with('S')
    }

    /// Returns how often the workers went to sleep.
    fn parks(&self) -> u64 {
        self.runtime.metrics().total().parks()
    }

    /// Returns whether the other worker has announced that it sleeps, and has not taken it back.
    fn other_is_parked(&self) -> bool {
        let (activity, _) = &self.runtime.handle().activities()[self.numbers[1]];
        *activity == Activity::Parked
    }

    /// Returns how many timers were given to the shard of the worker that runs in circles, and to
    /// that of the other one.
    fn armed(&self) -> [u64; 2] {
        let metrics = self.runtime.metrics();
        self.numbers
            .map(|number| metrics.workers()[number].counts().armed())
    }
}

impl Drop for HalfBusy {
    fn drop(&mut self) {
        self.let_go.store(true, Ordering::Relaxed);
    }
}

#[track_caller]
fn fires(receiver: &mpsc::Receiver<Report>) {
    let (asked, ran) = receiver
        .recv_timeout(PATIENCE)
        .expect("it waits for the worker that is stuck");
    assert!(ran >= asked, "early by {:?}", asked - ran);
}

/// In sylar, such timers were 190 ms late, as long as the callback took. They went to the busy
/// thread, and the other thread slept until its own next timer.
#[test]
fn remote_timers_go_to_the_sleeping_worker() {
    let _alarm = alarm();
    let half_busy = HalfBusy::new();
    let (sender, receiver) = mpsc::channel();
    for _ in 0..100 {
        let asked = Instant::now() + Duration::from_millis(10);
        drop(
            half_busy
                .runtime
                .handle()
                .at(asked, reporter(&sender, asked)),
        );
        fires(&receiver);
        half_busy.wait_until_the_other_sleeps();
    }
    // The stuck worker has the timer whose callback it runs, and hardly any other. If the workers
    // took turns, it would have half of the timers. (Either worker may get a timer that is armed
    // while the other worker is awake for a moment, for example to look after the stuck one.)
    let [stuck, other] = half_busy.armed();
    assert_eq!(stuck + other, 102);
    assert!(stuck <= 1 + 25, "{stuck} went to the one that is stuck");
}

/// This holds for a thread that has entered the runtime or runs a future there, as for any remote
/// thread.
#[test]
fn an_entered_thread_avoids_the_blocked_worker() {
    let _alarm = alarm();
    let half_busy = HalfBusy::new();
    let (sender, receiver) = mpsc::channel();
    for _ in 0..20 {
        {
            let _entered = half_busy.runtime.enter();
            let asked = Instant::now() + Duration::from_millis(2);
            drop(tourbillon::at(asked, reporter(&sender, asked)));
        }
        fires(&receiver);
        half_busy.wait_until_the_other_sleeps();
        let done = sender.clone();
        let handle = half_busy.runtime.handle().clone();
        std::thread::spawn(move || {
            let asked = Instant::now() + Duration::from_millis(2);
            handle.block_on(sleep(Duration::from_millis(2)));
            let _ = done.send((asked, Instant::now()));
        });
        fires(&receiver);
        half_busy.wait_until_the_other_sleeps();
    }
}

/// The worker sleeps until a deadline before those of these timers, so arming them does not wake
/// it.
#[test]
fn timers_that_need_no_wake_up_go_to_the_sleeping_worker() {
    let _alarm = alarm();
    let half_busy = HalfBusy::new();
    // The watchdog of the stuck worker wakes the other worker every few ms, and an awake worker may
    // get timers. So only a round counts in which the other worker slept on.
    let slept_on = rounds(u64::MAX).any(|_| {
        half_busy.wait_until_the_other_sleeps();
        let ([stuck, other], parks) = (half_busy.armed(), half_busy.parks());
        for _ in 0..100 {
            drop(half_busy.runtime.handle().after(2 * HOUR, || ()));
        }
        // If it was awake in this round and sleeps at the end, it has parked, and `parks`, which
        // is read last, shows it. A thread may also sleep because it waits for a lock on its way
        // back from its epoll instance: then it is parked no longer.
        let slept_on =
            half_busy.other_sleeps() && half_busy.other_is_parked() && half_busy.parks() == parks;
        if slept_on {
            assert_eq!(half_busy.armed(), [stuck, other + 100]);
        }
        slept_on
    });
    assert!(slept_on, "the other worker never slept through a round");
}
