//! Waiting for the end of a process.

use std::{
    io,
    os::fd::OwnedFd,
    process::{Child, ExitStatus},
};

use rustix::process::{Pid, PidfdFlags, pidfd_open};
use tourbillon::{
    io::{AsyncFd, Interest},
    runtime::is_rt_shutdown_err,
};

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
    ///
    /// The runtime of the watch may end meanwhile. The watch goes on in the runtime of the waiting
    /// thread then.
    pub(crate) async fn wait(&mut self, child: &mut Child) -> io::Result<ExitStatus> {
        loop {
            let is_watching = match self {
                // Not before it is readable: the system would tell this process that a child stands
                // still, if it traces the child, and the standard library takes that for the end.
                Self::Descriptor(descriptor) => match descriptor.readable().await {
                    Ok(mut ready) => {
                        // If this fails, the descriptor stays readable, and the next call fails,
                        // too.
                        if let Some(status) = child.try_wait()? {
                            return Ok(status);
                        }
                        // Another tracer keeps the status. There is another event when it lets the
                        // process go. If that came since the wait, this leaves the descriptor
                        // readable.
                        ready.clear_ready();
                        true
                    }
                    Err(error) if is_rt_shutdown_err(&error) => false,
                    Err(error) => return Err(error),
                },
                Self::Signal(signal) => {
                    // The watch began before this, so it sees an end that comes after it.
                    if let Some(status) = child.try_wait()? {
                        return Ok(status);
                    }
                    signal.recv().await.is_some()
                }
            };
            if !is_watching {
                *self = Self::of(child)?;
            }
        }
    }
}
