//! The example `cron_jobs`: when it runs which command, and how it reports errors.

use std::{
    fs,
    io::{BufRead, BufReader, Read},
    os::unix::process::CommandExt,
    path::PathBuf,
    process::{Child, ChildStderr, ChildStdout, ExitStatus, Stdio},
    thread,
    time::{Duration, Instant, SystemTime},
};

use tourbillon_cron::jiff::Zoned;

use crate::clients::{AGES, example};

/// Runs the example to its end. Returns its exit status and what it printed.
fn run(args: &[&str]) -> (Option<i32>, String, String) {
    let output = example("cron_jobs").args(args).output().unwrap();
    let out = String::from_utf8(output.stdout).unwrap();
    let err = String::from_utf8(output.stderr).unwrap();
    (output.status.code(), out, err)
}

/// The example, which runs jobs until a signal comes. It is killed when this is dropped.
struct Jobs {
    child: Child,
    out: BufReader<ChildStdout>,
    err: BufReader<ChildStderr>,
}

impl Jobs {
    fn start(args: &[&str]) -> Self {
        let mut child = example("cron_jobs")
            .args(args)
            // A shell in a terminal also starts it in a process group of its own.
            .process_group(0)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let err = BufReader::new(child.stderr.take().unwrap());
        let mut jobs = Self { child, out, err };
        let line = jobs.line();
        assert!(line.contains(": the next at "), "{line}");
        jobs
    }

    /// Reads the next line of the output, which is of the example or of a command.
    fn line(&mut self) -> String {
        let mut line = String::new();
        let n = self.out.read_line(&mut line).unwrap();
        assert!(n > 0, "it has ended");
        line.truncate(line.trim_end().len());
        line
    }

    /// Reads lines up to one that contains `text`, and returns that line.
    fn line_with(&mut self, text: &str) -> String {
        loop {
            let line = self.line();
            if line.contains(text) {
                return line;
            }
        }
    }

    fn signal(&self, signal: i32) {
        let pid = i32::try_from(self.child.id()).unwrap();
        // SAFETY: the call takes numbers. The process is our child, which has not been waited
        // for.
        assert_eq!(unsafe { libc::kill(pid, signal) }, 0);
    }

    /// Sends a signal to all of its process group, as a terminal does.
    fn signal_group(&self, signal: i32) {
        let pid = i32::try_from(self.child.id()).unwrap();
        // SAFETY: the call takes numbers. The group is that of our child, which has not been
        // waited for.
        assert_eq!(unsafe { libc::killpg(pid, signal) }, 0);
    }

    /// Waits until it ends. Returns its status, and what it printed after what was read.
    fn end(mut self) -> (ExitStatus, String, String) {
        let begin = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(begin.elapsed() < AGES, "it does not end");
            thread::sleep(Duration::from_millis(5));
        };
        let (mut out, mut err) = (String::new(), String::new());
        self.out.read_to_string(&mut out).unwrap();
        self.err.read_to_string(&mut err).unwrap();
        (status, out, err)
    }

    /// Ends it by a signal, and checks that it succeeds. Returns the rest of its output.
    fn end_well(self, signal: i32) -> String {
        self.signal(signal);
        let (status, out, err) = self.end();
        assert_eq!(status.code(), Some(0), "{out} {err}");
        out
    }
}

