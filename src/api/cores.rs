//! The cores of what a task starts.

use crate::sys;

/// Calls `f` with all cores of the process, and returns what it returns. To be used in tasks and
/// callbacks that start a process or a thread, or count the cores.
///
/// A worker is pinned to one core, unless [`Builder::pin`] says otherwise. A child process or a
/// thread inherits that, and [`available_parallelism`] is 1 there. So a program that is started in
/// a task, a thread pool, or a runtime of another library would all share this core. During `f`,
/// the calling worker has the affinity mask that its runtime was built with, or the one that
/// somebody has given to the whole process since, as `taskset -ap` does. On any other thread this
/// only calls `f`. Where the system does not let a thread change its mask, `f` has the worker's.
///
/// It is not needed in [`spawn_blocking`], whose threads are not pinned, to build a [`Runtime`],
/// and for `tokio::process` of the package in the folder `crates/tokio`.
///
/// ```
/// use std::{process::Command, thread};
/// use tourbillon::runtime::with_all_cores;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let runtime = tourbillon::Runtime::new()?;
/// let all = thread::available_parallelism()?;
/// let in_task = runtime.spawn(async {
///     // A program that uses as many cores as it finds.
///     let output = with_all_cores(|| Command::new("nproc").output())?;
///     // As for the number of threads of a pool: `with_all_cores(|| builder.build())`.
///     let cores = with_all_cores(thread::available_parallelism)?;
///     std::io::Result::Ok((output, cores))
/// });
/// let (output, cores) = runtime.block_on(in_task)??;
/// assert_eq!(cores, all);
/// # if std::env::var_os("OMP_NUM_THREADS").is_none() {
/// # let printed: usize = String::from_utf8(output.stdout)?.trim().parse()?;
/// # assert!(printed >= all.get());
/// # }
/// # Ok(())
/// # }
/// ```
///
/// [`Builder::pin`]: crate::runtime::Builder::pin
/// [`Runtime`]: crate::Runtime
/// [`available_parallelism`]: std::thread::available_parallelism
/// [`spawn_blocking`]: crate::task::blocking::spawn_blocking
pub fn with_all_cores<R>(f: impl FnOnce() -> R) -> R {
    sys::cpu::with_all_cores(f)
}
