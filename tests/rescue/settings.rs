//! How often a healthy worker sets its alarm.

use std::{
    ffi::c_int,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

use crate::common::{eventually, process::alone};
use tourbillon::{runtime::Builder, task::yield_now};

/// How many times this process has set a timerfd.
static SETTINGS: AtomicU64 = AtomicU64::new(0);

/// Counts, and makes the system call. The linker takes this function before that of the C library.
///
/// # Safety
///
/// `new` points to a value. `old` points to a value, too, or is null.
#[unsafe(no_mangle)]
unsafe extern "C" fn timerfd_settime(
    fd: c_int,
    flags: c_int,
    new: *const libc::itimerspec,
    old: *mut libc::itimerspec,
) -> c_int {
    SETTINGS.fetch_add(1, Relaxed);
    // SAFETY: the caller vouches for both pointers.
    unsafe { libc::syscall(libc::SYS_timerfd_settime, fd, flags, new, old) as c_int }
}

/// A busy worker is in its loop every few µs, and sets its alarm about twice in a latency. Peers
/// that find it without a core set it some more times.
#[test]
fn a_busy_worker_sets_its_alarm_about_twice_in_a_latency() {
    alone(|| {
        let (workers, latency) = (2, Duration::from_millis(20));
        let runtime = Builder::new()
            .worker_threads(workers)
            .rescue_latency(latency)
            .build()
            .unwrap();
        for _ in 0..workers {
            runtime.spawn(async {
                loop {
                    yield_now().await;
                }
            });
        }
        let both_are_busy = || {
            let metrics = runtime.metrics();
            let workers = metrics.workers().iter();
            workers.map(|worker| worker.counts().polls()).min() > Some(10_000)
        };
        eventually("both workers are busy", both_are_busy);
        let (begin, before) = (Instant::now(), SETTINGS.load(Relaxed));
        thread::sleep(10 * latency);
        let settings = SETTINGS.load(Relaxed) - before;
        let latencies = begin.elapsed().div_duration_f64(latency);
        let most = 4.0 * workers as f64 * latencies;
        assert!(settings > 0, "the workers are watched");
        assert!(
            (settings as f64) < most,
            "{settings} settings in {latencies:.0} latencies"
        );
    });
}
