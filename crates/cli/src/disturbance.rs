//! What else the machine did during a measurement, so that a bad neighbour is told from a bad
//! mechanism.
//!
//! The program and the benchmarks share this file. It reports:
//!
//! - *stolen*: the share of the CPUs' time in which the hypervisor ran other virtual machines.
//! - *other load*: the share of the CPUs' time in which other processes ran.
//! - *preempted*: how often the kernel took the CPU from an own thread that could have gone on. The
//!   own threads also preempt each other, if there are more of them than CPUs.
//!
//! Only the CPUs that the process may use count. A measurement is *disturbed* if the first two
//! together exceed [`BOUND`]. Then it should be made again.
//!
//! The kernel does not say how long other processes ran. There are two ways to compute it, and each
//! may say too much:
//!
//! - What is left of all time, without the idle time and the own time. The kernel measures both, but
//!   what it needs to wake an idle CPU is in neither. With a hundred thousand parks this is some
//!   percent, and the program itself caused them.
//! - What the kernel counted as the time of any process, without the own time. It counts by looking
//!   at each tick, so this is right on average, and in a short measurement some percent off.
//!
//! The smaller of the two is reported.

use std::{fmt, fs, ops::AddAssign, ops::RangeInclusive, time::Instant};

/// The share of the CPUs' time that a measurement may lose to others.
pub const BOUND: f64 = 0.03;
/// Clock ticks per second in `/proc/stat`; Linux reports 100 on all machines.
const TICKS_PER_SECOND: f64 = 100.0;

/// The counters of the machine and of this process at the start of a measurement.
#[derive(Debug)]
pub struct Meter {
    at: Instant,
    times: Option<Times>,
    own: Usage,
}

impl Meter {
    /// Starts a measurement.
    pub fn start() -> Self {
        Self {
            times: Times::now(),
            own: Usage::now(),
            at: Instant::now(),
        }
    }

    /// Returns what happened since the start. Child processes count as soon as they have ended and
    /// have been waited for.
    pub fn read(&self) -> Disturbance {
        let seconds = self.at.elapsed().as_secs_f64();
        let (own, times) = (Usage::now(), Times::now());
        Disturbance::between(seconds, self.times.zip(times), (self.own, own))
    }
}

/// What happened during a measurement, or during several.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Disturbance {
    /// The time of all CPUs that the process may use, in s. Not a number without `/proc/stat`, like
    /// the next two.
    all: f64,
    /// The stolen part of it, in s.
    stolen: f64,
    /// The part in which other processes ran, in s.
    others: f64,
    /// The CPU time of this process and its children, in s.
    pub cpu: f64,
    /// How often their threads were preempted.
    pub preempted: u64,
}

impl Disturbance {
    /// Returns what happened in `seconds`, from the counters before and after them.
    fn between(seconds: f64, times: Option<(Times, Times)>, own: (Usage, Usage)) -> Self {
        let cpu = own.1.cpu - own.0.cpu;
        let [all, stolen, others] = times.map_or([f64::NAN; 3], |(before, now)| {
            let spent = now.since(before);
            let all = seconds * f64::from(now.cpus);
            let not_idle = all - spent.idle - spent.interrupts - spent.stolen;
            // This may come out below zero, since ticks are coarse.
            let others = (not_idle.min(spent.running) - cpu).max(0.0);
            [all, spent.stolen, others]
        });
        Self {
            all,
            stolen,
            others,
            cpu,
            preempted: own.1.preempted - own.0.preempted,
        }
    }

    /// Returns the share of the CPUs' time that was stolen, from 0 to 1, or NaN if it is not known.
    pub fn stolen(&self) -> f64 {
        self.stolen / self.all
    }

    /// Returns the share of the CPUs' time in which other processes ran, from 0 to 1, or NaN if it
    /// is not known.
    pub fn other_load(&self) -> f64 {
        self.others / self.all
    }

    /// Returns the share of the CPUs' time that was stolen or went to other processes, from 0 to 1.
    /// It is 0 if it is not known.
    pub fn lost(&self) -> f64 {
        // `max` prefers a number to NaN.
        (self.stolen() + self.other_load()).max(0.0)
    }

    /// Returns whether others took more than [`BOUND`] of the CPUs' time.
    pub fn is_disturbed(&self) -> bool {
        self.lost() > BOUND
    }
}

impl AddAssign for Disturbance {
    fn add_assign(&mut self, other: Self) {
        self.all += other.all;
        self.stolen += other.stolen;
        self.others += other.others;
        self.cpu += other.cpu;
        self.preempted += other.preempted;
    }
}

