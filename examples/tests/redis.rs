//! The example `migration/redis`: one source on tokio and on Tourbillon, which replies as
//! `redis-server` does, byte for byte.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    os::unix::net::UnixStream,
    process::Stdio,
};

use crate::{
    clients::{
        Server, connect, example, have,
        redis::{Original, encode},
    },
    common::eventually,
    path_of,
};

// The unit tests of the protocol run here.
#[allow(
    dead_code,
    reason = "the tests of the file use a part, as does this one"
)]
#[path = "../migration/redis/frame.rs"]
mod frame;

/// Both builds of the example.
const BUILDS: [&str; 2] = ["redis_tokio", "redis_tourbillon"];

trait Stream: Read + Write {}

impl Stream for TcpStream {}
impl Stream for UnixStream {}

/// A client that handles requests and replies as bytes.
struct Client {
    name: &'static str,
    stream: BufReader<Box<dyn Stream>>,
}

impl Client {
    fn new(name: &'static str, stream: impl Stream + 'static) -> Self {
        let stream = BufReader::new(Box::new(stream) as Box<dyn Stream>);
        Self { name, stream }
    }

    fn send(&mut self, bytes: &[u8]) {
        self.stream.get_mut().write_all(bytes).unwrap();
    }

    /// Reads one reply.
    fn reply(&mut self) -> Vec<u8> {
        let mut reply = Vec::new();
        self.stream.read_until(b'\n', &mut reply).unwrap();
        let line = String::from_utf8(reply.clone()).unwrap();
        let line = line.strip_suffix("\r\n").expect("a reply has lines");
        match (line.split_at(1), line[1..].parse::<usize>()) {
            (("$", _), Ok(length)) => {
                let mut bulk = vec![0; length + 2];
                self.stream.read_exact(&mut bulk).unwrap();
                reply.extend(bulk);
            }
            (("*", _), Ok(count)) => {
                for _ in 0..count {
                    reply.extend(self.reply());
                }
            }
            _ => {}
        }
        reply
    }

    fn ask(&mut self, words: &[&str]) -> Vec<u8> {
        let words: Vec<_> = words.iter().map(|word| word.as_bytes()).collect();
        self.send(&encode(&words));
        self.reply()
    }

    /// Sends a command whose reply is a number, and returns that.
    fn number(&mut self, words: &[&str]) -> i64 {
        let reply = String::from_utf8(self.ask(words)).unwrap();
        let number = reply.strip_prefix(':').expect("a number");
        number.trim_end().parse().unwrap()
    }

    /// Reads until the server closes the connection.
    fn rest(mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        self.stream.read_to_end(&mut rest).unwrap();
        rest
    }
}

/// The three servers.
struct Servers {
    original: Original,
    ours: [Server; 2],
}

impl Servers {
    fn start() -> Self {
        Self {
            original: Original::start(),
            ours: BUILDS.map(|build| Server::run(example(build).arg("127.0.0.1:0"))),
        }
    }

    /// Connects to each; the original is the first.
    fn connect(&mut self) -> [Client; 3] {
        let [tokio, tourbillon] = &self.ours;
        [
            Client::new("redis-server", self.original.connect()),
            Client::new(BUILDS[0], connect(tokio)),
            Client::new(BUILDS[1], connect(tourbillon)),
        ]
    }
}

/// Sends a command to all, and compares the replies with the original's.
#[track_caller]
fn ask_all(clients: &mut [Client; 3], command: &str) {
    let words: Vec<_> = command.split(' ').collect();
    let [expected, replies @ ..] = clients.each_mut().map(|client| client.ask(&words));
    for (client, reply) in clients[1..].iter().zip(replies) {
        assert_eq!(
            reply.escape_ascii().to_string(),
            expected.escape_ascii().to_string(),
            "{command}: the first is of {}, the second of redis-server",
            client.name
        );
    }
}

