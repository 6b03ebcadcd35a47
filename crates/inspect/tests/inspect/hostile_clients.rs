//! The live page beside clients that are hostile, slow, vanish, or are too many.

use std::{
    collections::HashSet,
    io::{ErrorKind, Read, Write},
    net::{SocketAddr, TcpStream},
    time::{Duration, Instant},
};

use futures_lite::{AsyncReadExt, AsyncWriteExt};
use serde_json::Value;
use socket2::{Domain, Socket, Type};
use tourbillon::{net::TcpStream as OurStream, task::JoinSet};

use crate::{
    client::{Events, get, inspect, inspect_with, listeners, request, wait_for_listeners},
    common::{HOUR, PATIENCE, alarm, eventually, fds, limit_descriptors, process::alone, runtime},
    web::Client,
};

/// A short limit, for tests that wait until it is over.
const SHORT: Duration = Duration::from_millis(200);
/// The shortest period of events.
const OFTEN: Duration = Duration::from_millis(10);

/// Sends a handwritten request; returns the answer, up to the end of the connection.
fn answer(addr: SocketAddr, request: &str) -> String {
    let mut client = Client::connect(addr);
    client.send(request);
    client.end()
}

fn status(answer: &str) -> &str {
    answer.split(' ').nth(1).unwrap_or("")
}

#[test]
fn requests_for_other_host_names_are_refused() {
    let _alarm = alarm();
    let runtime = runtime(1);
    let inspector = inspect_with(runtime.handle(), |builder| {
        builder.allow_host("box.example").unwrap()
    });
    let addr = inspector.local_addr();
    let port = addr.port();
    for path in ["/", "/snapshot.json", "/events", "/metrics", "/nothing"] {
        for host in [
            format!("Host: evil.example:{port}\r\n"),
            "Host: 127.0.0.1.evil.example\r\n".to_owned(),
            "Host:\r\n".to_owned(),
            "Host: localhost\r\nHost: evil.example\r\n".to_owned(),
            // No `Host` at all.
            String::new(),
        ] {
            let request = format!("GET {path} HTTP/1.1\r\n{host}\r\n");
            let said = answer(addr, &request);
            assert_eq!(status(&said), "421", "{request} {said}");
            assert!(!said.contains("workers"), "{said}");
        }
    }
    let proxied = "GET http://evil.example/snapshot.json HTTP/1.1\r\nHost: localhost\r\n\r\n";
    assert_eq!(status(&answer(addr, proxied)), "421");
    for host in [
        "localhost",
        "127.0.0.1",
        "[::1]",
        "box.example",
        "BOX.example",
    ] {
        let request = format!(
            "GET /snapshot.json HTTP/1.1\r\nHost: {host}:{port}\r\nConnection: close\r\n\r\n"
        );
        assert_eq!(status(&answer(addr, &request)), "200", "{request}");
    }
}

#[test]
fn requests_from_other_sites_are_refused() {
    let _alarm = alarm();
    let runtime = runtime(1);
    let inspector = inspect(runtime.handle());
    let addr = inspector.local_addr();
    for path in ["/", "/snapshot.json", "/events", "/metrics"] {
        for line in [
            "Origin: http://evil.example",
            "Origin: https://127.0.0.1",
            "Origin: http://127.0.0.1:1",
            "Origin: null",
            "Sec-Fetch-Site: cross-site",
            "Sec-Fetch-Site: same-site",
        ] {
            let said = answer(addr, &request("GET", path, &[line]));
            assert_eq!(status(&said), "403", "{path} {line}: {said}");
            assert!(!said.contains("access-control"), "{said}");
        }
        for line in [
            "Origin: http://127.0.0.1",
            "Sec-Fetch-Site: same-origin",
            "Sec-Fetch-Site: none",
        ] {
            let request = request("HEAD", path, &[line, "Connection: close"]);
            assert_eq!(status(&answer(addr, &request)), "200", "{path} {line}");
        }
    }
    // Another site may link to the page, and to nothing else.
    let link = [
        "Sec-Fetch-Site: cross-site",
        "Sec-Fetch-Mode: navigate",
        "Sec-Fetch-Dest: document",
        "Connection: close",
    ];
    for (path, wanted) in [("/", "200"), ("/snapshot.json", "403"), ("/events", "403")] {
        let said = answer(addr, &request("GET", path, &link));
        assert_eq!(status(&said), wanted, "{path}: {said}");
    }
    assert_eq!(listeners(addr), 0);
}