impl fmt::Display for Disturbance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (stolen, others) = (100.0 * self.stolen(), 100.0 * self.other_load());
        if stolen.is_nan() {
            f.write_str("stolen time unknown")?;
        } else {
            write!(f, "stolen {stolen:.1} %, other load {others:.1} %")?;
        }
        write!(f, ", own threads preempted {}×", self.preempted)?;
        if self.is_disturbed() {
            write!(f, ": disturbed (over {:.0} %), run it again", 100.0 * BOUND)?;
        }
        Ok(())
    }
}

/// The CPU time and the involuntary context switches of this process and its ended children.
#[derive(Clone, Copy, Debug)]
struct Usage {
    cpu: f64,
    preempted: u64,
}

impl Usage {
    fn now() -> Self {
        let [own, children] = [libc::RUSAGE_SELF, libc::RUSAGE_CHILDREN].map(|of| {
            let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
            // SAFETY: `usage` has room for the result, and a zeroed `rusage` is valid.
            unsafe {
                libc::getrusage(of, usage.as_mut_ptr());
                usage.assume_init()
            }
        });
        let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
        let cpu = |usage: &libc::rusage| seconds(usage.ru_utime) + seconds(usage.ru_stime);
        Self {
            cpu: cpu(&own) + cpu(&children),
            preempted: (own.ru_nivcsw + children.ru_nivcsw) as u64,
        }
    }
}

/// Sums over the CPUs that this process may use, in clock ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Times {
    cpus: u32,
    /// In which any process ran.
    running: u64,
    idle: u64,
    irq: u64,
    softirq: u64,
    stolen: u64,
}

impl Times {
    fn now() -> Option<Self> {
        let allowed = allowed_cpus(&fs::read_to_string("/proc/self/status").ok()?)?;
        Self::parse(&fs::read_to_string("/proc/stat").ok()?, &allowed)
    }

    /// Sums the lines `cpuN` of `/proc/stat`, for the allowed CPUs.
    fn parse(stat: &str, allowed: &[RangeInclusive<u32>]) -> Option<Self> {
        let mut sum = Self::default();
        for line in stat.lines() {
            // The first line, `cpu`, has the sums over all CPUs.
            let cpu_and_times = line.strip_prefix("cpu").and_then(|it| it.split_once(' '));
            let Some((cpu, times)) = cpu_and_times else {
                continue;
            };
            let is_allowed = |cpu| allowed.iter().any(|range| range.contains(&cpu));
            if !cpu.parse().is_ok_and(is_allowed) {
                continue;
            }
            let times: Result<Vec<u64>, _> = times.split_whitespace().map(str::parse).collect();
            let [user, nice, system, idle, iowait, irq, softirq, stolen, ..] = times.ok()?[..]
            else {
                return None;
            };
            sum.cpus += 1;
            sum.running += user + nice + system;
            sum.idle += idle + iowait;
            sum.irq += irq;
            sum.softirq += softirq;
            sum.stolen += stolen;
        }
        (sum.cpus > 0).then_some(sum)
    }

    /// Returns what the CPUs' time was spent on since `before`.
    fn since(self, before: Self) -> Spent {
        // Counters of a CPU that went offline are missing, and `iowait` may go back.
        let seconds = |now: u64, before: u64| now.saturating_sub(before) as f64 / TICKS_PER_SECOND;
        let interrupts = seconds(self.irq + self.softirq, before.irq + before.softirq);
        let running = seconds(self.running, before.running);
        // A kernel that measures interrupts shows `irq` time, and takes interrupts out of the times
        // of processes. Other kernels leave them in, and only estimate them here.
        let (interrupts, running) = if self.irq > 0 {
            (interrupts, running)
        } else {
            (0.0, running + interrupts)
        };
        Spent {
            running,
            idle: seconds(self.idle, before.idle),
            interrupts,
            stolen: seconds(self.stolen, before.stolen),
        }
    }
}

/// What the CPUs' time was spent on, in s.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Spent {
    running: f64,
    idle: f64,
    interrupts: f64,
    stolen: f64,
}

