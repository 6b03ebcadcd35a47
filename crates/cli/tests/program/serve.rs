//! `tourbillon serve`, asked by real clients.

use std::{
    io::{self, Read, Write},
    net::{Shutdown, TcpStream},
    process::Command,
    thread,
    time::{Duration, Instant},
};

use crate::clients::{AGES, Server, connect, have, number, send_slowly, tourbillon, wrk};

const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: test\r\n\r\n";

/// Sends a request on a connection, and reads the reply, which ends with the body given.
fn request(stream: &mut TcpStream, body: &str) -> String {
    try_request(stream, body).expect("the connection is open")
}

/// As [`request`]. Returns `None` if the server has closed the connection instead.
fn try_request(stream: &mut TcpStream, body: &str) -> Option<String> {
    stream.write_all(REQUEST).ok()?;
    let mut reply = Vec::new();
    let mut buf = [0; 1024];
    while !reply.ends_with(body.as_bytes()) {
        match stream.read(&mut buf) {
            Ok(n @ 1..) => reply.extend_from_slice(&buf[..n]),
            _ if reply.is_empty() => return None,
            closed => panic!("{closed:?} after {:?}", String::from_utf8_lossy(&reply)),
        }
    }
    Some(String::from_utf8(reply).unwrap())
}

/// Waits until the server closes a connection.
fn wait_for_end(stream: &mut TcpStream) {
    match stream.read(&mut [0; 1]) {
        Ok(0) => {}
        // If the server closes with unread data, the connection is reset.
        Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {}
        other => panic!("not closed: {other:?}"),
    }
}

#[test]
fn curl_is_answered_after_the_delay() {
    if !have("curl") {
        return;
    }
    let server = Server::start(&["--delay", "1s"]);
    let output = Command::new("curl")
        .args(["--silent", "--show-error", "--noproxy", "*", "--write-out"])
        .args(["%{http_code} %{time_total}", &server.url()])
        .output()
        .unwrap();
    let (out, err) = (
        String::from_utf8(output.stdout).unwrap(),
        String::from_utf8(output.stderr).unwrap(),
    );
    assert!(output.status.success(), "{out} {err}");
    let (body, rest) = out.split_once('\n').unwrap();
    let (code, time) = rest.split_once(' ').unwrap();
    assert_eq!((body, code), ("hello after 1s", "200"));
    assert!(time.parse::<f64>().unwrap() >= 1.0, "{time} s");
}

#[test]
fn two_thousand_connections_of_wrk_see_no_error() {
    if !have("wrk") {
        return;
    }
    let mut seconds = 3;
    loop {
        let server = Server::start(&["--delay", "100ms"]);
        let replies = wrk(&server, seconds);

        server.signal(libc::SIGTERM);
        let (status, said, _) = server.end();
        assert!(status.success());
        // wrk leaves without waiting for its last requests: more may have been answered.
        assert!(
            number(&said, "served ", " requests").unwrap() >= replies,
            "{said}"
        );
        if number(&said, "requests on ", " connections").unwrap() >= 2_000 {
            return;
        }
        // On a busy machine wrk ends before all of its connections have asked.
        seconds *= 3;
        assert!(seconds < AGES.as_secs(), "{said}");
    }
}

#[test]
fn a_connection_is_kept_for_the_next_request() {
    let server = Server::start(&["--delay", "20ms"]);
    let mut stream = connect(&server);
    for _ in 0..2 {
        let sent = Instant::now();
        let reply = request(&mut stream, "hello after 20ms\n");
        assert!(sent.elapsed() >= Duration::from_millis(20));
        assert!(reply.starts_with("HTTP/1.1 200 OK\r\n"), "{reply}");
    }
    drop(stream);
    server.signal(libc::SIGINT);
    let (status, said, _) = server.end();
    assert!(status.success());
    assert!(
        said.contains("served 2 requests on 1 connections"),
        "{said}"
    );
}

/// Closes a connection with a reset, by dropping it with unread bytes in its receive queue.
fn reset(server: &Server) {
    let mut stream = connect(server);
    stream.write_all(REQUEST).unwrap();
    stream.peek(&mut [0; 1]).unwrap();
}

#[test]
fn connections_that_the_client_closed_did_not_fail() {
    let server = Server::start(&["--delay", "0s", "--workers", "1"]);
    // Connections end in order, by a reset, and in the middle of a request.
    drop(connect(&server));
    reset(&server);
    connect(&server).write_all(b"GET / HT").unwrap();
    // Not HTTP.
    let mut nonsense = connect(&server);
    nonsense.write_all(b"\0\0\0\r\n\r\n").unwrap();
    let _ = nonsense.read_to_end(&mut Vec::new());
    // One worker polls the connections in turn, so it knows of the ends above when it answers.
    let mut last = connect(&server);
    for _ in 0..3 {
        request(&mut last, "hello after 0s\n");
    }
    server.signal(libc::SIGINT);
    wait_for_end(&mut last);
    let (_, said, _) = server.end();
    let counts = "(3 closed by the client, 1 closed by the server, 0 closed idle, 1 failed, 0 cut";
    assert!(said.contains(counts), "{said}");
}

