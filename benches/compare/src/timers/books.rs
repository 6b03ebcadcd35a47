//! The kernel's figures for this process, from `/proc/self`.

use std::{fs, path::Path};

/// Returns the resident memory of this process, in bytes.
pub fn resident() -> f64 {
    let statm = fs::read_to_string("/proc/self/statm").expect("/proc is there");
    let pages = statm
        .split(' ')
        .nth(1)
        .and_then(|pages| pages.parse::<f64>().ok());
    pages.expect("statm has numbers") * rustix::param::page_size() as f64
}

/// Returns the processor time of all live threads but the calling one, in ms. The time is exact
/// for threads that sleep.
pub fn cpu_of_others() -> f64 {
    let ns: f64 = of_others(|task| {
        let schedstat = fs::read_to_string(task.join("schedstat")).ok()?;
        schedstat.split(' ').next()?.parse().ok()
    });
    ns / 1e6
}

/// Returns how often all live threads but the calling one have gone to sleep.
pub fn switches_of_others() -> f64 {
    of_others(|task| {
        let status = fs::read_to_string(task.join("status")).ok()?;
        let mut lines = status.lines();
        let count = lines.find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
        count.trim().parse().ok()
    })
}

/// Returns the sum of `figure` over all live threads but the calling one.
///
/// `figure` gets the directory of a thread. It returns `None` for a thread that has ended
/// meanwhile, which then does not count.
fn of_others(figure: impl Fn(&Path) -> Option<f64>) -> f64 {
    let own = rustix::thread::gettid().as_raw_nonzero().to_string();
    let tasks = fs::read_dir("/proc/self/task").expect("/proc is there");
    let paths = tasks.map(|task| task.expect("a directory can be read").path());
    let others = paths.filter(|path| !path.ends_with(&own));
    others.filter_map(|path| figure(&path)).sum()
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicBool, Ordering::Relaxed},
        thread,
        time::{Duration, Instant},
    };

    use super::*;

    #[test]
    fn processor_time_and_switches_of_another_thread_count() {
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Relaxed) {
                    let begun = Instant::now();
                    while begun.elapsed() < Duration::from_millis(2) {}
                    thread::sleep(Duration::from_millis(1));
                }
            });
            // Try several times: a thread of another test may end between two readings, and the
            // second sum then lacks the share of this thread.
            let is_seen = (0..1_000).any(|_| {
                let (cpu, switches) = (cpu_of_others(), switches_of_others());
                thread::sleep(Duration::from_millis(10));
                let (cpu, switches) = (cpu_of_others() - cpu, switches_of_others() - switches);
                cpu > 0.1 && switches >= 1.0
            });
            over.store(true, Relaxed);
            assert!(is_seen);
        });
    }
}
