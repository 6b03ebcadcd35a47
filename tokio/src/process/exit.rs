//! Waiting for the end of a process.

use std::{
    io,
    os::fd::OwnedFd,
    process::{Child, ExitStatus},
    task::{Context, Poll, ready},
};

use rustix::process::{Pid, PidfdFlags, pidfd_open};
use tourbillon::io::{AsyncFd, Interest};

use crate::signal::unix::{Signal, SignalKind, signal};

/// Becomes ready when a process may have ended.
#[derive(Debug)]
pub(crate) enum Exit {
    /// By a descriptor of the process, which is readable when it has ended.
    Descriptor(AsyncFd<OwnedFd>),
    /// By `SIGCHLD`, where the kernel has no such descriptors.
    Signal(Signal),
}

impl Exit {
    /// Watches a process that has not been awaited.
    ///
    /// # Errors
    ///
    /// Fails outside of a runtime, or with the operating system's error.
    pub(crate) fn of(child: &Child) -> io::Result<Self> {
        match pidfd_open(Pid::from_child(child), PidfdFlags::empty()) {
            Ok(descriptor) => {
                AsyncFd::with_interest(descriptor, Interest::READABLE).map(Self::Descriptor)
            }
            // A kernel before 5.3, or a sandbox.
            Err(rustix::io::Errno::NOSYS | rustix::io::Errno::PERM) => {
                signal(SignalKind::child()).map(Self::Signal)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Waits until the process has ended, and returns its status.
    pub(crate) async fn wait(&mut self, child: &mut Child) -> io::Result<ExitStatus> {
        loop {
            // The watch began before this, so it sees an end that comes after it.
            if let Some(status) = child.try_wait()? {
                return Ok(status);
            }
            match self {
                Self::Descriptor(descriptor) => {
                    descriptor.readable().await?.retain_ready();
                }
                Self::Signal(signal) => {
                    let shut_down = || io::Error::other("the runtime is shut down");
                    signal.recv().await.ok_or_else(shut_down)?;
                }
            }
        }
    }

    /// Polls a descriptor for the end of its process. A signal is never ready here.
    pub(crate) fn poll(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Descriptor(descriptor) => {
                ready!(descriptor.poll_read_ready(cx))?.retain_ready();
                Poll::Ready(Ok(()))
            }
            Self::Signal(_) => Poll::Pending,
        }
    }
}
