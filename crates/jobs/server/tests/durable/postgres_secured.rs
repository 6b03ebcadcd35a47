//! Servers of PostgreSQL with TLS, for tests.

use crate::{
    certificates::{Authority, Pair},
    server::{Postgres, Server},
    shared::start,
    support::Dir,
};

/// Lets everybody in who has TLS.
pub const ONLY_TLS: &str = "hostssl all all 127.0.0.1/32 trust";

/// A server with TLS.
pub struct Secured {
    pub server: Postgres,
    pub dir: Dir,
    pub authority: Authority,
    /// The file of the authority.
    pub root: String,
}

impl Secured {
    /// Starts a server whose certificate is for `localhost`, and which lets clients in by these
    /// rules. Returns `None` if the test is to be skipped.
    pub fn start(rules: &str) -> Option<Self> {
        Self::start_by(Authority::new(), &["localhost"], rules)
    }

    /// Likewise, with a certificate of this authority for these names.
    pub fn start_by(authority: Authority, names: &[&str], rules: &str) -> Option<Self> {
        let (server, dir) = (start::<Postgres>()?, Dir::new());
        let root = authority.write(&dir, "root.crt");
        let certificate = authority.server(names);
        let mut secured = Self {
            server,
            dir,
            authority,
            root,
        };
        secured.server.write("pg_hba.conf", rules);
        secured
            .server
            .write("root.crt", &secured.authority.certificate);
        secured.server.settings.push("ssl_ca_file=root.crt".into());
        secured.set_certificate(&certificate);
        Some(secured)
    }

    /// Gives the server another certificate, and starts it again.
    pub fn set_certificate(&mut self, pair: &Pair) {
        self.server.write("server.crt", &pair.certificate);
        self.server.write("server.key", &pair.key);
        self.server.settings.push("ssl=on".into());
        self.server.crash().unwrap();
    }

    /// Returns a configuration that leads to the server by this name.
    pub fn config(&self, host: &str, options: &str) -> String {
        let port = self.server.port();
        format!("host={host} port={port} user=postgres dbname=postgres {options}")
    }

    /// Likewise, with all that a client can demand.
    pub fn full(&self) -> String {
        let options = format!("sslmode=verify-full sslrootcert={}", self.root);
        self.config("localhost", &options)
    }
}
