//! One run of `wrk` against a new server.

use std::{
    env,
    error::Error,
    fs,
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
    time::Duration,
};

use crate::servers::Load;

/// Load before the measurement, so that the server's caches are warm.
const WARM_UP: &str = "1s";

/// The figures of one run.
pub struct Figures {
    pub requests_a_second: f64,
    pub cpu_micros_a_request: f64,
    pub p50_millis: f64,
    pub p99_millis: f64,
}

/// A server process. Dropping it ends the process.
struct Server {
    child: Child,
    url: String,
}

impl Server {
    fn start(system: &str, load: &Load) -> Result<Self, Box<dyn Error>> {
        let mut child = Command::new(env::current_exe()?)
            .args(["serve", system, load.name])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()?;
        let stdout = child.stdout.take().expect("it is piped");
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line)?;
        let addr = line.trim_end().strip_prefix("listening on ");
        let url = format!("http://{}/", addr.ok_or("the server does not listen")?);
        Ok(Self { child, url })
    }

    /// Returns the CPU time of all its threads so far.
    fn cpu(&self) -> Result<Duration, Box<dyn Error>> {
        let mut nanos = 0;
        for thread in fs::read_dir(format!("/proc/{}/task", self.child.id()))? {
            let stat = fs::read_to_string(thread?.path().join("schedstat"))?;
            let on_cpu = stat.split_whitespace().next().ok_or("no schedstat")?;
            nanos += on_cpu.parse::<u64>()?;
        }
        Ok(Duration::from_nanos(nanos))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs `wrk` and returns its output.
fn wrk(server: &Server, load: &Load, duration: &str) -> Result<String, Box<dyn Error>> {
    let output = Command::new("wrk")
        .args(["-t1", "-c", load.connections, "-d", duration, "--latency"])
        .arg(&server.url)
        .output()
        .map_err(|error| format!("wrk, which `apt-get install wrk` installs: {error}"))?;
    let text = String::from_utf8(output.stdout)?;
    for complaint in ["Socket errors", "Non-2xx"] {
        if let Some(line) = text.lines().find(|line| line.contains(complaint)) {
            return Err(line.trim().into());
        }
    }
    Ok(text)
}

/// Returns the word after the last occurrence of `label`.
fn after<'a>(text: &'a str, label: &str) -> Result<&'a str, Box<dyn Error>> {
    let rest = text.rsplit_once(label).map(|(_, rest)| rest);
    let word = rest.and_then(|rest| rest.split_whitespace().next());
    word.ok_or_else(|| format!("{label:?} is not in: {text}").into())
}

/// Parses a time of `wrk`, and returns ms.
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

/// Runs `wrk` for this many seconds against a new server.
pub fn run(system: &str, load: &Load, seconds: u64) -> Result<Figures, Box<dyn Error>> {
    let server = Server::start(system, load)?;
    wrk(&server, load, WARM_UP)?;
    let before = server.cpu()?;
    let text = wrk(&server, load, &format!("{seconds}s"))?;
    let cpu = server.cpu()? - before;
    let requests = text
        .lines()
        .find_map(|line| line.trim().split_once(" requests in "))
        .ok_or("how many requests?")?
        .0
        .parse::<f64>()?;
    Ok(Figures {
        requests_a_second: after(&text, "Requests/sec:")?.parse()?,
        cpu_micros_a_request: cpu.as_secs_f64() * 1e6 / requests,
        p50_millis: millis(after(&text, "50% ")?)?,
        p99_millis: millis(after(&text, "99% ")?)?,
    })
}
