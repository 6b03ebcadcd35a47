//! Under a CPU quota that the affinity mask exceeds, no worker waits awake: that would use up the
//! quota, and then the kernel stops all threads.
//!
//! Each test has a process of its own, in a control group of its own.

use std::time::Duration;

use tourbillon::{Timer, runtime::Builder, time::sleep};

use super::cores::{mask, set_mask_of_all};
use crate::common::{HOUR, alarm, eventually, process::alone, quota::enter_group, skip};

const MS: Duration = Duration::from_millis(1);

/// Enters a control group that may use so many cores, with a mask of `masked` cores. Then checks
/// that no worker of any kind of runtime waits awake.
fn no_worker_waits_awake(cores: f64, masked: usize) {
    let _alarm = alarm();
    let all = mask();
    if all.len() < masked {
        return skip("the mask has too few cores");
    }
    set_mask_of_all(&all[..masked]);
    let Some(_group) = enter_group(cores) else {
        return;
    };
    for workers in [1, 2] {
        // These workers would wait awake for a deadline in an hour.
        let mut builder = Builder::new();
        builder.worker_threads(workers).spin_before(Duration::MAX);
        let runtime = builder.build().unwrap();
        let arm = |worker, after| {
            let timer = Timer::after(after).on_worker(worker);
            timer.on(runtime.handle()).start(|| ())
        };
        for worker in 0..workers {
            let _hour = arm(worker, HOUR);
            let parks = || runtime.metrics().workers()[worker].counts().parks();
            // The worker may be at its first sleep or before it. No other would follow.
            let least = parks() + 3;
            eventually("the worker sleeps again and again", || {
                let _now = arm(worker, Duration::ZERO);
                parks() >= least
            });
        }
    }
    let mut builder = Builder::new_current_thread();
    let runtime = builder.spin_before(Duration::MAX).build().unwrap();
    eventually("the only worker sleeps", || {
        runtime.block_on(sleep(5 * MS));
        runtime.metrics().total().parks() > 0
    });
    for mut builder in [Builder::new(), Builder::new_current_thread()] {
        let runtime = builder.build().unwrap();
        runtime.block_on(async {
            for _ in 0..50 {
                sleep(MS).await;
            }
        });
        let metrics = runtime.metrics();
        assert_eq!(metrics.total().early_wakes(), 0);
        let mut workers = metrics.workers().iter();
        assert!(workers.all(|worker| worker.timer_advance() == Duration::ZERO));
    }
}

#[test]
fn no_worker_waits_awake_with_half_of_its_only_core() {
    alone(|| no_worker_waits_awake(0.5, 1));
}

#[test]
fn no_worker_waits_awake_with_one_and_a_half_of_two_cores() {
    alone(|| no_worker_waits_awake(1.5, 2));
}
