//! The example `live_chat`: what its server tells clients of WebSockets, and what it bounds.

mod cable;
mod page;

use std::{
    fs,
    io::{Read, Write},
    net::TcpStream,
    time::{Duration, Instant},
};

use async_tungstenite::tungstenite::{
    Bytes, Error, Message, WebSocket, client,
    client::IntoClientRequest,
    handshake::HandshakeError,
    http::{HeaderValue, StatusCode},
    protocol::frame::coding::CloseCode,
};
use http_body_util::Empty;
use hyper::{Method, Request, ext::Protocol, upgrade::on};
use serde_json::Value;
use tourbillon_hyper::{TourbillonExecutor, TourbillonIo};

use crate::{
    clients::{Server, connect, example},
    common::runtime,
    path_of,
};

fn start(args: &[&str]) -> Server {
    Server::run(
        example("live_chat")
            .args(["--listen", "127.0.0.1:0"])
            .args(args),
    )
}

/// Ends a server by a signal, and checks that it ended without an error.
fn end(server: Server) {
    server.signal(libc::SIGTERM);
    let (status, _, err) = server.end();
    assert!(status.success() && err.is_empty(), "{status} {err}");
}

/// A member that reads what comes, and answers pings while it reads.
struct Member(WebSocket<TcpStream>);

impl Member {
    fn try_join(server: &Server, name: &str, origin: Option<&str>) -> Result<Self, StatusCode> {
        let url = format!("ws://{}/ws?name={name}", server.addr);
        let mut request = url.into_client_request().unwrap();
        if let Some(origin) = origin {
            let origin = HeaderValue::from_str(origin).unwrap();
            request.headers_mut().insert("origin", origin);
        }
        match client(request, connect(server)) {
            Ok((socket, _)) => Ok(Self(socket)),
            Err(HandshakeError::Failure(Error::Http(response))) => Err(response.status()),
            Err(error) => panic!("{error}"),
        }
    }

    /// Joins the chat. Returns the member and the welcome.
    fn join(server: &Server, name: &str) -> (Self, Value) {
        let mut member = Self::try_join(server, name, None).unwrap();
        let welcome = member.next("welcome");
        (member, welcome)
    }

    fn say(&mut self, text: &str) {
        self.0.send(Message::text(text)).unwrap();
    }

    /// Waits for the next event of a type.
    #[track_caller]
    fn next(&mut self, kind: &str) -> Value {
        self.next_of(&[kind])
    }

    /// Waits for the next event of one of these types.
    #[track_caller]
    fn next_of(&mut self, kinds: &[&str]) -> Value {
        loop {
            match self.0.read().unwrap() {
                Message::Text(text) => {
                    let event: Value = serde_json::from_str(&text).unwrap();
                    if kinds.iter().any(|kind| event["type"] == *kind) {
                        return event;
                    }
                }
                Message::Ping(_) => {}
                other => panic!("{other:?} before {kinds:?}"),
            }
        }
    }

    /// Waits for the close frame, and for the end of the connection.
    #[track_caller]
    fn closed(mut self) -> (CloseCode, String) {
        let frame = loop {
            match self.0.read().unwrap() {
                Message::Close(frame) => break frame.unwrap(),
                Message::Text(_) | Message::Ping(_) => {}
                other => panic!("{other:?}"),
            }
        };
        assert!(self.0.read().is_err());
        (frame.code, frame.reason.to_string())
    }
}

/// Returns the names of the members in a welcome.
fn names(welcome: &Value) -> Vec<&str> {
    let members = welcome["members"].as_array().unwrap().iter();
    members.map(|member| member[1].as_str().unwrap()).collect()
}

