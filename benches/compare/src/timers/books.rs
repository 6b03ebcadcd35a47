//! What the kernel knows of this process.

use std::{fs, path::Path};

use rustix::time::{ClockId, clock_gettime};

/// Pages of physical memory, in bytes.
pub fn resident() -> f64 {
    let statm = fs::read_to_string("/proc/self/statm").expect("/proc is there");
    let pages = statm
        .split(' ')
        .nth(1)
        .and_then(|pages| pages.parse::<f64>().ok());
    pages.expect("statm has numbers") * rustix::param::page_size() as f64
}

/// CPU time of all threads but the calling one, in ms.
pub fn cpu_of_others() -> f64 {
    let ms = |clock| {
        let time = clock_gettime(clock);
        time.tv_sec as f64 * 1e3 + time.tv_nsec as f64 / 1e6
    };
    // The calling thread runs on between the two: its own comes first, so that none of it is missing.
    let own = ms(ClockId::ThreadCPUTime);
    ms(ClockId::ProcessCPUTime) - own
}

/// How often the threads that there are, but the calling one, have gone to sleep.
pub fn switches_of_others() -> f64 {
    let own = rustix::thread::gettid().as_raw_nonzero().to_string();
    let tasks = fs::read_dir("/proc/self/task").expect("/proc is there");
    let paths = tasks.map(|task| task.expect("a directory can be read").path());
    paths
        .filter(|path| !path.ends_with(&own))
        // One that has ended since is gone.
        .filter_map(|path| switches(&path))
        .sum()
}

fn switches(task: &Path) -> Option<f64> {
    let status = fs::read_to_string(task.join("status")).ok()?;
    let mut lines = status.lines();
    let count = lines.find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
    count.trim().parse().ok()
}
