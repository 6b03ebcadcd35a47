//! The example `retry_proxy`: upstreams that are down, come up, and go.

use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    process::Command,
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

use socket2::{Domain, Socket, Type};

use super::{echo, end, proxy, upstream};
use crate::clients::{AGES, Server, SetAtEnd, connect, example, have, ping, with_patience};

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
fn concurrent_clients_try_upstreams_independently() {
    let (_socket, _full, deaf) = deaf();
    let well = upstream(echo);
    // The proxy tries all upstreams before it waits. The wait would never end.
    let args = ["--connect-timeout", "2s", "--backoff", "1h"];
    let args = [&args[..], &["--max-backoff", "1h", "--deadline", "2h"]].concat();
    let proxy = proxy(&[deaf, well], &args);
    // While the proxy tries the deaf upstream for one client, it serves the other client.
    let mut clients = [connect(&proxy), connect(&proxy)];
    for client in &mut clients {
        ping(client).unwrap();
    }
    drop(clients);
    let (counts, _) = end(proxy, libc::SIGTERM);
    assert_eq!((counts.get("tries"), counts.get("connected")), (3, 2));
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

/// An upstream that is a process of its own, and can be killed.
fn echo_server(addr: &str) -> Server {
    Server::run(example("heartbeat").args(["--listen", addr]))
}

#[test]
fn an_upstream_that_is_killed_repeatedly_breaks_nothing() {
    // Clients never have this address, so that none connects to itself while the upstream is
    // down.
    let first = echo_server("127.0.0.9:0");
    let addr = first.addr;
    let mut server = Some(first);
    let proxy = proxy(
        &[addr],
        &[
            "--backoff",
            "10ms",
            "--max-backoff",
            "100ms",
            "--deadline",
            "10m",
        ],
    );
    let (done, whole, cut) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    // Sends a hundred lines on one connection. Each line comes back as it was sent, or not at
    // all.
    let talk = |seed| -> io::Result<()> {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut stream = connect(&proxy);
        for _ in 0..100 {
            let mut line: Vec<_> = std::iter::repeat_with(|| rng.u8(b'a'..=b'z'))
                .take(1000)
                .collect();
            line.push(b'\n');
            stream.write_all(&line)?;
            let mut reply = vec![0; line.len()];
            stream.read_exact(&mut reply)?;
            assert!(reply == line, "a line was spoilt");
        }
        Ok(())
    };
    thread::scope(|scope| {
        let _done = SetAtEnd(&done);
        for client in 0..4 {
            let (done, whole, cut) = (&done, &whole, &cut);
            scope.spawn(move || {
                for seed in client * 1_000_000.. {
                    match talk(seed) {
                        Ok(()) => whole.fetch_add(1, Relaxed),
                        Err(_) => cut.fetch_add(1, Relaxed),
                    };
                    if done.load(Relaxed) {
                        break;
                    }
                }
            });
        }
        let mut rng = fastrand::Rng::with_seed(3);
        for _ in 0..6 {
            // Each upstream serves a client before it is killed.
            let seen = whole.load(Relaxed);
            let begin = Instant::now();
            while whole.load(Relaxed) == seen {
                assert!(begin.elapsed() < AGES, "nobody is served any more");
                thread::sleep(Duration::from_millis(1));
            }
            thread::sleep(Duration::from_millis(rng.u64(..50)));
            // The drop waits for the end of the server, so that the port is free.
            drop(server.take());
            thread::sleep(Duration::from_millis(rng.u64(..50)));
            server = Some(echo_server(&addr.to_string()));
        }
    });
    // In the end, a whole connection succeeds.
    let before = whole.load(Relaxed);
    talk(5).unwrap();
    drop(server);
    let (counts, _) = end(proxy, libc::SIGTERM);
    println!(
        "{before} whole, {} cut off by kills: {}",
        cut.load(Relaxed),
        counts.0
    );
    assert_eq!(counts.get("clients"), before + 1 + cut.load(Relaxed));
    assert_eq!(counts.get("gave up"), 0);
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