/// Starts servers whose connections may be idle for some time, ever longer, until `talk` says that
/// it was in time: on a busy machine, a client may be late with its requests.
fn in_time(delay: Duration, talk: impl Fn(&Server, Duration) -> bool) -> Server {
    for factor in [1, 10, 100] {
        let idle = factor * Duration::from_millis(400);
        let [delay, text] = [delay, idle].map(|time| format!("{}ms", time.as_millis()));
        let server = Server::start(&["--delay", &delay, "--idle", &text]);
        if talk(&server, idle) {
            return server;
        }
    }
    panic!("the client is always late");
}

/// As [`request`]. Returns false if the server has closed the connection instead, which has been
/// idle since `since` at the earliest.
fn is_answered(stream: &mut TcpStream, body: &str, since: &mut Instant, idle: Duration) -> bool {
    let asked = Instant::now();
    let is_answered = try_request(stream, body).is_some();
    assert!(is_answered || since.elapsed() >= idle, "closed too early");
    *since = asked;
    is_answered
}

#[test]
fn an_idle_connection_is_closed_on_time() {
    // A reply takes longer than a connection may be idle: that is not idleness.
    let delay = Duration::from_millis(600);
    let server = in_time(delay, |server, idle| {
        let start = Instant::now();
        let mut silent = connect(server);
        let mut asking = connect(server);
        let mut since = start;
        for _ in 0..2 {
            if !is_answered(&mut asking, "hello after 600ms\n", &mut since, idle) {
                return false;
            }
        }
        wait_for_end(&mut asking);
        assert!(start.elapsed() >= delay * 2 + idle);
        wait_for_end(&mut silent);
        true
    });
    server.signal(libc::SIGINT);
    let (_, said, _) = server.end();
    assert!(
        said.contains("2 closed idle, 0 failed, 0 cut off"),
        "{said}"
    );
}

#[test]
fn a_connection_is_not_closed_before_it_was_idle_for_long() {
    in_time(Duration::ZERO, |server, idle| {
        let before = Instant::now();
        let mut stream = connect(server);
        wait_for_end(&mut stream);
        assert!(before.elapsed() >= idle);
        // Each request restarts the idle time. The connection ends long after the idle time of the
        // first request.
        let before = Instant::now();
        let mut stream = connect(server);
        let mut since = before;
        for _ in 0..3 {
            if !is_answered(&mut stream, "hello after 0s\n", &mut since, idle) {
                return false;
            }
            thread::sleep(idle / 8);
        }
        wait_for_end(&mut stream);
        assert!(before.elapsed() >= idle + idle / 4);
        true
    });
}

#[test]
fn a_client_that_sends_its_request_too_slowly_is_closed() {
    let server = Server::start(&["--delay", "0s", "--idle", "500ms"]);
    assert!(send_slowly(&server) >= Duration::from_millis(500));
}

#[test]
fn an_interrupt_answers_open_requests_and_prints_a_summary() {
    let server = Server::start(&["--delay", "2s", "--drain", "60s"]);
    let mut waiting = connect(&server);
    let mut silent = connect(&server);
    let mut kept = connect(&server);
    request(&mut kept, "hello after 2s\n");
    // Send a second request together with the first. The server has read it when it answers the
    // first.
    waiting.write_all(REQUEST).unwrap();
    let sent = Instant::now();
    request(&mut waiting, "hello after 2s\n");
    server.signal(libc::SIGINT);
    // The server immediately closes connections without a pending request.
    wait_for_end(&mut silent);
    let was_waiting = sent.elapsed() < Duration::from_secs(4);
    wait_for_end(&mut kept);
    let mut reply = String::new();
    waiting.read_to_string(&mut reply).unwrap();
    assert!(reply.ends_with("hello after 2s\n"), "{reply:?}");
    // On a very slow machine it may have been answered before.
    assert!(
        !was_waiting || reply.contains("connection: close"),
        "{reply:?}"
    );
    let addr = server.addr;
    let (status, said, _) = server.end();
    assert!(status.success());
    let counts = "served 3 requests on 3 connections in ";
    assert!(said.starts_with(counts), "{said}");
    assert!(said.contains("0 cut off; 0 requests abandoned"), "{said}");
    assert!(TcpStream::connect(addr).is_err(), "it still listens");
}

#[test]
fn the_shutdown_timeout_ends_a_long_request() {
    let mut said = String::new();
    // On a busy machine the server takes longer until it has read the request.
    let is_cut_off = [200, 2_000, 20_000, 200_000].into_iter().any(|wait| {
        let server = Server::start(&["--delay", "1h", "--drain", "100ms"]);
        let mut stream = connect(&server);
        stream.write_all(REQUEST).unwrap();
        thread::sleep(Duration::from_millis(wait));
        server.signal(libc::SIGINT);
        let status;
        (status, said, _) = server.end();
        assert!(status.success());
        said.contains("1 cut off; 1 requests abandoned")
    });
    assert!(is_cut_off, "{said}");
}

