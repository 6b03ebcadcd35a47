//! The CPU quota of the process's control group, and for how long the kernel has enforced it.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use super::clock;
use crate::util::nanos::nanos;

/// How often the quota is looked for: somebody may set it, or move the process. In between, a
/// process without a quota reads no file, unless a runtime [follows](Groups::known_within) it.
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

/// A group with a quota that this process is in.
#[derive(Clone, Debug)]
struct Group {
    folder: PathBuf,
    /// How many cores the group may use.
    cores: f64,
}

/// The groups with a quota that this process is in.
#[derive(Clone, Debug, Default)]
pub(crate) struct Groups(Arc<[Group]>);

/// A hierarchy of groups that may have a quota.
#[derive(Clone, Debug)]
struct Mount {
    is_version_1: bool,
    /// The group whose folder is the mount point. In a container the mount shows a part of the
    /// hierarchy only.
    root: PathBuf,
    point: PathBuf,
}

impl Groups {
    /// Returns the groups, as they were at most 10 s ago. At times this reads many files. So
    /// whoever measures what a reading of the accounts costs, calls this before it.
    pub(crate) fn known() -> Self {
        Self::known_within(LOOKED_FOR)
    }

    /// Returns the groups, as they were at most `age` ago. It looks for mounts every 10 s at most:
    /// a machine may have thousands.
    pub(crate) fn known_within(age: Duration) -> Self {
        static MOUNTS: Recent<Arc<[Mount]>> = Recent(Mutex::new(None));
        static GROUPS: Recent<Groups> = Recent(Mutex::new(None));
        if cfg!(tourbillon_sim) {
            return Self(Arc::default());
        }
        let now = clock::monotonic();
        let read = |file: &Path| fs::read_to_string(file);
        GROUPS.get(now, age, || {
            let mounts = MOUNTS.get(now, LOOKED_FOR, || {
                let mounts = read(Path::new("/proc/self/mountinfo"))?;
                Ok(parse_mounts(&mounts).into())
            });
            Ok(Self(with_quota(&mounts, read)?.into()))
        })
    }

    /// Returns how many cores the process may use by its quotas. `None` without a quota.
    pub(crate) fn cores(&self) -> Option<f64> {
        self.0.iter().map(|group| group.cores).reduce(f64::min)
    }

    /// Reads how much the groups were throttled. Returns `None` if there are none, or if the
    /// system does not tell.
    pub(crate) fn throttled(&self) -> Option<Throttled> {
        let read = self.0.iter().filter_map(|group| {
            let stat = fs::read_to_string(group.folder.join("cpu.stat")).ok()?;
            parse(&stat)
        });
        read.reduce(|a, b| Throttled {
            periods: a.periods + b.periods,
            ns: a.ns + b.ns,
        })
    }
}

/// What was found last, and when that was, in ns.
struct Recent<T>(Mutex<Option<(u64, T)>>);

impl<T: Clone + Default> Recent<T> {
    /// Returns what was found, at most `age` before `now`. Otherwise `find` finds it again. If it
    /// fails, what was found last stays for this time.
    fn get(&self, now: u64, age: Duration, find: impl FnOnce() -> io::Result<T>) -> T {
        let lock = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_recent = |at: u64| now.saturating_sub(at) < nanos(age);
        if let Some((_, found)) = lock().as_ref().filter(|(at, _)| is_recent(*at)) {
            return found.clone();
        }
        // Without the lock: other threads do not wait for these files.
        let found = find();
        let mut last = lock();
        let found = match (found, last.take()) {
            // Another thread has looked later, and was faster.
            (_, Some((at, newer))) if at > now => {
                *last = Some((at, newer.clone()));
                return newer;
            }
            (Ok(found), _) | (Err(_), Some((_, found))) => found,
            // There is nothing to find.
            (Err(error), None) if is_missing(&error) => T::default(),
            // Nothing is known. Whoever asks next tries again.
            (Err(_), None) => return T::default(),
        };
        *last = Some((now, found.clone()));
        found
    }
}

/// Reads how much this process was throttled. Returns `None` if it has no quota, or if the system
/// does not tell.
pub(crate) fn throttled() -> Option<Throttled> {
    Groups::known().throttled()
}

