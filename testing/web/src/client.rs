//! A client of HTTP/1 that writes its requests by hand.

use std::{
    io::{self, ErrorKind, Read, Write},
    net::{SocketAddr, TcpStream},
    process::Command,
};

use tourbillon_support::PATIENCE;

/// A connection on which requests are written by hand.
pub struct Client {
    pub stream: TcpStream,
    read: Vec<u8>,
}

impl Client {
    pub fn connect(addr: SocketAddr) -> Self {
        Self::of(TcpStream::connect(addr).unwrap())
    }

    /// Returns a client for an existing connection.
    pub fn of(stream: TcpStream) -> Self {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        Self {
            stream,
            read: Vec::new(),
        }
    }

    pub fn send(&mut self, text: &str) {
        self.stream.write_all(text.as_bytes()).unwrap();
    }

    /// Sends a `GET`, and reads its response.
    pub fn get(&mut self, path: &str) -> Reply {
        self.send(&format!("GET {path} HTTP/1.1\r\nHost: test\r\n\r\n"));
        self.reply()
    }

    /// Sends a body of JSON, and reads the response.
    pub fn post(&mut self, path: &str, json: &str) -> Reply {
        let length = json.len();
        self.send(&format!(
            "POST {path} HTTP/1.1\r\nHost: test\r\nContent-Type: application/json\r\n\
             Content-Length: {length}\r\n\r\n{json}"
        ));
        self.reply()
    }

    /// Reads a response whose length is said.
    pub fn reply(&mut self) -> Reply {
        let head = self.read_through("\r\n\r\n");
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let length = header(&head, "content-length").map_or(0, |length| length.parse().unwrap());
        while self.read.len() < length {
            self.read_more();
        }
        let body = self.read.drain(..length).collect();
        Reply {
            status,
            head,
            body: String::from_utf8(body).unwrap(),
        }
    }

    /// Reads until the end of the text `what`, which has to come. Returns what was read.
    pub fn read_through(&mut self, what: &str) -> String {
        let what = what.as_bytes();
        loop {
            let found = self.read.windows(what.len()).position(|at| at == what);
            if let Some(at) = found {
                let text = self.read.drain(..at + what.len()).collect();
                return String::from_utf8(text).unwrap();
            }
            self.read_more();
        }
    }

    fn read_more(&mut self) {
        let mut buf = [0; 4096];
        let n = self.read_some(&mut buf).unwrap();
        assert!(n > 0, "{:?}, and then the end", self.read);
        self.read.extend_from_slice(&buf[..n]);
    }

    fn read_some(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.stream.read(buf) {
                // The process was stopped, and goes on: a read with a timeout then fails.
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                read => return read,
            }
        }
    }

    /// Waits until the server closes the connection. Returns what it sent before.
    pub fn end(mut self) -> String {
        let mut buf = [0; 4096];
        loop {
            match self.read_some(&mut buf) {
                Ok(0) => break,
                Ok(n) => self.read.extend_from_slice(&buf[..n]),
                // If the server closes with unread data, the connection is reset.
                Err(error) if error.kind() == ErrorKind::ConnectionReset => break,
                Err(error) => panic!("not closed: {error}"),
            }
        }
        String::from_utf8_lossy(&self.read).into_owned()
    }
}

/// A response.
#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    pub head: String,
    pub body: String,
}

impl Reply {
    pub fn header(&self, name: &str) -> Option<&str> {
        header(&self.head, name)
    }
}

fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        key.eq_ignore_ascii_case(name).then(|| value.trim())
    })
}

/// Returns curl's output.
#[track_caller]
pub fn curl(args: &[&str]) -> String {
    let output = Command::new("curl")
        .args(["--silent", "--show-error", "--noproxy", "*"])
        .args(["--max-time", "60"])
        .args(args)
        .output()
        .unwrap();
    let (out, err) = (
        String::from_utf8(output.stdout).unwrap(),
        String::from_utf8(output.stderr).unwrap(),
    );
    assert!(output.status.success(), "{out} {err}");
    out
}
