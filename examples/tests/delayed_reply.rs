//! The example `delayed_reply`, asked by real clients and by hostile ones.

use std::{
    io::{self, Read, Write},
    net::{Shutdown, TcpStream},
    process::Command,
    time::{Duration, Instant},
};

use crate::{
    clients::{Server, connect, example, have, send_slowly, wrk},
    common::Random,
};

fn start(args: &[&str]) -> Server {
    Server::run(
        example("delayed_reply")
            .args(["--listen", "127.0.0.1:0"])
            .args(args),
    )
}

/// Returns all that the server sends until it closes the connection.
fn said(stream: &mut TcpStream) -> String {
    let mut said = Vec::new();
    match stream.read_to_end(&mut said) {
        Ok(_) => {}
        // If the server closes with unread data, the connection is reset.
        Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {}
        Err(error) => panic!("not closed: {error}"),
    }
    String::from_utf8_lossy(&said).into_owned()
}

/// Asks for a path, and returns the response with its head.
fn ask(server: &Server, path: &str) -> String {
    let mut stream = connect(server);
    let request = format!("GET {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    said(&mut stream)
}

/// Returns a connection on which the server has read a request to `/`. The request came together
/// with one that has been answered.
fn asking(server: &Server) -> TcpStream {
    let mut stream = connect(server);
    let requests = ["/hello", "/"].map(|path| format!("GET {path} HTTP/1.1\r\nHost: test\r\n\r\n"));
    stream.write_all(requests.concat().as_bytes()).unwrap();
    let mut first = Vec::new();
    while !first.ends_with(b"\"hello\"") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        first.push(byte[0]);
    }
    stream
}

#[test]
fn curl_is_answered_after_the_delay_or_at_once() {
    if !have("curl") {
        return;
    }
    let server = start(&["--delay", "1s"]);
    let curl = |args: &[&str], path: &str| {
        let output = Command::new("curl")
            .args(["--silent", "--show-error", "--noproxy", "*", "--write-out"])
            .args([" %{http_code} %{http_version} %{content_type} %{time_total}"])
            .args(args)
            .arg(server.url() + path)
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        let text = String::from_utf8(output.stdout).unwrap();
        let (rest, time) = text.rsplit_once(' ').unwrap();
        (rest.to_owned(), time.parse::<f64>().unwrap())
    };
    let text = "text/plain; charset=utf-8";
    let (said, time) = curl(&[], "");
    assert_eq!(said, format!("hello after 1s\n 200 1.1 {text}"));
    assert!(time >= 1.0, "{time} s");
    let (said, time) = curl(&["--http2-prior-knowledge"], "delay/250");
    assert_eq!(said, format!("hello after 250ms\n 200 2 {text}"));
    assert!(time >= 0.25, "{time} s");
    let (said, _) = curl(&[], "hello");
    assert_eq!(said, "\"hello\" 200 1.1 application/json");
    let (said, _) = curl(&[], "delay/3600001");
    assert_eq!(said, format!("3600000 ms at most\n 400 1.1 {text}"));
    assert!(curl(&[], "delay/soon").0.contains(" 400 "));
    assert!(curl(&[], "nothing").0.contains(" 404 "));
    assert!(curl(&["--request", "POST"], "hello").0.contains(" 405 "));
}

#[test]
fn two_thousand_connections_of_wrk_see_no_error() {
    wrk_sees_no_error(&["--delay", "100ms"]);
}

#[test]
fn two_thousand_connections_see_no_error_with_a_listener_for_each_core() {
    wrk_sees_no_error(&["--delay", "100ms", "--per-core"]);
}

/// Starts a server, and checks that `wrk` sees no error on 2,000 connections.
fn wrk_sees_no_error(args: &[&str]) {
    if !have("wrk") {
        return;
    }
    let server = start(args);
    wrk(&server, 3);
    server.signal(libc::SIGTERM);
    let (status, _, err) = server.end();
    assert!(status.success() && err.is_empty(), "{status} {err}");
}

