use std::{
    fs::File,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::mutant::Test;

/// How cargo builds the tests.
pub struct Cargo {
    pub package: Option<String>,
    pub profile: String,
    pub target: PathBuf,
}

/// A test program that cargo has built.
pub struct Program {
    path: PathBuf,
    /// The folder of its package, in which cargo runs it.
    folder: PathBuf,
}

/// How the run of a test ended.
pub enum Ended {
    Passed,
    /// The first line of the panic's message, or how the process ended.
    Failed(String),
    TimedOut,
    /// The program has no such test.
    Missing,
}

impl Cargo {
    /// Builds the program of a test. The error is what the compiler said.
    pub fn build(&self, tree: &Path, test: &Test) -> Result<Program, String> {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut flags = std::env::var("RUSTFLAGS").unwrap_or_default();
        if !flags.contains("--cfg loom") {
            flags.push_str(" --cfg loom");
        }
        let mut command = Command::new(cargo);
        command
            .args([
                "test",
                "--quiet",
                "--no-run",
                "--message-format",
                "json-render-diagnostics",
            ])
            .args(["--profile", &self.profile])
            .current_dir(tree)
            .env("RUSTFLAGS", flags)
            .env("CARGO_TARGET_DIR", &self.target);
        if let Some(package) = &self.package {
            command.args(["--package", package]);
        }
        match &*test.file {
            "lib" => command.arg("--lib"),
            file => command.args(["--test", file]),
        };
        let output = command
            .output()
            .map_err(|error| format!("cargo: {error}"))?;
        let said = String::from_utf8_lossy(&output.stderr);
        if !output.status.success() {
            return Err(said.into_owned());
        }
        let messages = String::from_utf8_lossy(&output.stdout);
        let program = messages.lines().find_map(|line| {
            let message: Value = serde_json::from_str(line).ok()?;
            let path = message["executable"].as_str()?.into();
            let manifest = Path::new(message["manifest_path"].as_str()?);
            let folder = manifest.parent()?.to_owned();
            message["profile"]["test"]
                .as_bool()?
                .then_some(Program { path, folder })
        });
        program.ok_or_else(|| {
            format!(
                "cargo named no program of the tests `{}`\n{said}",
                test.file
            )
        })
    }
}

impl Program {
    /// Runs one test, for at most as long as `timeout`. `log` gets what it prints.
    pub fn run(
        &self,
        test: &Test,
        bound: Option<usize>,
        timeout: Duration,
        log: &Path,
    ) -> Result<Ended, String> {
        let at = |error| format!("{}: {error}", self.path.display());
        let out = File::create(log).map_err(at)?;
        let mut command = Command::new(&self.path);
        command
            // Without capture a process that aborts has printed why.
            .args(["--exact", &test.path, "--include-ignored", "--nocapture"])
            .current_dir(&self.folder)
            .stdin(Stdio::null())
            .stdout(out.try_clone().map_err(at)?)
            .stderr(out)
            .env("RUST_BACKTRACE", "0");
        // A model that stops passes, and another bound is not that of CI.
        for limit in [
            "MAX_PREEMPTIONS",
            "MORE_PREEMPTIONS",
            "MAX_MINUTES",
            "TRACE",
        ] {
            command.env_remove(format!("LOOM_{limit}"));
        }
        if let Some(bound) = bound {
            command.env("LOOM_MAX_PREEMPTIONS", bound.to_string());
        }
        let mut child = command.spawn().map_err(at)?;
        let Some(status) = wait(&mut child, timeout).map_err(at)? else {
            return Ok(Ended::TimedOut);
        };
        let printed = std::fs::read(log).map_err(at)?;
        let printed = String::from_utf8_lossy(&printed);
        if !status.success() {
            let why = first_message(&printed).map(str::to_owned);
            return Ok(Ended::Failed(why.unwrap_or_else(|| status.to_string())));
        }
        let ran = printed.contains("test result: ok. 1 passed");
        Ok(if ran { Ended::Passed } else { Ended::Missing })
    }
}

/// The first line of the first panic's message. Panics that follow come from what the first one left
/// behind.
fn first_message(printed: &str) -> Option<&str> {
    // The place of the panic is in the line above the message.
    let mut lines = printed.lines();
    lines.find(|line| line.starts_with("thread '") && line.contains(" panicked at "))?;
    lines.map(str::trim).find(|line| !line.is_empty())
}

/// Waits for a process, and kills it if it takes longer. Returns how it ended by itself.
fn wait(child: &mut Child, timeout: Duration) -> std::io::Result<Option<ExitStatus>> {
    let begin = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if begin.elapsed() > timeout {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        thread::sleep(Duration::from_millis(20));
    }
}