#[test]
fn members_see_each_other_and_what_is_said() {
    let server = start(&[]);
    let (mut ann, welcome) = Member::join(&server, "ann");
    assert_eq!(names(&welcome), ["ann"]);
    assert_eq!(welcome["http"], "HTTP/1.1");
    assert_eq!(welcome["said"], serde_json::json!([]));
    ann.say("  hello \u{1f600}<b>\n");
    ann.say(" \n");
    let said = ann.next("said");
    assert_eq!(said["text"], "hello \u{1f600}<b>");
    assert_eq!(said["author"], welcome["you"]);

    // A second member of the same name gets a number. It also sees what was said before it
    // joined.
    let (mut other, welcome) = Member::join(&server, "ann");
    assert_eq!(names(&welcome), ["ann", "ann 2"]);
    assert_eq!(welcome["said"].as_array().unwrap().len(), 1);
    assert_eq!(welcome["said"][0]["text"], said["text"]);
    let joined = ann.next("joined");
    assert_eq!(
        (&joined["id"], &joined["name"]),
        (&welcome["you"], &"ann 2".into())
    );
    // The server measures a member's round trip at once. It ignores a pong with other content.
    other
        .0
        .send(Message::Pong(Bytes::from_static(b"any")))
        .unwrap();
    assert!(other.next("status")["round_trip_us"].is_u64());
    other.say("welcome");
    for member in [&mut ann, &mut other] {
        let said = member.next("said");
        assert_eq!(
            (&said["name"], &said["text"]),
            (&"ann 2".into(), &"welcome".into())
        );
    }

    // One client breaks off, and another closes the connection.
    let (broken, third) = Member::join(&server, "%20%07%20");
    assert_eq!(names(&third)[2], "guest 3");
    drop(broken);
    let gone = ann.next("gone");
    assert_eq!(
        (&gone["id"], &gone["reason"]),
        (&third["you"], &"connection lost".into())
    );
    other.0.close(None).unwrap();
    let error = loop {
        if let Err(error) = other.0.read() {
            break error;
        }
    };
    assert!(matches!(error, Error::ConnectionClosed), "{error}");
    let gone = ann.next("gone");
    assert_eq!(
        (&gone["id"], &gone["reason"]),
        (&welcome["you"], &"left".into())
    );
    end(server);
}

#[test]
fn the_end_of_the_server_closes_all_sockets() {
    for signal in [libc::SIGINT, libc::SIGTERM] {
        let server = start(&[]);
        let members = ["ann", "bob"].map(|name| Member::join(&server, name).0);
        server.signal(signal);
        for member in members {
            let reason = "the server has ended".to_owned();
            assert_eq!(member.closed(), (CloseCode::Away, reason));
        }
        let addr = server.addr;
        let (status, _, err) = server.end();
        assert!(status.success() && err.is_empty(), "{status} {err}");
        assert!(TcpStream::connect(addr).is_err(), "it still listens");
    }
}

#[test]
fn pages_of_other_sites_and_other_requests_are_refused() {
    let server = start(&[]);
    let own = format!("http://{}", server.addr);
    assert!(Member::try_join(&server, "ann", Some(&own)).is_ok());
    for other in ["http://127.0.0.1:1", "http://localhost", "null"] {
        let refused = Member::try_join(&server, "eve", Some(other)).err();
        assert_eq!(refused, Some(StatusCode::FORBIDDEN), "{other}");
    }
    for (head, status) in [
        ("Host: localhost", "400"),
        // Such a page's own name resolves to this server.
        ("Host: evil.example\r\nOrigin: http://evil.example", "421"),
        ("Host: evil.example", "421"),
    ] {
        for path in ["/", "/ws"] {
            let mut stream = connect(&server);
            let request = format!("GET {path} HTTP/1.0\r\n{head}\r\n\r\n");
            stream.write_all(request.as_bytes()).unwrap();
            let mut reply = String::new();
            stream.read_to_string(&mut reply).unwrap();
            let status = if (path, status) == ("/", "400") {
                "200"
            } else {
                status
            };
            let start = format!("HTTP/1.0 {status} ");
            assert!(reply.starts_with(&start), "{request} {reply}");
        }
    }
    end(server);
}

#[test]
fn a_forbidden_message_closes_the_connection() {
    let server = start(&[]);
    let (mut watching, _) = Member::join(&server, "watching");
    let longest = "\u{1f600}".repeat(1_000);
    let (code, reason) = (CloseCode::Size, "the message was too long");
    for (message, code, reason) in [
        (Message::text(format!("{longest}x")), code, reason),
        // A message that is longer than the server reads.
        (Message::text("x".repeat(70_000)), code, reason),
        (
            Message::binary(&b"x"[..]),
            CloseCode::Unsupported,
            "the message was not text",
        ),
    ] {
        let (mut member, _) = Member::join(&server, "bob");
        member.say(&longest);
        assert_eq!(watching.next("said")["text"], *longest);
        let is_read = message.len() < 65_536;
        // The server may close while it is sent.
        let _ = member.0.send(message);
        assert_eq!(watching.next("gone")["reason"], reason);
        if is_read {
            assert_eq!(member.closed(), (code, reason.to_owned()));
        }
    }
    end(server);
}

