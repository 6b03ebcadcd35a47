//! Programs that the tests run: the server, and clients that are not ours.

#![allow(
    dead_code,
    reason = "each test binary is a crate of its own, and uses a part"
)]

pub mod redis;

use std::{
    env, fs,
    io::{BufRead, BufReader, Read},
    net::SocketAddr,
    path::Path,
    process::{Child, ChildStderr, ChildStdout, Command, ExitStatus, Stdio},
    thread,
    time::{Duration, Instant},
};

/// No bound, but what tells a hang from a slow machine.
pub const AGES: Duration = Duration::from_secs(120);

/// The program `tourbillon`.
pub fn tourbillon() -> Command {
    Command::new(env!("CARGO_BIN_EXE_tourbillon"))
}

/// A program of `examples/`, which `cargo test` has built unless it was told to build less.
pub fn example(name: &str) -> Command {
    let tests = env::current_exe().unwrap();
    let program = tests
        .ancestors()
        .nth(2)
        .unwrap()
        .join("examples")
        .join(name);
    let built = fs::metadata(&program).and_then(|data| data.modified());
    let source = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("examples")
        .join(name);
    let newest = fs::read_dir(&source)
        .unwrap_or_else(|error| panic!("{}: {error}", source.display()))
        .map(|file| file.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "rs"))
        .map(|path| path.metadata().unwrap().modified().unwrap())
        .max();
    assert!(
        built.is_ok_and(|built| Some(built) >= newest),
        "example {name} is not built, or older than its source: cargo build --examples --all-features"
    );
    Command::new(program)
}

/// Whether a client is installed. If not the test is skipped, unless clients are required.
pub fn have(client: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    let found = env::split_paths(&path).any(|dir| dir.join(client).is_file());
    if !found {
        let required = env::var_os("TOURBILLON_REQUIRE_CLIENTS").is_some_and(|v| v == "1");
        assert!(
            !required,
            "{client} is not installed, and clients are required"
        );
        eprintln!("skipped: {client} is not installed");
    }
    found
}

/// A server that runs, and is killed when this is dropped.
pub struct Server {
    child: Child,
    stdout: BufReader<ChildStdout>,
    stderr: BufReader<ChildStderr>,
    pub addr: SocketAddr,
}

impl Server {
    /// Starts a server at a free port.
    pub fn start(args: &[&str]) -> Self {
        Self::run(
            tourbillon()
                .args(["serve", "--listen", "127.0.0.1:0"])
                .args(args),
        )
    }

    /// Starts a server by a command.
    pub fn run(command: &mut Command) -> Self {
        let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        let addr = line
            .trim_end()
            .strip_prefix("listening on ")
            .map(str::parse);
        let Some(Ok(addr)) = addr else {
            panic!("not listening: {line:?}");
        };
        Self {
            child,
            stdout,
            stderr,
            addr,
        }
    }

    /// The number of its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// How much memory it has now, in bytes: what the system calls the resident set.
    pub fn memory(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        number(&status, "VmRSS:", "kB").unwrap() * 1024
    }

    pub fn url(&self) -> String {
        format!("http://{}/", self.addr)
    }

    /// Sends a signal.
    pub fn signal(&self, signal: i32) {
        let pid = i32::try_from(self.child.id()).unwrap();
        // SAFETY: our child, which has not been waited for.
        assert_eq!(unsafe { libc::kill(pid, signal) }, 0);
    }

    /// How much memory the server has, in KiB (`VmRSS`).
    pub fn resident(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        number(&status, "VmRSS:", "kB").unwrap()
    }

    /// Waits for a line that the server complains in.
    pub fn complaint(&mut self) -> String {
        let mut line = String::new();
        self.stderr.read_line(&mut line).unwrap();
        line
    }

    /// Waits until the server ends; answers its status, and what it printed on stdout since it
    /// listens, and on stderr.
    pub fn end(mut self) -> (ExitStatus, String, String) {
        let status = wait(&mut self.child);
        let (mut out, mut err) = (String::new(), String::new());
        self.stdout.read_to_string(&mut out).unwrap();
        self.stderr.read_to_string(&mut err).unwrap();
        (status, out, err)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended, and been waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits for a child that ends by itself.
fn wait(child: &mut Child) -> ExitStatus {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        if start.elapsed() > AGES {
            let _ = child.kill();
            panic!("the server did not end within {AGES:?}");
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// The whole number between two words of what a program printed.
pub fn number(text: &str, before: &str, after: &str) -> Option<u64> {
    let start = text.find(before)? + before.len();
    let rest = &text[start..];
    let end = if after.is_empty() {
        rest.len()
    } else {
        rest.find(after)?
    };
    rest[..end].trim().parse().ok()
}
