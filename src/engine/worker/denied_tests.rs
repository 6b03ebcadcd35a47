//! A worker of a real-time class whose shard is locked by a normal thread of its core.

use std::{
    fs,
    ops::ControlFlow,
    sync::{Arc, atomic::AtomicBool, atomic::Ordering::SeqCst, mpsc},
    thread,
    time::Duration,
};

use tourbillon_shards::{Options, Reset, Timer};
use tourbillon_support::skip::skip_test;

use crate::{runtime::Builder, sys, util::nanos::nanos};

/// How often the worker sleeps before the holder releases the lock.
const SLEEPS: u64 = 10;
/// The processor time, in ns, after which a worker that has not slept never will. Ten sleeps take
/// far less.
const RESTLESS: u64 = 500_000_000;
const HOUR: Duration = Duration::from_secs(3_600);

/// A thread, as another one sees it.
#[derive(Clone, Copy)]
struct Thread {
    id: libc::pid_t,
    clock: libc::clockid_t,
}

impl Thread {
    fn current() -> Self {
        // SAFETY: both calls are about the calling thread. The second one writes a clock's number.
        unsafe {
            let mut clock = 0;
            let own = libc::pthread_self();
            assert_eq!(libc::pthread_getcpuclockid(own, &mut clock), 0);
            let id = libc::gettid();
            Self { id, clock }
        }
    }

    /// Returns the thread's processor time, in ns.
    fn processor_time(self) -> u64 {
        // SAFETY: a timespec of zeros is valid, and the call writes one.
        let time = unsafe {
            let mut time: libc::timespec = std::mem::zeroed();
            assert_eq!(libc::clock_gettime(self.clock, &mut time), 0);
            time
        };
        nanos(Duration::new(time.tv_sec as u64, time.tv_nsec as u32))
    }

    /// Returns how often the thread has left its core to sleep. A yield does not count.
    fn sleeps(self) -> u64 {
        let status = fs::read_to_string(format!("/proc/self/task/{}/status", self.id)).unwrap();
        let mut lines = status.lines();
        let count = lines.find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        count.expect("Linux counts them").trim().parse().unwrap()
    }
}

/// Makes the calling thread one of the class `SCHED_FIFO` on the first core.
fn become_real_time() -> bool {
    let priority: libc::c_int = 1;
    // SAFETY: `sched_param` begins with the priority, the only part that the kernel reads.
    let set = unsafe {
        let (call, class) = (libc::SYS_sched_setscheduler, libc::SCHED_FIFO);
        libc::syscall(call, 0, class, &raw const priority)
    };
    sys::cpu::pin(0) && set == 0
}

/// The worker sleeps in the end, and so lets the holder compute. If it only yielded, it would take
/// all of its core, or as much as the system lets real-time threads have.
///
/// The holder counts the sleeps. Times would depend on who else wants the core: the longer the
/// holder waits for it, the more processor time the sleeps take together.
#[test]
fn a_real_time_worker_lets_the_holder_of_its_shard_run() {
    let is_real_time = Arc::new(AtomicBool::new(false));
    let became = is_real_time.clone();
    let runtime = Builder::new()
        .worker_threads(1)
        // No helper comes to the timer.
        .helpers(0..=0)
        .on_thread_start(move || became.store(become_real_time(), SeqCst))
        .build()
        .unwrap();
    let worker = runtime.block_on(runtime.spawn(async { Thread::current() }));
    let worker = worker.unwrap();
    if !is_real_time.load(SeqCst) {
        return skip_test(thread::current().name(), "no thread of a real-time class");
    }
    let (ends, sleeps) = mpsc::channel();
    let handle = runtime.handle().clone();
    let shared = handle.shared().clone();
    thread::spawn(move || {
        assert!(sys::cpu::pin(0));
        let shard = shared.workers.load()[0].clone();
        let now = shared.clock.now();
        // The condition is asked under the lock, once its timer was moved later. It makes a timer
        // due: the worker is denied the lock meanwhile.
        let condition = move || {
            let (begin, slept) = (worker.processor_time(), worker.sleeps());
            handle.after(Duration::ZERO, || ());
            let sleeps = || worker.sleeps() - slept;
            while sleeps() < SLEEPS && worker.processor_time() - begin < RESTLESS {}
            ends.send(sleeps()).unwrap();
            true
        };
        let options = Options {
            deadline: Some(now + nanos(HOUR)),
            condition: Some(Box::new(condition)),
            ..Options::default()
        };
        let call = |_| ControlFlow::Continue(());
        let timer = Timer::build(&shard, 1, options, call);
        timer.start(now);
        // Into the store.
        shard.settle();
        assert_eq!(timer.reset_at(now + nanos(3 * HOUR)), Reset::Pending);
        shard.expire(now + nanos(2 * HOUR), usize::MAX, &mut Vec::new());
        timer.cancel();
    })
    .join()
    .unwrap();
    assert!(sleeps.recv().unwrap() >= SLEEPS, "the worker yields");
}