#[test]
fn rapid_requests_share_one_snapshot() {
    let _alarm = alarm();
    let runtime = runtime(1);
    let inspector = inspect(runtime.handle());
    let mut client = Client::connect(inspector.local_addr());
    let begun = Instant::now();
    let told: HashSet<_> = (0..400).map(|_| told_at(&mut client)).collect();
    // There is one snapshot per 50 ms, on a slow machine, too: a snapshot is served for that long
    // after it was made.
    let most = begun.elapsed().as_millis() / 50 + 1;
    assert!(told.len() as u128 <= most, "{} of {most}", told.len());
    eventually("there is a new one", || {
        !told.contains(&told_at(&mut client))
    });
}

/// Returns the moment of a new snapshot.
fn told_at(client: &mut Client) -> String {
    client.send(&request("GET", "/snapshot.json", &[]));
    let snapshot: Value = serde_json::from_str(&client.reply().body).unwrap();
    snapshot["at_ms"].to_string()
}

#[test]
fn only_reading_methods_are_allowed() {
    let _alarm = alarm();
    let runtime = runtime(1);
    let inspector = inspect(runtime.handle());
    for method in [
        "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "CONNECT", "X",
    ] {
        let path = if method == "CONNECT" {
            "127.0.0.1:80"
        } else {
            "/events"
        };
        let body = &["Content-Length: 5", "Origin: http://evil.example"];
        let said = answer(
            inspector.local_addr(),
            &(request(method, path, body) + "hello"),
        );
        assert_eq!(status(&said), "405", "{method}: {said}");
        assert!(said.contains("allow: GET, HEAD\r\n"), "{said}");
    }
}

#[test]
fn too_long_heads_and_other_protocols_are_refused() {
    let _alarm = alarm();
    let runtime = runtime(1);
    let inspector = inspect(runtime.handle());
    let addr = inspector.local_addr();
    let long = format!("Cookie: {}", "x".repeat(1 << 20));
    let many = vec!["x: y"; 200];
    for lines in [&[&*long][..], &many] {
        let mut client = Client::connect(addr);
        // The server may refuse it before all is sent.
        let _ = client
            .stream
            .write_all(request("GET", "/", lines).as_bytes());
        let said = client.end();
        assert!(said.is_empty() || status(&said) == "431", "{said}");
    }
    // The server does not speak HTTP/2, whose streams could be more than the connections that it
    // allows.
    let said = answer(addr, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    assert!(said.is_empty() || said.starts_with("HTTP/1.1 4"), "{said}");
    assert_eq!(get(addr, "/").status, 200);
}

#[test]
fn a_silent_client_is_closed() {
    let _alarm = alarm();
    let runtime = runtime(1);
    // An idle client is closed, although a client may take an hour to read an answer.
    let inspector = inspect_with(runtime.handle(), |builder| builder.write_timeout(HOUR));
    let addr = inspector.local_addr();
    let mut kept = Client::connect(addr);
    kept.send(&request("GET", "/", &[]));
    assert_eq!(kept.reply().status, 200);
    assert_eq!(kept.end(), "");
    // A listener is not closed, however long it is silent.
    let mut events = Events::ask(addr);
    let first = events.next()["at_ms"].as_f64().unwrap();
    while events.next()["at_ms"].as_f64().unwrap() < first + 3_000.0 {}
}

/// Connects a client that reads little at a time, if anything: its socket has a small receive
/// buffer.
fn narrow(addr: SocketAddr) -> Client {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    socket.connect(&addr.into()).unwrap();
    let mut client = Client::of(TcpStream::from(socket));
    client.send(&request("GET", "/events", &[]));
    client
}

/// Connects such a client, and waits until the server answers it. Reads nothing.
fn listening(addr: SocketAddr) -> Client {
    let client = narrow(addr);
    assert_eq!(client.stream.peek(&mut [0]).unwrap(), 1);
    client
}

#[test]
fn a_slow_listener_misses_events_and_gets_the_newest() {
    let _alarm = alarm();
    let runtime = runtime(1);
    let inspector = inspect_with(runtime.handle(), |builder| {
        builder.period(OFTEN).write_timeout(HOUR)
    });
    let addr = inspector.local_addr();
    let mut slow = Events(narrow(addr));
    slow.next();
    let mut quick = Events::ask(addr);
    const SENT: usize = 400;
    let mut last = 0.0;
    for _ in 0..SENT {
        last = quick.next()["at_ms"].as_f64().unwrap();
    }
    // The client first gets the events in the buffers of both ends, and then new ones.
    let mut taken = 0;
    while slow.next()["at_ms"].as_f64().unwrap() < last {
        taken += 1;
    }
    assert!(taken < SENT / 2, "a backlog of {taken} events was kept");
}

/// Returns the memory of this process, in bytes.
fn memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.unwrap().trim().strip_suffix(" kB").unwrap();
    kilobytes.parse::<u64>().unwrap() * 1024
}

