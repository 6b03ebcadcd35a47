//! The example `retry_proxy`: upstreams that are down, come up, and go.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    process::Command,
    time::{Duration, Instant},
};

use socket2::{Domain, Socket, Type};

use super::{echo, end, proxy, upstream};
use crate::clients::{AGES, Server, connect, example, have, ping, with_patience};

/// Returns an upstream that is down: its port is bound, but not listened on.
fn down() -> (Socket, SocketAddr) {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
    socket.bind(&any.into()).unwrap();
    let addr = socket.local_addr().unwrap().as_socket().unwrap();
    (socket, addr)
}

#[test]
fn curl_reaches_a_server_through_the_proxy() {
    if !have("curl") {
        return;
    }
    let mut server = example("delayed_reply");
    let server = Server::run(server.args(["--listen", "127.0.0.1:0", "--delay", "10ms"]));
    let proxy = proxy(&[server.addr], &[]);
    for _ in 0..3 {
        let output = Command::new("curl")
            .args(["--silent", "--show-error", "--noproxy", "*", "--write-out"])
            .args(["%{http_code}", &proxy.url()])
            .output()
            .unwrap();
        let out = String::from_utf8(output.stdout).unwrap();
        assert_eq!(out, "hello after 10ms\n200", "{:?}", output.stderr);
    }
    let (counts, err) = end(proxy, libc::SIGINT);
    assert_eq!(
        ["clients", "tries", "closed"].map(|name| counts.get(name)),
        [3, 3, 3]
    );
    assert_eq!(err, "");
}

#[test]
fn an_upstream_that_comes_up_is_found_by_a_later_try() {
    let (socket, addr) = down();
    let args = ["--verbose", "--deadline", "10m", "--backoff", "10ms"];
    let mut proxy = proxy(&[addr], &args);
    let mut client = connect(&proxy);
    // The proxy keeps this until an upstream takes it.
    client.write_all(b"early").unwrap();
    for number in 1..=3 {
        let complaint = proxy.complaint();
        assert!(
            complaint.starts_with(&format!("try {number} at {addr}: ")),
            "{complaint}"
        );
    }
    socket.listen(8).unwrap();
    let (upstream, _) = TcpListener::from(socket).accept().unwrap();
    let mut upstream = with_patience(upstream);
    let mut early = [0; 5];
    upstream.read_exact(&mut early).unwrap();
    assert_eq!(&early, b"early");
    drop((client, upstream));
    let (counts, _) = end(proxy, libc::SIGTERM);
    assert!(counts.get("tries") >= 4);
    assert_eq!((counts.get("connected"), counts.get("gave up")), (1, 0));
}

#[test]
fn without_an_upstream_the_client_is_closed_at_the_deadline() {
    let (_socket, addr) = down();
    let args = ["--deadline", "1s", "--backoff", "50ms", "--jitter", "0"];
    let proxy = proxy(&[addr], &args);
    let begin = Instant::now();
    let mut client = connect(&proxy);
    assert_eq!(client.read(&mut [0; 8]).unwrap(), 0);
    assert!(begin.elapsed() >= Duration::from_secs(1));
    assert!(begin.elapsed() < AGES);
    let (counts, err) = end(proxy, libc::SIGTERM);
    // The tries come at 0, 50, 150, 350 and 750 ms, or later.
    let tries = counts.get("tries");
    assert!((1..=5).contains(&tries), "{tries}");
    assert_eq!((counts.get("connected"), counts.get("gave up")), (0, 1));
    assert!(
        err.starts_with(&format!("gave up after {tries} tries: ")),
        "{err}"
    );
}

#[test]
fn upstreams_take_turns_and_a_dead_one_costs_no_wait() {
    let one = upstream(|mut stream| stream.write_all(b"one"));
    let two = upstream(|mut stream| stream.write_all(b"two"));
    let (_socket, three) = down();
    let proxy = proxy(
        &[one, two, three],
        &["--backoff", "1h", "--max-backoff", "1h", "--deadline", "2h"],
    );
    let mut said = Vec::new();
    for _ in 0..4 {
        let mut text = String::new();
        connect(&proxy).read_to_string(&mut text).unwrap();
        said.push(text);
    }
    // For the third client, the proxy first tried the upstream that is down.
    assert_eq!(said, ["one", "two", "one", "one"]);
    let (counts, _) = end(proxy, libc::SIGTERM);
    assert_eq!((counts.get("tries"), counts.get("connected")), (5, 4));
}

/// Returns an upstream whose queue is full, so that the system drops new attempts to connect. The
/// streams that it returns fill the queue.
fn deaf() -> (Socket, Vec<TcpStream>, SocketAddr) {
    let (socket, addr) = down();
    socket.listen(0).unwrap();
    let wait = Duration::from_millis(100);
    let full = std::iter::from_fn(|| TcpStream::connect_timeout(&addr, wait).ok()).collect();
    (socket, full, addr)
}

#[test]
fn a_closed_stderr_does_not_stop_the_tries() {
    let (_socket, addr) = down();
    let mut proxy = proxy(&[addr, upstream(echo)], &["--verbose"]);
    proxy.hang_up();
    let mut client = connect(&proxy);
    ping(&mut client).unwrap();
    drop(client);
    let (counts, _) = end(proxy, libc::SIGTERM);
    assert_eq!((counts.get("tries"), counts.get("connected")), (2, 1));
}

#[test]
fn a_silent_upstream_is_abandoned_for_the_next() {
    let (_socket, _full, deaf) = deaf();
    let well = upstream(echo);
    let proxy = proxy(
        &[deaf, well],
        &["--connect-timeout", "300ms", "--deadline", "10m"],
    );
    let begin = Instant::now();
    let mut client = connect(&proxy);
    ping(&mut client).unwrap();
    assert!(begin.elapsed() >= Duration::from_millis(300));
    drop(client);
    let (counts, _) = end(proxy, libc::SIGTERM);
    assert!(counts.get("tries") >= 2);
    assert_eq!(counts.get("connected"), 1);
}

#[test]
fn invalid_arguments_are_refused() {
    for (args, message) in [
        (&["--listen", "127.0.0.1:0"][..], "--upstream"),
        (&["--upstream", "nowhere"], "such as 127.0.0.1:8080"),
        (
            &["--upstream", "127.0.0.1:1", "--jitter", "1.5"],
            "from 0 to 1",
        ),
        (
            &["--upstream", "127.0.0.1:1", "--jitter", "NaN"],
            "from 0 to 1",
        ),
        (
            &["--upstream", "127.0.0.1:1", "--deadline", "0s"],
            "longer than zero",
        ),
        (
            &["--upstream", "127.0.0.1:1", "--listen", "256.0.0.1:1"],
            "cannot listen on 256.0.0.1:1",
        ),
        (
            &[
                "--upstream",
                "127.0.0.1:1",
                "--max-connections",
                "99999999999",
            ],
            "`ulimit -n 2000000",
        ),
    ] {
        let output = example("retry_proxy").args(args).output().unwrap();
        let err = String::from_utf8(output.stderr).unwrap();
        assert!(
            !output.status.success() && err.contains(message),
            "{args:?}: {err}"
        );
    }
}
