//! A CPU quota for the process of a test.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process,
    time::Duration,
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
    let group = Group::below_present().and_then(|group| {
        group.limit(Some(cores))?;
        group.enter()?;
        Ok(group)
    });
    or_skip(group)
}

/// Makes two control groups without a quota: one below the present group of this process, and one
/// below that, which the process enters. Like [`enter_group`], this may skip the calling test. The
/// outer group comes first: bound by one pattern, the inner one is dropped and removed before it.
pub fn enter_groups() -> Option<(Group, Group)> {
    let groups = Group::below_present().and_then(|outer| {
        let inner = outer.below("inner")?;
        inner.enter()?;
        Ok((outer, inner))
    });
    or_skip(groups)
}

/// Returns whether a CPU quota limits this process already, as in the container of a CI.
pub fn is_limited() -> bool {
    let has_quota = |folder: &Path| {
        let read = |file| fs::read_to_string(folder.join(file)).ok();
        let is_quota = |text: &String| !text.starts_with(['m', '-']);
        let quota = read("cpu.max").or_else(|| read("cpu.cfs_quota_us"));
        quota.as_ref().is_some_and(is_quota)
    };
    present().is_some_and(|home| home.ancestors().any(has_quota))
}

fn or_skip<G>(groups: io::Result<G>) -> Option<G> {
    let refused = |error| skip(&format!("no cgroup with a CPU quota can be made: {error}"));
    groups.map_err(refused).ok()
}

/// A control group for this process. It is removed when this is dropped, and then the process is in
/// the group where it began.
#[derive(Debug)]
pub struct Group {
    /// Where the process began.
    home: PathBuf,
    own: PathBuf,
}

impl Group {
    fn below_present() -> io::Result<Self> {
        let home = present().ok_or(io::ErrorKind::NotFound)?;
        let own = home.join(format!("tourbillon-test-{}", process::id()));
        Self::make(home.clone(), &home, own)
    }

    /// Makes a group below this one.
    pub fn below(&self, name: &str) -> io::Result<Self> {
        Self::make(self.home.clone(), &self.own, self.own.join(name))
    }

    fn make(home: PathBuf, above: &Path, own: PathBuf) -> io::Result<Self> {
        fs::create_dir(&own)?;
        let group = Self { home, own };
        if above.join("cgroup.subtree_control").exists() {
            fs::write(above.join("cgroup.subtree_control"), "+cpu")?;
        }
        Ok(group)
    }

    /// Sets how many cores the group may use. `None`: as many as the one above.
    pub fn limit(&self, cores: Option<f64>) -> io::Result<()> {
        let quota = cores.map(|cores| ((cores * f64::from(PERIOD)) as u32).to_string());
        let write = |file, text: String| fs::write(self.own.join(file), text);
        if self.own.join("cpu.max").exists() {
            let quota = quota.as_deref().unwrap_or("max");
            return write("cpu.max", format!("{quota} {PERIOD}"));
        }
        write("cpu.cfs_period_us", PERIOD.to_string())?;
        write("cpu.cfs_quota_us", quota.unwrap_or("-1".into()))
    }

    /// Returns in how many periods the kernel has stopped the group, and for how long in all,
    /// summed over the processors.
    ///
    /// # Panics
    ///
    /// Panics if the system does not tell.
    pub fn throttled(&self) -> (u64, Duration) {
        let stat = fs::read_to_string(self.own.join("cpu.stat")).expect("a group has statistics");
        let find = |name: &str| {
            let mut lines = stat.lines().filter_map(|line| line.split_once(' '));
            let (_, value) = lines.find(|(key, _)| *key == name)?;
            value.parse::<u64>().ok()
        };
        let periods = find("nr_throttled").expect("it counts throttled periods");
        // In ns in version 1, in µs in version 2.
        let time = find("throttled_time").map(Duration::from_nanos);
        let time = time.or_else(|| find("throttled_usec").map(Duration::from_micros));
        (periods, time.expect("it counts throttled time"))
    }

    /// Moves this process into the group.
    pub fn enter(&self) -> io::Result<()> {
        join(&self.own)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Other threads and children of the process have ended, or are moved with it.
        let _ = join(&self.home);
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
