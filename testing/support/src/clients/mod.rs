//! Programs that the tests run: the server, and clients that are not ours.

#[cfg(feature = "clients")]
pub mod browser;
pub mod output;
#[cfg(feature = "clients")]
pub mod storm;

pub use crate::installed::have;

use std::{
    env, fs,
    io::{self, BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    path::{Path, PathBuf},
    process::{Child, ChildStderr, ChildStdout, Command, ExitStatus, Stdio},
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

/// How long a test waits for progress of another program. Only a hang exceeds it.
pub const AGES: Duration = Duration::from_secs(300);

/// The program `tourbillon`.
pub fn tourbillon() -> Command {
    Command::new(program("tourbillon"))
}

/// Returns the path of a program of this repository. Cargo builds it before it runs the tests of
/// its package.
pub fn program(name: &str) -> PathBuf {
    let program = beside_the_tests(name);
    let command = "cargo build --workspace --bins --all-features";
    assert!(program.exists(), "{name} is not built: {command}");
    program
}

/// Returns a program of `examples/`. `cargo test` has built it, unless it was called for fewer
/// targets.
pub fn example(name: &str) -> Command {
    let program = beside_the_tests("examples").join(name);
    if let Err(why) = is_fresh(&program) {
        panic!("example {name} is {why}: cargo build -p tourbillon-examples --examples");
    }
    Command::new(program)
}

/// Returns the path of a file in the directory of programs.
fn beside_the_tests(name: &str) -> PathBuf {
    let tests = env::current_exe().unwrap();
    tests.ancestors().nth(2).unwrap().join(name)
}

/// Checks that a program is no older than its sources, which cargo lists in a file beside it. The
/// error says why the program is old.
fn is_fresh(program: &Path) -> Result<(), String> {
    let modified = |path: &Path| fs::metadata(path).and_then(|data| data.modified());
    let missing = |error| format!("not built ({error})");
    let built = modified(program).map_err(missing)?;
    let list = fs::read_to_string(program.with_extension("d")).map_err(missing)?;
    let (_, sources) = list.split_once(": ").ok_or("not built (of nothing)")?;
    // A blank in a path has a backslash before it.
    for source in sources.trim_end().replace("\\ ", "\0").split(' ') {
        let source = source.replace('\0', " ");
        // A source that no longer exists was moved or removed after the build.
        if !modified(Path::new(&source)).is_ok_and(|changed| changed <= built) {
            return Err(format!("older than {source}"));
        }
    }
    Ok(())
}

/// A running server, which is killed when this is dropped.
pub struct Server {
    child: Child,
    stdout: BufReader<ChildStdout>,
    /// `None` after [`hang_up`](Self::hang_up).
    stderr: Option<BufReader<ChildStderr>>,
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
        let stderr = child.stderr.take().map(BufReader::new);
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

    /// Returns the number of the server's process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns the resident memory of the server, in bytes.
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

    /// Waits for the next line of the server's stderr, and returns it.
    pub fn complaint(&mut self) -> String {
        let mut line = String::new();
        let stderr = self.stderr.as_mut().expect("nobody has hung up");
        stderr.read_line(&mut line).unwrap();
        line
    }

    /// Closes the read end of the server's stderr, which is then a pipe without a reader.
    pub fn hang_up(&mut self) {
        self.stderr = None;
    }

    /// Returns how many descriptors the server has open.
    pub fn descriptors(&self) -> usize {
        let listed = fs::read_dir(format!("/proc/{}/fd", self.pid())).unwrap();
        listed.count()
    }

    /// Waits until the server ends. Returns its status, what it printed on stdout after it began
    /// to listen, and what it printed on stderr.
    pub fn end(mut self) -> (ExitStatus, String, String) {
        let status = wait(&mut self.child);
        let (mut out, mut err) = (String::new(), String::new());
        self.stdout.read_to_string(&mut out).unwrap();
        if let Some(stderr) = &mut self.stderr {
            stderr.read_to_string(&mut err).unwrap();
        }
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

/// Sets a flag when this is dropped, also by a failed assertion. Otherwise a scope would wait for
/// ever for threads that run until the flag is set.
pub struct SetAtEnd<'a>(pub &'a AtomicBool);

impl Drop for SetAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// Returns the whole number between the texts `before` and `after` in a program's output.
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

/// Connects to a server. Reads and writes of the connection fail after [`AGES`].
pub fn connect(server: &Server) -> TcpStream {
    with_patience(TcpStream::connect(server.addr).unwrap())
}

/// Lets reads and writes of a connection fail after [`AGES`].
pub fn with_patience(stream: TcpStream) -> TcpStream {
    stream.set_read_timeout(Some(AGES)).unwrap();
    stream.set_write_timeout(Some(AGES)).unwrap();
    stream
}

/// Sends a line, and waits until it comes back.
pub fn ping(stream: &mut TcpStream) -> io::Result<()> {
    stream.write_all(b"ping\n")?;
    let mut reply = [0; 5];
    stream.read_exact(&mut reply)?;
    assert_eq!(&reply, b"ping\n");
    Ok(())
}

/// Sends a request that never ends, byte by byte and without long pauses, until the server closes
/// the connection. Returns how long that took.
pub fn send_slowly(server: &Server) -> Duration {
    let start = Instant::now();
    let mut stream = connect(server);
    stream.set_nonblocking(true).unwrap();
    let head = b"GET / HTTP/1.1\r\nHost: ".iter();
    for byte in head.chain(std::iter::repeat(&b'x')) {
        let written = stream.write(&[*byte]);
        let closed = match stream.read(&mut [0; 64]) {
            Ok(n) => n == 0,
            Err(error) => error.kind() != io::ErrorKind::WouldBlock,
        };
        if closed || written.is_err() {
            break;
        }
        assert!(start.elapsed() < AGES, "still open");
        thread::sleep(Duration::from_millis(20));
    }
    start.elapsed()
}

/// Runs `wrk` against a server, on 2,000 connections, for this many seconds. No connection may
/// see an error. Returns the number of replies.
pub fn wrk(server: &Server, seconds: u64) -> u64 {
    // The server takes the descriptors it needs by itself; wrk does not.
    let raise = "ulimit -n 4096 2>/dev/null || ulimit -n $(ulimit -H -n); exec wrk \"$@\"";
    let output = Command::new("sh")
        .args([
            "-c",
            raise,
            "wrk",
            "-t",
            "2",
            "-c",
            "2000",
            "-d",
            &format!("{seconds}s"),
        ])
        .args(["--timeout", "60s", &server.url()])
        .output()
        .unwrap();
    let out = String::from_utf8(output.stdout).unwrap();
    let err = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{out} {err}");
    assert!(!out.contains("Socket errors"), "{out}");
    assert!(!out.contains("Non-2xx"), "{out}");
    let line = out.lines().find(|line| line.contains(" requests in "));
    let replies: u64 = line
        .and_then(|line| line.split_whitespace().next()?.parse().ok())
        .unwrap_or_else(|| panic!("no count of requests: {out}"));
    assert!(replies > 0, "{out}");
    replies
}
