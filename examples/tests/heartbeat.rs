//! The example `heartbeat`: as many clients as there are descriptors, and hostile clients.

use std::{
    io::{self, BufRead, BufReader, Read, Write},
    net::{Shutdown, TcpStream},
    os::fd::AsRawFd,
    process::Command,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Resource, getrlimit, setrlimit};
use socket2::{Domain, SockAddr, Socket, Type};

use crate::clients::{AGES, Server, SetAtEnd, connect, example, number, ping};

/// Descriptors of the test itself, and of the server for all but its connections.
const OTHERS: u64 = 500;
const MB: u64 = 1 << 20;
/// Held by tests that take many descriptors.
static MANY: Mutex<()> = Mutex::new(());

fn serve(args: &[&str]) -> Server {
    Server::run(
        example("heartbeat")
            .args(["--listen", "127.0.0.1:0"])
            .args(args),
    )
}

/// Waits until the server closes a connection. Discards the data that comes before.
fn wait_for_end(stream: &mut TcpStream) {
    let mut buf = [0; 65_536];
    loop {
        match stream.read(&mut buf) {
            Ok(0) => return,
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return,
            Err(error) => panic!("not closed: {error}"),
        }
    }
}

/// Ends a server by a signal. Returns what it printed.
fn end(server: Server, signal: i32) -> String {
    server.signal(signal);
    let (status, out, err) = server.end();
    assert_eq!(status.code(), Some(0), "{out} {err}");
    assert_eq!(err, "");
    out
}

/// Raises the limit of descriptors, and returns it.
fn descriptors() -> u64 {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).unwrap();
    limit.current.unwrap_or(u64::MAX)
}

/// Connects from one of several addresses of the loopback. Each address has ports of its own.
fn connect_from(number: u64, server: &Server) -> TcpStream {
    let source = format!("127.0.0.{}:0", 2 + number % 8);
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    let source: std::net::SocketAddr = source.parse().unwrap();
    socket.bind(&source.into()).unwrap();
    socket.connect(&SockAddr::from(server.addr)).unwrap();
    socket.into()
}

/// A client that is idle.
struct Idle {
    stream: TcpStream,
    /// A time before the client connected or, if the server has echoed a line, before it sent the
    /// last of these lines.
    since: Instant,
    sent: Option<Instant>,
}

impl Idle {
    /// Sends a line.
    fn send(&mut self) {
        self.sent = Some(Instant::now());
        // If the server has closed the connection, this may fail. `is_closed` finds that out.
        let _ = self.stream.write_all(b"ping\n");
    }

    /// Reads what has come. Returns whether the server has closed the connection.
    fn is_closed(&mut self) -> bool {
        let mut buf = [0; 64];
        loop {
            match self.stream.read(&mut buf) {
                Ok(0) => return true,
                Ok(_) => self.since = self.sent.expect("an echo is that of a line"),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return true,
                Err(error) => panic!("{error}"),
            }
        }
    }
}

/// Waits for 100 ms at most. Returns the positions of the clients that have something to read,
/// the highest first.
fn readable(clients: &[Idle]) -> Vec<usize> {
    let mut polled: Vec<_> = clients
        .iter()
        .map(|client| libc::pollfd {
            fd: client.stream.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        })
        .collect();
    // SAFETY: the array has `polled.len()` entries, and lives through the call.
    let ready = unsafe { libc::poll(polled.as_mut_ptr(), polled.len() as u64, 100) };
    assert!(ready >= 0, "{}", io::Error::last_os_error());
    (0..polled.len())
        .rev()
        .filter(|&at| polled[at].revents != 0)
        .collect()
}

/// Sends lines until `done` is set, so that the connection stays open. Returns how often the
/// server closed it because this client was late.
fn keep_alive(server: &Server, idle: Duration, done: &AtomicBool) -> u32 {
    let mut since = Instant::now();
    let mut stream = connect(server);
    let mut lost = 0;
    while !done.load(Relaxed) {
        thread::sleep(Duration::from_millis(250));
        let before = since;
        since = Instant::now();
        if ping(&mut stream).is_err() {
            // The server may close it only if this client was late.
            assert!(before.elapsed() >= idle, "closed though it was kept alive");
            lost += 1;
            since = Instant::now();
            stream = connect(server);
        }
    }
    lost
}

