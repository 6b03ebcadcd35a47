//! Runs one workload on one system in a child process.
//!
//! Each run has a process of its own, so its memory and processor time include no other run.

use std::{
    io::{self, Read},
    os::unix::process::CommandExt,
    process::{Child, Command, ExitStatus, Stdio},
    sync::mpsc,
    thread,
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process_group};

use serde::Serialize;

use crate::workload::{Measured, REFUSED};

/// Result of a child process.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// The figures that the child process printed.
    Figures(Vec<Measured>),
    /// The system cannot run here: for example, it is not built in, or the kernel refuses it.
    ///
    /// The text is the reason.
    Refused(String),
    /// The process did not start, crashed, took too long or printed no valid figures.
    ///
    /// The text is the reason.
    Failed(String),
}

/// Runs `command` in a child process, and returns the outcome.
///
/// If the child process exceeds `limit`, it is killed and has failed.
///
/// The parent process blocks until the child process ends. It does not poll, because that would
/// take processor time from the child process.
pub fn run(mut command: Command, limit: Duration) -> Outcome {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    // The child process leads a process group of its own, so that `finish` can kill the processes
    // that the child process starts.
    match command
        .process_group(0)
        .spawn()
        .and_then(|mut child| finish(&mut child, limit))
    {
        Ok(Some((status, stdout, stderr))) => judge(status, &stdout, &stderr),
        Ok(None) => Outcome::Failed(format!("took more than {limit:?}")),
        Err(error) => Outcome::Failed(format!("cannot be run: {error}")),
    }
}

/// Waits for the child process, and returns its exit status, stdout and stderr.
///
/// If the child process exceeds `limit`, this function kills it and returns `None`.
///
/// # Errors
///
/// Returns an error if the parent process cannot wait for the child process.
fn finish(child: &mut Child, limit: Duration) -> io::Result<Option<(ExitStatus, String, String)>> {
    let stdout = child.stdout.take().expect("it is piped");
    let stderr = child.stderr.take().expect("it is piped");
    // Two threads read both pipes at once: a full pipe would block the child process. The channel
    // lets the parent process wait for them with a timeout.
    let (tell, told) = mpsc::channel();
    thread::spawn(move || {
        let errors = thread::spawn(move || text(stderr));
        let out = text(stdout);
        // The receiver is gone if the time limit has passed.
        let _ = tell.send((out, errors.join().expect("reading does not panic")));
    });
    let Ok((stdout, stderr)) = told.recv_timeout(limit) else {
        // Kill the whole group, because parts of a workload run in processes of their own. Ignore
        // errors: the child process may have just ended.
        if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process_group(group, Signal::KILL);
        }
        let _ = child.kill();
        child.wait()?;
        return Ok(None);
    };
    Ok(Some((child.wait()?, stdout, stderr)))
}

/// Reads `from` to its end as text, and replaces invalid UTF-8.
fn text(mut from: impl Read) -> String {
    let mut bytes = Vec::new();
    // Ignore an error: the text before it is still useful.
    let _ = from.read_to_end(&mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Returns the outcome of a child process that has ended.
fn judge(status: ExitStatus, stdout: &str, stderr: &str) -> Outcome {
    // Keep the message of a panic, and drop the note about backtraces that follows it.
    let said = stderr.lines().filter(|line| !line.starts_with("note: "));
    let reason = said
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect::<Vec<_>>()
        .join(" ");
    if status.code() == Some(REFUSED) {
        return Outcome::Refused(reason);
    }
    if !status.success() {
        return Outcome::Failed(format!("{status}: {reason}"));
    }
    match serde_json::from_str::<Vec<Measured>>(stdout) {
        Ok(figures) if figures.is_empty() => Outcome::Failed("no figures".to_owned()),
        Ok(figures) => Outcome::Figures(figures),
        Err(error) => Outcome::Failed(format!("said what is no result: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    fn shell(script: &str, limit: Duration) -> Outcome {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        run(command, limit)
    }

    #[test]
    fn printed_figures_are_returned() {
        let outcome = shell(r#"echo '[{"name":"ns","value":1.5}]'"#, LONG);
        let name = "ns".to_owned();
        assert_eq!(
            outcome,
            Outcome::Figures(vec![Measured { name, value: 1.5 }])
        );
    }

    #[test]
    fn failures_are_reported_with_a_reason() {
        let Outcome::Failed(reason) = shell("echo broken >&2; exit 7", LONG) else {
            panic!("it exits with 7");
        };
        assert!(
            reason.contains('7') && reason.contains("broken"),
            "{reason}"
        );
        assert!(matches!(shell("echo 12 ns", LONG), Outcome::Failed(_)));
        assert!(matches!(shell("echo '[]'", LONG), Outcome::Failed(_)));
        assert!(matches!(shell("kill -9 $$", LONG), Outcome::Failed(_)));
    }

    #[test]
    fn a_refusal_is_not_a_failure() {
        let outcome = shell("echo 'no io_uring' >&2; exit 3", LONG);
        assert_eq!(outcome, Outcome::Refused("no io_uring".to_owned()));
    }

    #[test]
    fn a_child_over_its_limit_is_killed() {
        let Outcome::Failed(reason) = shell("exec sleep 600", Duration::from_millis(50)) else {
            panic!("it is not done by then");
        };
        assert!(reason.contains("took more than"), "{reason}");
    }
}
