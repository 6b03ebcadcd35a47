//! The servers that exchanges need, each on a port of its own.

use std::{
    env, fs, io,
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    os::unix::{fs::chown, process::CommandExt},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, geteuid, kill_process, kill_process_group};

/// Longer than any server takes to start.
const AGES: Duration = Duration::from_secs(60);

/// A server that is not part of the test program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    Mosquitto,
    Postgres,
    RabbitMq,
    Redis,
}

/// The addresses of the servers that were started.
#[derive(Clone, Copy, Debug, Default)]
pub struct Addresses {
    mosquitto: Option<SocketAddr>,
    postgres: Option<SocketAddr>,
    rabbitmq: Option<SocketAddr>,
    redis: Option<SocketAddr>,
}

impl Addresses {
    /// Returns the address of a server.
    ///
    /// # Panics
    ///
    /// Panics if it was not started.
    pub fn of(&self, program: Program) -> SocketAddr {
        self.get(program)
            .unwrap_or_else(|| panic!("{program:?} was not started: the case does not need it"))
    }

    pub(crate) fn get(&self, program: Program) -> Option<SocketAddr> {
        match program {
            Program::Mosquitto => self.mosquitto,
            Program::Postgres => self.postgres,
            Program::RabbitMq => self.rabbitmq,
            Program::Redis => self.redis,
        }
    }
}

/// The running servers, which end when this is dropped.
#[derive(Default)]
pub struct Servers {
    pub addresses: Addresses,
    servers: Vec<Server>,
}

impl Servers {
    /// Starts the installed ones among these. With `TOURBILLON_REQUIRE_CLIENTS=1`, a missing one is
    /// a panic.
    pub fn start(programs: &[Program]) -> Self {
        let mut servers = Self::default();
        // Start all of them at once, since some take seconds.
        let started = thread::scope(|scope| {
            let starting: Vec<_> = programs
                .iter()
                .filter_map(|&program| Some((program, find(program)?)))
                .map(|(program, path)| (program, scope.spawn(move || Server::start(program, path))))
                .collect();
            let started = starting.into_iter().map(|(program, starting)| {
                let server = starting.join();
                (
                    program,
                    server.unwrap_or_else(|_| panic!("{program:?} does not start")),
                )
            });
            started.collect::<Vec<_>>()
        });
        for (program, server) in started {
            let addresses = &mut servers.addresses;
            *match program {
                Program::Mosquitto => &mut addresses.mosquitto,
                Program::Postgres => &mut addresses.postgres,
                Program::RabbitMq => &mut addresses.rabbitmq,
                Program::Redis => &mut addresses.redis,
            } = Some(server.addr);
            servers.servers.push(server);
        }
        servers
    }
}

/// Returns the path of a program, if it is installed.
fn find(program: Program) -> Option<PathBuf> {
    let name = match program {
        Program::Mosquitto => "mosquitto",
        Program::Postgres => "postgres",
        Program::RabbitMq => "rabbitmq-server",
        Program::Redis => "redis-server",
    };
    let path = env::var_os("PATH").unwrap_or_default();
    // Debian has some servers outside of the usual PATH. Its `rabbitmq-server` in the PATH serves
    // only root, and writes into the log of the system's own server.
    let mut dirs = vec![PathBuf::from("/usr/lib/rabbitmq/bin")];
    dirs.extend(env::split_paths(&path));
    dirs.push("/usr/sbin".into());
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten();
    dirs.extend(versions.flatten().map(|version| version.path().join("bin")));
    let found = dirs
        .iter()
        .map(|dir| dir.join(name))
        .find(|path| path.is_file());
    if found.is_none() {
        let required = env::var_os("TOURBILLON_REQUIRE_CLIENTS").is_some_and(|v| v == "1");
        assert!(
            !required,
            "{name} is not installed, and clients are required"
        );
        eprintln!("skipped: {name} is not installed");
    }
    found
}

/// A running server, with a directory of its own.
struct Server {
    program: Program,
    child: Child,
    addr: SocketAddr,
    /// The port mapper of Erlang.
    mapper: Option<Child>,
    dir: PathBuf,
}

