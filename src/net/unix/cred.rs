//! Credentials of the peer process.

/// Credentials of the process at the other end of a Unix socket, as of when the sockets were
/// connected. See [`UnixStream::peer_cred`](crate::net::UnixStream::peer_cred).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct UCred {
    pid: i32,
    uid: u32,
    gid: u32,
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
    pub fn uid(&self) -> u32 {
        self.uid
    }

    /// Returns the group ID.
    pub fn gid(&self) -> u32 {
        self.gid
    }

    /// Returns the process ID, or `None` if this process cannot see it, as in another PID
    /// namespace.
    pub fn pid(&self) -> Option<i32> {
        (self.pid != 0).then_some(self.pid)
    }
}
