//! The CPU quota of the process's control group, and for how long the kernel has enforced it.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use super::clock;
use crate::util::nanos::nanos;

/// How often the quota is looked for: somebody may set it, or move the process. In between, a
/// process without a quota reads no file.
const LOOKED_FOR: Duration = Duration::from_secs(10);

/// How much the kernel has throttled the groups with a quota that this process is in, since they
/// were made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Throttled {
    /// In how many periods of the quota.
    pub(crate) periods: u64,
    /// For how long, in ns: the sum over all cores on which threads of a group waited.
    pub(crate) ns: u64,
}

/// The groups with a quota that this process is in, by their folders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Groups(Arc<[PathBuf]>);

impl Groups {
    /// Returns the groups, as they were at most 10 s ago. At times this reads many files. So
    /// whoever measures what a reading of the accounts costs, calls this before it.
    pub(crate) fn known() -> Self {
        static KNOWN: Known = Known(Mutex::new(None));
        if cfg!(tourbillon_sim) {
            return Self(Arc::default());
        }
        KNOWN.get(clock::monotonic(), with_quota)
    }

    /// Reads how much the groups were throttled. Returns `None` if there are none, or if the
    /// system does not tell.
    pub(crate) fn throttled(&self) -> Option<Throttled> {
        let read = self.0.iter().filter_map(|group| {
            let stat = fs::read_to_string(group.join("cpu.stat")).ok()?;
            parse(&stat)
        });
        read.reduce(|a, b| Throttled {
            periods: a.periods + b.periods,
            ns: a.ns + b.ns,
        })
    }
}

/// The groups as they were found last, and when that was, in ns.
struct Known(Mutex<Option<(u64, Groups)>>);

impl Known {
    /// Returns the groups, which `find` finds if they were not looked for since `LOOKED_FOR`.
    fn get(&self, now: u64, find: impl FnOnce() -> Vec<PathBuf>) -> Groups {
        let lock = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_recent = |at: u64| now.saturating_sub(at) < nanos(LOOKED_FOR);
        if let Some((_, groups)) = lock().as_ref().filter(|(at, _)| is_recent(*at)) {
            return groups.clone();
        }
        // Without the lock: other threads do not wait for these files.
        let groups = Groups(find().into());
        *lock() = Some((now, groups.clone()));
        groups
    }
}

/// Reads how much this process was throttled. Returns `None` if it has no quota, or if the system
/// does not tell.
pub(crate) fn throttled() -> Option<Throttled> {
    Groups::known().throttled()
}

/// Returns the folders of the groups that limit this process by a quota.
fn with_quota() -> Vec<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let member = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let mut limited = Vec::new();
    for (mount, group) in groups(&mounts, &member) {
        // Each group above limits this one, too.
        let above = group.ancestors().take_while(|it| it.starts_with(&mount));
        limited.extend(above.filter(|it| has_quota(it)).map(Path::to_owned));
    }
    limited
}

/// Returns the folder of the process's group in each hierarchy that may have a quota, with the
/// folder where the hierarchy is mounted.
fn groups(mounts: &str, member: &str) -> Vec<(PathBuf, PathBuf)> {
    let mut groups = Vec::new();
    for line in mounts.lines() {
        // `31 23 0:28 ROOT POINT OPTIONS - TYPE SOURCE SUPER_OPTIONS`
        let Some((before, after)) = line.split_once(" - ") else {
            continue;
        };
        let (mut before, mut after) = (before.split(' '), after.split(' '));
        let (Some(root), Some(point)) = (before.nth(3), before.next()) else {
            continue;
        };
        let (kind, options) = (after.next(), after.nth(1).unwrap_or_default());
        let is_version_1 = match kind {
            Some("cgroup") if options.split(',').any(|it| it == "cpu") => true,
            Some("cgroup2") => false,
            _ => continue,
        };
        // `NUMBER:CONTROLLERS:PATH`, without controllers in version 2.
        let path = member.lines().find_map(|line| {
            let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
            let is_this = match is_version_1 {
                true => controllers.split(',').any(|it| it == "cpu"),
                false => controllers.is_empty(),
            };
            is_this.then_some(path)
        });
        let Some(path) = path else { continue };
        // In a container the mount shows a part of the hierarchy only.
        let inside = Path::new(path).strip_prefix(root).unwrap_or(Path::new(""));
        groups.push((PathBuf::from(point), Path::new(point).join(inside)));
    }
    groups
}