impl Server {
    fn start(program: Program, path: PathBuf) -> Self {
        let start = Instant::now();
        loop {
            // These servers cannot take any free port, so another process may take this one first.
            let addr = free();
            let dir = env::temp_dir().join(format!("tourbillon-matrix-{}", addr.port()));
            fs::create_dir(&dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display()));
            let mut command = command(program, &path, addr, &dir);
            let mapper = (program == Program::RabbitMq).then(|| port_mapper(&mut command));
            let child = command
                .current_dir(&dir)
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(fs::File::create(dir.join("stderr")).expect("a log"))
                .spawn()
                .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            let mut server = Self {
                program,
                child,
                addr,
                mapper,
                dir,
            };
            while server.child.try_wait().expect("it is a child").is_none() {
                if server.answers() {
                    return server;
                }
                assert!(start.elapsed() < AGES, "{program:?} does not listen");
                thread::sleep(Duration::from_millis(20));
            }
            let log = fs::read_to_string(server.dir.join("stderr")).unwrap_or_default();
            assert!(start.elapsed() < AGES / 4, "{program:?} ends: {log}");
        }
    }

    fn answers(&self) -> bool {
        // Postgres listens before it lets clients in, and then writes this into its log.
        let is_ready = self.program != Program::Postgres
            || fs::read_to_string(self.dir.join("stderr"))
                .is_ok_and(|log| log.contains("ready to accept connections"));
        is_ready && TcpStream::connect(self.addr).is_ok()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(mapper) = &mut self.mapper {
            // The mapper's process group contains the shell and the processes of RabbitMQ.
            let _ = kill_process_group(Pid::from_child(mapper), Signal::KILL);
            let _ = mapper.wait();
        }
        // Send SIGINT: after SIGTERM, PostgreSQL would wait for its clients.
        let _ = kill_process(Pid::from_child(&self.child), Signal::INT);
        let start = Instant::now();
        while matches!(self.child.try_wait(), Ok(None)) && start.elapsed() < AGES / 4 {
            thread::sleep(Duration::from_millis(10));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// Returns an address whose port is free.
fn free() -> SocketAddr {
    let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    free.local_addr().expect("it is bound")
}

/// Returns the command that starts a server at `addr`, with its files in `dir`.
fn command(program: Program, path: &Path, addr: SocketAddr, dir: &Path) -> Command {
    let port = addr.port().to_string();
    let mut command = Command::new(path);
    match program {
        Program::Mosquitto => {
            // With only a port, it listens on the loopback interface and lets anyone in.
            command.args(["-p", &port]);
        }
        Program::Redis => {
            command
                .args(["--bind", "127.0.0.1", "--port", &port])
                .args(["--save", "", "--appendonly", "no"]);
        }
        Program::Postgres => {
            let data = dir.join("data");
            let mut initdb = Command::new(
                fs::canonicalize(path)
                    .expect("it was found")
                    .with_file_name("initdb"),
            );
            initdb
                .args([
                    "--auth=trust",
                    "--username=postgres",
                    "--no-sync",
                    "--pgdata",
                ])
                .arg(&data)
                .stdout(Stdio::null());
            run_as("postgres", dir, &mut initdb);
            run_as("postgres", dir, &mut command);
            let made = initdb.status().expect("initdb is installed with postgres");
            assert!(made.success(), "initdb: {made}");
            command
                .arg("-D")
                .arg(&data)
                .args(["-h", "127.0.0.1", "-p", &port])
                .args(["-c", "fsync=off", "-c", "unix_socket_directories="]);
        }
        Program::RabbitMq => {
            // Erlang's node has a port, too.
            run_as("rabbitmq", dir, &mut command);
            command
                .env("RABBITMQ_NODENAME", format!("matrix{port}@localhost"))
                .env("RABBITMQ_NODE_IP_ADDRESS", "127.0.0.1")
                .env("RABBITMQ_NODE_PORT", &port)
                .env("RABBITMQ_DIST_PORT", free().port().to_string())
                .env("RABBITMQ_MNESIA_BASE", dir.join("mnesia"))
                .env("RABBITMQ_LOG_BASE", dir.join("log"))
                .env("RABBITMQ_ENABLED_PLUGINS_FILE", dir.join("plugins"))
                .env("RABBITMQ_FEATURE_FLAGS_FILE", dir.join("flags"))
                .env("HOME", dir);
        }
    }
    command
}

/// Starts Erlang's port mapper, and puts the command into its process group. Erlang would start a
/// mapper that outlives it.
fn port_mapper(command: &mut Command) -> Child {
    let port = free().port().to_string();
    let mapper = Command::new("epmd")
        .args(["-address", "127.0.0.1", "-port", &port])
        .process_group(0)
        .spawn()
        .expect("epmd is installed with RabbitMQ");
    let group = Pid::from_child(&mapper).as_raw_pid();
    command.env("ERL_EPMD_PORT", port).process_group(group);
    mapper
}

/// Gives `dir` to a user, and runs the command as this user, because the servers refuse to run as
/// root. Does nothing if this process is not root's.
fn run_as(user: &str, dir: &Path, command: &mut Command) {
    if geteuid().is_root() {
        let (uid, gid) = ids(user).unwrap_or_else(|error| panic!("/etc/passwd: {error}"));
        chown(dir, Some(uid), Some(gid)).expect("root may do so");
        command.uid(uid).gid(gid).current_dir(dir);
    }
}

/// Returns the ids of a user and its group.
fn ids(name: &str) -> io::Result<(u32, u32)> {
    let users = fs::read_to_string("/etc/passwd")?;
    let ids = users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let found = fields.next()? == name;
        let mut ids = fields.skip(1).map(str::parse);
        found.then_some((ids.next()?.ok()?, ids.next()?.ok()?))
    });
    ids.ok_or_else(|| io::Error::other(format!("no user {name}")))
}