#[test]
fn a_server_without_descriptors_recovers_when_there_are_some() {
    let mut limited = Command::new("sh");
    limited
        .args(["-c", "ulimit -n 24; exec \"$@\"", "sh"])
        .arg(env!("CARGO_BIN_EXE_tourbillon"))
        .args([
            "serve",
            "--listen",
            "127.0.0.1:0",
            "--delay",
            "0s",
            "--workers",
            "1",
            "--max-connections",
            "1000",
        ]);
    let mut server = Server::run(&mut limited);
    let many: Vec<_> = (0..30).map(|_| connect(&server)).collect();
    let complaint = server.complaint();
    assert!(complaint.contains("cannot accept with "), "{complaint}");
    assert!(complaint.contains("ulimit -n"), "{complaint}");
    drop(many);
    let mut stream = connect(&server);
    request(&mut stream, "hello after 0s\n");
    drop(stream);

    // The server continues although stderr is closed. It reports once a second.
    server.hang_up();
    let many: Vec<_> = (0..30).map(|_| connect(&server)).collect();
    thread::sleep(Duration::from_millis(1_500));
    drop(many);
    let mut stream = connect(&server);
    request(&mut stream, "hello after 0s\n");
    drop(stream);
    server.signal(libc::SIGINT);
    let (status, ..) = server.end();
    assert!(status.success());
}

#[test]
fn a_head_that_never_ends_is_refused_before_it_is_large() {
    let server = Server::start(&["--idle", "1h"]);
    let mut stream = connect(&server);
    stream.write_all(b"GET / HTTP/1.1\r\nx: ").unwrap();
    // The server may refuse it before all is written.
    let _ = stream.write_all(&[b'x'; 20 * 1024]);
    let mut said = Vec::new();
    match stream.read_to_end(&mut said) {
        Ok(_) => {}
        // If the server closes with unread data, the connection is reset.
        Err(error) => assert_eq!(error.kind(), io::ErrorKind::ConnectionReset),
    }
    let said = String::from_utf8(said).unwrap();
    assert!(
        said.is_empty() || said.starts_with("HTTP/1.1 431 "),
        "{said}"
    );
}

#[test]
fn connections_above_the_limit_wait() {
    // The limit comes from an option. By default it is half of the descriptors, which are few
    // here.
    let mut limited = Command::new("sh");
    limited
        .args(["-c", "ulimit -n 60; exec \"$@\"", "sh"])
        .arg(env!("CARGO_BIN_EXE_tourbillon"))
        .args(["serve", "--listen", "127.0.0.1:0", "--delay", "0s"])
        .args(["--idle", "1h", "--workers", "1"]);
    let args = ["--delay", "0s", "--idle", "1h", "--max-connections", "2"];
    for (server, most) in [(Server::start(&args), 2), (Server::run(&mut limited), 30)] {
        let mut open: Vec<_> = (0..most).map(|_| connect(&server)).collect();
        for stream in &mut open {
            request(stream, "hello after 0s\n");
        }
        let mut further = connect(&server);
        further.write_all(REQUEST).unwrap();
        let short = Duration::from_millis(200);
        further.set_read_timeout(Some(short)).unwrap();
        let error = further.read(&mut [0; 1]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        further.set_read_timeout(Some(AGES)).unwrap();
        open.pop();
        request(&mut further, "hello after 0s\n");
    }
}

#[test]
fn a_half_closed_client_is_answered_where_that_is_allowed() {
    for (option, answer) in [(None, ""), (Some("--half-close"), "hello after 300ms\n")] {
        let args = ["--delay", "300ms"].into_iter().chain(option);
        let server = Server::start(&args.collect::<Vec<_>>());
        let mut stream = connect(&server);
        stream.write_all(REQUEST).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut said = String::new();
        stream.read_to_string(&mut said).unwrap();
        assert_eq!(said.is_empty(), answer.is_empty(), "{said}");
        assert!(said.ends_with(answer), "{said}");
    }
}

#[test]
fn invalid_arguments_are_refused() {
    let server = Server::start(&[]);
    let taken = server.addr.to_string();
    for (status, args, hint) in [
        (1, ["--listen", &taken], "port 0 for any"),
        (2, ["--listen", "nonsense"], "127.0.0.1:8080"),
        (2, ["--delay", "soon"], "250ms"),
        (2, ["--idle", "0s"], "more than zero"),
        (2, ["--workers", "0"], "at least 1 worker"),
        (2, ["--budget", "0"], "above 0 and at most 1"),
        (2, ["--max-connections", "0"], "at least 1"),
    ] {
        let output = tourbillon().arg("serve").args(args).output().unwrap();
        let err = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(status), "{args:?}: {err}");
        assert!(err.contains(hint), "{args:?}: {err}");
        assert!(output.stdout.is_empty());
    }
}
