//! A Redis or Valkey.

use std::{
    env,
    ffi::OsStr,
    fs,
    io::{self, Read, Write},
    os::unix::{net::UnixStream, process::CommandExt},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use tourbillon_jobs::{redis, store::StoreError};

use super::{Dir, PATIENCE, Server, free_port};

pub struct Redis {
    child: Child,
    program: PathBuf,
    dir: Dir,
    port: u16,
}

impl Server for Redis {
    type Store = redis::Redis;

    const NAME: &'static str = "redis";

    fn start() -> io::Result<Self> {
        Self::start_by(&[])
    }

    fn port(&self) -> u16 {
        self.port
    }

    fn crash(&mut self) -> io::Result<()> {
        self.kill();
        self.child = launch(&[], &self.program, &self.dir, self.port)?;
        self.wait()
    }

    async fn connect(port: u16) -> Result<redis::Redis, StoreError> {
        redis::Redis::connect(&format!("redis://127.0.0.1:{port}")).await
    }
}

impl Redis {
    /// Starts a server by a command that gets the server's command as its last arguments. After a
    /// crash, it starts without this command.
    pub fn start_by(command: &[&str]) -> io::Result<Self> {
        let program = find().ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::NotFound,
                "redis-server is not installed: apt-get install redis-server",
            )
        })?;
        let port = free_port()?;
        let dir = Dir::new();
        let mut server = Self {
            child: launch(command, &program, &dir, port)?,
            program,
            dir,
            port,
        };
        server.wait()?;
        Ok(server)
    }

    /// Returns the path of the server's Unix socket.
    pub fn socket(&self) -> PathBuf {
        self.dir.path("socket")
    }

    /// Sends a command in one line, and returns the first part of the answer.
    pub fn command(&self, line: &str) -> io::Result<String> {
        let mut stream = UnixStream::connect(self.socket())?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(format!("{line}\r\n").as_bytes())?;
        let mut answer = [0; 1024];
        let length = stream.read(&mut answer)?;
        Ok(String::from_utf8_lossy(&answer[..length]).into_owned())
    }

    /// Waits until the server has read its files.
    fn wait(&mut self) -> io::Result<()> {
        let start = Instant::now();
        while !self
            .command("PING")
            .is_ok_and(|answer| answer == "+PONG\r\n")
        {
            if self.child.try_wait()?.is_some() || start.elapsed() > PATIENCE {
                let log = fs::read_to_string(self.dir.path("log"))?;
                return Err(io::Error::other(format!("redis does not start: {log}")));
            }
            thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Returns the path of the server.
fn find() -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let dirs: Vec<PathBuf> = env::split_paths(&path).collect();
    let programs = ["redis-server", "valkey-server"];
    let mut paths = programs
        .iter()
        .flat_map(|name| dirs.iter().map(move |dir| dir.join(name)));
    paths.find(|path| path.is_file())
}

fn launch(command: &[&str], program: &Path, dir: &Dir, port: u16) -> io::Result<Child> {
    let mut words = command.iter().map(OsStr::new).chain([program.as_os_str()]);
    // A group of its own, so that Ctrl-C ends this program first.
    Command::new(words.next().unwrap_or_default())
        .args(words)
        .args(["--port", &port.to_string(), "--bind", "127.0.0.1"])
        .args(["--unixsocket", "socket", "--save", "", "--dir"])
        .arg(dir.path(""))
        .args(["--appendonly", "yes", "--appendfsync", "always"])
        .stdin(Stdio::null())
        .stdout(fs::File::create(dir.path("log"))?)
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()
}
