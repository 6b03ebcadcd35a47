//! The example `retry_proxy`, between clients and upstreams of many kinds.

mod passing;
mod policy;
#[path = "../../retry_proxy/retry.rs"]
mod retry;
mod trying;

use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    thread,
};

use crate::clients::{Server, example, number, with_patience};

const MB: usize = 1 << 20;

/// Starts the proxy in front of these upstreams.
fn proxy(upstreams: &[SocketAddr], args: &[&str]) -> Server {
    let mut command = example("retry_proxy");
    command.args(["--listen", "127.0.0.1:0"]).args(args);
    if !args.contains(&"--connect-timeout") {
        // No try may fail because the machine is slow.
        command.args(["--connect-timeout", "10m"]);
    }
    for upstream in upstreams {
        command.args(["--upstream", &upstream.to_string()]);
    }
    Server::run(&mut command)
}

/// Starts an upstream that serves each connection on a thread of its own. Returns its address.
fn upstream(serve: fn(TcpStream) -> io::Result<()>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let stream = with_patience(stream.unwrap());
            // Ignore an error here: the test checks what the client makes of it.
            thread::spawn(move || drop(serve(stream)));
        }
    });
    addr
}

/// Sends back all data, until its end.
fn echo(mut stream: TcpStream) -> io::Result<()> {
    let mut buf = vec![0; 65_536];
    loop {
        match stream.read(&mut buf)? {
            0 => return Ok(()),
            n => stream.write_all(&buf[..n])?,
        }
    }
}

/// The proxy's final counts.
struct Counts(String);

impl Counts {
    fn get(&self, name: &str) -> u64 {
        let text = format!("{}, ", self.0.trim_end());
        number(&text, &format!("{name}: "), ", ").unwrap_or_else(|| panic!("{name}: {text}"))
    }
}

/// Ends a proxy by a signal. Returns its counts and its complaints.
fn end(proxy: Server, signal: i32) -> (Counts, String) {
    proxy.signal(signal);
    let (status, out, err) = proxy.end();
    assert_eq!(status.code(), Some(0), "{out} {err}");
    let counts = Counts(out);
    let ended = ["closed", "idle", "reset"].map(|name| counts.get(name));
    let open = counts.get("cut off")
        - (counts.get("clients") - counts.get("connected") - counts.get("gave up"));
    assert_eq!(
        counts.get("connected"),
        ended.iter().sum::<u64>() + open,
        "{}",
        counts.0
    );
    (counts, err)
}

/// Returns whether an error is that of a connection that was reset.
fn is_reset(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe
    )
}
