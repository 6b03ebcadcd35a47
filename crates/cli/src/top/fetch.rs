//! Reads what an inspector answers: on a thread of its own, within a time and a number of bytes.

use std::{
    fmt,
    io::{self, Read, Write},
    net::{TcpStream, ToSocketAddrs},
    sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel},
    thread,
    time::{Duration, Instant},
};

use serde::de::DeserializeOwned;

use super::{
    sample::Snapshot,
    tasks::{self, Tasks},
};
use crate::say::shown;

/// How long all that an update reads may take.
pub(super) const LIMIT: Duration = Duration::from_secs(10);
/// The largest answer, in bytes. 256 workers take about 1 MB.
const MOST: usize = 8 << 20;
/// Where an inspector has its snapshots.
const SNAPSHOT: &str = "/snapshot.json";

/// What an update has read.
pub(super) struct Answer {
    pub(super) snapshot: Snapshot,
    pub(super) tasks: Option<Tasks>,
    /// The size of the snapshot, as the server sent it.
    pub(super) bytes: usize,
}

/// A thread that reads updates, so that keys work meanwhile, also while a name is looked up.
pub(super) struct Fetcher {
    /// A request says whether the tasks are asked for.
    requests: Sender<bool>,
    answers: Receiver<Result<Answer, String>>,
}

impl Fetcher {
    pub(super) fn start(site: Site) -> Result<Self, String> {
        let (requests, asked) = channel();
        let (sender, answers) = channel();
        let main = move || {
            for with_tasks in asked {
                if sender.send(site.update(with_tasks, LIMIT)).is_err() {
                    return;
                }
            }
        };
        let thread = thread::Builder::new().name("fetch".to_owned());
        thread
            .spawn(main)
            .map_err(|error| format!("cannot start a thread: {error}"))?;
        Ok(Self { requests, answers })
    }

    /// Asks for an update. The thread ends only with this fetcher, so it takes each request.
    pub(super) fn ask(&self, with_tasks: bool) {
        let _ = self.requests.send(with_tasks);
    }

    /// Returns the answer, if there is one by now.
    pub(super) fn try_answer(&self) -> Option<Result<Answer, String>> {
        match self.answers.try_recv() {
            Ok(answer) => Some(answer),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => Some(Err("the reading thread panicked".to_owned())),
        }
    }

    /// Waits for the answer.
    pub(super) fn answer(&self) -> Result<Answer, String> {
        // The thread has a limit of its own, but for the look-up of a name.
        match self.answers.recv_timeout(LIMIT + Duration::from_secs(1)) {
            Ok(answer) => answer,
            Err(RecvTimeoutError::Timeout) => Err(format!("there is no answer within {LIMIT:?}")),
            Err(RecvTimeoutError::Disconnected) => Err("the reading thread panicked".to_owned()),
        }
    }
}

/// The address of an inspector.
#[derive(Clone, Debug)]
pub(crate) struct Site {
    /// Host and port.
    at: String,
}

impl Site {
    /// Parses `HOST:PORT`, or the address of the page as a browser has it.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let at = text.strip_prefix("http://").unwrap_or(text);
        let at = at.strip_suffix('/').unwrap_or(at);
        let port = at.rsplit_once(':').map(|(_, port)| port.parse::<u16>());
        if !matches!(port, Some(Ok(_))) || at.contains('/') {
            return Err("must be HOST:PORT, such as 127.0.0.1:9100".to_owned());
        }
        Ok(Self { at: at.to_owned() })
    }

    /// Reads an update. This takes no longer than `limit`, but for the look-up of a name.
    pub(super) fn update(&self, with_tasks: bool, limit: Duration) -> Result<Answer, String> {
        let until = Instant::now() + limit;
        let (snapshot, bytes) = self.read(SNAPSHOT, until)?;
        let tasks = match with_tasks {
            true => Some(self.read(tasks::PATH, until)?.0),
            false => None,
        };
        Ok(Answer {
            snapshot,
            tasks,
            bytes,
        })
    }

    /// Reads the answer to a path. Returns its size as well.
    fn read<T: DeserializeOwned>(&self, path: &str, until: Instant) -> Result<(T, usize), String> {
        let body = self.body(path, until)?;
        let read = serde_json::from_slice(&body).map_err(|error| {
            let error = error.to_string();
            let error = shown(&error);
            format!("http://{self}/ is not a page of tourbillon: {error}")
        })?;
        Ok((read, body.len()))
    }

    /// Reads the body of the answer to a path.
    pub(crate) fn body(&self, path: &str, until: Instant) -> Result<Vec<u8>, String> {
        let answer = self
            .get(path, until)
            .map_err(|error| format!("cannot read http://{self}{path}: {error}"))?;
        let (head, body) = split(&answer)
            .ok_or_else(|| format!("http://{self}/ does not answer as HTTP servers do"))?;
        let status = head.split(|&byte| byte == b' ').nth(1);
        if status == Some(b"200") {
            return Ok(body.to_vec());
        }
        let text = |part: &[u8]| {
            let part = String::from_utf8_lossy(&part[..part.len().min(100)]);
            shown(part.trim_end()).to_string()
        };
        let line = text(head.split(|&byte| byte == b'\r').next().unwrap_or_default());
        let why = text(body.split(|&byte| byte == b'\n').next().unwrap_or_default());
        let why = if why.is_empty() {
            why
        } else {
            format!(": {why}")
        };
        Err(format!("http://{self}{path} answers \"{line}\"{why}"))
    }

    /// Asks for a path, and returns the whole answer.
    fn get(&self, path: &str, until: Instant) -> io::Result<Vec<u8>> {
        // The name may have several addresses, and the program may listen on one of them only.
        let mut failed = io::Error::other("the name has no address");
        for addr in self.at.to_socket_addrs()? {
            match TcpStream::connect_timeout(&addr, left(until)?) {
                Ok(stream) => return self.ask(stream, path, until),
                Err(error) => failed = error,
            }
        }
        Err(failed)
    }

    fn ask(&self, mut stream: TcpStream, path: &str, until: Instant) -> io::Result<Vec<u8>> {
        stream.set_write_timeout(Some(left(until)?))?;
        // By HTTP/1.0 the server sends the body as it is, and then closes the connection.
        // It goes out at once: a server may answer and close before the end of a request in parts.
        // A server takes a profile only for a client that sends the last header.
        let host = format!("Host: {}\r\nX-Tourbillon: profile", self.at);
        let request = format!("GET {path} HTTP/1.0\r\n{host}\r\n\r\n");
        stream.write_all(request.as_bytes())?;
        let (mut answer, mut part) = (Vec::new(), vec![0; 64 << 10]);
        loop {
            stream.set_read_timeout(Some(left(until)?))?;
            match stream.read(&mut part) {
                Ok(0) => return Ok(answer),
                Ok(read) if answer.len() + read > MOST => {
                    let most = format!("the answer has more than {MOST} bytes");
                    return Err(io::Error::other(most));
                }
                Ok(read) => answer.extend_from_slice(&part[..read]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // A timeout of the socket: `left` says so.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// Returns the time that is left, which is more than none.
fn left(until: Instant) -> io::Result<Duration> {
    let left = until.saturating_duration_since(Instant::now());
    match left.is_zero() {
        true => Err(io::Error::new(
            io::ErrorKind::TimedOut,
            "the answer takes too long",
        )),
        false => Ok(left),
    }
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", shown(&self.at))
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
