//! Runs `wrk` against a server process.

use std::{
    error::Error,
    io::{BufRead as _, BufReader},
    process::{Child, Command, Stdio},
};

use tourbillon_support::limit_descriptors;

use super::Load;
use crate::{
    measure::{cpu, parts},
    workload::refuse,
};

/// Duration of the warm-up, in which the server answers its first requests and fills its caches.
const WARM_UP: &str = "1s";
/// Duration of the measurement.
const DURATION: &str = "4s";
/// Duration of the measurement in a quick run, which has no warm-up.
const QUICK: &str = "1s";
/// Number of descriptors that a process may need in addition to those of its connections.
const SPARE: u64 = 100;

/// The results of one load.
pub struct Figures {
    pub requests_a_second: f64,
    /// Processor time of the server per request, in µs.
    pub cpu_micros: f64,
    /// 99th percentile of the latency, in ms.
    pub p99_millis: f64,
}

/// A server process.
///
/// The process is killed when this value is dropped. It also exits when its standard input ends,
/// which happens when this process ends.
struct Server {
    child: Child,
    url: String,
}

impl Server {
    /// Starts a server for `load`, and waits until it listens.
    ///
    /// # Errors
    ///
    /// Returns an error if the process cannot be started, or if it does not print its address.
    fn start(load: &Load) -> Result<Self, Box<dyn Error>> {
        let mut child = parts::command(load.name).stdin(Stdio::piped()).spawn()?;
        let stdout = child.stdout.take().expect("it is piped");
        let mut line = String::new();
        let read = BufReader::new(stdout).read_line(&mut line);
        // Create the value before the errors below are returned: dropping it ends the process.
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
        // Ignore the errors: the process may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Raises the limit of open descriptors to at least `count`, for this process and for the
/// processes that it starts.
///
/// # Errors
///
/// Returns an error if the hard limit is lower.
fn allow_descriptors(count: u64) -> Result<(), Box<dyn Error>> {
    match limit_descriptors(u64::MAX) {
        limit if limit < count => {
            Err(format!("{count} descriptors are needed; the limit is {limit}").into())
        }
        _ => Ok(()),
    }
}

/// Runs `wrk` for `duration`, and returns its output.
///
/// # Errors
///
/// Returns an error if `wrk` cannot be started or fails, or if it reports socket errors or
/// responses other than success.
fn wrk(url: &str, load: &Load, duration: &str) -> Result<String, Box<dyn Error>> {
    let connections = load.connections.to_string();
    let output = Command::new("wrk")
        .args(["-t1", "-c", &connections, "-d", duration, "--latency", url])
        .output()
        .map_err(|error| format!("wrk, which `apt-get install wrk` installs: {error}"))?;
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        return Err(format!("wrk: {}: {}", output.status, stderr.trim()).into());
    }
    let text = String::from_utf8(output.stdout)?;
    for complaint in ["Socket errors", "Non-2xx"] {
        if let Some(line) = text.lines().find(|line| line.contains(complaint)) {
            return Err(format!("wrk: {}", line.trim()).into());
        }
    }
    Ok(text)
}

/// Returns the word after the last `label` in `text`.
fn after<'a>(text: &'a str, label: &str) -> Result<&'a str, Box<dyn Error>> {
    let rest = text.rsplit_once(label).map(|(_, rest)| rest);
    let word = rest.and_then(|rest| rest.split_whitespace().next());
    word.ok_or_else(|| format!("{label:?} is not in: {text}").into())
}

/// Parses a time as `wrk` prints it, and returns it in ms.
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

/// Starts a server, drives it with `wrk`, and returns the results.
fn figures(load: &Load, quick: bool) -> Result<Figures, Box<dyn Error>> {
    allow_descriptors(load.connections as u64 + SPARE)?;
    let server = Server::start(load)?;
    let duration = if quick {
        QUICK
    } else {
        wrk(&server.url, load, WARM_UP)?;
        DURATION
    };
    // `of_process` counts live threads only. The threads of the server live as long as its
    // process.
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

/// Drives a new server with `wrk`, and returns the results. Calls [`refuse`] on an error.
pub fn drive(load: &Load, quick: bool) -> Figures {
    figures(load, quick).unwrap_or_else(|error| refuse(format_args!("{}: {error}", load.name)))
}
