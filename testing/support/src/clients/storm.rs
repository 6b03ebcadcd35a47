//! A storm of the program, which serves its page.

use std::{
    io::{BufRead, BufReader},
    net::SocketAddr,
    path::Path,
    process::{Child, Stdio},
};

use super::tourbillon;

/// A running storm, which is killed when this is dropped, unless it has ended.
pub struct Storm {
    child: Child,
    /// The address of its page.
    pub addr: SocketAddr,
}

impl Storm {
    pub fn start(args: &[&str]) -> Self {
        let mut child = tourbillon()
            .args(["storm", "--inspect", "127.0.0.1:0", "--format", "json"])
            .args(args)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let stderr = child.stderr.take().unwrap();
        BufReader::new(stderr).read_line(&mut line).unwrap();
        let addr = page_address(&line);
        Self { child, addr }
    }

    /// Returns the number of the storm's process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns the URL of its page.
    pub fn url(&self) -> String {
        format!("http://{}/", self.addr)
    }

    /// Waits until the storm ends, and returns its report.
    pub fn end(mut self) -> serde_json::Value {
        let out = std::io::read_to_string(self.child.stdout.take().unwrap()).unwrap();
        assert!(self.child.wait().unwrap().success(), "{out}");
        serde_json::from_str(&out).unwrap()
    }
}

impl Drop for Storm {
    fn drop(&mut self) {
        // It may have ended, and been waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the address from the line that says where the page is.
pub fn page_address(line: &str) -> SocketAddr {
    let addr = line.strip_prefix("inspect: http://");
    let addr = addr.and_then(|rest| rest.trim_end().strip_suffix('/'));
    let addr = addr.unwrap_or_else(|| panic!("no address: {line:?}"));
    addr.parse().unwrap()
}

/// Runs a storm of this many timers to its end. It writes a trace of all that it records to `path`.
#[track_caller]
pub fn write_trace(timers: &str, path: &Path) {
    let output = tourbillon()
        .args(["storm", "--timers", timers, "--spread", "100ms"])
        .args(["--tasks", "50", "--record", "full", "--trace"])
        .arg(path)
        .output()
        .unwrap();
    let err = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(0), "{err}");
}