/// Reads a file. Returns `None` if there is none, as its group may be gone, or if this process may
/// not read it. Other errors pass: there may be too many open files at present.
fn read_if_any(
    read: impl Fn(&Path) -> io::Result<String>,
    file: impl AsRef<Path>,
) -> io::Result<Option<String>> {
    match read(file.as_ref()) {
        Ok(text) => Ok(Some(text)),
        Err(error) if is_missing(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

fn is_missing(error: &io::Error) -> bool {
    use io::ErrorKind::{NotFound, PermissionDenied};
    matches!(error.kind(), NotFound | PermissionDenied)
        || error.raw_os_error() == Some(libc::ENODEV)
}

/// Returns the groups that limit this process by a quota. It is an error if `/proc` does not tell
/// the process's groups: a process may lose `/proc`, and not its quota, by a new root or a sandbox.
fn with_quota(
    mounts: &[Mount],
    read: impl Fn(&Path) -> io::Result<String> + Copy,
) -> io::Result<Vec<Group>> {
    let member = read(Path::new("/proc/self/cgroup"))?;
    let mut limited = Vec::new();
    for mount in mounts {
        let Some(group) = mount.group(&member) else {
            continue;
        };
        // Each group above limits this one, too.
        let above = group
            .ancestors()
            .take_while(|it| it.starts_with(&mount.point));
        for folder in above {
            if let Some(cores) = quota_of(folder, read)? {
                let folder = folder.to_owned();
                limited.push(Group { folder, cores });
            }
        }
    }
    Ok(limited)
}

/// Returns where the hierarchies are mounted that may have a quota.
fn parse_mounts(mounts: &str) -> Vec<Mount> {
    // `31 23 0:28 ROOT POINT OPTIONS - TYPE SOURCE SUPER_OPTIONS`
    let parse = |line: &str| {
        let (before, after) = line.split_once(" - ")?;
        let (mut before, mut after) = (before.split(' '), after.split(' '));
        let (root, point) = (before.nth(3)?, before.next()?);
        let (kind, options) = (after.next()?, after.nth(1).unwrap_or_default());
        let is_version_1 = match kind {
            "cgroup" if options.split(',').any(|it| it == "cpu") => true,
            "cgroup2" => false,
            _ => return None,
        };
        let (root, point) = (root.into(), point.into());
        Some(Mount {
            is_version_1,
            root,
            point,
        })
    };
    mounts.lines().filter_map(parse).collect()
}

impl Mount {
    /// Returns the folder of the process's group in this hierarchy. `member` has a line for each
    /// hierarchy.
    fn group(&self, member: &str) -> Option<PathBuf> {
        // `NUMBER:CONTROLLERS:PATH`, without controllers in version 2.
        let path = member.lines().find_map(|line| {
            let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
            let is_this = match self.is_version_1 {
                true => controllers.split(',').any(|it| it == "cpu"),
                false => controllers.is_empty(),
            };
            is_this.then_some(path)
        })?;
        let inside = Path::new(path).strip_prefix(&self.root);
        Some(self.point.join(inside.unwrap_or(Path::new(""))))
    }
}

/// Reads how many cores a group may use, from its files of version 1 or 2. Returns `None` if it has
/// no quota.
fn quota_of(
    folder: &Path,
    read: impl Fn(&Path) -> io::Result<String> + Copy,
) -> io::Result<Option<f64>> {
    let read = |name| read_if_any(read, folder.join(name));
    if let Some(text) = read("cpu.max")? {
        return Ok(parse_quota(&text));
    }
    let both = read("cpu.cfs_quota_us")?.zip(read("cpu.cfs_period_us")?);
    Ok(both.and_then(|(quota, period)| parse_quota(&format!("{quota} {period}"))))
}

/// Parses a quota and its period, both in µs. Returns `None` if the quota is `max` or -1.
fn parse_quota(text: &str) -> Option<f64> {
    let mut words = text.split_whitespace();
    let quota: u64 = words.next()?.parse().ok()?;
    let period: u64 = words.next()?.parse().ok()?;
    (period > 0).then(|| quota as f64 / period as f64)
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

    fn group(folder: impl Into<PathBuf>, cores: f64) -> Group {
        let folder = folder.into();
        Group { folder, cores }
    }

    #[test]
    fn the_groups_are_looked_for_now_and_then() {
        let known = Recent(Mutex::new(None));
        let second = 1_000_000_000;
        let looks = |at: u64, age: u64| {
            let mut looked = false;
            known.get(at * second, Duration::from_secs(age), || {
                looked = true;
                Ok(())
            });
            looked
        };
        let looked = [5, 5, 14, 15, 24, 40].map(|at| looks(at, 10));
        assert_eq!(looked, [true, false, false, true, false, true]);
        // Whoever asks for what is newer looks for all.
        let looked = [(40, 1), (41, 1), (42, 10), (42, 1), (43, 2)];
        assert_eq!(
            looked.map(|(at, age)| looks(at, age)),
            [false, true, false, true, false]
        );
    }

    #[test]
    fn a_read_that_fails_keeps_what_was_found_last() {
        let known = Recent(Mutex::new(None));
        let at = |at: u64, found: io::Result<f64>| {
            known.get(at * 1_000_000_000, Duration::from_secs(1), || found)
        };
        let busy = || Err(io::Error::from_raw_os_error(libc::EMFILE));
        assert_eq!(at(0, busy()), 0.0);
        assert_eq!(at(0, Ok(1.5)), 1.5, "a failure at first is not kept");
        assert_eq!(at(1, busy()), 1.5);
        assert_eq!(at(9, busy()), 1.5);
        assert_eq!(at(10, Ok(2.0)), 2.0);
    }

    #[test]
    fn a_file_that_cannot_be_read_at_present_is_no_missing_one() {
        let mounts = "30 23 0:26 / /g rw - cgroup2 cgroup2 rw\n";
        let mounts = parse_mounts(mounts);
        // The group has a quota, and `error` comes from the group above.
        let find = |error: i32| {
            let found = with_quota(&mounts, |file| match file.to_str().unwrap() {
                "/proc/self/cgroup" => Ok("0::/a\n".into()),
                "/g/a/cpu.max" => Ok("150000 100000\n".into()),
                _ => Err(io::Error::from_raw_os_error(error)),
            });
            let groups = found.map(|found| Groups(found.into()).cores());
            groups.map_err(|error| error.raw_os_error())
        };
        for gone in [libc::ENOENT, libc::ENODEV, libc::EACCES] {
            assert_eq!(find(gone), Ok(Some(1.5)));
        }
        for error in [libc::EMFILE, libc::ENFILE, libc::ENOMEM] {
            assert_eq!(find(error), Err(Some(error)));
        }
        for error in [libc::EMFILE, libc::ENOENT, libc::EACCES] {
            let member = with_quota(&mounts, |_| Err(io::Error::from_raw_os_error(error)));
            assert!(member.is_err());
        }
    }

    #[test]
    fn a_quota_stays_if_the_process_loses_proc() {
        let known = Recent(Mutex::new(None));
        let (mut at, mut looks) = (0, 0);
        let mut get = |found: io::Result<f64>| {
            at += 1_000_000_000;
            let look = || {
                looks += 1;
                found
            };
            known.get(at, Duration::from_millis(1_500), look)
        };
        let lost = || Err(io::Error::from_raw_os_error(libc::ENOENT));
        // Without `/proc` from the beginning there is no quota, and nobody tries each time.
        assert_eq!([get(lost()), get(Ok(2.0))], [0.0; 2]);
        assert_eq!(get(Ok(2.0)), 2.0);
        assert_eq!([get(lost()), get(lost())], [2.0; 2]);
        assert_eq!(looks, 3);
    }

    #[test]
    fn a_look_that_began_later_and_ended_first_counts() {
        let known = Recent(Mutex::new(None));
        let age = Duration::from_nanos(1);
        let slow = known.get(5, age, || {
            assert_eq!(known.get(6, age, || Ok(1.0)), 1.0);
            Ok(2.0)
        });
        assert_eq!(slow, 1.0);
        assert_eq!(known.get(6, age, || Ok(3.0)), 1.0);
    }

    #[test]
    fn a_reading_of_the_accounts_looks_for_no_group() {
        let folder = std::env::temp_dir().join(format!("tourbillon-quota-{}", std::process::id()));
        let (one, other) = (folder.join("one"), folder.join("other"));
        for group in [&one, &other] {
            fs::create_dir_all(group).unwrap();
        }
        let groups = Groups([group(&one, 2.0), group(&other, 1.5)].into());
        assert_eq!(groups.cores(), Some(1.5), "the least one binds");
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
        let none = Groups([].into());
        assert_eq!((none.throttled(), none.cores()), (None, None));
    }

    #[test]
    fn quotas_of_both_versions_are_parsed() {
        let quotas = [
            ("150000 100000\n", Some(1.5)),
            ("50000\n 100000\n", Some(0.5)),
            ("max 100000\n", None),
            ("-1\n 100000\n", None),
            ("", None),
        ];
        for (text, cores) in quotas {
            assert_eq!(parse_quota(text), cores, "{text:?}");
        }
        let folder = std::env::temp_dir().join(format!("tourbillon-cores-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let quota_of = |folder| quota_of(folder, |file: &Path| fs::read_to_string(file)).unwrap();
        assert_eq!(quota_of(&folder), None, "no controller of this kind");
        let write = |name, text| fs::write(folder.join(name), text).unwrap();
        write("cpu.cfs_quota_us", "50000\n");
        write("cpu.cfs_period_us", "100000\n");
        assert_eq!(quota_of(&folder), Some(0.5), "version 1");
        write("cpu.max", "150000 100000\n");
        assert_eq!(quota_of(&folder), Some(1.5), "version 2");
        fs::remove_dir_all(folder).unwrap();
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
        let groups = |mounts, member| {
            let with_group = |it: Mount| it.group(member).map(|group| (it.point, group));
            let mounts = parse_mounts(mounts).into_iter();
            mounts.filter_map(with_group).collect::<Vec<_>>()
        };
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
