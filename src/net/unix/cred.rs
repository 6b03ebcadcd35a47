//! Who is at the other end.

/// The process at the other end of a Unix socket, as it was when that was connected: see
/// [`UnixStream::peer_cred`](crate::net::UnixStream::peer_cred).
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

    /// Its user.
    pub fn uid(&self) -> u32 {
        self.uid
    }

    /// Its group.
    pub fn gid(&self) -> u32 {
        self.gid
    }

    /// Its number; `None` if it has none that can be seen from here, as in another PID namespace.
    pub fn pid(&self) -> Option<i32> {
        (self.pid != 0).then_some(self.pid)
    }
}