/// Returns whether a group has a quota, by its file of version 1 or 2.
fn has_quota(group: &Path) -> bool {
    let read = |name| fs::read_to_string(group.join(name)).unwrap_or_default();
    // The first word is a number of µs, `max`, or -1.
    ["cpu.max", "cpu.cfs_quota_us"].into_iter().any(|name| {
        let quota = read(name);
        let first = quota.split_whitespace().next();
        first.is_some_and(|it| it.parse::<u64>().is_ok())
    })
}

/// Parses a `cpu.stat`.
fn parse(stat: &str) -> Option<Throttled> {
    let value = |name| {
        let mut lines = stat.lines().filter_map(|line| line.split_once(' '));
        let found = lines.find(|(key, _)| *key == name)?;
        found.1.trim().parse::<u64>().ok()
    };
    Some(Throttled {
        periods: value("nr_throttled")?,
        // Version 1 counts in ns.
        ns: value("throttled_time").or_else(|| Some(1_000 * value("throttled_usec")?))?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_groups_are_looked_for_now_and_then() {
        let known = Known(Mutex::new(None));
        let second = 1_000_000_000;
        let looks = |at: u64| {
            let mut looked = false;
            known.get(at * second, || {
                looked = true;
                vec![PathBuf::from("/")]
            });
            looked
        };
        let looked: Vec<_> = [5, 5, 14, 15, 24, 40].map(looks).into();
        assert_eq!(looked, [true, false, false, true, false, true]);
    }

    #[test]
    fn a_reading_of_the_accounts_looks_for_no_group() {
        let folder = std::env::temp_dir().join(format!("tourbillon-quota-{}", std::process::id()));
        let (one, other) = (folder.join("one"), folder.join("other"));
        for group in [&one, &other] {
            fs::create_dir_all(group).unwrap();
        }
        let groups = Groups([one.clone(), other.clone()].into());
        assert_eq!(groups.throttled(), None);
        // Whether a group has a quota is not asked again: its folder has no `cpu.max`.
        let stat = |group: &Path, text| fs::write(group.join("cpu.stat"), text).unwrap();
        stat(&one, "nr_throttled 1\nthrottled_usec 2\n");
        stat(&other, "nr_throttled 3\nthrottled_time 4\n");
        let sum = Throttled {
            periods: 4,
            ns: 2_004,
        };
        assert_eq!(groups.throttled(), Some(sum));
        fs::remove_dir_all(folder).unwrap();
        assert_eq!(Groups([].into()).throttled(), None, "without a quota");
    }

    #[test]
    fn both_versions_of_the_accounts_are_parsed() {
        let expected = Some(Throttled {
            periods: 7,
            ns: 5_000,
        });
        assert_eq!(
            parse("nr_periods 9\nnr_throttled 7\nthrottled_time 5000\n"),
            expected
        );
        assert_eq!(
            parse("usage_usec 1\nnr_periods 9\nnr_throttled 7\nthrottled_usec 5\nnr_bursts 0\n"),
            expected
        );
        assert_eq!(parse("usage_usec 1\n"), None, "no controller of this kind");
    }

    #[test]
    fn the_group_is_found_below_its_mount() {
        let mounts = "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n\
                      32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n\
                      33 31 0:30 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";
        let member = "5:memory:/a\n4:cpu,cpuacct:/a/b\n0::/c\n";
        let found = |mount: &str, group: &str| vec![(mount.into(), group.into())];
        let mount = "/sys/fs/cgroup/cpu,cpuacct";
        assert_eq!(
            groups(mounts, member),
            found(mount, "/sys/fs/cgroup/cpu,cpuacct/a/b")
        );
        // A container that sees its own part alone.
        let mounts = "40 31 0:29 /docker/x /sys/fs/cgroup/cpu ro master:9 - cgroup cgroup rw,cpu\n";
        let member = "4:cpu:/docker/x\n";
        let mount = "/sys/fs/cgroup/cpu";
        assert_eq!(groups(mounts, member), found(mount, "/sys/fs/cgroup/cpu/"));
        let mounts = "30 23 0:26 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";
        let member = "0::/user.slice\n";
        assert_eq!(
            groups(mounts, member),
            found("/sys/fs/cgroup", "/sys/fs/cgroup/user.slice")
        );
    }
}