#[test]
fn sigint_and_sigterm_answer_open_requests_and_end_cleanly() {
    for signal in [libc::SIGINT, libc::SIGTERM] {
        let server = start(&["--delay", "1s", "--drain", "60s"]);
        let (mut silent, mut waiting) = (connect(&server), asking(&server));
        server.signal(signal);
        assert_eq!(said(&mut silent), "");
        let reply = said(&mut waiting);
        assert!(reply.starts_with("HTTP/1.1 200 "), "{reply:?}");
        assert!(reply.ends_with("hello after 1s\n"), "{reply:?}");
        let addr = server.addr;
        let (status, _, err) = server.end();
        assert!(status.success() && err.is_empty(), "{status} {err}");
        assert!(TcpStream::connect(addr).is_err(), "it still listens");
    }
}

#[test]
fn the_shutdown_timeout_ends_a_long_request() {
    let server = start(&["--delay", "1h", "--drain", "100ms"]);
    let mut waiting = asking(&server);
    server.signal(libc::SIGTERM);
    let (status, ..) = server.end();
    assert!(status.success());
    assert_eq!(said(&mut waiting), "");
}

#[test]
fn invalid_arguments_are_refused() {
    let server = start(&[]);
    let taken = server.addr.to_string();
    for args in [
        ["--listen", &taken],
        ["--listen", "nonsense"],
        ["--delay", "soon"],
    ] {
        let output = example("delayed_reply").args(args).output().unwrap();
        assert!(!output.status.success(), "{args:?}");
        assert!(output.stdout.is_empty() && !output.stderr.is_empty());
    }
}

#[test]
fn hostile_clients_are_closed_and_cost_no_memory() {
    let server = start(&["--delay", "0s", "--idle", "500ms"]);
    ask(&server, "/");
    let before = server.memory();

    // Random bytes: the server answers an error or nothing, and closes.
    let mut random = Random::new(7);
    for _ in 0..100 {
        let mut stream = connect(&server);
        let bytes: Vec<u8> = (0..random.below(4096))
            .map(|_| random.below(256) as u8)
            .collect();
        // It may be closed before all is sent.
        let _ = stream.write_all(&bytes);
        let reply = said(&mut stream);
        assert!(
            reply.is_empty() || reply.starts_with("HTTP/1.1 400 "),
            "{reply:?}"
        );
    }

    // Heads that do not end. The clients send 400 MB in all, of which the server may keep some
    // 400 KB per connection.
    for _ in 0..20 {
        let mut streams: Vec<_> = (0..10).map(|_| connect(&server)).collect();
        let piece = vec![b'x'; 64 * 1024];
        for stream in &mut streams {
            let _ = stream.write_all(b"GET / HTTP/1.1\r\nx: ");
        }
        for _ in 0..32 {
            for stream in &mut streams {
                let _ = stream.write_all(&piece);
            }
        }
        for stream in &mut streams {
            let reply = said(stream);
            assert!(
                reply.is_empty() || reply.starts_with("HTTP/1.1 431 "),
                "{reply:?}"
            );
        }
    }

    // Half of a head, and nothing more. Every other client also closes its half of the
    // connection.
    let start = Instant::now();
    let halves: Vec<_> = (0..200)
        .map(|n| {
            let mut stream = connect(&server);
            stream.write_all(b"GET / HTTP/1.1\r\nHost: te").unwrap();
            if n % 2 == 0 {
                // On a slow machine the server may have closed it by now.
                let _ = stream.shutdown(Shutdown::Write);
            }
            stream
        })
        .collect();
    for mut stream in halves {
        assert_eq!(said(&mut stream), "");
    }
    assert!(start.elapsed() >= Duration::from_millis(500));

    assert!(send_slowly(&server) >= Duration::from_millis(500));

    let after = server.memory();
    assert!(
        after < before + 100 * 1024 * 1024,
        "{before} bytes before, {after} bytes after"
    );
    assert!(ask(&server, "/hello").ends_with("\"hello\""));
    server.signal(libc::SIGINT);
    let (status, _, err) = server.end();
    assert!(status.success() && err.is_empty(), "{status} {err}");
}
