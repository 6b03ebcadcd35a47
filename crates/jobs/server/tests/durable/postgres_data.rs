//! What tests do to a PostgreSQL.

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt, chown},
    path::PathBuf,
};

use crate::server::Postgres;

impl Postgres {
    /// Returns the directory of the server's data.
    pub fn data(&self) -> PathBuf {
        self.dir.path("data")
    }

    /// Stops the server.
    pub fn halt(&mut self) {
        self.stop("immediate");
    }

    /// Writes a file among the server's data.
    pub fn write(&self, name: &str, contents: &str) {
        let data = self.data();
        let path = data.join(name);
        fs::write(&path, contents).unwrap();
        // A server refuses keys that others may read.
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        let owner = fs::metadata(&data).unwrap();
        chown(&path, Some(owner.uid()), Some(owner.gid())).unwrap();
    }
}
