//! Reads what an inspector answers.

use std::{
    fmt,
    io::{self, Read, Write},
    net::{TcpStream, ToSocketAddrs},
    time::Duration,
};

use serde::de::DeserializeOwned;

/// How long a connection and each read may take.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The largest answer, in bytes. 256 workers take about 1 MB.
const MOST: u64 = 64 << 20;

/// The address of an inspector.
#[derive(Clone, Debug)]
pub(super) struct Site {
    /// Host and port.
    at: String,
}

impl Site {
    /// Parses `HOST:PORT`, or the address of the page as a browser has it.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let at = text.strip_prefix("http://").unwrap_or(text);
        let at = at.strip_suffix('/').unwrap_or(at);
        let port = at.rsplit_once(':').map(|(_, port)| port.parse::<u16>());
        if !matches!(port, Some(Ok(_))) || at.contains('/') {
            return Err("must be HOST:PORT, such as 127.0.0.1:9100".to_owned());
        }
        Ok(Self { at: at.to_owned() })
    }

    /// Reads the answer to a path.
    pub(super) fn read<T: DeserializeOwned>(&self, path: &str) -> Result<T, String> {
        let answer = self
            .get(path)
            .map_err(|error| format!("cannot read http://{self}{path}: {error}"))?;
        let (head, body) = split(&answer)
            .ok_or_else(|| format!("http://{self}/ does not answer as HTTP servers do"))?;
        let status = head.split(|&byte| byte == b' ').nth(1);
        if status != Some(b"200") {
            let line = head.split(|&byte| byte == b'\r').next().unwrap_or_default();
            let line = String::from_utf8_lossy(line);
            return Err(format!("http://{self}{path} answers {line:?}"));
        }
        serde_json::from_slice(body)
            .map_err(|error| format!("http://{self}/ is not a page of tourbillon: {error}"))
    }

    /// Asks for a path, and returns the whole answer.
    fn get(&self, path: &str) -> io::Result<Vec<u8>> {
        // The name may have several addresses, and the program may listen on one of them only.
        let mut failed = io::Error::other("the name has no address");
        for addr in self.at.to_socket_addrs()? {
            match TcpStream::connect_timeout(&addr, TIMEOUT) {
                Ok(stream) => return self.ask(stream, path),
                Err(error) => failed = error,
            }
        }
        Err(failed)
    }

    fn ask(&self, mut stream: TcpStream, path: &str) -> io::Result<Vec<u8>> {
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        // By HTTP/1.0 the server sends the body as it is, and then closes the connection.
        write!(stream, "GET {path} HTTP/1.0\r\nHost: {self}\r\n\r\n")?;
        let mut answer = Vec::new();
        stream.take(MOST).read_to_end(&mut answer)?;
        Ok(answer)
    }
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.at)
    }
}

/// Splits an answer into its head and its body.
fn split(answer: &[u8]) -> Option<(&[u8], &[u8])> {
    if !answer.starts_with(b"HTTP/1.") {
        return None;
    }
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n")?;
    Some((&answer[..end], &answer[end + 4..]))
}
