//! A CPU quota that is used up: the kernel stops the process, and timers are late.

use std::{fs, time::Duration};

use tourbillon::{runtime::Builder, time};
use tourbillon_flight::Cause;

use super::{
    common::{alarm, eventually, process::alone, quota::enter_group, skip, spin},
    late_by,
};

const MS: Duration = Duration::from_millis(1);

#[test]
fn a_quota_that_is_used_up_is_named() {
    alone(|| {
        let _alarm = alarm();
        // The process uses up a tenth of a core even where many others run.
        let Some(_group) = enter_group(0.1) else {
            return;
        };
        let runtime = Builder::new().worker_threads(2).build().unwrap();
        let is_throttled = |cause: &Cause| *cause == Cause::Throttled;
        eventually("the quota makes a timer late", || {
            let sleeper = runtime.spawn(time::sleep(15 * MS));
            // Both use up the quota in each period.
            let jobs = [(); 2].map(|()| runtime.spawn(async { spin(20 * MS) }));
            for task in jobs {
                runtime.block_on(task).unwrap();
            }
            runtime.block_on(sleeper).unwrap();
            let late = late_by(&runtime, is_throttled);
            late.iter().any(|timer| {
                let mut spans = timer.spans.iter();
                spans.any(|span| is_throttled(&span.cause) && span.length >= 5 * MS)
                    && timer.to_string().contains("throttled by the CPU quota")
            })
        });
        let metrics = runtime.metrics();
        assert!(metrics.throttled_periods() > 0 && metrics.throttled_duration() >= 5 * MS);
        let text = tourbillon_exporters::prometheus(&metrics);
        assert!(!text.contains("\ntourbillon_throttled_periods_total 0\n"));
    });
}

#[test]
fn without_a_quota_nothing_is_throttled() {
    if fs::read_to_string("/proc/self/cgroup").is_ok_and(|it| it.lines().all(is_of_the_root)) {
        let runtime = super::common::runtime(1);
        assert_eq!(runtime.metrics().throttled_periods(), 0);
        assert_eq!(runtime.metrics().throttled_duration(), Duration::ZERO);
    } else {
        skip("the groups of this process may have a quota");
    }
}

/// Returns whether a line of `/proc/self/cgroup` is that of a root, which has no quota, or of a
/// hierarchy that does not limit processor time.
fn is_of_the_root(line: &str) -> bool {
    let mut parts = line.splitn(3, ':').skip(1);
    let controllers = parts.next().unwrap_or_default();
    let limits = controllers.is_empty() || controllers.split(',').any(|it| it == "cpu");
    !limits || parts.next() == Some("/")
}