/// Returns the CPUs that the process may use, by the text of `/proc/self/status`.
fn allowed_cpus(status: &str) -> Option<Vec<RangeInclusive<u32>>> {
    let list = status
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    let ranges = list.trim().split(',').map(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        Some(first.parse().ok()?..=last.parse().ok()?)
    });
    ranges.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: &str = "cpu  90 0 30 400 20 0 9 3 0 0\n\
        cpu0 30 0 10 100 10 0 4 1 0 0\n\
        cpu1 30 0 10 100 5 0 3 1 0 0\n\
        cpu2 30 0 10 200 5 0 2 1 0 0\n\
        intr 12345 0 0\n\
        ctxt 678\n";

    fn times(stat: &str, list: &str) -> Option<Times> {
        let status = format!("Name:\tx\nCpus_allowed:\t7\nCpus_allowed_list:\t{list}\n");
        Times::parse(stat, &allowed_cpus(&status)?)
    }

    #[test]
    fn only_allowed_cpus_count() {
        let sum = |list| times(BEFORE, list).map(|it| (it.cpus, it.idle, it.softirq, it.stolen));
        assert_eq!(sum("0-2"), Some((3, 420, 9, 3)));
        assert_eq!(sum("1"), Some((1, 105, 3, 1)));
        assert_eq!(sum("0,2-63"), Some((2, 315, 6, 2)));
        assert_eq!(sum("7"), None, "there is no such CPU");
        assert_eq!(sum("none"), None);
        assert_eq!(times("cpu0 1 2 3\n", "0"), None, "columns are missing");
        assert_eq!(times("", "0"), None);
        assert_eq!(allowed_cpus("Name:\tx\n"), None);
    }

    #[test]
    fn times_are_differences_in_seconds() {
        let before = times(BEFORE, "0").unwrap();
        let now = times("cpu0 80 0 20 150 9 0 30 21 0 0\n", "0").unwrap();
        let spent = |running, idle, interrupts, stolen| Spent {
            running,
            idle,
            interrupts,
            stolen,
        };
        // Without `irq` time, the time of interrupts is part of the processes' times.
        assert_eq!(now.since(before), spent(0.86, 0.49, 0.0, 0.2));
        let now = times("cpu0 80 0 20 150 10 4 30 21 0 0\n", "0").unwrap();
        assert_eq!(now.since(before), spent(0.6, 0.5, 0.3, 0.2));
        let back = spent(0.0, 0.0, 0.0, 0.0);
        assert_eq!(before.since(now), back, "a counter that went back");
    }

    fn disturbance(stolen: f64, others: f64) -> Disturbance {
        Disturbance {
            all: 10.0,
            stolen,
            others,
            cpu: 4.0,
            preempted: 12,
        }
    }

    #[test]
    fn the_bound_is_on_both_shares_together() {
        let calm = disturbance(0.1, 0.15);
        assert!(!calm.is_disturbed());
        let text = "stolen 1.0 %, other load 1.5 %, own threads preempted 12×";
        assert_eq!(calm.to_string(), text);
        let disturbed = disturbance(0.1, 0.25);
        assert!(disturbed.is_disturbed());
        let text = "stolen 1.0 %, other load 2.5 %, own threads preempted 12×: disturbed (over 3 %), \
            run it again";
        assert_eq!(disturbed.to_string(), text);
        let mut sum = calm;
        sum += disturbed;
        assert_eq!((sum.stolen(), sum.other_load()), (0.01, 0.02));
        assert_eq!((sum.cpu, sum.preempted), (8.0, 24));
    }

    #[test]
    fn without_counters_nothing_is_disturbed() {
        let unknown = disturbance(f64::NAN, f64::NAN);
        assert!(!unknown.is_disturbed());
        assert_eq!(unknown.lost(), 0.0);
        assert_eq!(
            unknown.to_string(),
            "stolen time unknown, own threads preempted 12×"
        );
    }

    #[test]
    fn the_own_time_is_not_other_load() {
        let usage = |cpu, preempted| Usage { cpu, preempted };
        let own = (usage(5.0, 30), usage(6.5, 37));
        let before = times(BEFORE, "0-1").unwrap();
        // In 2 s, two CPUs were idle for 1.8 s, and 0.2 s were stolen.
        let busy = "cpu0 125 0 15 200 10 0 7 11 0 0\ncpu1 125 0 17 180 5 0 3 11 0 0\n";
        let now = times(busy, "0-1").unwrap();
        let read = Disturbance::between(2.0, Some((before, now)), own);
        assert_eq!((read.stolen(), read.preempted), (0.05, 7));
        assert!((read.other_load() - 0.125).abs() < 1e-9, "{read:?}");
        // Processes ran for 1.53 s. The rest is what it took to wake idle CPUs.
        let woken = "cpu0 100 0 15 200 10 0 7 11 0 0\ncpu1 100 0 15 180 5 0 3 11 0 0\n";
        let read = Disturbance::between(2.0, Some((before, times(woken, "0-1").unwrap())), own);
        assert!((read.other_load() - 0.0075).abs() < 1e-9, "{read:?}");
        // Coarse ticks do not make it negative.
        let read = Disturbance::between(1.7, Some((before, now)), own);
        assert_eq!(read.other_load(), 0.0);
        let read = Disturbance::between(2.0, None, own);
        assert!(read.stolen().is_nan() && read.cpu == 1.5, "{read:?}");
    }

    #[test]
    fn the_own_cpu_time_and_this_machine_are_read() {
        let meter = Meter::start();
        while meter.read().cpu < 0.01 {}
        let read = meter.read();
        assert!(read.all > 0.0 && read.lost() <= 1.0, "{read:?}");
    }
}
