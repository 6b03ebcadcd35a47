//! The command of an attempt, in a process group of its own.

use std::{
    io::{self, Write},
    os::unix::process::CommandExt,
    process::{Command, ExitStatus, Stdio},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures_lite::future::or;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use tourbillon::{task::spawn_blocking, time::sleep};
use tourbillon_durable::{Attempt, Failure};

/// How long a command may take to end after SIGTERM. Then its group is killed.
pub const GRACE: Duration = Duration::from_secs(5);

/// Whether commands are left alone when their attempts are dropped, as the program ends.
static LEAVES: AtomicBool = AtomicBool::new(false);

/// The groups that have to end and have got SIGTERM.
static ENDING: Mutex<Vec<Group>> = Mutex::new(Vec::new());

fn ending() -> MutexGuard<'static, Vec<Group>> {
    ENDING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Kills the commands that have to end, as nobody will do it later. Lets those whose attempts run
/// outlive this program.
pub fn end() {
    let mut ending = ending();
    LEAVES.store(true, Ordering::Relaxed);
    for group in ending.drain(..) {
        group.lock().signal(Signal::KILL);
    }
}

#[derive(Default)]
struct State {
    /// The group of the command, which has the number of its first process.
    group: Option<Pid>,
    /// Whether the attempt is over, so that the command has to end.
    is_unwanted: bool,
    /// Whether the first process has ended. Then the number may be that of another group soon.
    is_over: bool,
}

impl State {
    fn signal(&self, signal: Signal) {
        if let Some(group) = self.group
            && !self.is_over
        {
            // It fails if the group has ended.
            let _ = kill_process_group(group, signal);
        }
    }
}

#[derive(Clone, Default)]
struct Group(Arc<Mutex<State>>);

impl Group {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs a command to its end, unless its attempt is over by now.
    fn run(&self, command: &mut Command, payload: &[u8]) -> io::Result<ExitStatus> {
        let mut child = {
            let mut state = self.lock();
            if state.is_unwanted {
                return Err(io::Error::other("the attempt is over"));
            }
            let child = command.spawn()?;
            state.group = Some(Pid::from_child(&child));
            child
        };
        if let Some(mut stdin) = child.stdin.take() {
            // A command that does not read its input is no error.
            let _ = stdin.write_all(payload);
        }
        // Wait without reaping it, so that its number stays that of this group.
        let ends = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        while let Err(error) = waitid(WaitId::Pid(Pid::from_child(&child)), ends) {
            if error.kind() != io::ErrorKind::Interrupted {
                break;
            }
        }
        let mut state = self.lock();
        if state.is_unwanted {
            state.signal(Signal::KILL);
        }
        state.is_over = true;
        child.wait()
    }
}

/// Ends the group unless it has ended.
struct Guard(Group);

impl Drop for Guard {
    fn drop(&mut self) {
        let mut ending = ending();
        let mut state = self.0.lock();
        if state.is_over || LEAVES.load(Ordering::Relaxed) {
            return;
        }
        state.is_unwanted = true;
        if state.group.is_none() {
            // It does not begin any more.
            return;
        }
        state.signal(Signal::TERM);
        let group = self.0.clone();
        ending.push(group.clone());
        tourbillon::spawn(async move {
            sleep(GRACE).await;
            group.lock().signal(Signal::KILL);
            self::ending().retain(|other| !Arc::ptr_eq(&other.0, &group.0));
        });
    }
}

/// Runs the shell command of an attempt. If this is dropped before the command has ended, or if the
/// job is not this node's any more, the command's process group gets SIGTERM, and then SIGKILL.
pub async fn run(command: String, attempt: Attempt) -> Result<(), Failure> {
    let group = Group::default();
    let guard = Guard(group.clone());
    let mut attempt = attempt;
    let payload = std::mem::take(&mut attempt.payload);
    let runs = attempt.clone();
    let ended = spawn_blocking(move || {
        let mut shell = Command::new("sh");
        shell
            .args(["-c", &command])
            .env("JOB_KEY", &runs.key)
            .env("JOB_ATTEMPT", runs.number.to_string())
            .env("JOB_TOKEN", runs.token.to_string())
            .stdin(Stdio::piped())
            // Its own process group keeps it from receiving Ctrl-C, which a terminal sends to the
            // whole foreground group.
            .process_group(0);
        group.run(&mut shell, &payload)
    });
    let ended = async { Ok(ended.await.map_err(Failure::retry)??) };
    let stale = async {
        let why = attempt.stale().await;
        Err(Failure::retry(format!("the command was ended: {why:?}")))
    };
    let status = or(ended, stale).await?;
    drop(guard);
    if status.success() {
        Ok(())
    } else {
        Err(Failure::retry(format!("the command ended with {status}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_does_not_begin_after_its_attempt() {
        tourbillon::Runtime::new().unwrap().block_on(async {
            let group = Group::default();
            drop(Guard(group.clone()));
            let ended = group.run(&mut Command::new("true"), b"");
            assert_eq!(ended.unwrap_err().to_string(), "the attempt is over");
            assert!(ending().is_empty());
        });
    }
}
