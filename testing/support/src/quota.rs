//! A CPU quota for the process of a test.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process,
};

use super::skip;

/// The period of a quota, in µs.
const PERIOD: u32 = 100_000;

/// Makes a control group below the present one of this process, which may use `cores` cores, and
/// moves the process into it. Returns `None` if the system does not let it, and then says that the
/// calling test is skipped.
///
/// It is for a test in a process of its own: see [`alone`](super::process::alone).
pub fn enter_group(cores: f64) -> Option<Group> {
    let refused = |error| skip(&format!("no cgroup with a CPU quota can be made: {error}"));
    Group::enter(cores).map_err(refused).ok()
}

/// The control group of this process alone. It is removed when this is dropped.
#[derive(Debug)]
pub struct Group {
    above: PathBuf,
    own: PathBuf,
}

impl Group {
    fn enter(cores: f64) -> io::Result<Self> {
        let quota = (cores * f64::from(PERIOD)) as u32;
        let above = present().ok_or(io::ErrorKind::NotFound)?;
        let own = above.join(format!("tourbillon-test-{}", process::id()));
        fs::create_dir(&own)?;
        let group = Self { above, own };
        if group.above.join("cgroup.subtree_control").exists() {
            fs::write(group.above.join("cgroup.subtree_control"), "+cpu")?;
            fs::write(group.own.join("cpu.max"), format!("{quota} {PERIOD}"))?;
        } else {
            fs::write(group.own.join("cpu.cfs_period_us"), PERIOD.to_string())?;
            fs::write(group.own.join("cpu.cfs_quota_us"), quota.to_string())?;
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
