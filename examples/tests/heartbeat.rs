//! The example `heartbeat`: clients that are silent, and hostile ones.

use std::{
    io::{self, BufRead, BufReader, Read, Write},
    net::{Shutdown, TcpStream},
    process::Command,
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Resource, getrlimit, setrlimit};

use crate::clients::{AGES, Server, connect, example, number, ping};

const MB: u64 = 1 << 20;
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
fn a_line_that_is_too_long_is_refused() {
    let server = serve(&["--max-line", "100"]);
    let before = server.memory();
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
    // Each of the three connections is open until the server has seen that its client is gone.
    let refused = number(&out, "idle, ", " with too long").unwrap();
    let closed = number(&out, "connections: ", " closed").unwrap();
    let open = number(&out, "failed, ", " open at the end").unwrap();
    assert!(refused <= 2 && closed <= 1, "{out}");
    assert_eq!(refused + closed + open, 3, "{out}");
}

#[test]
fn a_lack_of_descriptors_is_reported_and_the_server_continues() {
    // The clients need more descriptors than the server has.
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).unwrap();
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
