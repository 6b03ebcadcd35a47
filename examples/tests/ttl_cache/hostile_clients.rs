//! The example `ttl_cache` beside clients that make mistakes, are hostile, or are too many; and its
//! end.

use std::{
    io::{ErrorKind, Read, Write},
    net::{Shutdown, TcpStream},
    process::Command,
    thread,
    time::{Duration, Instant},
};

use crate::{
    clients::{
        AGES, Server, example, number,
        redis::{Redis, Reply, cache, encode, with_a_big_value},
    },
    common::Random,
};

const MB: u64 = 1 << 20;

/// Checks that the server serves a new client, and all of its commands.
fn assert_serves(server: &Server) {
    let mut client = Redis::connect(server);
    assert_eq!(client.ask("SET alive yes"), Reply::ok());
    assert_eq!(client.ask("GET alive"), Reply::bulk("yes"));
    assert_eq!(client.info("panics"), 0);
}

#[test]
fn invalid_resp_is_answered_with_an_error_and_closed() {
    let server = cache(&["--max-bulk", "1k"]);
    let long = vec![b'x'; 70_000];
    let count = [&b"*"[..], &[b'1'; 70_000]].concat();
    let length = [&b"*1\r\n$"[..], &[b'1'; 70_000]].concat();
    let cases: &[(&[u8], &str)] = &[
        (b"*x\r\n", "invalid multibulk length"),
        (b"*+1\r\n", "invalid multibulk length"),
        (b"*01\r\n", "invalid multibulk length"),
        (b"*1\n", "invalid multibulk length"),
        (b"*1048577\r\n", "invalid multibulk length"),
        (b"*9223372036854775808\r\n", "invalid multibulk length"),
        (b"*1\r\n$-1\r\n", "invalid bulk length"),
        (b"*1\r\n$-5\r\n", "invalid bulk length"),
        (b"*1\r\n$1025\r\n", "invalid bulk length"),
        (b"*1\r\n$99999999999999999999\r\n", "invalid bulk length"),
        (b"*1\r\n!3\r\n", "expected '$', got '!'"),
        (b"*1\r\n\r\n", "expected '$', got '\\r'"),
        (b"*1\r\n$4\r\nPINGxx", "expected CRLF after a bulk string"),
        (b"set \"a b\r\n", "unbalanced quotes in request"),
        (b"set 'a'b c\r\n", "unbalanced quotes in request"),
        (&long, "too big inline request"),
        (&count, "too big mbulk count string"),
        (&length, "too big bulk count string"),
    ];
    for (bytes, error) in cases {
        let mut client = Redis::connect(&server);
        client.send(b"PING\r\n");
        client.send(bytes);
        assert_eq!(client.reply(), Reply::Simple("PONG".into()));
        let expected = format!("-ERR Protocol error: {error}\r\n");
        assert_eq!(String::from_utf8_lossy(&client.end()), expected);
    }
    assert_serves(&server);
}

#[test]
fn a_browser_request_is_not_taken_for_commands() {
    let start = Instant::now();
    let mut server = cache(&[]);
    let mut client = Redis::connect(&server);
    assert_eq!(client.ask("SET precious yes"), Reply::ok());
    let get = "-ERR wrong number of arguments for 'get' command\r\n";
    let put = "-ERR unknown command 'PUT', with args beginning with: '/' 'HTTP/1.1' \r\n";
    let evil = "Content-Type: text/plain\r\nContent-Length: 10\r\n\r\nFLUSHALL\r\n";
    for (head, said) in [
        ("POST / HTTP/1.1\r\nHost: 127.0.0.1:6379\r\n", ""),
        ("post / HTTP/1.1\r\nhost: 127.0.0.1:6379\r\n", ""),
        ("PUT / HTTP/1.1\r\nHost: 127.0.0.1:6379\r\n", put),
        ("GET / HTTP/1.1\r\nhOST: 127.0.0.1:6379\r\n", get),
        ("*1\r\n$4\r\nPOST\r\n", ""),
        ("PING\r\nPOST\r\n", "+PONG\r\n"),
    ] {
        // Send it a byte at a time, and at once.
        for piece in [1, 1_000] {
            let browser = Redis::connect(&server);
            for bytes in format!("{head}{evil}").as_bytes().chunks(piece) {
                // The server may have closed before all of it was sent.
                let _ = browser.stream().write_all(bytes);
            }
            let heard = String::from_utf8(browser.end()).unwrap();
            // If the server closes with unread data, the connection is reset. The reset may
            // overtake the replies.
            assert!(heard == said || heard.is_empty(), "{head}: {heard}");
        }
    }
    assert_eq!(client.ask("GET precious"), Reply::bulk("yes"));
    assert_serves(&server);
    // The server complains once a minute, not about each of them.
    let complaint = server.complaint();
    assert!(complaint.contains("POST or Host:"), "{complaint}");
    server.signal(libc::SIGTERM);
    let more = server.end().2;
    let minutes = start.elapsed().as_secs() / 60;
    assert!(more.lines().count() as u64 <= minutes, "{more}");
}

