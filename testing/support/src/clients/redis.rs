//! A client of redis's protocol, and the example that speaks it.

use std::{
    io::{self, BufRead, BufReader, Read, Write},
    net::TcpStream,
    os::unix::net::UnixStream,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use super::{AGES, Server, example, number};
use crate::unix::Dir;

/// A `redis-server` at a Unix socket, which is killed when this is dropped. (A TCP port that is
/// free now could be taken before it listens.)
pub struct Original {
    child: Child,
    directory: Dir,
}

impl Original {
    pub fn start() -> Self {
        let directory = Dir::new();
        let child = Command::new("redis-server")
            .args(["--port", "0", "--save", "", "--appendonly", "no"])
            .args(["--enable-debug-command", "yes"])
            .arg("--unixsocket")
            .arg(directory.path("socket"))
            .arg("--dir")
            .arg(directory.path(""))
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        Self { child, directory }
    }

    pub fn connect(&mut self) -> UnixStream {
        let start = Instant::now();
        loop {
            if let Ok(stream) = UnixStream::connect(self.directory.path("socket")) {
                stream.set_read_timeout(Some(AGES)).unwrap();
                return stream;
            }
            if let Some(status) = self.child.try_wait().unwrap() {
                panic!("redis-server ended: {status}");
            }
            assert!(start.elapsed() < AGES, "redis-server does not listen");
            thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Original {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts the example `ttl_cache` at a free port.
pub fn cache(args: &[&str]) -> Server {
    Server::run(
        example("ttl_cache")
            .args(["--listen", "127.0.0.1:0"])
            .args(args),
    )
}

/// Starts the example without an idle limit, and stores a value of one MiB under the key `big`.
pub fn with_a_big_value() -> (Server, Redis, Vec<u8>) {
    let server = cache(&["--idle", "0s"]);
    let mut client = Redis::connect(&server);
    let value = vec![b'x'; 1 << 20];
    client.send(&encode(&[b"SET", b"big", &value]));
    assert_eq!(client.reply(), Reply::ok());
    (server, client, value)
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    Simple(String),
    Error(String),
    Integer(i64),
    Bulk(Vec<u8>),
    Null,
    Array(Vec<Reply>),
    /// The null of RESP3. The variants after it are of RESP3, too.
    Null3,
    Text(String),
    /// Keys and values, alternating.
    Map(Vec<Reply>),
}

impl Reply {
    pub fn ok() -> Self {
        Self::Simple("OK".into())
    }

    pub fn bulk(text: &str) -> Self {
        Self::Bulk(text.into())
    }
}

/// Returns the bytes of a request, as clients send it.
pub fn encode(args: &[&[u8]]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", args.len()).into_bytes();
    for arg in args {
        bytes.extend(format!("${}\r\n", arg.len()).into_bytes());
        bytes.extend_from_slice(arg);
        bytes.extend(b"\r\n");
    }
    bytes
}

/// A client's connection.
pub struct Redis<S = TcpStream>(BufReader<S>);

impl Redis {
    pub fn connect(server: &Server) -> Self {
        let stream = TcpStream::connect(server.addr).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(AGES)).unwrap();
        stream.set_write_timeout(Some(AGES)).unwrap();
        Self(BufReader::new(stream))
    }

    pub fn stream(&self) -> &TcpStream {
        self.0.get_ref()
    }
}

impl<S: Read + Write> Redis<S> {
    pub fn over(stream: S) -> Self {
        Self(BufReader::new(stream))
    }

    /// Sends bytes as they are.
    pub fn send(&mut self, bytes: &[u8]) {
        self.0.get_mut().write_all(bytes).unwrap();
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        self.0.read_line(&mut line)?;
        match line.strip_suffix("\r\n") {
            Some(line) => Ok(line.to_owned()),
            None => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    /// Reads a reply. It is an error if the connection ends before the reply is complete.
    pub fn try_reply(&mut self) -> io::Result<Reply> {
        let line = self.line()?;
        let (sort, rest) = line.split_at(1);
        Ok(match sort {
            "+" => Reply::Simple(rest.into()),
            "-" => Reply::Error(rest.into()),
            ":" => Reply::Integer(rest.parse().unwrap()),
            "$" if rest == "-1" => Reply::Null,
            "$" => Reply::Bulk(self.counted(rest)?),
            "*" => Reply::Array(self.replies(rest.parse().unwrap())?),
            "_" => Reply::Null3,
            "=" => {
                let text = String::from_utf8(self.counted(rest)?).unwrap();
                Reply::Text(text.strip_prefix("txt:").unwrap().into())
            }
            "%" => Reply::Map(self.replies(2 * rest.parse::<usize>().unwrap())?),
            _ => panic!("no reply: {line:?}"),
        })
    }

    /// Reads this many bytes, and the end of the line after them.
    fn counted(&mut self, count: &str) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; count.parse::<usize>().unwrap() + 2];
        self.0.read_exact(&mut bytes)?;
        assert!(bytes.ends_with(b"\r\n"), "{bytes:?}");
        bytes.truncate(bytes.len() - 2);
        Ok(bytes)
    }

    fn replies(&mut self, count: usize) -> io::Result<Vec<Reply>> {
        (0..count).map(|_| self.try_reply()).collect()
    }

    /// Reads the next bytes, and checks that they are `bytes`.
    pub fn expect(&mut self, bytes: &[u8]) {
        let mut read = vec![0; bytes.len()];
        self.0.read_exact(&mut read).unwrap();
        assert!(read == bytes, "{}", read.escape_ascii());
    }

    pub fn reply(&mut self) -> Reply {
        self.try_reply().unwrap()
    }

    /// Sends a command, split into words at blanks, and reads the reply.
    pub fn ask(&mut self, command: &str) -> Reply {
        let words: Vec<_> = command.split(' ').map(str::as_bytes).collect();
        self.send(&encode(&words));
        self.reply()
    }

    /// Returns a number from the reply to `INFO`.
    pub fn info(&mut self, name: &str) -> u64 {
        let text = match self.ask("INFO") {
            Reply::Bulk(text) => String::from_utf8(text).unwrap(),
            Reply::Text(text) => text,
            other => panic!("INFO is text: {other:?}"),
        };
        number(&text, &format!("\r\n{name}:"), "\r\n")
            .unwrap_or_else(|| panic!("no {name}: {text}"))
    }

    /// Reads until the server closes the connection. Returns what it sent.
    pub fn end(mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        match self.0.read_to_end(&mut rest) {
            // If the server closes with unread data, the connection is reset.
            Err(error) if error.kind() != io::ErrorKind::ConnectionReset => {
                panic!("not closed: {error}")
            }
            _ => rest,
        }
    }
}
