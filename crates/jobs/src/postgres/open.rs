//! Connects to a server. Makes the tables.

use std::{
    str::FromStr,
    sync::{Arc, OnceLock},
};

use super::{LOCKS, Postgres, connection::Link, rows, servers::Servers, tables, values::get};
use crate::{
    remote::{Clock, listen},
    store::{Changed, StoreError},
};

/// Returns the version of the tables, or `None` if there are none.
pub(super) async fn version(link: &Link) -> Result<Option<i64>, StoreError> {
    if !get::<bool>(&link.query_one(tables::HAS_TABLES, &[]).await?, 0)? {
        return Ok(None);
    }
    let found = link.query(tables::VERSION, &[]).await?;
    let version = found.first().map(|row| get(row, 0)).transpose()?;
    Ok(Some(version.unwrap_or(0)))
}

/// Checks that the tables are those that this program needs.
pub(super) async fn check_version(link: &Link) -> Result<(), StoreError> {
    match version(link).await?.unwrap_or(0) {
        StoreError::TABLES => Ok(()),
        other => Err(StoreError::Version(other)),
    }
}

/// Makes the tables, unless another program makes them at the same time.
pub(super) async fn make(link: &Link) -> Result<(), StoreError> {
    let made = link.execute(&tables::all()).await;
    if made.is_err() {
        // It fails if the connection is lost.
        let _ = link.execute("ROLLBACK").await;
        // The tables of an earlier version may have been in the way.
        if version(link).await.is_ok_and(|found| found.is_some()) {
            return Ok(());
        }
    }
    made
}

impl Postgres {
    /// Connects to a server, whose tables [`migrate`](Self::migrate) has made.
    ///
    /// This changes no table and makes none, so a user with few rights is enough.
    ///
    /// `config` has the form `host=HOST port=PORT user=USER dbname=NAME`, or is a URL. If it names
    /// several hosts, each is tried in this order, and the first that takes writes is used. The
    /// variables of the environment that libpq has (`PGHOST` and so on) are not read.
    ///
    /// With the feature `tls`, the options `sslmode`, `sslrootcert`, `sslcert`, `sslkey`,
    /// `sslnegotiation` and `channel_binding` are those of libpq: see `GUIDE.md`. Without the
    /// feature, what demands TLS fails.
    ///
    /// The store does not depend on the defaults of the server, such as
    /// `default_transaction_isolation`: it sets what it relies on in each session.
    ///
    /// # Errors
    ///
    /// Fails if the configuration is wrong, if no server can be reached, with [`StoreError::Tls`]
    /// if there is no TLS as it is demanded (of several hosts, the text has each error), or with
    /// [`StoreError::Version`] if there are no tables or those of another version.
    pub async fn connect(config: &str) -> Result<Self, StoreError> {
        let servers = Servers::from_str(config)?;
        let changed = Arc::new(Changed::new());
        let clients = Link::new(servers.clone(), LOCKS, None);
        check_version(&clients).await?;
        let now = clients.query_one(rows::NOW, &[]).await?;
        let clock = Clock::new(get(&now, 0)?);
        let link = |setup| Link::new(servers.clone(), setup, None);
        let listens = "LISTEN durable_jobs";
        let listener = Link::new(servers.clone(), listens, Some(changed.clone()));
        Ok(Self {
            clients,
            changes: link(LOCKS),
            lists: link(""),
            begins: link(LOCKS),
            holds: link(""),
            ends: link(LOCKS),
            leases: link(""),
            changed,
            clock,
            has_kinds: OnceLock::new(),
            has_kept: OnceLock::new(),
            _listening: listen(listener),
        })
    }
}
