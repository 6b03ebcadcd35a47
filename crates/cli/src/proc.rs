//! Figures about this process, read from `/proc`.

use std::{ffi::OsString, fs, str::FromStr};

/// Share of the free memory that a test may plan to use.
const USABLE: f64 = 0.9;
/// Clock ticks per second in `/proc/self/stat`; Linux reports 100 on all machines.
const TICKS_PER_SECOND: f64 = 100.0;

fn read(path: &str) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("cannot read {path}: {error}"))
}

fn parse<T: FromStr>(path: &str, text: Option<&str>) -> Result<T, String> {
    text.and_then(|text| text.parse().ok())
        .ok_or_else(|| format!("{path} does not have the format of proc(5)"))
}

/// Reads a line `name:  1234 kB` of a file, and returns bytes.
fn kilobytes(path: &str, name: &str) -> Result<u64, String> {
    let text = read(path)?;
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let number = line.and_then(|line| line.trim_start_matches(':').split_whitespace().next());
    Ok(parse::<u64>(path, number)? * 1024)
}

/// Returns the resident memory of this process, in bytes.
///
/// Reads `smaps_rollup`, which counts every page. The fallback `statm` can be off by some hundred
/// pages.
pub fn resident_bytes() -> Result<u64, String> {
    kilobytes("/proc/self/smaps_rollup", "Rss").or_else(|_| {
        let path = "/proc/self/statm";
        let pages: u64 = parse(path, read(path)?.split_whitespace().nth(1))?;
        Ok(pages * rustix::param::page_size() as u64)
    })
}

/// Returns the CPU time of all threads of this process so far, in seconds.
pub fn cpu_seconds() -> Result<f64, String> {
    let path = "/proc/self/stat";
    let text = read(path)?;
    // The second field is the program's name in parentheses, and can contain any character.
    let rest = text.rsplit_once(')').map_or("", |(_, rest)| rest);
    let mut fields = rest.split_whitespace().skip(11);
    let user: f64 = parse(path, fields.next())?;
    let system: f64 = parse(path, fields.next())?;
    Ok((user + system) / TICKS_PER_SECOND)
}

/// Returns the CPU time of the given threads so far, in seconds.
pub fn thread_cpu_seconds(threads: &[i32]) -> Result<f64, String> {
    let nanos = threads.iter().map(|thread| {
        let path = format!("/proc/self/task/{thread}/schedstat");
        parse::<u64>(&path, read(&path)?.split_whitespace().next())
    });
    Ok(nanos.sum::<Result<u64, _>>()? as f64 / 1e9)
}

fn entries(path: &str) -> Result<Vec<fs::DirEntry>, String> {
    let entries = fs::read_dir(path).and_then(Iterator::collect);
    entries.map_err(|error| format!("cannot list {path}: {error}"))
}

/// Returns the number of open descriptors.
pub fn descriptors() -> Result<usize, String> {
    // Listing the directory opens one more.
    Ok(entries("/proc/self/fd")?.len() - 1)
}

/// Returns the number of epoll instances, eventfds, timerfds and the like.
pub fn event_descriptors() -> Result<usize, String> {
    let is_ours = |entry: &fs::DirEntry| {
        // A descriptor that was closed after the listing cannot be read; skip it.
        let target = fs::read_link(entry.path()).map(OsString::from);
        target.is_ok_and(|name| name.to_string_lossy().starts_with("anon_inode:"))
    };
    Ok(entries("/proc/self/fd")?
        .iter()
        .filter(|&entry| is_ours(entry))
        .count())
}

/// Returns the number of threads.
pub fn threads() -> Result<usize, String> {
    Ok(entries("/proc/self/task")?.len())
}

/// Returns the number of threads whose names start with `prefix`.
pub fn threads_named(prefix: &str) -> Result<usize, String> {
    let is_so = |entry: &fs::DirEntry| {
        // A thread that ended after the listing cannot be read; skip it.
        let name = fs::read_to_string(entry.path().join("comm"));
        name.is_ok_and(|name| name.starts_with(prefix))
    };
    Ok(entries("/proc/self/task")?
        .iter()
        .filter(|&entry| is_so(entry))
        .count())
}

/// Fails if the timers would not fit into free memory, at `bytes_per_timer` each.
pub fn require_memory(timers: u32, bytes_per_timer: u64) -> Result<(), String> {
    // If the amount of free memory is unknown, try it.
    let Ok(free) = kilobytes("/proc/meminfo", "MemAvailable") else {
        return Ok(());
    };
    let needed = u64::from(timers) * bytes_per_timer;
    if needed as f64 > free as f64 * USABLE {
        let fits = free as f64 * USABLE / bytes_per_timer as f64 / 1e6;
        return Err(format!(
            "{timers} timers need up to {:.1} GB, but {:.1} GB are free: use at most {fits:.0}M \
             timers",
            needed as f64 / 1e9,
            free as f64 / 1e9,
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_available() {
        assert!(resident_bytes().unwrap() > 100_000);
        assert!(cpu_seconds().unwrap() < 1e6);
        assert!(require_memory(1, 200).is_ok());
        assert!(
            require_memory(u32::MAX, 200).is_err()
                || kilobytes("/proc/meminfo", "MemAvailable").unwrap() > 800_000_000_000
        );
    }

    #[test]
    fn another_thread_and_descriptor_are_counted() {
        assert_eq!(threads_named("counted"), Ok(0));
        let fds = event_descriptors().unwrap();
        let runtime = tourbillon::runtime::Builder::new()
            .worker_threads(1)
            .build();
        assert!(event_descriptors().unwrap() > fds);
        assert!(descriptors().unwrap() > event_descriptors().unwrap());
        drop(runtime);
        let (sender, receiver) = std::sync::mpsc::channel::<()>();
        let (ready, started) = std::sync::mpsc::channel();
        let thread = std::thread::Builder::new().name("counted-1".into());
        let thread = thread.spawn(move || {
            ready.send(()).unwrap();
            let _ = receiver.recv();
        });
        started.recv().unwrap();
        assert_eq!(threads_named("counted"), Ok(1));
        assert!(threads().unwrap() > 1);
        drop(sender);
        thread.unwrap().join().unwrap();
    }
}
