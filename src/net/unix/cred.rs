//! Credentials of the peer process.

use super::{gid_t, pid_t, uid_t};

/// Credentials of the process at the other end of a Unix socket, as of when the sockets were
/// connected. See [`UnixStream::peer_cred`](crate::net::UnixStream::peer_cred).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct UCred {
    pid: pid_t,
    uid: uid_t,
    gid: gid_t,
}

impl UCred {
    pub(super) fn new(cred: libc::ucred) -> Self {
        Self {
            pid: cred.pid,
            uid: cred.uid,
            gid: cred.gid,
        }
    }

    /// Returns the user ID.
    pub fn uid(&self) -> uid_t {
        self.uid
    }

    /// Returns the group ID.
    pub fn gid(&self) -> gid_t {
        self.gid
    }

    /// Returns the process ID, or `None` if this process cannot see it, as in another PID
    /// namespace.
    pub fn pid(&self) -> Option<pid_t> {
        (self.pid != 0).then_some(self.pid)
    }
}
