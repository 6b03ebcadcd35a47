//! One workload on one system in a process of its own, so that memory and CPU time are its alone.

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

/// How it went.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    Figures(Vec<Measured>),
    /// The system cannot run here: not built in, or the kernel does not let it.
    Refused(String),
    /// It crashed, took too long, or said what is no result.
    Failed(String),
}

/// Runs the command to its end, for `limit` at most; then it is killed.
///
/// This process only waits meanwhile: it looks at nothing in between, which would cost the other CPU time.
pub fn run(mut command: Command, limit: Duration) -> Outcome {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
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

/// How it ended, and what it said; `None`: not in time.
fn finish(child: &mut Child, limit: Duration) -> io::Result<Option<(ExitStatus, String, String)>> {
    let stdout = child.stdout.take().expect("it is piped");
    let stderr = child.stderr.take().expect("it is piped");
    let (tell, told) = mpsc::channel();
    thread::spawn(move || {
        let errors = thread::spawn(move || text(stderr));
        let out = text(stdout);
        // The receiver may have given up.
        let _ = tell.send((out, errors.join().expect("reading does not panic")));
    });
    let Ok((stdout, stderr)) = told.recv_timeout(limit) else {
        // It may have ended just now. Its group, for parts of a workload have processes of their own.
        if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process_group(group, Signal::KILL);
        }
        let _ = child.kill();
        child.wait()?;
        return Ok(None);
    };
    Ok(Some((child.wait()?, stdout, stderr)))
}

fn text(mut from: impl Read) -> String {
    let mut bytes = Vec::new();
    // The text before an error is still useful.
    let _ = from.read_to_end(&mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}

fn judge(status: ExitStatus, stdout: &str, stderr: &str) -> Outcome {
    // The message of a panic comes before the note about backtraces.
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
    fn figures_come_back() {
        let outcome = shell(r#"echo '[{"name":"ns","value":1.5}]'"#, LONG);
        let name = "ns".to_owned();
        assert_eq!(
            outcome,
            Outcome::Figures(vec![Measured { name, value: 1.5 }])
        );
    }

    #[test]
    fn what_fails_says_how() {
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
    fn a_refusal_is_none_of_these() {
        let outcome = shell("echo 'no io_uring' >&2; exit 3", LONG);
        assert_eq!(outcome, Outcome::Refused("no io_uring".to_owned()));
    }

    #[test]
    fn what_takes_too_long_is_killed() {
        let Outcome::Failed(reason) = shell("exec sleep 600", Duration::from_millis(50)) else {
            panic!("it is not done by then");
        };
        assert!(reason.contains("took more than"), "{reason}");
    }
}
