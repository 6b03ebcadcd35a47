//! `tourbillon top`, beside a storm that serves its page.

use std::{
    io::{Read, Write},
    process::{Child, ChildStdout, Command, Output, Stdio},
};

use tourbillon::net::TcpSocket;

use crate::{
    clients::{have, storm::Storm, tourbillon},
    common::{alarm, net::ANY_PORT},
};

/// A storm that lasts longer than a test.
fn storm() -> Storm {
    Storm::start(&[
        "--workers",
        "2",
        "--timers",
        "50k",
        "--spread",
        "1h",
        "--lead",
        "1ms",
    ])
}

fn top(args: &[&str]) -> Output {
    tourbillon().arg("top").args(args).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn one_screen_can_be_printed_without_a_terminal() {
    let _alarm = alarm();
    let storm = storm();
    let output = top(&[&storm.url(), "--once", "--interval", "500ms"]);
    let screen = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(screen.lines().count(), 24, "{screen}");
    assert!(screen.lines().all(|line| line.chars().count() <= 80));
    let pid = format!("pid {}", storm.pid());
    for part in [
        &*pid,
        "workers 2",
        "live",
        "pending ",
        "fired/s ",
        "WORKER IS",
        "q quit",
    ] {
        assert!(screen.contains(part), "{part} is not in\n{screen}");
    }
    // Both workers have a row.
    for worker in ["0 ", "1 "] {
        assert!(
            screen.lines().any(|line| line.starts_with(worker)),
            "{screen}"
        );
    }
}

#[test]
fn tasks_are_shown_instead_of_workers() {
    let _alarm = alarm();
    let storm = storm();
    let output = top(&[&storm.url(), "--once", "--interval", "500ms", "--tasks"]);
    let screen = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(screen.lines().count(), 24, "{screen}");
    assert!(screen.contains("TASK    STATE"), "{screen}");
    assert!(!screen.contains("WORKER IS"), "{screen}");
    // The storm's own tasks arm the timers.
    assert!(screen.contains("arm::start_late arm.rs:"), "{screen}");
}

#[test]
fn a_program_that_cannot_be_reached_is_an_error() {
    // The port belongs to a socket that does not listen, so no other program has it.
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(ANY_PORT.into()).unwrap();
    let addr = socket.local_addr().unwrap().to_string();
    let output = top(&[&addr]);
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    assert!(
        said.contains(&format!("cannot read http://{addr}/snapshot.json")),
        "{said}"
    );
}

#[test]
fn without_a_terminal_it_says_what_to_do() {
    let _alarm = alarm();
    let storm = storm();
    let output = top(&[&storm.url()]);
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    assert!(said.contains("not a terminal: use --once"), "{said}");
}

/// The program in a terminal of 80 by 24, which `script` provides.
pub struct Terminal {
    script: Child,
    screen: ChildStdout,
    drawn: Vec<u8>,
}

impl Terminal {
    pub fn start(url: &str) -> Self {
        let program = env!("CARGO_BIN_EXE_tourbillon");
        let command = format!("stty cols 80 rows 24; exec {program} top {url} --interval 100ms");
        let mut script = Command::new("script")
            .args(["--quiet", "--return", "--command", &command, "/dev/null"])
            .env("TERM", "xterm-256color")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let screen = script.stdout.take().unwrap();
        Self {
            script,
            screen,
            drawn: Vec::new(),
        }
    }

    /// Waits until the program has drawn a text.
    #[track_caller]
    pub fn wait_for(&mut self, what: &str) {
        while !text(&self.drawn).contains(what) {
            let mut part = [0; 4_096];
            let read = self.screen.read(&mut part).unwrap();
            assert!(read > 0, "{what} is not in {}", text(&self.drawn));
            self.drawn.extend_from_slice(&part[..read]);
        }
    }

    /// Presses keys. Those that come before the program reads them wait in the terminal.
    pub fn press(&mut self, keys: &str) {
        let input = self.script.stdin.as_mut().unwrap();
        input.write_all(keys.as_bytes()).unwrap();
    }

    /// Waits until the program ends, without an error. Returns what it has drawn.
    #[track_caller]
    pub fn end(mut self) -> String {
        self.screen.read_to_end(&mut self.drawn).unwrap();
        // The end of the input would end `script`.
        let keys = self.script.stdin.take();
        let status = self.script.wait().unwrap();
        drop(keys);
        let drawn = text(&self.drawn);
        assert!(status.success(), "{status}: {drawn}");
        drawn
    }
}

/// In a terminal, the program draws until the user presses `q`.
#[test]
fn in_a_terminal_it_draws_until_q_is_pressed() {
    let _alarm = alarm();
    if !have("script") {
        return;
    }
    let storm = storm();
    let mut terminal = Terminal::start(&storm.url());
    terminal.wait_for("tourbillon 0.");
    terminal.press("l");
    terminal.wait_for("queued for");
    terminal.press("q");
    let drawn = terminal.end();
    // The alternate screen was left: the user's terminal is as before.
    assert!(
        drawn.contains("\u{1b}[?1049h") && drawn.contains("\u{1b}[?1049l"),
        "{drawn:?}"
    );
}
