//! A PostgreSQL.

use std::{
    env, fs, io,
    os::unix::{fs::chown, process::CommandExt},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use tourbillon_jobs::{postgres, store::StoreError};

use super::{Dir, PATIENCE, Server, free_port};

pub struct Postgres {
    child: Option<Child>,
    programs: PathBuf,
    pub dir: Dir,
    port: u16,
    /// Settings beside those that all servers have. They count from the next start on.
    pub settings: Vec<String>,
}

impl Server for Postgres {
    type Store = postgres::Postgres;

    const NAME: &'static str = "postgres";

    fn start() -> io::Result<Self> {
        let programs = find().ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::NotFound,
                "postgres is not installed: apt-get install postgresql",
            )
        })?;
        let port = free_port()?;
        let dir = Dir::new();
        let mut server = Self {
            child: None,
            programs,
            dir,
            port,
            settings: Vec::new(),
        };
        let made = server
            .command("initdb")?
            .args(["--auth=trust", "--username=postgres", "--no-sync", "-D"])
            .arg(server.dir.path("data"))
            .stdout(Stdio::null())
            .status()?;
        if !made.success() {
            return Err(io::Error::other(format!("initdb ended with {made}")));
        }
        server.launch()?;
        Ok(server)
    }

    fn port(&self) -> u16 {
        self.port
    }

    fn crash(&mut self) -> io::Result<()> {
        self.stop("immediate");
        self.launch()
    }

    async fn connect(port: u16) -> Result<postgres::Postgres, StoreError> {
        let config = Self::config(port);
        postgres::Postgres::migrate(&config).await?;
        postgres::Postgres::connect(&config).await
    }
}

impl Postgres {
    /// Returns the configuration of a client that connects to a port which leads to the server.
    pub fn config(port: u16) -> String {
        format!("host=127.0.0.1 port={port} user=postgres dbname=postgres")
    }

    pub fn command(&self, program: &str) -> io::Result<Command> {
        let mut command = Command::new(self.programs.join(program));
        command.stdin(Stdio::null()).current_dir(self.dir.path(""));
        // The server refuses to run as root.
        if let Some((user, group)) = other_user()? {
            chown(self.dir.path(""), Some(user), Some(group))?;
            command.uid(user).gid(group);
        }
        Ok(command)
    }

    fn launch(&mut self) -> io::Result<()> {
        let log = self.dir.path("log");
        // A group of its own, so that Ctrl-C ends this program first.
        let child = self
            .command("postgres")?
            .arg("-D")
            .arg(self.dir.path("data"))
            .args(["-h", "127.0.0.1", "-p", &self.port.to_string()])
            .args(["-c", "unix_socket_directories=", "-c", "max_connections=60"])
            // So that a test can read the statements of a store.
            .args(["-c", "track_activity_query_size=16384"])
            .args(self.settings.iter().flat_map(|one| ["-c", one]))
            .stdout(Stdio::null())
            .stderr(fs::File::create(&log)?)
            .process_group(0)
            .spawn()?;
        self.child = Some(child);
        let start = Instant::now();
        while !fs::read_to_string(&log)?.contains("ready to accept ") {
            let child = self.child.as_mut().expect("it was just started");
            if child.try_wait()?.is_some() || start.elapsed() > PATIENCE {
                let log = fs::read_to_string(&log)?;
                return Err(io::Error::other(format!("postgres does not start: {log}")));
            }
            thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    pub fn stop(&mut self, mode: &str) {
        let Some(mut child) = self.child.take() else {
            return;
        };
        let stopped = self.command("pg_ctl").and_then(|mut command| {
            command
                .args(["stop", "--silent", "-m", mode, "-D"])
                .arg(self.dir.path("data"))
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .status()
        });
        if !stopped.is_ok_and(|status| status.success()) {
            let _ = child.kill();
        }
        let _ = child.wait();
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.stop("immediate");
    }
}

/// Returns the directory of PostgreSQL's programs. Debian has them outside of the PATH.
fn find() -> Option<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten();
    let debian = versions.flatten().map(|version| version.path().join("bin"));
    let path = env::var_os("PATH").unwrap_or_default();
    let dirs: Vec<PathBuf> = debian.chain(env::split_paths(&path)).collect();
    let has = |dir: &Path| {
        ["initdb", "pg_ctl", "postgres"]
            .iter()
            .all(|name| dir.join(name).is_file())
    };
    dirs.into_iter().find(|dir| has(dir))
}

/// Returns the user of the server and its group, if this process is root's.
fn other_user() -> io::Result<Option<(u32, u32)>> {
    let own = fs::metadata("/proc/self")?;
    if std::os::unix::fs::MetadataExt::uid(&own) != 0 {
        return Ok(None);
    }
    let users = fs::read_to_string("/etc/passwd")?;
    let ids = users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let found = fields.next()? == "postgres";
        let mut ids = fields.skip(1).map(str::parse);
        found.then_some((ids.next()?.ok()?, ids.next()?.ok()?))
    });
    ids.map(Some)
        .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "there is no user postgres"))
}
