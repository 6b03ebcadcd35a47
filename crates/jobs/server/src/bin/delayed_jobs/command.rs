//! The command of an attempt, in a process group of its own.
//!
//! No thread waits for a command, or for one that does not read its input: an attempt would wait for
//! a thread where many commands take long to end, and its time limit counts.

use std::{
    future::pending,
    io::{self, Write},
    mem,
    os::{fd::OwnedFd, unix::process::CommandExt},
    process::{Child, ChildStdin, Command, ExitStatus, Stdio},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures_lite::future::or;
use rustix::{
    io::ioctl_fionbio,
    process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open},
};
use tourbillon::{
    io::{AsyncFd, Interest},
    runtime::with_all_cores,
    time::timeout,
};
use tourbillon_jobs::{Attempt, Failure};

/// How long a command may take to end after SIGTERM. Then its group is killed.
const GRACE: Duration = Duration::from_secs(5);

/// Whether commands are left alone when their attempts are dropped, as the program ends.
static LEAVES: AtomicBool = AtomicBool::new(false);

/// The groups that have to end and have got SIGTERM. Nobody has reaped their first processes, so
/// these numbers are not those of other groups.
static ENDING: Mutex<Vec<Pid>> = Mutex::new(Vec::new());

fn ending() -> MutexGuard<'static, Vec<Pid>> {
    ENDING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Kills the commands that have to end, as nobody will do it later. Lets those whose attempts run
/// outlive this program.
pub fn end() {
    let mut ending = ending();
    LEAVES.store(true, Ordering::Relaxed);
    for group in ending.drain(..) {
        signal(group, Signal::KILL);
    }
}

fn signal(group: Pid, signal: Signal) {
    // It fails if the group has ended.
    let _ = kill_process_group(group, signal);
}

/// A command whose first process has not been reaped.
struct Unreaped {
    child: Child,
    /// Readable when the first process has ended.
    exit: AsyncFd<OwnedFd>,
}

impl Unreaped {
    /// Waits until the first process has ended. Its number stays that of the group.
    async fn exits(&self) -> io::Result<()> {
        self.exit.readable().await.map(drop)
    }

    /// Ends the group.
    async fn end(mut self, group: Pid) {
        // The end of the first process is that of the command.
        let _ = timeout(GRACE, self.exits()).await;
        signal(group, Signal::KILL);
        let _ = self.exits().await;
        let mut ending = ending();
        ending.retain(|other| *other != group);
        let _ = self.child.wait();
    }
}

/// A command that runs. If this is dropped, its group gets SIGTERM, and then SIGKILL.
struct Running(Option<Unreaped>);

impl Running {
    fn start(command: &mut Command) -> io::Result<Self> {
        // A thread of the runtime may be on one core. The command gets all of the process.
        let mut child = with_all_cores(|| command.spawn())?;
        let exit = pidfd_open(Pid::from_child(&child), PidfdFlags::empty());
        let exit = exit.map_err(io::Error::from);
        match exit.and_then(|exit| AsyncFd::with_interest(exit, Interest::READABLE)) {
            Ok(exit) => Ok(Self(Some(Unreaped { child, exit }))),
            Err(error) => {
                signal(Pid::from_child(&child), Signal::KILL);
                child.wait()?;
                Err(error)
            }
        }
    }

    /// Writes the input of the command, and waits for its end.
    async fn run(mut self, input: &[u8]) -> io::Result<ExitStatus> {
        let Some(running) = &mut self.0 else {
            return pending().await;
        };
        let stdin = running.child.stdin.take();
        let writes = async {
            if let Some(stdin) = stdin {
                // A command that does not read its input is no error.
                let _ = write(stdin, input).await;
            }
            pending().await
        };
        or(running.exits(), writes).await?;
        match self.0.take() {
            Some(mut ended) => ended.child.wait(),
            None => pending().await,
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let Some(running) = self.0.take() else {
            return;
        };
        let mut ending = ending();
        if LEAVES.load(Ordering::Relaxed) {
            return;
        }
        let group = Pid::from_child(&running.child);
        signal(group, Signal::TERM);
        ending.push(group);
        tourbillon::spawn(running.end(group));
    }
}

async fn write(stdin: ChildStdin, mut input: &[u8]) -> io::Result<()> {
    ioctl_fionbio(&stdin, true)?;
    let stdin = AsyncFd::with_interest(stdin, Interest::WRITABLE)?;
    while !input.is_empty() {
        let write = |mut stdin: &ChildStdin| stdin.write(input);
        let written = stdin.async_io(Interest::WRITABLE, write).await?;
        input = &input[written..];
    }
    Ok(())
}

/// Runs the shell command of an attempt. If this is dropped before the command has ended, or if the
/// job is not this node's any more, the command's process group gets SIGTERM, and then SIGKILL.
pub async fn run(command: String, mut attempt: Attempt) -> Result<(), Failure> {
    let payload = mem::take(&mut attempt.payload);
    let mut shell = Command::new("sh");
    shell
        .args(["-c", &command])
        .env("JOB_KEY", &attempt.key)
        .env("JOB_KIND", &attempt.kind)
        .env("JOB_QUEUE", &attempt.queue)
        .env("JOB_ATTEMPT", attempt.number.to_string())
        .env("JOB_TOKEN", attempt.token.to_string())
        // What this program itself was started in is not the trace context of the job, nor what
        // belongs to that.
        .env_remove("TRACEPARENT")
        .env_remove("TRACESTATE")
        .env_remove("BAGGAGE")
        .envs(
            attempt
                .traceparent
                .as_ref()
                .map(|trace| ("TRACEPARENT", trace)),
        )
        .stdin(Stdio::piped())
        // Its own process group keeps it from receiving Ctrl-C, which a terminal sends to the
        // whole foreground group.
        .process_group(0);
    let ended = async { Ok(Running::start(&mut shell)?.run(&payload).await?) };
    let stale = async {
        let why = attempt.stale().await;
        Err(Failure::retry(format!("the command was ended: {why:?}")))
    };
    let status = or(ended, stale).await?;
    if status.success() {
        Ok(())
    } else {
        Err(Failure::retry(format!("the command ended with {status}")))
    }
}
