//! A running process.

use std::{
    future::poll_fn,
    io,
    pin::{Pin, pin},
    process::{self, ExitStatus, Output},
    task::{Context, Poll},
};

use real::io::{AsyncRead, ReadBuf};

use super::{
    exit::Exit,
    orphans,
    pipes::{ChildStderr, ChildStdin, ChildStdout},
};

/// A process that was started by this one.
///
/// If it is dropped, the process runs on, unless [`kill_on_drop`](super::Command::kill_on_drop) was
/// set. Its status is read when it has ended.
#[derive(Debug)]
pub struct Child {
    state: State,
    /// The standard input, if it is a pipe.
    pub stdin: Option<ChildStdin>,
    /// The standard output, if it is a pipe.
    pub stdout: Option<ChildStdout>,
    /// The standard error output, if it is a pipe.
    pub stderr: Option<ChildStderr>,
}

#[derive(Debug)]
enum State {
    Running(Running),
    Ended(ExitStatus),
}

/// A process whose status was not read.
#[derive(Debug)]
struct Running {
    /// `None` only while this is dropped.
    inner: Option<(process::Child, Exit)>,
    is_killed_on_drop: bool,
}

impl Running {
    fn inner(&mut self) -> &mut (process::Child, Exit) {
        self.inner.as_mut().expect("it is there until the drop")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let Some((mut child, exit)) = self.inner.take() else {
            return;
        };
        if self.is_killed_on_drop {
            // It may have ended, or may run as another user.
            _ = child.kill();
        }
        if matches!(child.try_wait(), Ok(None)) {
            orphans::adopt(child, exit);
        }
    }
}

impl Child {
    /// Wraps a process that was just started.
    pub(crate) fn new(mut child: process::Child, is_killed_on_drop: bool) -> io::Result<Self> {
        orphans::reap();
        let (stdin, stdout, stderr) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let exit = match Exit::of(&child) {
            Ok(exit) => exit,
            Err(error) => {
                // Nobody would wait for it.
                _ = child.kill();
                _ = child.wait();
                return Err(error);
            }
        };
        let running = Running {
            inner: Some((child, exit)),
            is_killed_on_drop,
        };
        Ok(Self {
            state: State::Running(running),
            stdin: stdin.map(ChildStdin::from_std).transpose()?,
            stdout: stdout.map(ChildStdout::from_std).transpose()?,
            stderr: stderr.map(ChildStderr::from_std).transpose()?,
        })
    }

    /// Returns the number of the process, or `None` if its status was read.
    pub fn id(&self) -> Option<u32> {
        match &self.state {
            State::Running(running) => running.inner.as_ref().map(|(child, _)| child.id()),
            State::Ended(_) => None,
        }
    }

    /// Kills the process, and does not wait for its end. Does nothing if its status was read.
    ///
    /// # Errors
    ///
    /// Returns the operating system's error.
    pub fn start_kill(&mut self) -> io::Result<()> {
        match &mut self.state {
            State::Running(running) => running.inner().0.kill(),
            State::Ended(_) => Ok(()),
        }
    }

    /// Kills the process, and waits for its end.
    ///
    /// # Errors
    ///
    /// See [`start_kill`](Child::start_kill).
    ///
    /// # Cancel safety
    ///
    /// If this is dropped after its first poll, the process is killed, and [`wait`](Child::wait)
    /// returns its status.
    pub async fn kill(&mut self) -> io::Result<()> {
        self.start_kill()?;
        self.wait().await.map(drop)
    }

    /// Closes the standard input, waits for the end of the process, and returns its status. It may
    /// be called again.
    ///
    /// If the runtime that started the process has ended, the runtime of the caller watches it.
    ///
    /// # Errors
    ///
    /// Returns the operating system's error, or an error if no runtime is left to watch.
    ///
    /// # Cancel safety
    ///
    /// If this is dropped, the standard input stays closed. A later call returns the status.
    pub async fn wait(&mut self) -> io::Result<ExitStatus> {
        // The child may wait for the end of its input.
        drop(self.stdin.take());
        match &mut self.state {
            State::Ended(status) => Ok(*status),
            State::Running(running) => {
                let (child, exit) = running.inner();
                let status = exit.wait(child).await?;
                self.end(status);
                Ok(status)
            }
        }
    }

    /// Returns the status if the process has ended.
    ///
    /// # Errors
    ///
    /// Returns the operating system's error.
    pub fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        match &mut self.state {
            State::Ended(status) => Ok(Some(*status)),
            State::Running(running) => {
                let ended = running.inner().0.try_wait()?;
                if let Some(status) = ended {
                    self.end(status);
                }
                Ok(ended)
            }
        }
    }

    /// Takes note of the status, which was read.
    fn end(&mut self, status: ExitStatus) {
        if let State::Running(running) = &mut self.state {
            // The number may belong to another process from now on, so nothing may kill it.
            running.inner = None;
        }
        self.state = State::Ended(status);
    }

    /// Closes the standard input, and reads both outputs until the process has ended.
    ///
    /// # Errors
    ///
    /// Returns the operating system's error, or an error if the runtime is shut down.
    ///
    /// # Cancel safety
    ///
    /// If this is dropped, so are the [`Child`] and what was read.
    pub async fn wait_with_output(mut self) -> io::Result<Output> {
        let (stdout, stderr) = (self.stdout.take(), self.stderr.take());
        // All at once: the child waits while a pipe is full.
        let (mut output, mut errors) = (Vec::new(), Vec::new());
        let status = {
            let (output, errors) = (&mut output, &mut errors);
            all(self.wait(), read(stdout, output), read(stderr, errors)).await?
        };
        Ok(Output {
            status,
            stdout: output,
            stderr: errors,
        })
    }
}

/// Reads to the end of a stream, if it is there.
async fn read(stream: Option<impl AsyncRead + Unpin>, to: &mut Vec<u8>) -> io::Result<()> {
    let Some(mut stream) = stream else {
        return Ok(());
    };
    let mut room = vec![0; 8192];
    loop {
        let mut buf = ReadBuf::new(&mut room);
        poll_fn(|cx| Pin::new(&mut stream).poll_read(cx, &mut buf)).await?;
        if buf.filled().is_empty() {
            return Ok(());
        }
        to.extend_from_slice(buf.filled());
    }
}

/// Runs three futures at once. Returns the result of the first one, or the first error.
async fn all<T>(
    first: impl Future<Output = io::Result<T>>,
    second: impl Future<Output = io::Result<()>>,
    third: impl Future<Output = io::Result<()>>,
) -> io::Result<T> {
    let (mut first, mut second, mut third) = (pin!(first), pin!(second), pin!(third));
    let mut outputs = (None, None, None);
    poll_fn(|cx| {
        poll_once_more(first.as_mut(), cx, &mut outputs.0)?;
        poll_once_more(second.as_mut(), cx, &mut outputs.1)?;
        poll_once_more(third.as_mut(), cx, &mut outputs.2)?;
        match (outputs.0.take(), outputs.1, outputs.2) {
            (Some(output), Some(()), Some(())) => Poll::Ready(Ok(output)),
            (output, ..) => {
                outputs.0 = output;
                Poll::Pending
            }
        }
    })
    .await
}

/// Polls a future that has no output yet.
fn poll_once_more<T>(
    future: Pin<&mut impl Future<Output = io::Result<T>>>,
    cx: &mut Context<'_>,
    output: &mut Option<T>,
) -> io::Result<()> {
    if output.is_none() {
        if let Poll::Ready(ready) = future.poll(cx) {
            *output = Some(ready?);
        }
    }
    Ok(())
}
