//! A worker is due to wake, but the system runs another thread on its core. A signal handler
//! simulates this: it interrupts the worker's sleep in the kernel, and does not return.

use std::{
    ptr,
    sync::{
        atomic::{AtomicBool, Ordering::SeqCst},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use tourbillon::{Timer, runtime::Builder};

use crate::common::{PATIENCE, eventually, process::alone};

/// How many timers come due while the worker has no core, one after another.
const COUNT: u64 = 10;
const APART: Duration = Duration::from_millis(10);

/// Whether the handler has begun.
static BEGUN: AtomicBool = AtomicBool::new(false);
/// Whether the handler may end.
static OVER: AtomicBool = AtomicBool::new(false);

extern "C" fn keep(_: i32) {
    BEGUN.store(true, SeqCst);
    while !OVER.load(SeqCst) {
        let moment = libc::timespec {
            tv_sec: 0,
            tv_nsec: 1_000_000,
        };
        // SAFETY: `nanosleep` is allowed in a signal handler, and the pointer is valid.
        unsafe { libc::nanosleep(&moment, ptr::null_mut()) };
    }
    BEGUN.store(false, SeqCst);
}

/// Interrupts a thread of this process until [`OVER`].
fn take_its_core(thread: i32) {
    // SAFETY: all fields of a `sigaction` may be zero. The handler makes only calls that are
    // allowed in a handler.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = keep as extern "C" fn(i32) as usize;
        action.sa_flags = libc::SA_RESTART;
        assert_eq!(libc::sigaction(libc::SIGUSR1, &action, ptr::null_mut()), 0);
        let sent = libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, libc::SIGUSR1);
        assert_eq!(sent, 0);
    }
    eventually("the worker is interrupted", || BEGUN.load(SeqCst));
}

/// Lets the thread go on, and the handler be used again.
fn give_it_back() {
    OVER.store(true, SeqCst);
    eventually("it goes on", || !BEGUN.load(SeqCst));
    OVER.store(false, SeqCst);
}

/// Each of these timers needs a rescue of its own. Otherwise the timers after the first would wait
/// for the worker.
#[test]
fn all_timers_of_a_worker_that_has_no_core_fire_elsewhere() {
    alone(|| {
        let runtime = Builder::new().worker_threads(2).build().unwrap();
        let (fires, fired) = mpsc::channel();
        // SAFETY: `gettid` has no preconditions.
        let me = || unsafe { libc::gettid() };
        let timer = |delay| Timer::after(delay).on(runtime.handle()).on_worker(0);
        let pinned = runtime
            .handle()
            .spawn_pinned_by_idx(move || async move { me() }, 0)
            .unwrap();
        let worker = runtime.block_on(pinned).unwrap();
        // On a busy machine, the first timer may be due before the worker has lost its core. Then
        // this tries again, with more time.
        let times = [100, 1_000, 10_000, 100_000].map(Duration::from_millis);
        let timers = times.into_iter().find_map(|first| {
            let arm = |n| {
                let fires = fires.clone();
                let at = first + APART * n as u32;
                timer(at).start(move || _ = fires.send((n, me())))
            };
            let begin = Instant::now();
            let timers: Vec<_> = (1..=COUNT).map(arm).collect();
            // This lets both workers go to sleep.
            thread::sleep(Duration::from_millis(20));
            take_its_core(worker);
            if begin.elapsed() < first {
                return Some(timers);
            }
            give_it_back();
            for timer in &timers {
                runtime.block_on(timer.cancel_and_wait()).unwrap();
            }
            let _discarded = fired.try_iter().count();
            None
        });
        let timers = timers.expect("a core is taken within minutes");
        // They come due one after another. A rescuer may report later than the next one.
        let mut numbers: Vec<_> = (1..=COUNT)
            .map(|_| {
                let (number, thread) = fired.recv_timeout(PATIENCE).expect("it fires");
                assert_ne!(thread, worker, "it has no core");
                number
            })
            .collect();
        numbers.sort_unstable();
        assert!(numbers.into_iter().eq(1..=COUNT), "each of them once");
        // A timer that is armed while the worker has no core fires, too.
        let fires = fires.clone();
        let late = timer(APART).start(move || _ = fires.send((0, me())));
        assert_eq!(fired.recv_timeout(PATIENCE).expect("it fires").0, 0);
        OVER.store(true, SeqCst);
        drop((timers, late));
    });
}