/// Holds `count` idle connections until all are closed, and `kept` connections that stay open.
/// Returns whether all were open at the same time.
fn hold(count: u64, kept: u64, idle: Duration) -> bool {
    let idle_text = format!("{}s", idle.as_secs());
    let server = serve(&["--idle", &idle_text]);
    let before = server.memory();
    let begin = Instant::now();
    let mut clients: Vec<_> = (0..count)
        .map(|number| {
            let since = Instant::now();
            let stream = connect_from(number, &server);
            stream.set_nonblocking(true).unwrap();
            Idle {
                stream,
                since,
                sent: None,
            }
        })
        .collect();
    let connected = begin.elapsed();
    // Every third client sends one line, so its connection stays open for longer.
    for client in clients.iter_mut().step_by(3) {
        client.send();
    }
    // When this ping is answered, the server has served the clients that it accepted before.
    ping(&mut connect(&server)).unwrap();
    let after = server.memory();
    let held = readable(&clients)
        .into_iter()
        .all(|at| !clients[at].is_closed());
    println!(
        "{count} connections in {connected:?}, {} bytes of the server each, all at once: {held}",
        (after - before) / count
    );
    if held {
        assert!((after - before) / count < 16_384, "{before} {after}");
    }

    let (server, done) = (&server, &AtomicBool::new(false));
    let lost = thread::scope(|scope| {
        let keepers: Vec<_> = (0..kept)
            .map(|_| scope.spawn(move || keep_alive(server, idle, done)))
            .collect();
        let at_end = SetAtEnd(done);
        let last = Instant::now();
        while !clients.is_empty() {
            for at in readable(&clients) {
                if clients[at].is_closed() {
                    let waited = clients[at].since.elapsed();
                    assert!(waited >= idle, "closed early, after {waited:?}");
                    clients.swap_remove(at);
                }
            }
            assert!(
                last.elapsed() < idle + AGES,
                "{} connections were not closed",
                clients.len()
            );
        }
        drop(at_end);
        let lost = keepers.into_iter().map(|keeper| keeper.join().unwrap());
        lost.sum::<u32>()
    });
    println!("all were closed; of {kept} that were kept alive {lost} were too late");
    held && lost == 0
}

#[test]
fn idle_connections_are_closed_up_to_the_descriptor_limit_and_none_early() {
    let _many = MANY.lock().unwrap_or_else(PoisonError::into_inner);
    let count = descriptors().saturating_sub(OTHERS).clamp(1, 20_000);
    // If the machine is too slow to open all of them before the first is closed, try again with a
    // longer idle time.
    let all_at_once = [10, 40, 160]
        .into_iter()
        .any(|idle| hold(count, 5, Duration::from_secs(idle)));
    assert!(all_at_once);
}

#[test]
fn lines_and_a_final_partial_line_are_echoed() {
    let server = serve(&[]);
    let mut stream = connect(&server);
    stream.write_all(b"one\ntwo\n\nthr").unwrap();
    let mut lines = BufReader::new(stream.try_clone().unwrap());
    for expected in ["one\n", "two\n", "\n"] {
        let mut line = String::new();
        lines.read_line(&mut line).unwrap();
        assert_eq!(line, expected);
    }
    stream.write_all(b"ee\nfour").unwrap();
    // Half-open: the server reads the end of the data, and may still send.
    stream.shutdown(Shutdown::Write).unwrap();
    let mut rest = String::new();
    lines.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "three\nfour");
    let out = end(server, libc::SIGTERM);
    assert!(
        out.starts_with("4 lines, 0 heartbeats; connections: 1 closed by their peers, 0 idle"),
        "{out}"
    );
}