#[test]
fn a_client_above_the_limit_is_refused() {
    let server = start(&["--max-clients", "1"]);
    let (ann, _) = Member::join(&server, "ann");
    let bob = Member::try_join(&server, "bob", None).unwrap();
    assert_eq!(
        bob.closed(),
        (CloseCode::Again, "the chat is full".to_owned())
    );
    drop(ann);
    // There is room again once the server has noticed.
    crate::common::eventually("there is room", || {
        let mut bob = Member::try_join(&server, "bob", None).unwrap();
        matches!(bob.0.read(), Ok(Message::Text(_)))
    });
    end(server);
}

#[test]
fn a_client_that_sends_fast_has_to_wait() {
    let server = start(&[]);
    let (mut ann, _) = Member::join(&server, "ann");
    let start = Instant::now();
    for i in 0..40 {
        ann.say(&i.to_string());
    }
    for i in 0..40 {
        assert_eq!(ann.next("said")["text"], i.to_string());
    }
    // The server takes twenty messages at once, and then one in 50 ms.
    assert!(start.elapsed() >= Duration::from_millis(19 * 50));
    end(server);
}

#[test]
fn a_client_that_answers_no_ping_is_removed() {
    let server = start(&["--heartbeat", "50ms", "--idle", "1s"]);
    let start = Instant::now();
    let silent = Member::try_join(&server, "silent", None).unwrap();
    // This client reads, and answers nothing.
    let mut read = Vec::new();
    silent.0.into_inner().read_to_end(&mut read).unwrap();
    assert!(start.elapsed() >= Duration::from_secs(1));
    assert!(
        read.ends_with(b"no sign of life"),
        "{}",
        read.escape_ascii()
    );
    let pings = read.windows(2).filter(|frame| *frame == [0x89, 8]).count();
    assert!(pings >= 2, "{}", read.escape_ascii());
    let (_, welcome) = Member::join(&server, "ann");
    assert_eq!(names(&welcome), ["ann"]);
    end(server);
}

#[test]
fn a_client_that_reads_too_slowly_is_removed() {
    let server = start(&[]);
    let (mut ann, _) = Member::join(&server, "ann");
    let runtime = runtime(1);
    let slow = runtime.block_on(async {
        let stream = tourbillon::net::TcpStream::connect(server.addr)
            .await
            .unwrap();
        // The server may send as much as this window holds.
        let (mut sender, connection) =
            hyper::client::conn::http2::Builder::new(TourbillonExecutor::new())
                .initial_stream_window_size(4 * 1024)
                .handshake(TourbillonIo::new(stream))
                .await
                .unwrap();
        tourbillon::spawn(connection);
        let page = Request::get("http://localhost/").body(Empty::<Bytes>::new());
        let response = sender.send_request(page.unwrap()).await.unwrap();
        assert_eq!(response.status(), 200);
        let request = Request::builder()
            .method(Method::CONNECT)
            .uri("http://localhost/ws?name=slow")
            .header("sec-websocket-version", "13")
            .extension(Protocol::from_static("websocket"))
            .body(Empty::<Bytes>::new())
            .unwrap();
        let response = sender.send_request(request).await.unwrap();
        assert_eq!(response.status(), 200);
        on(response).await.unwrap()
    });
    let joined = ann.next("joined");
    // The window takes a few of these, and the queue a few more.
    let gone = loop {
        ann.say(&"x".repeat(1_000));
        let event = ann.next_of(&["gone", "said"]);
        if event["type"] == "gone" {
            break event;
        }
    };
    assert_eq!(gone["id"], joined["id"]);
    assert_eq!(gone["reason"], "messages were not taken in time");
    drop(slow);
    end(server);
}

#[test]
fn invalid_arguments_are_refused() {
    for args in [
        ["--heartbeat", "15s"],
        ["--idle", "0s"],
        ["--max-clients", "99999999999"],
        ["--listen", "nonsense"],
    ] {
        let output = example("live_chat").args(args).output().unwrap();
        assert!(!output.status.success(), "{args:?}");
        assert!(output.stdout.is_empty() && !output.stderr.is_empty());
    }
}

#[test]
fn the_guide_shows_the_handshake_of_the_example() {
    let read = |path| fs::read_to_string(path_of(path)).unwrap();
    let source = read("examples/common/handshake.rs").replace("pub fn ", "fn ");
    let start = source
        .find("/// Returns the answer to a handshake")
        .unwrap();
    let (function, _) = source[start..].split_once("\n}\n").unwrap();
    let page = read("crates/axum/GUIDE.md");
    assert!(
        page.contains(function),
        "crates/axum/GUIDE.md has another handshake"
    );
}
