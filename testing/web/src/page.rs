//! Clients of the live page.

use std::{
    io::ErrorKind,
    net::{SocketAddr, TcpStream},
};

use serde_json::Value;
use tourbillon_support::eventually;

use crate::{Client, Reply};

/// Returns a request, with lines of its head besides `Host`.
pub fn request(method: &str, path: &str, lines: &[&str]) -> String {
    let lines: String = lines.iter().flat_map(|line| [line, "\r\n"]).collect();
    format!("{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{lines}\r\n")
}

/// Asks for a path, on a connection of its own.
pub fn get(addr: SocketAddr, path: &str) -> Reply {
    let mut client = Client::connect(addr);
    client.send(&request("GET", path, &["Connection: close"]));
    client.reply()
}

/// Returns the page's current snapshot.
pub fn snapshot(addr: SocketAddr) -> Value {
    let reply = get(addr, "/snapshot.json");
    assert_eq!(reply.status, 200, "{reply:?}");
    assert_eq!(reply.header("content-type"), Some("application/json"));
    serde_json::from_str(&reply.body).unwrap()
}

/// Returns how many clients listen to events.
pub fn listeners(addr: SocketAddr) -> u64 {
    snapshot(addr)["clients"].as_u64().unwrap()
}

/// Waits until `count` clients listen to events.
#[track_caller]
pub fn wait_for_listeners(addr: SocketAddr, count: u64) {
    eventually("so many listen", || listeners(addr) == count);
}

/// A client that listens to events.
pub struct Events(pub Client);

impl Events {
    /// Asks for events; what comes is not read yet.
    pub fn ask(addr: SocketAddr) -> Self {
        let mut client = Client::connect(addr);
        client.send(&request("GET", "/events", &[]));
        Self(client)
    }

    /// Reads the next event.
    pub fn next(&mut self) -> Value {
        self.0.read_through("event: snapshot\ndata: ");
        let line = self.0.read_through("\n");
        serde_json::from_str(&line).unwrap()
    }
}

/// Returns whether no server listens at this address.
pub fn is_refused(addr: SocketAddr) -> bool {
    let connected = TcpStream::connect(addr);
    connected.is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
}
