//! Processor time, by the kernel's books.

use std::{fs, io, time::Duration};

/// The processor time of all threads of this process so far, those that have ended included.
pub fn of_this_process() -> Duration {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: there is room for what is written.
    let done = unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    assert_eq!(done, 0, "every Linux has this clock");
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// The processor time of all threads that another process has now; of one that has ended meanwhile it knows
/// nothing.
pub fn of_process(pid: u32) -> io::Result<Duration> {
    let mut nanos = 0;
    for thread in fs::read_dir(format!("/proc/{pid}/task"))? {
        let stat = fs::read_to_string(thread?.path().join("schedstat"))?;
        let on_cpu = stat.split_whitespace().next();
        let on_cpu = on_cpu.and_then(|nanos| nanos.parse::<u64>().ok());
        nanos += on_cpu.ok_or(io::ErrorKind::InvalidData)?;
    }
    Ok(Duration::from_nanos(nanos))
}
