//! The example `delayed_reply`, asked by real clients and by hostile ones.

use std::{
    io::{self, Read, Write},
    net::TcpStream,
    process::Command,
};

use crate::clients::{Server, connect, example, have};

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
