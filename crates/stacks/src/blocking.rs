//! The stacks of blocking jobs.

use std::{
    collections::HashMap,
    io,
    sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    thread,
    time::Duration,
};

use tourbillon::{
    Handle,
    runtime::{BlockingJob, WeakHandle},
};

use crate::{Stack, capture};

/// Takes the stacks of the jobs of [`spawn_blocking`](tourbillon::task::spawn_blocking) that run now,
/// oldest first.
///
/// `None` stands where a thread [does not answer](crate::CaptureError). Jobs that end meanwhile are
/// left out.
///
/// ```
/// let runtime = tourbillon::Runtime::new().unwrap();
/// for (running, stack) in tourbillon_stacks::blocking_stacks(runtime.handle()) {
///     println!("{} has run for {:?}, in\n{stack:?}", running.job, running.elapsed);
/// }
/// ```
pub fn blocking_stacks(handle: &Handle) -> Vec<(BlockingJob, Option<Stack>)> {
    stacks(handle, handle.blocking_jobs())
}

/// Takes the stacks of some of the jobs that run.
fn stacks(handle: &Handle, jobs: Vec<BlockingJob>) -> Vec<(BlockingJob, Option<Stack>)> {
    let stack = |job: BlockingJob| (job, capture(job.thread).ok());
    let mut stacks: Vec<_> = jobs.into_iter().map(stack).collect();
    // The stack of a job that is over meanwhile is that of another one.
    let mut left = Vec::new();
    if !stacks.is_empty() {
        let running = handle.blocking_jobs();
        left.extend(running.into_iter().map(|job| job.number));
    }
    stacks.retain(|(job, _)| left.contains(&job.number));
    stacks
}

/// Calls `f` with each job of [`spawn_blocking`](tourbillon::task::spawn_blocking) that has run for
/// `limit`, and with its stack, and again after twice that time, four times and so on.
///
/// Such a job may block, so it is no stall. The limit says what is too long in this program. The
/// stack is `None` if the thread [does not answer](crate::CaptureError). `f` is called on a thread
/// of this crate, which ends when the result is dropped, or after the runtime. It looks once in each
/// `limit`, but at most a thousand times a second.
///
/// # Errors
///
/// Returns an error if the thread cannot be started.
///
/// ```
/// use std::{sync::mpsc, time::Duration};
///
/// // Blocks its thread until the other end of the channel is gone.
/// fn writes_a_report(until: mpsc::Receiver<()>) {
///     let _ = until.recv();
/// }
///
/// let runtime = tourbillon::Runtime::new().unwrap();
/// let (sender, stacks) = mpsc::channel();
/// let limit = Duration::from_millis(20);
/// let _watch = tourbillon_stacks::watch_blocking(runtime.handle(), limit, move |_, stack| {
///     if let Some(stack) = stack {
///         let _ = sender.send(stack.to_string());
///     }
/// })?;
/// let (end, until) = mpsc::channel();
/// runtime.spawn_blocking(move || writes_a_report(until));
/// let stack = stacks.recv_timeout(Duration::from_secs(60)).unwrap();
/// assert!(stack.contains("writes_a_report"));
/// drop(end);
/// # Ok::<_, std::io::Error>(())
/// ```
pub fn watch_blocking<F>(handle: &Handle, limit: Duration, f: F) -> io::Result<BlockingWatch>
where
    F: FnMut(&BlockingJob, Option<&Stack>) + Send + 'static,
{
    let (sender, end) = channel();
    let handle = handle.downgrade();
    thread::Builder::new()
        .name("stacks".to_owned())
        .spawn(move || watch(&handle, limit, &end, f))?;
    Ok(BlockingWatch { _end: sender })
}

/// The thread of [`watch_blocking`]. It ends when this is dropped.
#[derive(Debug)]
#[must_use = "the thread ends when this is dropped"]
pub struct BlockingWatch {
    /// Nothing is sent: the thread sees that this end is gone.
    _end: Sender<()>,
}

fn watch(
    handle: &WeakHandle,
    limit: Duration,
    end: &Receiver<()>,
    mut f: impl FnMut(&BlockingJob, Option<&Stack>),
) {
    // The least wait, so that a limit of zero takes no core.
    const STEP: Duration = Duration::from_millis(1);
    // By the numbers of jobs: after how long to take the next stack.
    let mut next: HashMap<u64, Duration> = HashMap::new();
    loop {
        let Some(handle) = handle.upgrade() else {
            return;
        };
        let jobs = handle.blocking_jobs();
        next.retain(|number, _| jobs.iter().any(|job| job.number == *number));
        let is_due = |job: &BlockingJob| job.elapsed >= *next.get(&job.number).unwrap_or(&limit);
        let due: Vec<_> = jobs.iter().copied().filter(is_due).collect();
        for (job, stack) in stacks(&handle, due) {
            next.insert(job.number, 2 * job.elapsed.max(STEP));
            f(&job, stack.as_ref());
        }
        drop(handle);
        // A job that begins now is due after the limit.
        let left = jobs.iter().map(|job| {
            let at = next.get(&job.number).unwrap_or(&limit);
            at.saturating_sub(job.elapsed)
        });
        let wait = left.min().unwrap_or(limit).min(limit).max(STEP);
        if end.recv_timeout(wait) != Err(RecvTimeoutError::Timeout) {
            return;
        }
    }
}
