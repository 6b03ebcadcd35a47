//! What the system says of this process.

use std::{ffi::OsString, fs, str::FromStr};

/// What of the memory that is free a storm may plan to use.
const USABLE: f64 = 0.9;
/// The unit of /proc/self/stat, which is the same on all machines.
const TICKS_PER_SECOND: f64 = 100.0;

fn read(path: &str) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("cannot read {path}: {error}"))
}

fn parse<T: FromStr>(path: &str, text: Option<&str>) -> Result<T, String> {
    text.and_then(|text| text.parse().ok())
        .ok_or_else(|| format!("{path} is not what proc(5) says it is"))
}

/// A line `name:  1234 kB` of a file, in bytes.
fn kilobytes(path: &str, name: &str) -> Result<u64, String> {
    let text = read(path)?;
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let number = line.and_then(|line| line.trim_start_matches(':').split_whitespace().next());
    Ok(parse::<u64>(path, number)? * 1024)
}

/// The memory that this process has, in bytes.
///
/// Counted page by page: what `statm` says is faster, and may be some hundred pages off.
pub(crate) fn resident_bytes() -> Result<u64, String> {
    kilobytes("/proc/self/smaps_rollup", "Rss").or_else(|_| {
        let path = "/proc/self/statm";
        let pages: u64 = parse(path, read(path)?.split_whitespace().nth(1))?;
        Ok(pages * rustix::param::page_size() as u64)
    })
}

/// The processor time of all threads of this process so far, in seconds.
pub(crate) fn cpu_seconds() -> Result<f64, String> {
    let path = "/proc/self/stat";
    let text = read(path)?;
    // The second field is the program's name, in brackets, and may be anything.
    let rest = text.rsplit_once(')').map_or("", |(_, rest)| rest);
    let mut fields = rest.split_whitespace().skip(11);
    let user: f64 = parse(path, fields.next())?;
    let system: f64 = parse(path, fields.next())?;
    Ok((user + system) / TICKS_PER_SECOND)
}

/// The processor time of some threads of this process so far, in seconds.
pub(crate) fn thread_cpu_seconds(threads: &[i32]) -> Result<f64, String> {
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

/// How many descriptors this process has open.
pub(crate) fn descriptors() -> Result<usize, String> {
    // But for the one by which they are listed.
    Ok(entries("/proc/self/fd")?.len() - 1)
}

/// How many descriptors it has that are no file and no socket: epoll instances, eventfds, timerfds.
pub(crate) fn event_descriptors() -> Result<usize, String> {
    let is_ours = |entry: &fs::DirEntry| {
        // One that was closed meanwhile is none.
        let target = fs::read_link(entry.path()).map(OsString::from);
        target.is_ok_and(|name| name.to_string_lossy().starts_with("anon_inode:"))
    };
    Ok(entries("/proc/self/fd")?
        .iter()
        .filter(|&entry| is_ours(entry))
        .count())
}

/// How many threads this process has.
pub(crate) fn threads() -> Result<usize, String> {
    Ok(entries("/proc/self/task")?.len())
}

/// How many of them have names that begin so.
pub(crate) fn threads_named(prefix: &str) -> Result<usize, String> {
    let is_so = |entry: &fs::DirEntry| {
        // One that has ended meanwhile is none.
        let name = fs::read_to_string(entry.path().join("comm"));
        name.is_ok_and(|name| name.starts_with(prefix))
    };
    Ok(entries("/proc/self/task")?
        .iter()
        .filter(|&entry| is_so(entry))
        .count())
}

/// Refuses timers that would not fit into memory, where one takes so much, with what is written about it.
pub(crate) fn require_memory(timers: u32, bytes_per_timer: u64) -> Result<(), String> {
    // Where nobody knows what is free, we shall see.
    let Ok(free) = kilobytes("/proc/meminfo", "MemAvailable") else {
        return Ok(());
    };
    let needed = u64::from(timers) * bytes_per_timer;
    if needed as f64 > free as f64 * USABLE {
        let fits = free as f64 * USABLE / bytes_per_timer as f64 / 1e6;
        return Err(format!(
            "{timers} timers take up to {:.1} GB, and {:.1} GB are free: ask for {fits:.0}M at most",
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
    fn the_system_answers() {
        assert!(resident_bytes().unwrap() > 100_000);
        assert!(cpu_seconds().unwrap() < 1e6);
        assert!(require_memory(1, 200).is_ok());
        assert!(
            require_memory(u32::MAX, 200).is_err()
                || kilobytes("/proc/meminfo", "MemAvailable").unwrap() > 800_000_000_000
        );
    }

    #[test]
    fn a_thread_and_a_descriptor_more_are_counted() {
        assert_eq!(threads_named("counted"), Ok(0));
        let fds = event_descriptors().unwrap();
        let runtime = tourbillon::Runtime::builder().worker_threads(1).build();
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