#[test]
fn listeners_that_never_read_use_bounded_memory_and_are_dropped() {
    alone(|| {
        const CLIENTS: u64 = 200;
        let runtime = runtime(1);
        let inspector = inspect_with(runtime.handle(), |builder| {
            builder
                .period(OFTEN)
                .max_connections(1024)
                .write_timeout(Duration::from_secs(2))
        });
        let addr = inspector.local_addr();
        // The first of them may be dropped before the last one listens.
        let before = memory();
        let clients: Vec<_> = (0..CLIENTS).map(|_| listening(addr)).collect();
        // A listener that reads is not dropped at the same time.
        let mut reader = Events::ask(addr);
        reader.next();
        let mut most = before;
        eventually("they are dropped", || {
            // By then thousands of events were sent, of some KiB each.
            reader.next();
            most = most.max(memory());
            listeners(addr) == 1
        });
        let each = (most - before) / CLIENTS;
        assert!(each < 64 * 1024, "{each} bytes each");
        for client in clients {
            client.end();
        }
        reader.next();
    });
}

#[test]
fn vanished_clients_leak_nothing() {
    alone(|| {
        let runtime = runtime(1);
        let inspector = inspect_with(runtime.handle(), |builder| {
            builder.period(OFTEN).max_connections(256)
        });
        let addr = inspector.local_addr();
        let before = fds();
        for _ in 0..3 {
            let mut clients: Vec<_> = (0..100).map(|_| Events::ask(addr)).collect();
            wait_for_listeners(addr, 100);
            clients
                .iter_mut()
                .step_by(2)
                .for_each(|client| _ = client.next());
            // Some clients end while the server writes to them. Others have read nothing, so
            // their end resets the connection.
            drop(clients);
            wait_for_listeners(addr, 0);
        }
        eventually("their descriptors are closed", || fds() == before);
    });
}

/// Returns the status that one of many clients gets. The client reads up to that, and disconnects.
async fn visit(addr: SocketAddr, path: &'static str, until: &str) -> std::io::Result<String> {
    let mut stream = OurStream::connect(addr).await?;
    let request = request("GET", path, &[]);
    stream.write_all(request.as_bytes()).await?;
    let mut said = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let n = stream.read(&mut buffer).await?;
        said.extend_from_slice(&buffer[..n]);
        let text = String::from_utf8_lossy(&said);
        if n == 0 || text.contains(until) {
            return Ok(status(&text).to_owned());
        }
    }
}