/// Commands whose replies do not depend on the time. A blank divides arguments; two blanks
/// have an empty one between them.
const COMMANDS: &str = "PING
PING hello
ping a b
ECHO hi
ECHO
ECHO a b
GET a
SET a 1
GET a
GET
get a b
SET a
MSET b  e f
GET b
SET  x
GET b
STRLEN b
SET a 2 NX
SET c 3 NX
SET nothing 1 XX
GET nothing
SET a 2 XX
SET a 2 NX XX
SET a 2 EX
SET a 2 EX 10 PX 10
SET a 2 KEEPTTL EX 10
SET a 2 EX 10 KEEPTTL
SET a 2 WRONG
SET a 2 EX 0
SET a 2 EX -1
SET a 2 PX abc
SET a 2 px 0 NX
SET a 2 EX 9223372036854775807
SET a 2 EX 01
SET a 2 EX 10 WRONG
INCR a
INCR a
DECR a
INCRBY a 40
INCRBY a -100
INCRBY a x
INCRBY a 9999999999999999999
INCRBY a
DECR new
GET new
SET large 9223372036854775807
INCR large
SET small -9223372036854775808
DECR small
SET text abc
INCR text
SET zeros 007
INCR zeros
SET plus +1
INCR plus
APPEND text def
APPEND fresh xyz
GET text
STRLEN text
STRLEN nothing
STRLEN
MSET k1 v1 k2 v2 k1 v3
MSET k1
MSET k1 v1 k2
MGET k1 nothing k2 k1
MGET
EXISTS k1 k1 nothing
EXISTS
DEL k1 k1 nothing
DEL
TYPE k2
TYPE k1
DBSIZE
DBSIZE x
TTL k2
PTTL k2
TTL nothing
PTTL nothing
PERSIST k2
PERSIST nothing
EXPIRE nothing 10
EXPIRE k2 abc
EXPIRE k2
EXPIRE k2 10 WRONG
EXPIRE k2 9223372036854775807
PEXPIRE k2 9223372036854775807
EXPIRE k2 100
PERSIST k2
PERSIST k2
TTL k2
EXPIRE k2 100
SET k2 v
TTL k2
EXPIRE k2 -1
GET k2
SET k3 v
PEXPIRE k3 0
EXISTS k3
SET k4 v EX 100
MSET k4 w
TTL k4
PUBLISH channel text
PUBLISH channel
SUBSCRIBE
UNSUBSCRIBE
UNSUBSCRIBE one
NOSUCH
nosuch a bc  d
NoSuch 01234567890123456789012345678901234567890123456789 012345678901234567890123456789 01234 01 x
FLUSHALL wrong
FLUSHALL async x
DBSIZE
FLUSHALL sync
DBSIZE
flushall
QUIT";

#[test]
fn both_builds_reply_as_redis_server() {
    if !have("redis-server") {
        return;
    }
    let mut servers = Servers::start();
    let mut clients = servers.connect();
    for command in COMMANDS.lines() {
        ask_all(&mut clients, command);
    }
    for client in clients {
        assert_eq!(client.rest(), b"");
    }

    // Send the commands all at once, and byte by byte.
    let mut all = Vec::new();
    for command in COMMANDS.lines() {
        let words: Vec<_> = command.split(' ').map(str::as_bytes).collect();
        all.extend(encode(&words));
    }
    for part in [all.len(), 7] {
        let [expected, ours @ ..] = servers.connect().map(|mut client| {
            for bytes in all.chunks(part) {
                client.send(bytes);
            }
            client.rest()
        });
        for reply in ours {
            assert_eq!(
                reply.escape_ascii().to_string(),
                expected.escape_ascii().to_string()
            );
        }
    }
}

#[test]
fn both_builds_refuse_bad_bytes_as_redis_server() {
    if !have("redis-server") {
        return;
    }
    let mut servers = Servers::start();
    for bytes in [
        &b"PING\r\nECHO  hi\nQUIT\r\n"[..],
        b"\r\n*0\r\n*-1\r\nPING\r\nQUIT\r\n",
        b"*1\r\n$4\r\nPING\r\n*abc\r\n",
        b"*2000000000000\r\n",
        b"*1\r\n$abc\r\n",
        b"*1\r\n$-5\r\n",
        b"*2\r\n$4\r\nECHO\r\n:1\r\n",
        b"*2\r\n$4\r\nECHO\r\n$4\r\n\0\r\n\xff\r\n*1\r\n$4\r\nQUIT\r\n",
    ] {
        let [expected, ours @ ..] = servers.connect().map(|mut client| {
            client.send(bytes);
            client.rest()
        });
        for reply in ours {
            assert_eq!(
                reply.escape_ascii().to_string(),
                expected.escape_ascii().to_string(),
                "{}",
                bytes.escape_ascii()
            );
        }
    }
}

#[test]
fn keys_of_both_builds_expire_as_those_of_redis_server() {
    if !have("redis-server") {
        return;
    }
    let mut servers = Servers::start();
    let mut clients = servers.connect();
    for command in [
        "SET a 1 EX 1000",
        "SET b 1 PX 1000000",
        "SET c 1",
        "EXPIRE c 1000",
    ] {
        ask_all(&mut clients, command);
    }
    // These commands keep the deadline of the key.
    for command in [
        "APPEND a 2",
        "INCR b",
        "SET c 2 KEEPTTL",
        "SET d 1",
        "PEXPIRE d 1000000",
    ] {
        ask_all(&mut clients, command);
    }
    for client in &mut clients {
        for key in ["a", "b", "c", "d"] {
            let seconds = client.number(&["TTL", key]);
            let milliseconds = client.number(&["PTTL", key]);
            // On a slow machine, much time may have passed.
            assert!(
                (700..=1000).contains(&seconds),
                "{}: {seconds}",
                client.name
            );
            assert!(
                (700_000..=1_000_000).contains(&milliseconds),
                "{}",
                client.name
            );
        }
        // The server removes a key that no client asks for, before one with a later deadline.
        client.ask(&["FLUSHALL"]);
        client.ask(&["SET", "stays", "1", "EX", "1000"]);
        client.ask(&["SET", "goes", "1", "PX", "30"]);
        let what = format!("{} removes the key", client.name);
        eventually(&what, || client.number(&["DBSIZE"]) == 1);
    }
    for command in [
        "TTL goes",
        "EXISTS goes stays",
        "DBSIZE",
        "SET goes 2 XX",
        "SET goes 2 NX",
    ] {
        ask_all(&mut clients, command);
    }
}

