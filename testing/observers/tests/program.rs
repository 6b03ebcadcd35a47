//! The program `tokio-console` itself, in a terminal of tmux, lists the tasks of a program for
//! tokio on this runtime.

use std::{
    net::TcpListener,
    process::{Child, Command},
    thread,
    time::{Duration, Instant},
};

/// A wait that only a hang exceeds.
const PATIENCE: Duration = Duration::from_secs(60);

/// The watched program and the server of tmux, until this is dropped.
struct Running(Child, String);

impl Drop for Running {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
        _ = tmux(&self.1, &["kill-server"]);
    }
}

/// Runs a command of a tmux server, and returns what it prints.
fn tmux(server: &str, arguments: &[&str]) -> String {
    let output = Command::new("tmux")
        .args(["-L", server])
        .args(arguments)
        .output()
        .unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn is_there(program: &str, version: &str) -> bool {
    Command::new(program).arg(version).output().is_ok()
}

#[test]
fn tokio_console_lists_the_tasks() {
    if !is_there("tokio-console", "--version") || !is_there("tmux", "-V") {
        let required = std::env::var_os("TOURBILLON_REQUIRE_CLIENTS").is_some();
        assert!(!required, "tokio-console and tmux are needed");
        eprintln!("skipped: there is no tokio-console or no tmux");
        return;
    }
    let addr = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let program = Command::new(env!("CARGO_BIN_EXE_watched"))
        .arg(addr.to_string())
        .spawn();
    let server = format!("console-{}", std::process::id());
    let running = Running(program.unwrap(), server.clone());
    let console = format!("tokio-console http://{addr}");
    tmux(
        &server,
        &["new-session", "-d", "-x", "200", "-y", "50", &console],
    );
    let begin = Instant::now();
    let screen = |is_complete: &dyn Fn(&str) -> bool| loop {
        let screen = tmux(&server, &["capture-pane", "-p"]);
        if is_complete(&screen) {
            return screen;
        }
        assert!(begin.elapsed() < PATIENCE, "{screen}");
        thread::sleep(Duration::from_millis(100));
    };
    let names = [
        "yields five times",
        "sleeps again and again",
        "waits for a permit",
    ];
    let tasks = screen(&|screen| names.iter().all(|name| screen.contains(name)));
    // Its columns end with the number of polls, the kind, the place, and the fields.
    let yields = tasks
        .lines()
        .find(|line| line.contains("yields five times"))
        .unwrap();
    let words: Vec<_> = yields.split_whitespace().collect();
    assert!(words.contains(&"6") && words.contains(&"task"), "{yields}");
    assert!(yields.contains("main.rs"), "{yields}");
    // The list of resources.
    tmux(&server, &["send-keys", "r"]);
    let kinds = ["Interval", "Semaphore", "Sleep"];
    screen(&|screen| kinds.iter().all(|kind| screen.contains(kind)));
    drop(running);
}