#[test]
fn a_silent_peer_gets_heartbeats_between_its_lines() {
    let server = serve(&["--heartbeat", "50ms", "--idle", "1h"]);
    let begin = Instant::now();
    let mut stream = connect(&server);
    // The client is in the middle of a line while heartbeats come. The line comes back whole.
    stream.write_all(b"begun").unwrap();
    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
    for count in 1..=3 {
        assert_eq!(lines.next().unwrap().unwrap(), "heartbeat");
        assert!(begin.elapsed() >= Duration::from_millis(50) * count);
    }
    stream.write_all(b" and done\n").unwrap();
    let line = lines.find(|line| line.as_ref().unwrap() != "heartbeat");
    assert_eq!(line.unwrap().unwrap(), "begun and done");
    let out = end(server, libc::SIGINT);
    assert!(out.contains("0 failed, 1 open at the end"), "{out}");
    assert!(number(&out, "lines, ", " heart").unwrap() >= 3, "{out}");
}

#[test]
fn clients_without_whole_lines_or_reads_are_idle_and_cost_little() {
    let server = serve(&["--idle", "2s"]);
    let before = server.memory();
    let descriptors = server.descriptors();

    // This client sends a byte now and then, of a line that never ends.
    let slow = || {
        let begin = Instant::now();
        let mut stream = connect(&server);
        stream.set_nonblocking(true).unwrap();
        loop {
            let _ = stream.write(b"x");
            match stream.read(&mut [0; 8]) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => break,
                Ok(0) => break,
                other => panic!("{other:?}"),
            }
            assert!(begin.elapsed() < AGES, "a byte now and then keeps it open");
            thread::sleep(Duration::from_millis(20));
        }
        assert!(begin.elapsed() >= Duration::from_secs(2));
    };
    // This client sends lines for as long as the server takes them, and reads nothing.
    let deaf = || {
        let begin = Instant::now();
        let mut stream = connect(&server);
        let lines = b"0123456\n".repeat(8192);
        let mut sent = 0;
        while let Ok(n) = stream.write(&lines) {
            sent += n;
        }
        assert!(begin.elapsed() >= Duration::from_secs(2), "{sent} bytes");
        assert!(begin.elapsed() < AGES, "{sent} bytes");
    };
    // This client sends nothing. It may also close its half of the connection.
    let silent = |half: bool| {
        let begin = Instant::now();
        let mut stream = connect(&server);
        if half {
            // This ends the stream, so the server has nothing to wait for.
            stream.shutdown(Shutdown::Write).unwrap();
        }
        wait_for_end(&mut stream);
        assert!(half || begin.elapsed() >= Duration::from_secs(2));
    };
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(slow);
            scope.spawn(deaf);
            scope.spawn(|| silent(false));
            scope.spawn(|| silent(true));
        }
    });
    let after = server.memory();
    assert!(after < before + 16 * MB, "{before} {after}");
    // A connection counts as idle shortly before its descriptor is closed.
    let begin = Instant::now();
    while server.descriptors() > descriptors {
        assert!(begin.elapsed() < AGES, "connections stay open");
        thread::sleep(Duration::from_millis(1));
    }
    let out = end(server, libc::SIGTERM);
    // On a very slow machine the half-open ones are closed as idle, too, before the server sees
    // their end.
    let idle = number(&out, "peers, ", " idle").unwrap();
    assert!((24..=32).contains(&idle), "{out}");
    assert_eq!(
        number(&out, "connections: ", " closed"),
        Some(32 - idle),
        "{out}"
    );
    assert!(
        out.contains(" idle, 0 with too long a line, 0 failed, 0 open"),
        "{out}"
    );
}

