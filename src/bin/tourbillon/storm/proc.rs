//! What the system says of this process.

use std::{fs, str::FromStr};

/// What of the memory that is free a storm may plan to use.
const USABLE: f64 = 0.9;
/// What a timer costs at most, with what is written about it.
const BYTES_PER_TIMER: u64 = 160 + 48;
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
pub(super) fn resident_bytes() -> Result<u64, String> {
    kilobytes("/proc/self/smaps_rollup", "Rss").or_else(|_| {
        let path = "/proc/self/statm";
        let pages: u64 = parse(path, read(path)?.split_whitespace().nth(1))?;
        Ok(pages * rustix::param::page_size() as u64)
    })
}

/// The processor time of all threads of this process so far, in seconds.
pub(super) fn cpu_seconds() -> Result<f64, String> {
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
pub(super) fn thread_cpu_seconds(threads: &[i32]) -> Result<f64, String> {
    let nanos = threads.iter().map(|thread| {
        let path = format!("/proc/self/task/{thread}/schedstat");
        parse::<u64>(&path, read(&path)?.split_whitespace().next())
    });
    Ok(nanos.sum::<Result<u64, _>>()? as f64 / 1e9)
}

/// Refuses what would not fit into memory.
pub(super) fn require_memory(timers: u32) -> Result<(), String> {
    // Where nobody knows what is free, we shall see.
    let Ok(free) = kilobytes("/proc/meminfo", "MemAvailable") else {
        return Ok(());
    };
    let needed = u64::from(timers) * BYTES_PER_TIMER;
    if needed as f64 > free as f64 * USABLE {
        let fits = free as f64 * USABLE / BYTES_PER_TIMER as f64 / 1e6;
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
        assert!(require_memory(1).is_ok());
        assert!(
            require_memory(u32::MAX).is_err()
                || kilobytes("/proc/meminfo", "MemAvailable").unwrap() > 800_000_000_000
        );
    }
}
