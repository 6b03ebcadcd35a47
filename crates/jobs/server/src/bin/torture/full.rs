//! Processes whose files may not grow, as if the disk were full.

use std::{
    env,
    fs::File,
    io::{self, BufRead, BufReader, Write},
    path::Path,
    process::{ChildStdout, Command, Stdio},
    thread::{self, JoinHandle},
};

/// Returns a command that starts this program. No file of the process grows beyond `kib`: a write
/// that would need more fails.
pub fn command(kib: u64) -> io::Result<Command> {
    // A shell does this without unsafe code. The unit of `ulimit -f` is 512 bytes. Only the soft
    // limit is set, which can be lifted.
    let script = "trap '' XFSZ; ulimit -S -f $0; exec \"$@\"";
    let mut command = Command::new("sh");
    command
        .args(["-c", script, &(2 * kib).to_string()])
        .arg(env::current_exe()?);
    Ok(command)
}

/// Lets the files of a process grow.
pub fn give_space(process: u32) -> io::Result<()> {
    // It fails if the process has ended meanwhile.
    Command::new("prlimit")
        .args(["--pid", &process.to_string(), "--fsize=unlimited:"])
        .stderr(Stdio::null())
        .status()
        .map(drop)
}

/// Appends to the history what a process prints, as it may not write the file. Each event is one
/// write to a pipe, which survives the process.
pub fn copy(stdout: ChildStdout, history: &Path) -> io::Result<JoinHandle<io::Result<()>>> {
    let mut history = File::options().create(true).append(true).open(history)?;
    Ok(thread::spawn(move || {
        for line in BufReader::new(stdout).lines() {
            history.write_all(format!("{}\n", line?).as_bytes())?;
        }
        Ok(())
    }))
}
