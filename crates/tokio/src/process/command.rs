//! How to start a process.

use std::{
    ffi::OsStr,
    io,
    os::unix::process::CommandExt,
    path::Path,
    process::{self, ExitStatus, Output, Stdio},
};

use super::Child;

/// A process to start, with the options of the standard library's `Command`.
#[derive(Debug)]
pub struct Command {
    command: process::Command,
    is_killed_on_drop: bool,
}

impl Command {
    /// Creates a command that starts a program.
    pub fn new(program: impl AsRef<OsStr>) -> Self {
        process::Command::new(program).into()
    }

    /// Returns the command of the standard library.
    pub fn as_std(&self) -> &process::Command {
        &self.command
    }

    /// Returns the command of the standard library.
    pub fn as_std_mut(&mut self) -> &mut process::Command {
        &mut self.command
    }

    /// Returns the command of the standard library.
    pub fn into_std(self) -> process::Command {
        self.command
    }

    /// Adds an argument.
    pub fn arg(&mut self, arg: impl AsRef<OsStr>) -> &mut Self {
        self.command.arg(arg);
        self
    }

    /// Adds arguments.
    pub fn args<I, S>(&mut self, args: I) -> &mut Self
    where
        I: IntoIterator<Item = S>,
        S: AsRef<OsStr>,
    {
        self.command.args(args);
        self
    }

    /// Sets the name by which the program is called.
    pub fn arg0(&mut self, arg: impl AsRef<OsStr>) -> &mut Self {
        self.command.arg0(arg);
        self
    }

    /// Sets a variable of the environment.
    pub fn env<K, V>(&mut self, key: K, value: V) -> &mut Self
    where
        K: AsRef<OsStr>,
        V: AsRef<OsStr>,
    {
        self.command.env(key, value);
        self
    }

    /// Sets variables of the environment.
    pub fn envs<I, K, V>(&mut self, variables: I) -> &mut Self
    where
        I: IntoIterator<Item = (K, V)>,
        K: AsRef<OsStr>,
        V: AsRef<OsStr>,
    {
        self.command.envs(variables);
        self
    }

    /// Removes a variable from the environment.
    pub fn env_remove(&mut self, key: impl AsRef<OsStr>) -> &mut Self {
        self.command.env_remove(key);
        self
    }

    /// Empties the environment.
    pub fn env_clear(&mut self) -> &mut Self {
        self.command.env_clear();
        self
    }

    /// Sets the working directory.
    pub fn current_dir(&mut self, dir: impl AsRef<Path>) -> &mut Self {
        self.command.current_dir(dir);
        self
    }

    /// Sets the standard input.
    pub fn stdin(&mut self, stdin: impl Into<Stdio>) -> &mut Self {
        self.command.stdin(stdin);
        self
    }

    /// Sets the standard output.
    pub fn stdout(&mut self, stdout: impl Into<Stdio>) -> &mut Self {
        self.command.stdout(stdout);
        self
    }

    /// Sets the standard error output.
    pub fn stderr(&mut self, stderr: impl Into<Stdio>) -> &mut Self {
        self.command.stderr(stderr);
        self
    }

    /// Sets the user.
    pub fn uid(&mut self, id: u32) -> &mut Self {
        self.command.uid(id);
        self
    }

    /// Sets the user's group.
    pub fn gid(&mut self, id: u32) -> &mut Self {
        self.command.gid(id);
        self
    }

    /// Sets the process group. 0 is a new one.
    pub fn process_group(&mut self, group: i32) -> &mut Self {
        self.command.process_group(group);
        self
    }

    /// Sets a function that the child calls before it starts the program.
    ///
    /// # Safety
    ///
    /// See the standard library's `pre_exec`: after a `fork`, little is allowed.
    pub unsafe fn pre_exec<F>(&mut self, f: F) -> &mut Self
    where
        F: FnMut() -> io::Result<()> + Send + Sync + 'static,
    {
        // SAFETY: the caller promises what the standard library asks for.
        unsafe { self.command.pre_exec(f) };
        self
    }

    /// Sets whether the process is killed when its [`Child`], or the future of
    /// [`status`](Command::status) or [`output`](Command::output), is dropped. By default it is
    /// not.
    pub fn kill_on_drop(&mut self, kill_on_drop: bool) -> &mut Self {
        self.is_killed_on_drop = kill_on_drop;
        self
    }

    /// Returns what [`kill_on_drop`](Command::kill_on_drop) has set.
    pub fn get_kill_on_drop(&self) -> bool {
        self.is_killed_on_drop
    }

    /// Starts the process.
    ///
    /// # Errors
    ///
    /// Returns the operating system's error.
    ///
    /// # Panics
    ///
    /// Panics outside of a runtime, and in one without sockets.
    #[track_caller]
    pub fn spawn(&mut self) -> io::Result<Child> {
        self.spawn_with(process::Command::spawn)
    }

    /// Starts the process by a function that gets the command of the standard library.
    ///
    /// # Errors
    ///
    /// Returns the error of the function, or the operating system's error.
    ///
    /// # Panics
    ///
    /// Panics outside of a runtime, and in one without sockets.
    #[track_caller]
    pub fn spawn_with(
        &mut self,
        spawn: impl Fn(&mut process::Command) -> io::Result<process::Child>,
    ) -> io::Result<Child> {
        // Before there is a process that nothing could wait for.
        crate::context::need_io();
        // The child has the cores of the process, and not that of this worker.
        let child = tourbillon::runtime::with_all_cores(|| spawn(&mut self.command))?;
        Child::new(child, self.is_killed_on_drop)
    }

    /// Starts the process, and waits for its end with closed pipes.
    ///
    /// # Errors
    ///
    /// The future returns the operating system's error.
    ///
    /// # Panics
    ///
    /// Panics outside of a runtime, and in one without sockets.
    #[track_caller]
    pub fn status(&mut self) -> impl Future<Output = io::Result<ExitStatus>> + use<> {
        let child = self.spawn();
        async {
            let mut child = child?;
            // A child that writes into a pipe that nobody reads would wait for ever.
            drop((child.stdout.take(), child.stderr.take()));
            child.wait().await
        }
    }

    /// Starts the process with pipes for its output, and reads them until it has ended.
    ///
    /// # Errors
    ///
    /// The future returns the operating system's error.
    ///
    /// # Panics
    ///
    /// Panics outside of a runtime, and in one without sockets.
    #[track_caller]
    pub fn output(&mut self) -> impl Future<Output = io::Result<Output>> + use<> {
        self.stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = self.spawn();
        async { child?.wait_with_output().await }
    }
}

impl From<process::Command> for Command {
    fn from(command: process::Command) -> Self {
        Self {
            command,
            is_killed_on_drop: false,
        }
    }
}