#[test]
fn random_bytes_and_giant_lines_do_no_harm() {
    let server = serve(&["--max-line", "100"]);
    let before = server.memory();
    let mut rng = fastrand::Rng::with_seed(5);
    for _ in 0..50 {
        let mut stream = connect(&server);
        let bytes: Vec<_> = std::iter::repeat_with(|| rng.u8(..)).take(10_000).collect();
        // How much the server reads depends on the lines in it. It refuses a line that is too long,
        // and all that follows.
        let _ = stream.write_all(&bytes);
        let _ = stream.shutdown(Shutdown::Write);
        wait_for_end(&mut stream);
    }
    // The longest line that is allowed, and one that is a byte longer.
    let longest = format!("{:>99}\n", "end");
    let mut stream = connect(&server);
    stream.write_all(longest.as_bytes()).unwrap();
    let mut reply = [0; 100];
    stream.read_exact(&mut reply).unwrap();
    assert_eq!(reply, longest.as_bytes());
    stream.write_all(format!(" {longest}").as_bytes()).unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).unwrap();
    assert_eq!(reply, "error: a line is longer than 100 bytes\n");
    // A line that is far longer. The server discards it, so that the client can read the error.
    let mut stream = connect(&server);
    for _ in 0..64 {
        stream.write_all(&vec![b'x'; MB as usize]).unwrap();
    }
    stream.shutdown(Shutdown::Write).unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).unwrap();
    assert_eq!(reply, "error: a line is longer than 100 bytes\n");

    ping(&mut connect(&server)).unwrap();
    let after = server.memory();
    assert!(after < before + 16 * MB, "{before} {after}");
    let out = end(server, libc::SIGTERM);
    assert!(
        number(&out, "idle, ", " with too long").unwrap() >= 2,
        "{out}"
    );
}

#[test]
fn connections_above_the_limit_wait() {
    let server = serve(&["--max-connections", "2"]);
    let mut first = connect(&server);
    let mut second = connect(&server);
    ping(&mut first).unwrap();
    ping(&mut second).unwrap();
    let mut third = connect(&server);
    third.write_all(b"third\n").unwrap();
    third
        .set_read_timeout(Some(Duration::from_millis(100)))
        .unwrap();
    let mut reply = [0; 6];
    let waits = third.read_exact(&mut reply).unwrap_err();
    assert_eq!(waits.kind(), io::ErrorKind::WouldBlock);
    ping(&mut first).unwrap();

    drop(second);
    third.set_read_timeout(Some(AGES)).unwrap();
    third.read_exact(&mut reply).unwrap();
    assert_eq!(&reply, b"third\n");
}

#[test]
fn a_lack_of_descriptors_is_reported_and_the_server_continues() {
    let _many = MANY.lock().unwrap_or_else(PoisonError::into_inner);
    descriptors();
    let limited = |args: &str| {
        let program = example("heartbeat");
        let program = program.get_program().to_str().unwrap();
        let mut command = Command::new("sh");
        command.args([
            "-c",
            &format!("ulimit -n 1000; exec {program} --listen 127.0.0.1:0 {args}"),
        ]);
        command
    };
    for (args, status) in [("--max-connections 1000", 1), ("--max-connections 0", 2)] {
        let output = limited(args).output().unwrap();
        let err = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(status), "{err}");
        assert!(status == 2 || err.contains("`ulimit -n 1"), "{err}");
    }
    // The server accepts as many clients as it has room for. The others wait.
    let server = Server::run(&mut limited(""));
    let mut clients: Vec<_> = (0..1100).map(|_| connect(&server)).collect();
    for mut client in clients.drain(..) {
        ping(&mut client).unwrap();
    }
    let out = end(server, libc::SIGTERM);
    assert!(out.starts_with("1100 lines, "), "{out}");
}

#[test]
fn invalid_arguments_are_refused() {
    for (args, message) in [
        (&["--idle", "0s"][..], "longer than zero"),
        (&["--idle", "soon"], "such as 250ms"),
        (
            &["--idle", "1s", "--heartbeat", "1s"],
            "shorter than --idle",
        ),
        (&["--max-line", "1"], "--max-line"),
        (&["--listen", "nowhere"], "cannot listen on nowhere"),
    ] {
        let output = example("heartbeat").args(args).output().unwrap();
        let err = String::from_utf8(output.stderr).unwrap();
        assert!(
            !output.status.success() && err.contains(message),
            "{args:?}: {err}"
        );
    }
}
