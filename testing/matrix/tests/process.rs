//! Processes, on Tourbillon under tokio's name.

use std::{
    env,
    future::poll_fn,
    os::unix::process::ExitStatusExt,
    path::Path,
    pin::{Pin, pin},
    process::{self, ExitStatus, Stdio},
    task::{Context, Poll, Waker},
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    process::{Child, Command},
    runtime::{Builder, Runtime},
    time::{sleep, timeout},
};
use tourbillon::task::{consume_budget, coop};

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

/// Polls a future once in the calling task.
async fn poll_once<F: Future>(mut future: Pin<&mut F>) -> Poll<F::Output> {
    poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx))).await
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

/// Workers are pinned to a core each. Children of their tasks are not.
#[tokio::test(flavor = "multi_thread")]
async fn a_child_of_a_task_has_all_cores() {
    let cores = "grep Cpus_allowed_list /proc/self/status";
    let here = process::Command::new("sh")
        .args(["-c", cores])
        .output()
        .unwrap();
    let there = tokio::spawn(async move { shell(cores).output().await });
    assert_eq!(there.await.unwrap().unwrap().stdout, here.stdout);
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
fn a_child_that_is_dropped_without_budget_is_reaped() {
    // Other tests start processes, which looks after all orphans.
    if !is_alone("a_child_that_is_dropped_without_budget_is_reaped") {
        return;
    }
    let dropping = async {
        let child = shell("read line").stdin(Stdio::piped()).spawn();
        let mut child = child.unwrap();
        let (id, input) = (child.id().unwrap(), child.stdin.take());
        // The budget of descriptors.
        while coop::has_budget_remaining() {
            consume_budget().await;
        }
        drop(child);
        (id, input)
    };
    Runtime::new().unwrap().block_on(async {
        let (id, input) = tokio::spawn(dropping).await.unwrap();
        drop(input);
        until_reaped(id).await;
    });
}

/// Runs a future in a runtime of its own of each kind, which then ends.
fn in_runtimes_that_end<R>(mut f: impl AsyncFnMut() -> R) -> [R; 2] {
    let builders = [Builder::new_multi_thread(), Builder::new_current_thread()];
    builders.map(|mut builder| {
        let runtime = builder.enable_all().build().unwrap();
        runtime.block_on(f())
    })
}

#[test]
fn a_child_is_awaited_after_its_runtime_has_ended() {
    let children = in_runtimes_that_end(async || endless().kill_on_drop(true).spawn().unwrap());
    Runtime::new().unwrap().block_on(async {
        for mut child in children {
            // The first wait is dropped after it has moved the watch.
            let brief = timeout(Duration::from_millis(1), child.wait()).await;
            assert!(brief.is_err());
            child.start_kill().unwrap();
            let ended = timeout(PATIENCE, child.wait()).await.expect("it ends");
            assert_eq!(ended.unwrap(), ExitStatus::from_raw(9));
        }
    });
}

#[test]
fn a_wait_goes_on_when_the_runtime_of_the_child_ends() {
    let first = Runtime::new().unwrap();
    let mut child = first.block_on(async { endless().kill_on_drop(true).spawn().unwrap() });
    let id = Pid::from_raw(child.id().unwrap() as i32).unwrap();
    let second = Runtime::new().unwrap();
    second.block_on(async {
        let mut waiting = pin!(child.wait());
        assert!(poll_once(waiting.as_mut()).await.is_pending());
        drop(first);
        // It was woken, and watches from here now.
        assert!(poll_once(waiting.as_mut()).await.is_pending());
        kill_process(id, Signal::KILL).unwrap();
        let ended = timeout(PATIENCE, waiting).await.expect("it ends");
        assert_eq!(ended.unwrap(), ExitStatus::from_raw(9));
    });
    drop(second);
    let mut child = Runtime::new()
        .unwrap()
        .block_on(async { endless().spawn().unwrap() });
    // Without a runtime nothing watches it. That is an error, and no wait without an end.
    let cx = &mut Context::from_waker(Waker::noop());
    assert!(matches!(pin!(child.wait()).poll(cx), Poll::Ready(Err(_))));
    child.start_kill().unwrap();
}

/// Runs a test in a process of its own. Returns whether the calling process is that one.
fn is_alone(test: &str) -> bool {
    const ALONE: &str = "TOURBILLON_TEST_ALONE";
    if env::var_os(ALONE).is_some() {
        return true;
    }
    let mut alone = process::Command::new(env::current_exe().unwrap());
    alone.args(["--exact", test]).env(ALONE, "1");
    assert!(alone.status().unwrap().success(), "the test alone fails");
    false
}

/// Returns how many descriptors this process has.
fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

#[test]
fn orphans_keep_nothing_of_a_runtime_that_has_ended() {
    if !is_alone("orphans_keep_nothing_of_a_runtime_that_has_ended") {
        return;
    }
    let before = descriptors();
    let orphans: Vec<_> = (0..3)
        .flat_map(|_| in_runtimes_that_end(async || endless().spawn().unwrap().id().unwrap()))
        .collect();
    assert_eq!(descriptors(), before);
    for id in orphans {
        let pid = Pid::from_raw(id as i32).unwrap();
        kill_process(pid, Signal::KILL).unwrap();
        Runtime::new().unwrap().block_on(until_reaped(id));
    }
    assert_eq!(descriptors(), before);
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

/// Awaits a child for `limit`. Returns its status, if it has ended, and the number of polls.
async fn wait_for(child: &mut Child, limit: Duration) -> (Option<ExitStatus>, usize) {
    let mut polls = 0;
    let status = {
        let mut wait = pin!(child.wait());
        let counting = poll_fn(|cx| {
            polls += 1;
            wait.as_mut().poll(cx)
        });
        timeout(limit, counting).await
    };
    (status.ok().map(Result::unwrap), polls)
}

#[tokio::test]
async fn a_child_that_stands_still_for_this_process_has_not_ended() {
    let mut command = endless();
    let trace = || {
        // SAFETY: this request has no arguments.
        match unsafe { libc::ptrace(libc::PTRACE_TRACEME) } {
            -1 => Err(std::io::Error::last_os_error()),
            _ => Ok(()),
        }
    };
    // SAFETY: after the fork the child makes one system call, which needs no lock and no memory.
    unsafe { command.pre_exec(trace) };
    let Ok(mut child) = command.spawn() else {
        eprintln!("skipped: no process may be traced here");
        return;
    };
    // It stops when it executes the program.
    let stat = format!("/proc/{}/stat", child.id().unwrap());
    let waiting = async {
        while !std::fs::read_to_string(&stat).unwrap().contains(") t ") {
            sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(PATIENCE, waiting).await.expect("it stops");
    let (status, polls) = wait_for(&mut child, Duration::from_millis(50)).await;
    assert_eq!(status, None);
    assert!(polls <= 10, "{polls} polls");
    child.start_kill().unwrap();
    let (status, _) = wait_for(&mut child, PATIENCE).await;
    assert_eq!(status, Some(ExitStatus::from_raw(9)));
}

/// Traces a process, and keeps its status from its parent until a line of input comes.
fn trace(id: &str) {
    let id: libc::pid_t = id.parse().unwrap();
    // SAFETY: the only pointer is that of a local variable.
    unsafe {
        if libc::ptrace(libc::PTRACE_SEIZE, id, 0, 0) == -1 {
            println!("refused");
            return;
        }
        println!("traced");
        let mut info = std::mem::zeroed();
        let (number, options) = (id as libc::id_t, libc::WEXITED | libc::WNOWAIT);
        assert_eq!(
            libc::waitid(libc::P_PID, number, &mut info, options),
            0,
            "it ends"
        );
        println!("ended");
        std::io::stdin().read_line(&mut String::new()).unwrap();
        assert_eq!(libc::waitpid(id, std::ptr::null_mut(), libc::__WALL), id);
    }
}

#[tokio::test]
async fn a_wait_does_not_spin_while_a_tracer_keeps_the_status() {
    const TRACED: &str = "TOURBILLON_TEST_TRACED";
    if let Ok(id) = env::var(TRACED) {
        return trace(&id);
    }
    let mut script = shell("read line; exit 3");
    let mut child = script.stdin(Stdio::piped()).spawn().unwrap();
    let input = child.stdin.take();
    let mut tracer = Command::new(env::current_exe().unwrap());
    let test = "a_wait_does_not_spin_while_a_tracer_keeps_the_status";
    tracer.args(["--exact", test, "--nocapture"]);
    tracer.env(TRACED, child.id().unwrap().to_string());
    tracer.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut tracer = tracer.spawn().unwrap();
    let mut lines = BufReader::new(tracer.stdout.take().unwrap()).lines();
    let mut release = tracer.stdin.take().unwrap();
    let mut said = async || loop {
        let line = lines.next_line().await.unwrap().expect("the tracer speaks");
        let words = ["refused", "traced", "ended"];
        // The harness prints, too, and may do so on the same line.
        if let Some(word) = words.into_iter().find(|word| line.ends_with(word)) {
            return word;
        }
    };
    if said().await == "refused" {
        eprintln!("skipped: no process may be traced here");
        return;
    }
    drop(input);
    assert_eq!(said().await, "ended");
    let (status, polls) = wait_for(&mut child, Duration::from_millis(50)).await;
    assert_eq!(status, None);
    assert!(polls <= 10, "{polls} polls");
    release.write_all(b"\n").await.unwrap();
    let (status, _) = wait_for(&mut child, PATIENCE).await;
    assert_eq!(status.unwrap().code(), Some(3));
    assert!(tracer.wait().await.unwrap().success());
}