impl Drop for Jobs {
    fn drop(&mut self) {
        // It may have ended, and been waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the two times in the line that reports the beginning of a run.
fn times(line: &str) -> (Zoned, Zoned) {
    let (_, rest) = line.split_once("] due ").unwrap();
    let (due, rest) = rest.split_once(": began ").unwrap();
    let (began, _) = rest.split_once(", ").unwrap();
    (due.parse().unwrap(), began.parse().unwrap())
}

/// Creates a directory for one test.
fn directory(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("cron_jobs-{}-{name}", std::process::id()));
    fs::create_dir_all(&path).unwrap();
    path
}

#[test]
fn a_dry_run_shows_times_over_changes_of_summer_time() {
    for (job, from, expected) in [
        (
            "TZ=Europe/Paris 30 2 * * * -- backup",
            "2025-03-29T12:00[Europe/Paris]",
            [
                "2025-03-30T03:00:00+02:00",
                "2025-03-31T02:30:00+02:00",
                "2025-04-01T02:30:00+02:00",
            ],
        ),
        (
            "TZ=Europe/Paris 30 2 * * * -- backup",
            "2025-10-25T12:00[Europe/Paris]",
            [
                "2025-10-26T02:30:00+02:00",
                "2025-10-27T02:30:00+01:00",
                "2025-10-28T02:30:00+01:00",
            ],
        ),
        (
            "TZ=Europe/Paris 0 * * * * -- backup",
            "2025-10-26T01:30[Europe/Paris]",
            [
                "2025-10-26T02:00:00+02:00",
                "2025-10-26T02:00:00+01:00",
                "2025-10-26T03:00:00+01:00",
            ],
        ),
        (
            // This line has no `TZ`, so the zone is that of the option.
            "0 0 L 2 * -- backup",
            "2027-01-01T00:00[UTC]",
            [
                "2027-02-28T00:00:00+01:00",
                "2028-02-29T00:00:00+01:00",
                "2029-02-28T00:00:00+01:00",
            ],
        ),
    ] {
        let args = [
            "--zone",
            "Europe/Paris",
            "--job",
            job,
            "--dry-run",
            "3",
            "--from",
            from,
        ];
        let (status, out, err) = run(&args);
        assert_eq!((status, err.as_str()), (Some(0), ""));
        let expected = expected.map(|time| format!("    {time}[Europe/Paris]\n"));
        assert_eq!(out, format!("[1] backup\n{}", expected.concat()), "{job}");
    }
}

#[test]
fn a_dry_run_reports_a_pattern_that_never_matches() {
    let (status, out, _) = run(&["--job", "0 0 30 2 * -- x", "--dry-run", "2"]);
    assert_eq!((status, out.as_str()), (Some(0), "[1] x\n    never\n"));
    let (status, _, err) = run(&["--job", "0 0 30 2 * -- x"]);
    assert_eq!(status, Some(1));
    assert!(err.contains("matches no instant"), "{err}");
}

#[test]
fn commands_run_in_their_seconds_and_never_early() {
    let begin = SystemTime::now();
    let mut jobs = Jobs::start(&[
        "--job",
        "TZ=Asia/Tokyo * * * * * * -- echo 'a  b' | tr a-z A-Z; exit 3",
    ]);
    let mut last: Option<Zoned> = None;
    for _ in 0..3 {
        let line = jobs.line();
        let (due, began) = times(&line);
        assert!(began >= due, "{line}");
        assert!(SystemTime::from(due.clone()) > begin);
        assert_eq!(due.subsec_nanosecond(), 0);
        assert_eq!(due.time_zone().iana_name(), Some("Asia/Tokyo"));
        assert!(last.is_none_or(|last| last < due), "{line}");
        assert_eq!(jobs.line(), "A  B");
        let line = jobs.line();
        assert!(
            line.starts_with(&format!("[1] due {due}: exit status: 3, after ")),
            "{line}"
        );
        last = Some(due);
    }
    jobs.end_well(libc::SIGINT);
}

#[test]
fn other_jobs_continue_after_a_killed_or_missing_command() {
    let mut jobs = Jobs::start(&[
        "--job",
        "* * * * * * -- kill -9 $$",
        "--job",
        "* * * * * * -- no-such-command 2>&1",
    ]);
    // Both jobs run in each second, in either order. Each of them continues.
    for _ in 0..2 {
        jobs.line_with("signal: 9");
        jobs.line_with("exit status: 127");
    }
    jobs.end_well(libc::SIGTERM);
}

#[test]
fn overlapping_runs_are_concurrent_with_overlap_both() {
    let dir = directory("both");
    // Each command ends only when there are two of them.
    let job = format!(
        "* * * * * * -- cd {}; touch $$; until [ $(ls | wc -l) -ge 2 ]; do sleep 0.02; done; echo two",
        dir.display()
    );
    let mut jobs = Jobs::start(&["--overlap", "both", "--job", &job]);
    jobs.line_with("two");
    jobs.line_with("two");
    jobs.end_well(libc::SIGTERM);
    fs::remove_dir_all(dir).unwrap();
}

#[test]
fn a_signal_waits_for_running_commands_and_starts_no_more() {
    // Send the signal to the process alone, as a service manager does, and to its group, as a
    // terminal does.
    for (signal, send) in [
        (libc::SIGTERM, Jobs::signal as fn(&Jobs, i32)),
        (libc::SIGINT, Jobs::signal_group),
    ] {
        let dir = directory("signal");
        let job = format!(
            "* * * * * * -- echo begun; until [ -e {}/end ]; do sleep 0.02; done; echo done",
            dir.display()
        );
        let mut jobs = Jobs::start(&["--drain", "10m", "--job", &job]);
        jobs.line_with("begun");
        send(&jobs, signal);
        let mut heard = String::new();
        jobs.err.read_line(&mut heard).unwrap();
        assert_eq!(
            heard,
            "waiting up to 10m for running commands (1); press Ctrl-C again to stop at once\n"
        );
        fs::write(dir.join("end"), "").unwrap();
        let (status, out, err) = jobs.end();
        assert_eq!((status.code(), err.as_str()), (Some(0), ""));
        assert!(out.starts_with("done\n[1] due "), "{out}");
        assert!(out.contains("exit status: 0, after "), "{out}");
        assert!(!out.contains("begun"), "{out}");
        fs::remove_dir_all(dir).unwrap();
    }
}

#[test]
fn a_command_that_exceeds_the_shutdown_timeout_is_abandoned() {
    let dir = directory("left");
    // The job ends when the test creates a file.
    let job = format!(
        "* * * * * * -- echo begun; until [ -e {}/end ]; do sleep 0.02; done; rm {0}/end",
        dir.display()
    );
    let mut jobs = Jobs::start(&["--drain", "50ms", "--job", &job]);
    jobs.line_with("begun");
    jobs.signal(libc::SIGTERM);
    let begin = Instant::now();
    while jobs.child.try_wait().unwrap().is_none() {
        assert!(begin.elapsed() < AGES, "it waits for what never ends");
        thread::sleep(Duration::from_millis(5));
    }
    fs::write(dir.join("end"), "").unwrap();
    let (status, _, err) = jobs.end();
    assert_eq!(status.code(), Some(1), "{err}");
    assert!(err.contains("1 still running, and left alone"), "{err}");
    // The command still runs: it removes the file.
    while dir.join("end").exists() {
        assert!(begin.elapsed() < AGES, "the command was not left alone");
        thread::sleep(Duration::from_millis(5));
    }
    fs::remove_dir_all(dir).unwrap();
}

#[test]
fn each_line_of_a_file_is_a_job() {
    let dir = directory("file");
    let path = dir.join("jobs");
    let path_text = path.to_str().unwrap();
    fs::write(
        &path,
        "# nightly\n\n@daily -- one -- more\n  TZ=Asia/Tokyo 0 9 * * MON   --   two \n",
    )
    .unwrap();
    let args = [
        "--file",
        path_text,
        "--dry-run",
        "1",
        "--from",
        "2025-01-01T12:00[UTC]",
    ];
    let (status, out, err) = run(&args);
    assert_eq!((status, err.as_str()), (Some(0), ""));
    assert_eq!(
        out,
        "[1] one -- more\n    2025-01-02T00:00:00+00:00[UTC]\n\
         [2] two\n    2025-01-06T09:00:00+09:00[Asia/Tokyo]\n"
    );
    fs::write(&path, "@daily -- one\n@dayly -- two\n").unwrap();
    let (status, _, err) = run(&args);
    assert_eq!(status, Some(1));
    assert!(
        err.contains(&format!("{path_text}:2: ")) && err.contains("@daily"),
        "{err}"
    );
    fs::remove_dir_all(dir).unwrap();
    let (status, _, err) = run(&args);
    assert_eq!(status, Some(1));
    assert!(err.contains(path_text), "{err}");
}

#[test]
fn an_invalid_job_is_an_error_that_explains_it() {
    for (job, message, mark) in [
        ("0 25 * * * -- x", "hour", Some("  ^^")),
        ("0 0 25 * * * -- x", "hour", Some("    ^^")),
        (
            "TZ=UTC 0 9 * *  FRY -- x",
            "day of the week",
            Some("                ^^^"),
        ),
        ("*/90 * * * * -- x", "minute", Some("^^^^")),
        ("* * * * -- x", "4 fields", None),
        (
            "TZ=Mars/Base * * * * * -- x",
            "no time zone \"Mars/Base\"",
            Some("   ^^^^^^^^^"),
        ),
        ("* * * * * x", "` -- `", None),
        ("* * * * * --", "no command", Some("          ^^")),
        ("", "` -- `", None),
        ("é -- x", "1 field", None),
    ] {
        let (status, out, err) = run(&["--job", job]);
        assert_eq!((status, out.as_str()), (Some(1), ""), "{job}");
        assert!(
            err.starts_with("cron_jobs: --job, number 1: ") && err.contains(message),
            "{err}"
        );
        let shown: Vec<_> = err.lines().skip(1).collect();
        let expected: Vec<_> = [Some(job), mark]
            .into_iter()
            .flatten()
            .map(|line| format!("  {line}"))
            .collect();
        assert_eq!(shown, expected, "{err}");
    }
    let (status, _, err) = run(&[]);
    assert_eq!(status, Some(1));
    assert!(err.contains("there are no jobs"), "{err}");
    let (status, _, err) = run(&["--job", "@daily -- x", "--from", "2025-01-01T12:00[UTC]"]);
    assert_eq!(status, Some(2));
    assert!(err.contains("--dry-run"), "{err}");
}
