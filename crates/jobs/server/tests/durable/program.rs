//! The program `delayed_jobs` and its commands.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Child, ChildStdout, Command, Stdio},
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};
use tourbillon_jobs::{Queue, sqlite::Sqlite, store::Store};

use crate::support::{Dir, eventually, live, new, run};

/// The program, which is killed in the end, so that a test which fails leaves none behind.
pub struct Program(Child);

impl Program {
    /// Sends SIGTERM, after which the program has to end.
    #[track_caller]
    fn ends_well(&mut self) {
        kill_process(Pid::from_child(&self.0), Signal::TERM).unwrap();
        eventually("the program ends", || self.0.try_wait().unwrap().is_some());
        assert!(self.0.wait().unwrap().success());
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // They fail if it has ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts the program with a command for each job.
fn start_with(
    dir: &Dir,
    command: &str,
    more: &[&str],
) -> (Program, String, BufReader<ChildStdout>) {
    start(dir, &[&["--exec", command], more].concat())
}

/// Starts the program. Returns its address, too.
pub fn start(dir: &Dir, options: &[&str]) -> (Program, String, BufReader<ChildStdout>) {
    start_in(dir, options, &[])
}

/// Starts the program with these variables in its environment.
pub fn start_in(
    dir: &Dir,
    options: &[&str],
    variables: &[(&str, &str)],
) -> (Program, String, BufReader<ChildStdout>) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_delayed_jobs"))
        .args(["--listen", "127.0.0.1:0", "--store"])
        .arg(dir.store())
        .args(options)
        .envs(variables.iter().copied())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    stdout.read_line(&mut line).unwrap();
    let addr = line.trim().strip_prefix("open http://").unwrap();
    let addr = addr.trim_end_matches('/').to_owned();
    (Program(child), addr, stdout)
}

/// Adds a job to the program's.
pub fn post(addr: &str, body: &str) {
    let mut stream = std::net::TcpStream::connect(addr).unwrap();
    let request = format!(
        "POST /jobs HTTP/1.1\r\nhost: {addr}\r\ncontent-type: application/json\r\n\
         content-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    );
    std::io::Write::write_all(&mut stream, request.as_bytes()).unwrap();
    let mut answer = String::new();
    std::io::Read::read_to_string(&mut stream, &mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
}

/// Asks the program for its metrics.
fn metrics(addr: &str) -> String {
    let mut stream = std::net::TcpStream::connect(addr).unwrap();
    let request = format!("GET /metrics HTTP/1.1\r\nhost: {addr}\r\nconnection: close\r\n\r\n");
    std::io::Write::write_all(&mut stream, request.as_bytes()).unwrap();
    let mut answer = String::new();
    std::io::Read::read_to_string(&mut stream, &mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    answer
}

/// Returns a command of the shell that writes what `command` prints to a file, which is whole once
/// it is there.
pub fn into(command: &str, result: &Path) -> String {
    format!(
        "{command} > '{0}.new' && mv '{0}.new' '{0}'",
        result.display()
    )
}

/// The program itself, with a command for each job.
#[test]
fn the_program_runs_a_command_for_each_job() {
    let dir = Dir::new();
    let result = dir.join("result");
    let command = into("cat", &result);
    let (mut program, addr, _stdout) = start_with(&dir, &command, &[]);
    post(
        &addr,
        r#"{"key":"k","payload":"what it is to do","in":"20ms"}"#,
    );
    eventually("the command has run", || result.exists());
    assert_eq!(fs::read_to_string(&result).unwrap(), "what it is to do");
    program.ends_well();
}

#[test]
fn the_program_has_metrics_for_prometheus() {
    let dir = Dir::new();
    let (mut program, addr, _stdout) = start_with(&dir, "exit 3", &["--attempts", "1"]);
    post(&addr, r#"{"key":"k","kind":"mail","in":"0s"}"#);
    let died = "tourbillon_jobs_died_total{queue=\"default\",kind=\"mail\"} 1\n";
    eventually("the job is dead", || metrics(&addr).contains(died));
    assert!(metrics(&addr).contains("\ntourbillon_jobs_answers_total{answer=\"created\"} 1\n"));
    program.ends_well();
}

#[test]
fn a_program_runs_jobs_of_its_kinds() {
    let dir = Dir::new();
    let result = dir.join("result");
    let command = into(r#"echo "$JOB_KEY of $JOB_KIND""#, &result);
    let (mut program, addr, _stdout) = start_with(&dir, &command, &["--kind", "mail"]);
    post(&addr, r#"{"key":"other","kind":"image","in":"0s"}"#);
    post(&addr, r#"{"key":"k","kind":"mail","in":"0s"}"#);
    eventually("the command has run", || result.exists());
    assert_eq!(fs::read_to_string(&result).unwrap(), "k of mail\n");
    program.ends_well();
    // Without the option, it runs all.
    fs::remove_file(&result).unwrap();
    let (mut program, _addr, _stdout) = start_with(&dir, &command, &[]);
    eventually("the command has run", || result.exists());
    assert_eq!(fs::read_to_string(&result).unwrap(), "other of image\n");
    program.ends_well();
}

#[test]
fn a_program_runs_jobs_of_its_queues() {
    let dir = Dir::new();
    let result = dir.join("result");
    let command = into(r#"echo "$JOB_KEY of $JOB_QUEUE""#, &result);
    let queues = ["--queue", "mails=1", "--queue", "images"];
    let (mut program, addr, _stdout) = start_with(&dir, &command, &queues);
    post(&addr, r#"{"key":"other","in":"0s"}"#);
    post(&addr, r#"{"key":"k","queue":"mails","in":"0s"}"#);
    eventually("the command has run", || result.exists());
    assert_eq!(fs::read_to_string(&result).unwrap(), "k of mails\n");
    program.ends_well();
    // Without the option, it runs those of the default queue.
    fs::remove_file(&result).unwrap();
    let (mut program, _addr, _stdout) = start_with(&dir, &command, &[]);
    eventually("the command has run", || result.exists());
    assert_eq!(fs::read_to_string(&result).unwrap(), "other of default\n");
    program.ends_well();
}

#[test]
fn a_command_has_all_cores_of_the_process() {
    let dir = Dir::new();
    let result = dir.join("result");
    let cores = "grep Cpus_allowed_list /proc/self/status";
    let command = into(cores, &result);
    let (mut program, addr, _stdout) = start_with(&dir, &command, &[]);
    post(&addr, r#"{"key":"k","in":"0s"}"#);
    eventually("the command has run", || result.exists());
    let here = Command::new("sh").args(["-c", cores]).output().unwrap();
    assert_eq!(fs::read(&result).unwrap(), here.stdout);
    program.ends_well();
}

#[test]
fn the_program_leaves_a_command_alone_that_does_not_end() {
    let dir = Dir::new();
    let result = dir.join("result");
    // The number of the command's process, and of its group.
    let numbers = into("cut -d' ' -f1,5 /proc/$$/stat", &result);
    let command = format!("{numbers} && exec sleep 100 > /dev/null");
    let (mut program, addr, mut stdout) = start_with(&dir, &command, &["--drain", "200ms"]);
    post(&addr, r#"{"key":"k","in":"0s"}"#);
    eventually("the command runs", || result.exists());
    let begin = Instant::now();
    program.ends_well();
    let took = begin.elapsed();
    assert!(took < Duration::from_secs(50), "{took:?}");
    let mut rest = String::new();
    std::io::Read::read_to_string(&mut stdout, &mut rest).unwrap();
    assert!(rest.contains("some jobs still run"), "{rest}");
    let numbers = fs::read_to_string(&result).unwrap();
    let (process, group) = numbers.trim().split_once(' ').unwrap();
    // Ctrl-C, which is for the program's group, would not reach it.
    assert_eq!(process, group);
    let process = Pid::from_raw(process.parse().unwrap()).unwrap();
    kill_process(process, Signal::KILL).unwrap();
}

/// Returns whether a process has ended. Nobody may have reaped it.
fn has_ended(process: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{process}/stat"));
    stat.is_err() || stat.is_ok_and(|stat| stat.contains(") Z "))
}

#[test]
fn the_program_ends_the_group_of_a_command_that_takes_too_long() {
    let dir = Dir::new();
    let (result, quick) = (dir.join("result"), dir.join("quick"));
    // The shell and its child ignore SIGTERM. A second job waits for the place of the first.
    let command = format!(
        "if [ $JOB_KEY = quick ]; then touch '{}'; exit; fi; trap '' TERM; \
         sleep 100 >/dev/null & {}; wait",
        quick.display(),
        into("echo $$ $!", &result)
    );
    let options = ["--timeout", "10s", "--concurrency", "1", "--attempts", "1"];
    let (mut program, addr, _stdout) = start_with(&dir, &command, &options);
    post(&addr, r#"{"key":"slow","in":"0s"}"#);
    eventually("the command runs", || result.exists());
    post(&addr, r#"{"key":"quick","in":"0s"}"#);
    let numbers = fs::read_to_string(&result).unwrap();
    let (shell, sleeps) = numbers.trim().split_once(' ').unwrap();
    assert!(!has_ended(shell) && !has_ended(sleeps));
    eventually("the next command runs", || quick.exists());
    eventually("the shell has ended", || has_ended(shell));
    eventually("its child has ended", || has_ended(sleeps));
    program.ends_well();
}

#[test]
fn the_program_ends_although_a_command_that_took_too_long_does_not() {
    let dir = Dir::new();
    let (result, quick) = (dir.join("result"), dir.join("quick"));
    // The shell ignores SIGTERM, and never ends by itself.
    let command = format!(
        "if [ $JOB_KEY = quick ]; then touch '{}'; exit; fi; trap '' TERM; \
         {}; while :; do sleep 1; done >/dev/null",
        quick.display(),
        into("echo $$", &result)
    );
    let options = ["--timeout", "10s", "--concurrency", "1", "--attempts", "1"];
    let (mut program, addr, _stdout) = start_with(&dir, &command, &options);
    post(&addr, r#"{"key":"slow","in":"0s"}"#);
    eventually("the command runs", || result.exists());
    post(&addr, r#"{"key":"quick","in":"0s"}"#);
    eventually("the next command runs", || quick.exists());
    program.ends_well();
    let shell = fs::read_to_string(&result).unwrap();
    eventually("the shell has ended", || has_ended(shell.trim()));
}

#[test]
fn the_end_of_a_command_counts_although_its_input_is_not_read() {
    let dir = Dir::new();
    let result = dir.join("result");
    run(async {
        let queue = Queue::new(Sqlite::open(dir.store()).unwrap());
        let payload = vec![b'x'; 1 << 19];
        queue
            .schedule("job", Duration::ZERO, payload)
            .await
            .unwrap();
    });
    // A process outside of the group keeps the pipe open, and reads nothing.
    let command = format!(
        "setsid sleep 600 <&0 >/dev/null 2>&1 & {}",
        into("echo $!", &result)
    );
    let (mut program, _addr, _stdout) = start_with(&dir, &command, &[]);
    eventually("the command has run", || result.exists());
    program.ends_well();
    let sleeps = fs::read_to_string(&result).unwrap();
    assert!(!has_ended(sleeps.trim()));
    let sleeps = Pid::from_raw(sleeps.trim().parse().unwrap()).unwrap();
    kill_process(sleeps, Signal::KILL).unwrap();
    run(async {
        let queue = Queue::new(Sqlite::open(dir.store()).unwrap());
        live(&queue, 0).await;
    });
}

#[test]
fn more_commands_run_at_once_than_threads_are_usual() {
    const JOBS: usize = 540;
    let dir = Dir::new();
    let (begun, gate) = (dir.join("begun"), dir.join("gate"));
    let made = Command::new("mkfifo").arg(&gate).status().unwrap();
    assert!(made.success());
    run(async {
        let queue = Queue::new(Sqlite::open(dir.store()).unwrap());
        let job = |number| new(format!("job-{number}"), Duration::ZERO);
        let jobs = (0..JOBS).map(job).collect();
        queue.store().schedule(jobs).await.unwrap();
    });
    // This end keeps the gate open.
    let gates = fs::OpenOptions::new().read(true).write(true).open(&gate);
    let mut opens = gates.unwrap();
    // Each waits for a line of its own.
    let command = format!(
        "printf x >> '{}'; read line < '{}'",
        begun.display(),
        gate.display()
    );
    let options = ["--concurrency", "600", "--timeout", "1h"];
    let (mut program, _addr, _stdout) = start_with(&dir, &command, &options);
    eventually("all commands run", || {
        fs::metadata(&begun).is_ok_and(|file| file.len() == JOBS as u64)
    });
    // No command has a thread of its own.
    let status = fs::read_to_string(format!("/proc/{}/status", program.0.id())).unwrap();
    let threads = status
        .lines()
        .find_map(|line| line.strip_prefix("Threads:"));
    let threads: usize = threads.unwrap().trim().parse().unwrap();
    assert!(threads < 200, "{threads}");
    opens.write_all(&[b'\n'; JOBS]).unwrap();
    program.ends_well();
}
