//! Fuzzes the live page and a server of `tourbillon-axum`, over loopback with any bytes. The
//! servers must not panic or hang, must answer in HTTP, and must not answer a request for another
//! host with data.
//!
//! The input: which server, where to cut the bytes, and the bytes to send. A simple request has
//! exactly one answer, and the client waits for it. For other bytes the number of answers is
//! unknown: once the server is silent, the client closes its writing half. hyper then closes the
//! connection, and may leave out an answer.

mod answer;
mod request;
mod servers;

use std::{
    io::{ErrorKind, Read, Write},
    net::{Shutdown, SocketAddr, TcpStream},
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use answer::{Answer, Known};
use servers::servers;

/// Longer than all time limits of the servers together. A longer wait is a hang.
const PATIENCE: Duration = Duration::from_secs(300);

/// A server that is silent for this long almost always waits for more bytes.
const SILENCE: Duration = Duration::from_millis(2);

/// The start of an HTTP/2 connection.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Whether another thread panicked.
static PANICKED: AtomicBool = AtomicBool::new(false);

/// Sends the input to one of the servers and checks the answers.
pub fn run(bytes: &[u8]) {
    static RUNS: AtomicU64 = AtomicU64::new(0);
    let [which, cut, sent @ ..] = bytes else {
        return;
    };
    let servers = servers();
    let is_page = which % 4 != 0;
    let addr = match is_page {
        true => servers.page,
        false => servers.axum,
    };
    let cut = usize::from(*cut) * sent.len() / 256;
    let pieces = [&sent[..cut], &sent[cut..]];
    if is_page {
        check_page(addr, sent, &pieces);
    } else {
        check_axum(addr, sent, &pieces);
    }
    // Check that the server still answers others.
    if RUNS.fetch_add(1, Relaxed).is_multiple_of(64) {
        let hello = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
        let answers = ask(addr, &[hello], Until::Answer(Known { has_heads: false }));
        assert_eq!(answers[0].status, 200);
    }
    assert!(!PANICKED.load(Relaxed), "a thread of a server panicked");
}

fn show(bytes: &[u8]) -> String {
    bytes.escape_ascii().to_string()
}

/// The event that a client waits for.
#[derive(Clone, Copy)]
enum Until {
    /// One complete answer.
    Answer(Known),
    /// Silence of the server.
    Silence,
}

/// Sends the pieces to a server. Returns the bytes received until `until`; of an endless stream
/// of events, only the head.
fn said(addr: SocketAddr, pieces: &[&[u8]], until: Until) -> Vec<u8> {
    let mut stream = TcpStream::connect(addr).expect("the server listens");
    let silence = match until {
        Until::Answer(_) => PATIENCE,
        Until::Silence => SILENCE,
    };
    stream.set_nodelay(true).expect("it is a socket");
    stream.set_read_timeout(Some(silence)).expect("no zero");
    stream.set_write_timeout(Some(PATIENCE)).expect("no zero");
    for piece in pieces {
        // The server may refuse the request before all of it is sent.
        if stream.write_all(piece).is_err() {
            break;
        }
    }
    let mut is_over = false;
    let mut said = Vec::new();
    let mut buffer = [0; 16 * 1024];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return said,
            Ok(length) => said.extend_from_slice(&buffer[..length]),
            // The server closed with unread bytes, which resets the connection.
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return said,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if is_over || matches!(until, Until::Answer(_)) => {
                panic!("it hangs: {error}; it said: {}", show(&said))
            }
            Err(_) => {
                is_over = true;
                let _ = stream.shutdown(Shutdown::Write);
                stream.set_read_timeout(Some(PATIENCE)).expect("no zero");
            }
        }
        let has_all = match until {
            Until::Answer(known) => answer::parse(&said, known).1,
            Until::Silence => answer::has_endless(&said),
        };
        if has_all {
            return said;
        }
    }
}

/// Sends the pieces to a server. Returns the answers received until `until`.
fn ask(addr: SocketAddr, pieces: &[&[u8]], until: Until) -> Vec<Answer> {
    let said = said(addr, pieces, until);
    match until {
        Until::Answer(known) => {
            let (answers, is_all) = answer::parse(&said, known);
            assert!(is_all && answers.len() == 1, "{}", show(&said));
            answers
        }
        // The last answer may be cut off.
        Until::Silence => {
            let sent = pieces.concat();
            let has_heads = contains(&sent, b"HEAD");
            answer::parse(&said, Known { has_heads }).0
        }
    }
}

fn check_page(addr: SocketAddr, sent: &[u8], pieces: &[&[u8]]) {
    let request = request::plain(sent);
    let until = request.as_ref().map_or(Until::Silence, |request| {
        Until::Answer(Known {
            has_heads: request.is_head(),
        })
    });
    let answers = ask(addr, pieces, until);
    for answer in &answers {
        check_headers(answer);
        if answer.status == 200 {
            assert!(
                request::may_be_ours(sent),
                "data for a host that is not allowed: {}",
                show(sent)
            );
        }
    }
    let (Some(request), [answer, ..]) = (request, &answers[..]) else {
        return;
    };
    let verdict = request.verdict();
    let is_right = match (verdict, answer.status) {
        (200, 200) => !request.is_nothing(),
        (200, 404) => request.is_nothing(),
        // There may be too many clients of the stream.
        (200, 503) => request.uri.path() == "/events",
        (verdict, status) => verdict == status,
    };
    assert!(
        is_right,
        "{} instead of {verdict}: {}",
        answer.status,
        show(sent)
    );
}

/// Checks the security headers of the page's own answers. hyper's own error answers need none.
fn check_headers(answer: &Answer) {
    assert!(
        matches!(
            answer.status,
            100 | 200 | 400 | 403 | 404 | 405 | 414 | 421 | 431 | 503 | 505
        ),
        "{answer:?}"
    );
    assert!(answer.header("access-control-allow-origin").is_none());
    if matches!(answer.status, 200 | 403 | 404 | 405 | 421 | 503) {
        let policy = answer.header("content-security-policy");
        assert!(policy.is_some_and(|policy| policy.starts_with("default-src 'none'")));
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
        assert_eq!(
            answer.header("cross-origin-resource-policy"),
            Some("same-origin")
        );
        assert_eq!(answer.header("cache-control"), Some("no-store"));
    }
}

fn check_axum(addr: SocketAddr, sent: &[u8], pieces: &[&[u8]]) {
    if sent.starts_with(PREFACE) {
        return answer::check_frames(&said(addr, pieces, Until::Silence));
    }
    for answer in ask(addr, pieces, Until::Silence) {
        assert!((100..600).contains(&answer.status));
        // An echoed body has a limited length.
        assert!(answer.body.len() <= servers::MOST_BODY);
    }
}

fn contains(bytes: &[u8], what: &[u8]) -> bool {
    bytes.windows(what.len()).any(|at| at == what)
}
