//! `wrk` against a server process.

use std::{
    error::Error,
    io::{BufRead as _, BufReader},
    process::{Child, Command, Stdio},
};

use super::Load;
use crate::{
    measure::{cpu, parts},
    workload::refuse,
};

/// How long the server gets to answer the first requests, and to fill its caches.
const WARM_UP: &str = "1s";
const DURATION: &str = "4s";
const QUICK: &str = "1s";
/// Descriptors beside the connections.
const SPARE: u64 = 100;

pub struct Figures {
    pub requests_a_second: f64,
    /// Of the server, for each request.
    pub cpu_micros: f64,
    pub p99_millis: f64,
}

/// A server process, which ends with this, or when its standard input does: with this process.
struct Server {
    child: Child,
    url: String,
}

impl Server {
    fn start(load: &Load) -> Result<Self, Box<dyn Error>> {
        let mut child = parts::command(load.name).stdin(Stdio::piped()).spawn()?;
        let stdout = child.stdout.take().expect("it is piped");
        let mut line = String::new();
        let read = BufReader::new(stdout).read_line(&mut line);
        let mut server = Self {
            child,
            url: String::new(),
        };
        read?;
        let addr = line.trim_end().strip_prefix("listening on ");
        server.url = format!("http://{}/", addr.ok_or("the server does not listen")?);
        Ok(server)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Lets this process, and what it starts, have so many descriptors.
fn allow_descriptors(count: u64) -> Result<(), Box<dyn Error>> {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: there is room for what is written.
    let got = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
    assert_eq!(got, 0, "every process has this limit");
    if limit.rlim_cur >= count {
        return Ok(());
    }
    limit.rlim_cur = count;
    // SAFETY: the limit lives through the call.
    match unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) } {
        0 => Ok(()),
        _ => Err(format!(
            "{count} descriptors are needed; the limit is {}",
            limit.rlim_max
        )
        .into()),
    }
}

/// Runs `wrk`; answers what it printed.
fn wrk(url: &str, load: &Load, duration: &str) -> Result<String, Box<dyn Error>> {
    let connections = load.connections.to_string();
    let output = Command::new("wrk")
        .args(["-t1", "-c", &connections, "-d", duration, "--latency", url])
        .output()
        .map_err(|error| format!("wrk, which `apt-get install wrk` installs: {error}"))?;
    let text = String::from_utf8(output.stdout)?;
    for complaint in ["Socket errors", "Non-2xx"] {
        if let Some(line) = text.lines().find(|line| line.contains(complaint)) {
            return Err(format!("wrk: {}", line.trim()).into());
        }
    }
    Ok(text)
}

/// The word after the last of these.
fn after<'a>(text: &'a str, label: &str) -> Result<&'a str, Box<dyn Error>> {
    let rest = text.rsplit_once(label).map(|(_, rest)| rest);
    let word = rest.and_then(|rest| rest.split_whitespace().next());
    word.ok_or_else(|| format!("{label:?} is not in: {text}").into())
}

/// A time as `wrk` prints it, in ms.
fn millis(text: &str) -> Result<f64, Box<dyn Error>> {
    let number = text.trim_end_matches(char::is_alphabetic);
    let scale = match &text[number.len()..] {
        "us" => 1e-3,
        "ms" => 1.0,
        "s" => 1e3,
        _ => return Err(format!("no time: {text}").into()),
    };
    Ok(number.parse::<f64>()? * scale)
}

fn figures(load: &Load, quick: bool) -> Result<Figures, Box<dyn Error>> {
    allow_descriptors(load.connections as u64 + SPARE)?;
    let server = Server::start(load)?;
    let duration = if quick {
        QUICK
    } else {
        wrk(&server.url, load, WARM_UP)?;
        DURATION
    };
    let before = cpu::of_process(server.child.id())?;
    let text = wrk(&server.url, load, duration)?;
    let cpu = cpu::of_process(server.child.id())? - before;
    let requests = text
        .lines()
        .find_map(|line| line.trim().split_once(" requests in "))
        .ok_or("how many requests?")?
        .0
        .parse::<f64>()?;
    Ok(Figures {
        requests_a_second: after(&text, "Requests/sec:")?.parse()?,
        cpu_micros: cpu.as_secs_f64() * 1e6 / requests,
        p99_millis: millis(after(&text, "99% ")?)?,
    })
}

/// Drives a new server with `wrk`. If that cannot be done here the process ends, and says why.
pub fn drive(load: &Load, quick: bool) -> Figures {
    figures(load, quick).unwrap_or_else(|error| refuse(format_args!("{}: {error}", load.name)))
}
