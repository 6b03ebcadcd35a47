//! Processes, on Tourbillon under tokio's name.

use std::{
    os::unix::process::ExitStatusExt,
    path::Path,
    process::{ExitStatus, Stdio},
    time::Duration,
};

use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    process::{Child, Command},
    runtime::Runtime,
    time::{sleep, timeout},
};

/// A wait that only a hang exceeds.
const PATIENCE: Duration = Duration::from_secs(60);

fn shell(script: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", script]);
    command
}

/// A process that runs until it is killed.
fn endless() -> Command {
    let mut command = Command::new("sleep");
    command.arg("1000000");
    command
}

/// Waits until the kernel no longer knows a process: it has ended, and its status was read.
async fn until_reaped(id: u32) {
    let waiting = async {
        while Path::new(&format!("/proc/{id}")).exists() {
            sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(PATIENCE, waiting).await.expect("it is reaped");
}

#[tokio::test]
async fn lines_go_to_a_child_and_back() {
    let mut child = Command::new("cat")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    assert!(child.id().is_some());
    let mut input = child.stdin.take().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    for line in ["one", "two"] {
        input
            .write_all(format!("{line}\n").as_bytes())
            .await
            .unwrap();
        assert_eq!(lines.next_line().await.unwrap().as_deref(), Some(line));
    }
    drop(input);
    assert_eq!(lines.next_line().await.unwrap(), None);
    assert!(child.wait().await.unwrap().success());
    assert!(
        child.wait().await.unwrap().success(),
        "it may be called again"
    );
    assert_eq!(child.id(), None);
    child.start_kill().unwrap();
}

#[tokio::test]
async fn output_reads_both_streams_while_the_child_writes() {
    // More than a pipe holds.
    let script = "head -c 300000 /dev/zero; head -c 200000 /dev/zero >&2; exit 3";
    let output = shell(script).output().await.unwrap();
    assert_eq!(output.status.code(), Some(3));
    assert_eq!(
        (output.stdout.len(), output.stderr.len()),
        (300_000, 200_000)
    );
    let status = shell("exit $NUMBER").env("NUMBER", "4").status().await;
    assert_eq!(status.unwrap().code(), Some(4));
    assert!(Command::new("/no/such/program").spawn().is_err());
}

#[tokio::test]
async fn wait_closes_the_input() {
    let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
    let ended = timeout(PATIENCE, child.wait()).await;
    assert!(ended.expect("`cat` ends").unwrap().success());
}

#[tokio::test]
async fn a_child_is_killed() {
    let killed = ExitStatus::from_raw(9);
    let mut child = endless().spawn().unwrap();
    assert!(child.try_wait().unwrap().is_none());
    // A wait that is dropped loses nothing.
    assert!(
        timeout(Duration::from_millis(1), child.wait())
            .await
            .is_err()
    );
    child.kill().await.unwrap();
    assert_eq!(child.try_wait().unwrap(), Some(killed));

    let child = endless().kill_on_drop(true).spawn().unwrap();
    let id = child.id().unwrap();
    drop(child);
    until_reaped(id).await;

    let output = endless().kill_on_drop(true).output();
    assert!(timeout(Duration::from_millis(1), output).await.is_err());
}

#[tokio::test]
async fn a_dropped_child_runs_on_and_is_reaped() {
    let mut child = Command::new("cat")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let id = child.id().unwrap();
    let (mut input, mut output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    drop(child);
    input.write_all(b"still here").await.unwrap();
    let mut read = [0; 10];
    output.read_exact(&mut read).await.unwrap();
    assert_eq!(&read, b"still here");
    drop(input);
    until_reaped(id).await;
}

#[test]
fn a_child_may_outlive_its_runtime() {
    let runtime = Runtime::new().unwrap();
    let mut child = runtime.block_on(async { endless().spawn().unwrap() });
    drop(runtime);
    let other = Runtime::new().unwrap();
    child.start_kill().unwrap();
    // The old runtime watched it, so a wait fails unless the child has ended already.
    let ended = |child: &mut Child| child.try_wait().unwrap().is_some();
    other.block_on(async {
        let waiting = async {
            while !ended(&mut child) {
                sleep(Duration::from_millis(1)).await;
            }
        };
        timeout(PATIENCE, waiting).await.unwrap();
    });
}

#[tokio::test]
async fn many_children_end_at_once() {
    let mut tasks = tokio::task::JoinSet::new();
    for code in 0..20 {
        tasks.spawn(async move {
            let status = shell(&format!("exit {code}")).status().await.unwrap();
            assert_eq!(status.code(), Some(code));
        });
    }
    tasks.join_all().await;
}

#[tokio::test]
async fn the_output_of_a_child_is_the_input_of_another() {
    let mut first = shell("echo hello").stdout(Stdio::piped()).spawn().unwrap();
    let output: Stdio = first.stdout.take().unwrap().try_into().unwrap();
    let second = Command::new("cat").stdin(output).output().await.unwrap();
    assert_eq!(second.stdout, b"hello\n");
    assert!(first.wait().await.unwrap().success());
}
