//! What the benchmarks share: turns, medians, and counts of instructions.

use std::{env, process::Command, time::Duration};

/// Runs `systems` systems in turns for some rounds, and returns the results of each. The order
/// rotates, so that no system always runs after the same one, and what disturbs the machine hits
/// all of them.
pub fn turns<T>(rounds: usize, systems: usize, mut run: impl FnMut(usize) -> T) -> Vec<Vec<T>> {
    let mut all: Vec<_> = (0..systems).map(|_| Vec::with_capacity(rounds)).collect();
    for round in 0..rounds {
        for turn in 0..systems {
            let at = (round + turn) % systems;
            all[at].push(run(at));
        }
    }
    all
}

/// Returns the median. Of an even number of values, it is the upper of the two in the middle.
///
/// # Panics
///
/// Panics if there are no values, or if one is NaN.
pub fn median<T: PartialOrd>(values: impl IntoIterator<Item = T>) -> T {
    let mut values: Vec<T> = values.into_iter().collect();
    values.sort_by(|a, b| a.partial_cmp(b).expect("none is NaN"));
    let middle = values.len() / 2;
    values.swap_remove(middle)
}

/// Returns the p50 and the p99.
///
/// # Panics
///
/// Panics if there are no values.
pub fn percentiles(mut values: Vec<f64>) -> (f64, f64) {
    values.sort_by(f64::total_cmp);
    let at = |part: f64| values[((values.len() - 1) as f64 * part) as usize];
    (at(0.5), at(0.99))
}

/// Returns the time of a clock of the system, such as `CLOCK_THREAD_CPUTIME_ID`.
///
/// # Panics
///
/// Panics if the system has no such clock.
pub fn time_of(clock: libc::clockid_t) -> Duration {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is a `timespec` that the call writes.
    let got = unsafe { libc::clock_gettime(clock, &raw mut time) };
    assert_eq!(got, 0, "there is no clock {clock}");
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Runs this program with other arguments in a process of its own, under another command. Returns
/// what that command says on stderr, or `None` if it is not installed.
///
/// # Panics
///
/// Panics if the program fails.
pub fn under(command: &[&str], args: &[&str]) -> Option<String> {
    let output = Command::new(command[0])
        .args(&command[1..])
        .arg(env::current_exe().expect("it has a path"))
        .args(args)
        .output()
        .ok()?;
    assert!(output.status.success(), "{output:?}");
    Some(String::from_utf8_lossy(&output.stderr).into_owned())
}

/// Returns the instructions of an operation outside of the kernel, or `None` without valgrind.
///
/// `args` returns the arguments with which this program does a number of operations. It does `n` of
/// them, and `3 n` in another process. The result is the difference divided by `2 n`, so start and
/// end do not count.
pub fn instructions<const N: usize>(n: u64, args: impl Fn(u64) -> [String; N]) -> Option<f64> {
    const CALLGRIND: [&str; 4] = [
        "valgrind",
        "--tool=callgrind",
        "--callgrind-out-file=/dev/null",
        "--fair-sched=yes",
    ];
    let count = |n| {
        let args = args(n);
        let said = under(&CALLGRIND, &args.each_ref().map(String::as_str))?;
        let (_, count) = said.split_once("Collected : ")?;
        count.split_whitespace().next()?.parse::<f64>().ok()
    };
    Some((count(3 * n)? - count(n)?) / (2 * n) as f64)
}