#[test]
fn random_bytes_get_errors_or_a_close() {
    let server = cache(&[]);
    let mut random = Random::new(7);
    for round in 0..100 {
        let client = Redis::connect(&server);
        let len = 1 + random.below(20_000);
        let mut bytes: Vec<u8> = (0..len).map(|_| random.next() as u8).collect();
        match round % 3 {
            0 => bytes.splice(0..0, *b"*3\r\n$3\r\nSET\r\n$").count(),
            1 => bytes.splice(0..0, *b"*1000000\r\n$1\r\n").count(),
            _ => 0,
        };
        // The server may close before all of it was sent.
        let _ = client.stream().write_all(&bytes);
        let _ = client.stream().shutdown(Shutdown::Write);
        let said = client.end();
        let is_error = |line: &[u8]| line.is_empty() || line.starts_with(b"-");
        assert!(
            said.split(|&byte| byte == b'\n').all(is_error),
            "{}",
            said.escape_ascii()
        );
    }
    assert_serves(&server);
}

#[test]
fn a_partial_request_uses_only_the_memory_of_its_bytes() {
    let server = cache(&["--idle", "0s"]);
    assert_serves(&server);
    let before = server.memory();
    let clients: Vec<_> = (0..100)
        .map(|n| {
            let mut client = Redis::connect(&server);
            // The clients announce 800 MB, or a hundred million arguments.
            match n % 2 {
                0 => client.send(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$8388608\r\nbegun"),
                _ => client.send(b"*1048576\r\n$1\r\nx\r\n$1"),
            }
            client
        })
        .collect();
    assert_serves(&server);
    let mut info = Redis::connect(&server);
    let start = Instant::now();
    while info.info("connected_clients") < 101 {
        assert!(start.elapsed() < AGES, "not all accepted");
    }
    let grown = server.memory().saturating_sub(before);
    assert!(grown < 64 * MB, "{grown} bytes more");
    drop(clients);
    assert_serves(&server);
}

#[test]
fn half_open_connections_end() {
    let server = cache(&["--idle", "0s"]);
    for (sent, said) in [
        (&b"PING\r\n"[..], &b"+PONG\r\n"[..]),
        (b"PING\r\n*2\r\n$3\r\nGET\r\n$5\r\nk", b"+PONG\r\n"),
        (b"PIN", b""),
        (b"", b""),
    ] {
        let mut client = Redis::connect(&server);
        client.send(sent);
        client.stream().shutdown(Shutdown::Write).unwrap();
        assert_eq!(client.end(), said);
    }
    assert_serves(&server);
}

#[test]
fn a_client_that_reads_no_replies_is_not_read_from() {
    let (server, _client, value) = with_a_big_value();
    let before = server.memory();
    let deaf = Redis::connect(&server);
    deaf.stream().set_nonblocking(true).unwrap();
    // The client sends far more requests than the server reads before it can write the replies.
    // Each KB of requests asks for a GB of replies.
    let requests = b"GET big\r\n".repeat(1_000);
    let start = Instant::now();
    let (mut sent, mut full) = (0, 0);
    while full < 100 {
        match deaf.stream().write(&requests) {
            Ok(n) => {
                sent += n;
                full = 0;
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                full += 1;
                thread::sleep(Duration::from_millis(2));
            }
            Err(error) => panic!("{error}"),
        }
        assert!(start.elapsed() < AGES, "it takes {sent} bytes and more");
    }
    let grown = server.memory().saturating_sub(before);
    assert!(grown < 64 * MB, "{grown} bytes more");
    // The server serves other clients in between. When the deaf client reads, its replies are
    // complete.
    assert_serves(&server);
    deaf.stream().set_nonblocking(false).unwrap();
    let mut deaf = deaf;
    for _ in 0..50 {
        assert_eq!(deaf.reply(), Reply::Bulk(value.clone()));
    }
}

/// Returns a number of `INFO`. If the machine is very slow, the server may close even this
/// connection.
fn info(server: &Server, name: &str) -> u64 {
    let start = Instant::now();
    loop {
        let mut client = Redis::connect(server);
        let _ = client.stream().write_all(b"INFO\r\n");
        if let Ok(Reply::Bulk(text)) = client.try_reply() {
            let text = String::from_utf8(text).unwrap();
            return number(&text, &format!("\r\n{name}:"), "\r\n").unwrap();
        }
        assert!(start.elapsed() < AGES, "no answer");
    }
}

#[test]
fn idle_slow_and_unreading_clients_are_closed() {
    let idle = Duration::from_millis(400);
    let server = cache(&["--idle", "400ms"]);
    let alone = server.descriptors();
    let big = encode(&[b"SET", b"big", &vec![b'x'; MB as usize]]);
    while info(&server, "used_memory_dataset") < MB {
        let _ = Redis::connect(&server).stream().write_all(&big);
    }

    let before = info(&server, "closed_idle_connections");
    let start = Instant::now();
    let silent = Redis::connect(&server);
    let deaf = Redis::connect(&server);
    let _ = deaf.stream().write_all(&b"GET big\r\n".repeat(100));
    let slow = Redis::connect(&server);
    let _ = slow.stream().write_all(b"*2\r\n$3\r\nGET\r\n$100000\r\n");
    slow.stream().set_nonblocking(true).unwrap();
    loop {
        // It is never silent for long, and never done.
        let written = slow.stream().write(b"x");
        let closed = match slow.stream().read(&mut [0; 64]) {
            Ok(n) => n == 0,
            Err(error) => error.kind() != ErrorKind::WouldBlock,
        };
        if closed || written.is_err() {
            break;
        }
        assert!(start.elapsed() < AGES, "still open");
        thread::sleep(Duration::from_millis(5));
    }
    assert!(start.elapsed() >= idle);
    assert_eq!(silent.end(), b"");
    while info(&server, "closed_idle_connections") < before + 3 {
        assert!(
            start.elapsed() < AGES,
            "a client that does not read is not closed"
        );
    }
    while server.descriptors() > alone {
        assert!(start.elapsed() < AGES, "it is not closed");
        thread::sleep(Duration::from_millis(5));
    }
    // The system keeps none of the replies, either. The client gets what was on its way, and then
    // a reset.
    let mut rest = Vec::new();
    let end = deaf.stream().read_to_end(&mut rest);
    assert!(rest.len() < 100 * MB as usize);
    // Without any reply, the machine was so slow that the connection was closed before the server
    // read the request.
    assert!(
        end.is_err() || rest.is_empty(),
        "what it did not take was kept"
    );
}

#[test]
fn idle_time_starts_at_the_last_command() {
    let idle = Duration::from_millis(500);
    let server = cache(&["--idle", "500ms"]);
    let start = Instant::now();
    loop {
        let mut client = Redis::connect(&server);
        thread::sleep(idle / 2);
        let last = Instant::now();
        let sent = client.stream().write_all(b"PING\r\n");
        // Otherwise the machine was so slow that the client was idle for too long.
        if sent.is_ok() && client.try_reply().is_ok() {
            assert_eq!(client.end(), b"");
            assert!(last.elapsed() >= idle, "closed too early");
            return;
        }
        assert!(start.elapsed() < AGES, "always closed before");
    }
}

#[test]
fn a_connection_has_one_timer() {
    let server = cache(&["--idle", "30s"]);
    let mut busy = Redis::connect(&server);
    assert_eq!(busy.ask("PING"), Reply::Simple("PONG".into()));
    let armed = busy.info("timers_armed");
    for _ in 0..1_000 {
        busy.ask("PING");
    }
    // The connection still has its first timer, which was refreshed.
    assert_eq!(busy.info("timers_armed"), armed);
    assert_eq!(busy.info("timers_cancelled"), 0);
}

#[test]
fn the_limit_of_clients_is_kept() {
    let server = cache(&["--max-clients", "2"]);
    let mut clients = [Redis::connect(&server), Redis::connect(&server)];
    for client in &mut clients {
        assert_eq!(client.ask("PING"), Reply::Simple("PONG".into()));
    }
    let refused = Redis::connect(&server).end();
    assert_eq!(refused, b"-ERR max number of clients reached\r\n");
    drop(clients);
    let start = Instant::now();
    loop {
        let mut client = Redis::connect(&server);
        client.send(b"PING\r\n");
        if client
            .try_reply()
            .is_ok_and(|reply| reply == Reply::Simple("PONG".into()))
        {
            return;
        }
        assert!(start.elapsed() < AGES, "there is never room again");
    }
}

#[test]
fn the_limit_of_memory_is_kept() {
    let server = cache(&["--max-memory", "64k", "--max-bulk", "8k"]);
    let mut client = Redis::connect(&server);
    let value = "x".repeat(1_000);
    let full = Reply::Error("OOM command not allowed when used memory > 'maxmemory'.".into());
    let mut keys = 0;
    loop {
        match client.ask(&format!("SET key{keys} {value} PX 3600000")) {
            reply if reply == full => break,
            reply => assert_eq!(reply, Reply::ok()),
        }
        keys += 1;
        assert!(keys < 65, "more than there is room for");
    }
    assert!(keys > 40, "{keys}");
    assert_eq!(client.ask("DBSIZE"), Reply::Integer(keys));
    // Commands that read, that delete or that take no more memory still work.
    assert_eq!(client.ask("GET key0"), Reply::bulk(&value));
    assert_eq!(client.ask(&format!("SET key0 {value}")), Reply::ok());
    assert_eq!(client.ask("DEL key0"), Reply::Integer(1));
    assert_eq!(client.ask(&format!("SET again {value}")), Reply::ok());
}

#[test]
fn the_limit_of_memory_includes_requests_that_are_received_in_part() {
    let server = cache(&["--max-memory", "1100k", "--idle", "0s"]);
    let mut other = Redis::connect(&server);
    let head = b"*3\r\n$3\r\nSET\r\n$4\r\npart\r\n$4194304\r\n";
    let part = |length| [&head[..], &vec![b'x'; length]].concat();
    // There is no room for this request.
    let mut client = Redis::connect(&server);
    client.send(&part(1_200 * 1024));
    client.stream().shutdown(Shutdown::Write).unwrap();
    let end = client.end();
    assert!(end.starts_with(b"-OOM "), "{}", end.escape_ascii());
    // Many arguments take memory, too, though they have few bytes.
    let mut client = Redis::connect(&server);
    client.send(b"*1048576\r\n");
    client.send(&b"$0\r\n\r\n".repeat(140_000));
    client.stream().shutdown(Shutdown::Write).unwrap();
    let end = client.end();
    assert!(end.starts_with(b"-OOM "), "{}", end.escape_ascii());
    // There is room for this one, and then for few keys beside it.
    let mut client = Redis::connect(&server);
    client.send(&part(700 * 1024));
    let start = Instant::now();
    while other.info("used_memory_requests") < 700 * 1024 {
        assert!(start.elapsed() < AGES, "it is not counted");
    }
    let value = "x".repeat(15 * 1024);
    let full = Reply::Error("OOM command not allowed when used memory > 'maxmemory'.".into());
    let mut set = |key: &str| other.ask(&format!("SET {key} {value}"));
    let keys = (0..20).take_while(|n| set(&format!("key{n}")) == Reply::ok());
    assert!((1..10).contains(&keys.count()));
    assert_eq!(set("more"), full);
    drop(client);
    while set("more") == full {
        assert!(start.elapsed() < AGES, "its memory is not given back");
    }
    assert_eq!(other.info("used_memory_requests"), 0);
}

#[test]
fn the_limit_of_client_names_is_kept() {
    let server = cache(&[]);
    let mut client = Redis::connect(&server);
    let name = "x".repeat(1024);
    assert_eq!(client.ask(&format!("CLIENT SETNAME {name}")), Reply::ok());
    let refused = Reply::Error("ERR Client names cannot be longer than 1024 bytes.".into());
    for ask in [
        format!("CLIENT SETNAME {name}x"),
        format!("HELLO 2 SETNAME {name}x"),
        format!("CLIENT SETINFO LIB-NAME {name}x"),
        format!("CLIENT SETINFO LIB-VER {name}x"),
    ] {
        assert_eq!(client.ask(&ask), refused);
        assert_eq!(client.ask("CLIENT GETNAME"), Reply::bulk(&name));
    }
}

#[test]
fn a_server_without_descriptors_recovers_when_there_are_some() {
    let mut limited = Command::new("sh");
    limited
        .args(["-c", "ulimit -n 24; exec \"$@\"", "sh"])
        .arg(example("ttl_cache").get_program())
        .args(["--listen", "127.0.0.1:0", "--workers", "1"]);
    let mut server = Server::run(&mut limited);
    let many: Vec<_> = (0..30).map(|_| Redis::connect(&server)).collect();
    let complaint = server.complaint();
    assert!(complaint.contains("cannot accept with "), "{complaint}");
    assert!(complaint.contains("ulimit -n"), "{complaint}");
    drop(many);
    assert_serves(&server);

    // The server continues although stderr is closed. It reports once a second.
    server.hang_up();
    let many: Vec<_> = (0..30).map(|_| Redis::connect(&server)).collect();
    thread::sleep(Duration::from_millis(1_500));
    drop(many);
    assert_serves(&server);
}

#[test]
fn a_signal_ends_a_busy_server_cleanly() {
    for signal in [libc::SIGINT, libc::SIGTERM] {
        let server = cache(&[]);
        let addr = server.addr;
        let mut first = Redis::connect(&server);
        let busy: Vec<_> = (0..4)
            .map(|client| {
                thread::spawn(move || {
                    let mut random = Random::new(client);
                    let mut stream = TcpStream::connect(addr).unwrap();
                    stream.set_read_timeout(Some(AGES)).unwrap();
                    // Until the server is gone.
                    loop {
                        let sets = (0..100).flat_map(|_| {
                            let (key, ttl) = (random.below(10_000), 1 + random.below(50));
                            format!("SET {key} value PX {ttl}\r\n").into_bytes()
                        });
                        let sets: Vec<_> = sets.collect();
                        if stream.write_all(&sets).is_err()
                            || stream.read_exact(&mut [0; 500]).is_err()
                        {
                            return;
                        }
                    }
                })
            })
            .collect();
        let start = Instant::now();
        while first.info("expired_keys") < 1_000 {
            assert!(start.elapsed() < AGES, "nothing expires");
        }
        server.signal(signal);
        let (status, said, complaints) = server.end();
        assert!(status.success(), "{status}: {said} {complaints}");
        assert!(said.starts_with("served "), "{said}");
        assert_eq!(complaints, "");
        assert!(TcpStream::connect(addr).is_err(), "it still listens");
        for client in busy {
            client.join().unwrap();
        }
    }
}

#[test]
fn invalid_arguments_are_refused() {
    let server = cache(&[]);
    let taken = server.addr.to_string();
    for (status, args, hint) in [
        (1, ["--listen", &taken], "cannot listen on"),
        (2, ["--listen", "nonsense"], "--listen"),
        (2, ["--idle", "soon"], "250ms"),
        (2, ["--max-bulk", "0"], "at least 1"),
        (2, ["--max-bulk", "1g"], "at most 512m"),
        (2, ["--max-memory", "lots"], "512k"),
        (2, ["--workers", "0"], "--workers"),
    ] {
        let output = example("ttl_cache").args(args).output().unwrap();
        let err = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(status), "{args:?}: {err}");
        assert!(err.contains(hint), "{args:?}: {err}");
        assert!(output.stdout.is_empty());
    }
}
