//! A CPU quota that is used up: the kernel stops the process, and timers are late.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process,
    time::Duration,
};

use tourbillon::{runtime::Builder, time};
use tourbillon_flight::Cause;

use super::{
    common::{alarm, eventually, process::alone, skip, spin},
    late_by,
};

const MS: Duration = Duration::from_millis(1);

/// A control group of this process alone, with a quota of a tenth of a core: the process uses that
/// up even where many others run. The group is removed when this is dropped.
struct Group {
    above: PathBuf,
    own: PathBuf,
}

impl Group {
    /// Makes a group below the present one of this process, and enters it.
    fn enter() -> io::Result<Self> {
        let above = present().ok_or(io::ErrorKind::NotFound)?;
        let own = above.join(format!("tourbillon-test-{}", process::id()));
        fs::create_dir(&own)?;
        let group = Self { above, own };
        if group.above.join("cgroup.subtree_control").exists() {
            fs::write(group.above.join("cgroup.subtree_control"), "+cpu")?;
            fs::write(group.own.join("cpu.max"), "10000 100000")?;
        } else {
            fs::write(group.own.join("cpu.cfs_period_us"), "100000")?;
            fs::write(group.own.join("cpu.cfs_quota_us"), "10000")?;
        }
        join(&group.own)?;
        Ok(group)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Other threads and children of the process have ended, or are moved with it.
        let _ = join(&self.above);
        let _ = fs::remove_dir(&self.own);
    }
}

/// Moves this process into a group.
fn join(group: &Path) -> io::Result<()> {
    fs::write(group.join("cgroup.procs"), process::id().to_string())
}

/// Returns the folder of the group of this process in the hierarchy that limits processor time.
fn present() -> Option<PathBuf> {
    let member = fs::read_to_string("/proc/self/cgroup").ok()?;
    let find = |is_it: fn(&str) -> bool| {
        let mut lines = member
            .lines()
            .filter_map(|line| line.split_once(':')?.1.split_once(':'));
        lines
            .find(|(controllers, _)| is_it(controllers))
            .map(|(_, path)| path)
    };
    let version_1 = find(|controllers| controllers.split(',').any(|it| it == "cpu"));
    let version_2 = find(str::is_empty);
    let below = |mount: &str, path: Option<&str>| {
        let folder = Path::new(mount).join(path?.trim_start_matches('/'));
        folder.join("cgroup.procs").exists().then_some(folder)
    };
    below("/sys/fs/cgroup/cpu", version_1).or_else(|| below("/sys/fs/cgroup", version_2))
}

#[test]
fn a_quota_that_is_used_up_is_named() {
    alone(|| {
        let _alarm = alarm();
        let _group = match Group::enter() {
            Ok(group) => group,
            Err(error) => return skip(&format!("no cgroup with a CPU quota can be made: {error}")),
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
