//! Addresses and directories for Unix sockets.

use std::{
    fs,
    os::{linux::net::SocketAddrExt, unix::net::SocketAddr},
    path::PathBuf,
    sync::atomic::{AtomicU32, Ordering},
};

use tourbillon::net::UnixListener;

/// A directory that is removed on drop.
pub struct Dir(PathBuf);

impl Dir {
    pub fn new() -> Self {
        let dir = std::env::temp_dir().join(unique());
        fs::create_dir(&dir).unwrap();
        Self(dir)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Returns a name that no other test and no other run uses.
pub fn unique() -> String {
    static LAST: AtomicU32 = AtomicU32::new(0);
    let n = LAST.fetch_add(1, Ordering::Relaxed);
    format!("tourbillon-{}-{n}", std::process::id())
}

pub fn abstract_addr() -> SocketAddr {
    SocketAddr::from_abstract_name(unique()).unwrap()
}

/// Listens at a unique abstract name.
pub fn listen() -> (UnixListener, SocketAddr) {
    let addr = abstract_addr();
    (UnixListener::bind_addr(&addr).unwrap(), addr)
}
