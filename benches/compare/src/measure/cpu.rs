//! Processor time, as the kernel accounts for it.

use std::{fs, io, time::Duration};

use rustix::time::{ClockId, clock_gettime};

/// Returns the processor time that all threads of this process have used so far, including those
/// that have ended.
pub fn of_this_process() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Returns the processor time of the process `pid`: the sum over the threads that it has now.
///
/// The time of threads that have ended is not included.
///
/// # Errors
///
/// Returns an error if the process or one of its threads ends meanwhile, or if the kernel has no
/// `schedstat` files.
pub fn of_process(pid: u32) -> io::Result<Duration> {
    let mut nanos = 0;
    for thread in fs::read_dir(format!("/proc/{pid}/task"))? {
        let stat = fs::read_to_string(thread?.path().join("schedstat"))?;
        // The first field is the time on a processor, in ns.
        let on_cpu = stat.split_whitespace().next();
        let on_cpu = on_cpu.and_then(|nanos| nanos.parse::<u64>().ok());
        nanos += on_cpu.ok_or(io::ErrorKind::InvalidData)?;
    }
    Ok(Duration::from_nanos(nanos))
}