#[test]
fn a_thousand_clients_are_served_or_refused_and_none_leaks() {
    alone(|| {
        const CLIENTS: usize = 1000;
        limit_descriptors(8192);
        let (runtime, clients) = (runtime(1), runtime(1));
        let inspector = inspect_with(runtime.handle(), |builder| builder.max_connections(CLIENTS));
        let addr = inspector.local_addr();
        let before = fds();
        // All of them ask for events. The server reserves one in 32 connections for other
        // requests, which is more than the minimum of 16.
        let statuses = clients.block_on(async {
            let mut visits = JoinSet::new();
            for _ in 0..CLIENTS {
                visits.spawn(visit(addr, "/events", "event: snapshot"));
            }
            visits.join_all().await
        });
        let count = |wanted| {
            let is_wanted = |status: &&std::io::Result<String>| status.as_ref().unwrap() == wanted;
            statuses.iter().filter(is_wanted).count()
        };
        let (served, refused) = (count("200"), count("503"));
        assert_eq!(served + refused, CLIENTS);
        assert!(served >= CLIENTS - CLIENTS.div_ceil(32), "{served}");
        wait_for_listeners(addr, 0);
        // A tenth of the connections is enough for requests that are answered at once.
        inspector.shutdown();
        let inspector = inspect_with(runtime.handle(), |builder| builder.max_connections(100));
        let addr = inspector.local_addr();
        let statuses = clients.block_on(async {
            let mut visits = JoinSet::new();
            for _ in 0..CLIENTS {
                visits.spawn(visit(addr, "/snapshot.json", "\"clients\":0}"));
            }
            visits.join_all().await
        });
        assert!(
            statuses
                .iter()
                .all(|status| status.as_ref().unwrap() == "200")
        );
        eventually("none is left", || fds() == before);
    });
}

#[test]
fn a_listener_above_the_limit_is_refused_and_requests_are_answered() {
    let _alarm = alarm();
    let runtime = runtime(1);
    let inspector = inspect_with(runtime.handle(), |builder| builder.max_connections(4));
    let addr = inspector.local_addr();
    // Of so few connections, the server keeps half for other requests.
    let mut listening: Vec<_> = (0..2).map(|_| Events::ask(addr)).collect();
    listening.iter_mut().for_each(|client| _ = client.next());
    let said = answer(addr, &request("GET", "/events", &[]));
    assert_eq!(status(&said), "503", "{said}");
    assert!(said.contains("connection: close\r\n"), "{said}");
    assert_eq!(get(addr, "/snapshot.json").status, 200);
    // When one listener leaves, there is room again.
    listening.pop();
    wait_for_listeners(addr, 1);
    Events::ask(addr).next();
}

#[test]
fn connections_above_the_limit_wait() {
    let _alarm = alarm();
    let runtime = runtime(1);
    let inspector = inspect_with(runtime.handle(), |builder| builder.max_connections(2));
    let addr = inspector.local_addr();
    let held: Vec<_> = (0..2)
        .map(|_| {
            let mut client = Client::connect(addr);
            client.send(&request("GET", "/", &[]));
            assert_eq!(client.reply().status, 200);
            client
        })
        .collect();
    let mut third = Client::connect(addr);
    third.send(&request("GET", "/", &[]));
    third.stream.set_read_timeout(Some(SHORT)).unwrap();
    let error = third.stream.read(&mut [0; 1]).unwrap_err();
    assert!(matches!(
        error.kind(),
        ErrorKind::WouldBlock | ErrorKind::TimedOut
    ));
    drop(held);
    third.stream.set_read_timeout(Some(PATIENCE)).unwrap();
    assert_eq!(third.reply().status, 200);
}