#[test]
fn both_builds_publish_as_redis_server() {
    if !have("redis-server") {
        return;
    }
    let mut servers = Servers::start();
    let mut publishers = servers.connect();
    let mut subscribers = servers.connect();
    ask_all(&mut subscribers, "SUBSCRIBE news");
    ask_all(&mut subscribers, "SUBSCRIBE news");
    ask_all(&mut subscribers, "SUBSCRIBE other");
    for command in ["PING", "PING hi", "GET a", "GET", "NOSUCH", "PING a b"] {
        ask_all(&mut subscribers, command);
    }
    for command in [
        "PUBLISH news one",
        "PUBLISH news two",
        "PUBLISH nobody three",
    ] {
        ask_all(&mut publishers, command);
    }
    for _ in 0..2 {
        let [expected, replies @ ..] = subscribers.each_mut().map(Client::reply);
        for reply in replies {
            assert_eq!(reply, expected, "{}", reply.escape_ascii());
        }
    }
    ask_all(&mut subscribers, "UNSUBSCRIBE news");
    ask_all(&mut publishers, "PUBLISH news four");
    ask_all(&mut publishers, "PUBLISH other five");
    for subscriber in &mut subscribers {
        let message = b"*3\r\n$7\r\nmessage\r\n$5\r\nother\r\n$4\r\nfive\r\n";
        assert_eq!(subscriber.reply(), message, "{}", subscriber.name);
    }
    ask_all(&mut subscribers, "UNSUBSCRIBE");
    ask_all(&mut subscribers, "SET a 1");
    drop(subscribers);
}

#[test]
fn both_builds_end_by_a_signal() {
    for build in BUILDS {
        for signal in [libc::SIGINT, libc::SIGTERM] {
            let server = Server::run(example(build).arg("127.0.0.1:0"));
            let mut idle = Client::new(build, connect(&server));
            assert_eq!(idle.ask(&["SET", "a", "1", "EX", "1000"]), b"+OK\r\n");
            let mut subscriber = Client::new(build, connect(&server));
            subscriber.ask(&["SUBSCRIBE", "news"]);
            server.signal(signal);
            // Each client hears the end.
            assert_eq!(idle.rest(), b"");
            assert_eq!(subscriber.rest(), b"");
            let (status, printed, errors) = server.end();
            assert!(status.success(), "{build}: {status}");
            assert_eq!((&*printed, &*errors), ("", ""), "{build}");
        }
    }
}

/// Each build is a client of the other.
#[test]
fn the_clients_of_both_builds_speak_with_both_servers() {
    for build in BUILDS {
        let server = Server::run(example(build).arg("127.0.0.1:0"));
        for client in BUILDS {
            let address = server.addr.to_string();
            let run = |words: &[&str]| {
                let output = example(client).arg(&address).args(words).output().unwrap();
                assert!(output.status.success(), "{client}: {output:?}");
                String::from_utf8(output.stdout).unwrap()
            };
            assert_eq!(run(&["MSET", "a", "1", "b", "x y"]), "OK\n");
            assert_eq!(
                run(&["MGET", "a", "b", "c"]),
                "1) \"1\"\n2) \"x y\"\n3) (nil)\n"
            );
            assert_eq!(run(&["INCR", "a"]), "(integer) 2\n");
            let error = "(error) ERR value is not an integer or out of range\n";
            assert_eq!(run(&["INCR", "b"]), error);

            let mut subscriber = example(client)
                .args([&address, "subscribe", "news"])
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let mut printed = BufReader::new(subscriber.stdout.take().unwrap());
            let mut line = String::new();
            printed.read_line(&mut line).unwrap();
            assert_eq!(line, "subscribed to news\n");
            assert_eq!(run(&["PUBLISH", "news", "hello"]), "(integer) 1\n");
            line.clear();
            printed.read_line(&mut line).unwrap();
            assert_eq!(line, "news: hello\n");
            subscriber.kill().unwrap();
            subscriber.wait().unwrap();
        }
    }
}

#[test]
fn the_builds_differ_in_their_imports_only() {
    let [tokio, tourbillon] = ["main_tokio.rs", "main_tourbillon.rs"].map(|file| {
        let path = path_of("examples/migration/redis").join(file);
        let source = fs::read_to_string(path).unwrap();
        let (head, rest) = source.split_once("mod rt {\n").expect("it imports");
        let (imports, tail) = rest.split_once("\n}\n").expect("a module ends");
        assert!(imports.trim_start().starts_with("pub use "), "{imports}");
        // The first line names the runtime.
        let head = head.split_once('\n').expect("it has lines").1;
        format!("{head}{tail}")
    });
    assert_eq!(tokio, tourbillon);
}
