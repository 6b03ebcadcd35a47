//! Programs whose output is lost, and programs that print text that others have chosen.

use std::{
    fs::{File, OpenOptions},
    io::{BufRead as _, BufReader},
    os::{fd::OwnedFd, unix::net::UnixStream},
    process::{Command, Stdio},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

/// Only a hang exceeds this.
const AGES: Duration = Duration::from_secs(300);

const MESSAGE: &str = "cannot write to stdout: No space left on device";

/// Text that makes a terminal do something, in ways that programs have overlooked: escape
/// sequences, their one-byte forms, a forged line, characters that turn the direction, and letters,
/// selectors and tags that no terminal draws.
pub const HOSTILE: &str = "\u{1b}[2J\u{1b}]0;owned\u{7}\u{9b}31m\r\nforged\u{8}\u{7f}\u{202e}\
                           \u{2066}\u{2028}\u{feff}a\u{3164}\u{115f}\u{ffa0}\u{fe0f}\u{e0041}end";

/// Checks that no character of a program's output can make a terminal do something, or is
/// invisible, as far as [`HOSTILE`] has such.
#[track_caller]
pub fn is_tame(output: &[u8]) {
    let text = std::str::from_utf8(output).expect("it is text");
    let is_wild = |c: char| match c {
        '\n' | '\t' => false,
        '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' => true,
        '\u{feff}' | '\u{3164}' | '\u{115f}' | '\u{ffa0}' | '\u{fe0f}' | '\u{e0041}' => true,
        c => c.is_control(),
    };
    let wild: Vec<_> = text.chars().filter(|&c| is_wild(c)).collect();
    assert!(wild.is_empty(), "{wild:?} in {text:?}");
}

/// Runs a program that has to fail. Checks that its complaint shows [`HOSTILE`], which was in the
/// arguments, in one line of a terminal with colours.
#[track_caller]
pub fn complains_tame(command: &mut Command) {
    let output = command.env("CLICOLOR_FORCE", "1").output().unwrap();
    assert!(!output.status.success(), "{command:?}");
    is_tame(&output.stderr);
    let said = String::from_utf8(output.stderr).unwrap();
    let shown = "\\u{1b}]0;owned\\u{7}\\u{9b}31m\\r\\nforged";
    assert!(said.contains(shown), "{command:?}: {said}");
}

fn full() -> File {
    let full = OpenOptions::new().write(true).open("/dev/full");
    full.expect("Linux has this device")
}

/// Runs a program that has to succeed. Checks that it fails, and says so, if what it prints is lost
/// on a full device; and that a reader that closed the pipe is no failure.
#[track_caller]
pub fn fails_if_output_is_lost(command: &mut Command) {
    let output = command.stdout(full()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{command:?}: {said}");
    assert!(said.contains(MESSAGE), "{command:?}: {said}");

    let (reader, writer) = UnixStream::pair().unwrap();
    drop(reader);
    let output = command.stdout(OwnedFd::from(writer)).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{command:?}: {said}");
    assert!(!said.contains("stdout"), "{command:?}: {said}");
}

/// Runs a server whose output is lost. Checks that it says so, serves until SIGTERM, and then
/// fails.
#[track_caller]
pub fn server_fails_if_output_is_lost(command: &mut Command) {
    let command = command.stdout(full()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let stderr = BufReader::new(child.stderr.take().expect("it is piped"));
    let (sender, lines) = mpsc::channel();
    thread::spawn(move || {
        stderr
            .lines()
            .try_for_each(|line| sender.send(line.unwrap()))
    });
    let mut said = String::new();
    while !said.contains(MESSAGE) {
        let Ok(line) = lines.recv_timeout(AGES) else {
            let _ = child.kill();
            panic!("{command:?} does not complain: {said}");
        };
        said = said + &line + "\n";
    }
    assert_eq!(child.try_wait().unwrap(), None, "{command:?}: {said}");
    let pid = child.id().to_string();
    assert!(Command::new("kill").arg(pid).status().unwrap().success());
    let start = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if start.elapsed() > AGES {
            let _ = child.kill();
            panic!("{command:?} does not end");
        }
        thread::sleep(Duration::from_millis(5));
    };
    assert_eq!(status.code(), Some(1), "{command:?}: {said}");
}
