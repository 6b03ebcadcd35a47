//! `tourbillon top`, beside a storm that serves its page.

use std::{
    io::Write,
    process::{Command, Output, Stdio},
    thread,
    time::Duration,
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

/// In a terminal, the program draws until the user presses `q`. `script` provides the terminal,
/// and passes on the keys.
#[test]
fn in_a_terminal_it_draws_until_q_is_pressed() {
    let _alarm = alarm();
    if !have("script") {
        return;
    }
    let storm = storm();
    let program = env!("CARGO_BIN_EXE_tourbillon");
    let command = format!(
        "stty cols 80 rows 24; exec {program} top {} --interval 100ms",
        storm.url()
    );
    let mut script = Command::new("script")
        .args(["--quiet", "--return", "--command", &command, "/dev/null"])
        .env("TERM", "xterm-256color")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut keys = script.stdin.take().unwrap();
    // Keys that come before the program reads them wait in the terminal.
    thread::sleep(Duration::from_millis(300));
    keys.write_all(b"l").unwrap();
    thread::sleep(Duration::from_millis(300));
    keys.write_all(b"q").unwrap();
    let output = script.wait_with_output().unwrap();
    drop(keys);
    let drawn = text(&output.stdout);
    assert!(output.status.success(), "{drawn}");
    assert!(drawn.contains("tourbillon 0."), "{drawn}");
    // The alternate screen was left: the user's terminal is as before.
    assert!(
        drawn.contains("\u{1b}[?1049h") && drawn.contains("\u{1b}[?1049l"),
        "{drawn:?}"
    );
}
