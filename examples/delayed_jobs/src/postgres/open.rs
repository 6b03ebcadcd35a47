//! Connects to a server, and makes the tables.

use std::{str::FromStr, sync::Arc, time::Duration};

use tokio_postgres::Config;
use tourbillon::time::sleep;

use super::{
    LOCKS, Postgres,
    connection::{Link, failed},
    rows,
    values::get,
};
use crate::{
    keeper,
    remote::Clock,
    store::{Changed, StoreError},
};

/// How often the listening connection is checked.
const LISTEN: Duration = Duration::from_millis(500);

/// Returns the version of the tables, or `None` if there are none.
async fn version(link: &Link) -> Result<Option<i64>, StoreError> {
    let found = link.query(rows::HAS_TABLES, &[]).await?;
    if !get::<bool>(found.first().ok_or(StoreError::Closed)?, 0)? {
        return Ok(None);
    }
    let found = link.query(rows::VERSION, &[]).await?;
    Ok(Some(
        found
            .first()
            .map(|row| get(row, 0))
            .transpose()?
            .unwrap_or(0),
    ))
}

/// Checks that the tables are those that this program needs.
async fn check_version(link: &Link) -> Result<(), StoreError> {
    match version(link).await?.unwrap_or(0) {
        StoreError::TABLES => Ok(()),
        other => Err(StoreError::Version(other)),
    }
}

impl Postgres {
    /// Connects to a server. Makes the tables if there are none: see [`migrate`](Self::migrate) for
    /// a user who may not, and for tables of an earlier version.
    ///
    /// `config` has the form `host=HOST port=PORT user=USER dbname=NAME`, or is a URL. If it names
    /// several hosts, each is tried in this order, and the first that takes writes is used.
    ///
    /// The store does not depend on the defaults of the server, such as
    /// `default_transaction_isolation`: it sets what it relies on in each session.
    ///
    /// # Errors
    ///
    /// Fails if the configuration is wrong, if no server can be reached, if there are no tables and
    /// this user may not make them, or with [`StoreError::Version`] if they are of another version.
    ///
    /// # Panics
    ///
    /// Panics outside of a Tourbillon runtime.
    pub async fn connect(config: &str) -> Result<Self, StoreError> {
        let config = Config::from_str(config).map_err(failed)?;
        let changed = Arc::new(Changed::new());
        let clients = Link::new(config.clone(), LOCKS, None);
        if version(&clients).await?.is_none() {
            // This may wait for others that make them.
            let link = Link::new(config.clone(), "", None);
            link.execute(&rows::tables()).await?;
        }
        check_version(&clients).await?;
        let found = clients.query(rows::NOW, &[]).await?;
        let first = found.first().ok_or(StoreError::Closed)?;
        let clock = Clock::new(get(first, 0)?);
        let listener = Arc::new(Link::new(
            config.clone(),
            "LISTEN durable_jobs",
            Some(changed.clone()),
        ));
        let listens = listener.clone();
        let listening = keeper::handle().spawn(async move {
            while !listens.is_over() {
                // Find out whether the connection has died silently. Ignore the error: if it is not
                // temporary, the other connections report it.
                let _ = listens.ping().await;
                sleep(LISTEN).await;
            }
        });
        Ok(Self {
            clients,
            changes: Link::new(config.clone(), LOCKS, None),
            lists: Link::new(config.clone(), "", None),
            begins: Link::new(config.clone(), LOCKS, None),
            holds: Link::new(config.clone(), "", None),
            ends: Link::new(config.clone(), LOCKS, None),
            leases: Link::new(config, "", None),
            changed,
            clock,
            listener,
            listening,
        })
    }

    /// Makes the tables, or brings those of an earlier version to this one. Their names begin with
    /// `durable_`.
    ///
    /// Programs that know only the earlier version, and have connected before, go on meanwhile and
    /// afterwards. They cannot connect any more once they have ended. To change the tables takes
    /// some seconds for millions of jobs, for which the programs wait.
    ///
    /// Only the user of this call needs the right to make tables. For the programs, another user is
    /// enough who has these rights:
    ///
    /// ```sql
    /// GRANT SELECT, INSERT, UPDATE, DELETE ON durable_jobs, durable_nodes TO worker;
    /// GRANT SELECT ON durable_version TO worker;
    /// GRANT USAGE ON SEQUENCE durable_numbers TO worker;
    /// ```
    ///
    /// # Errors
    ///
    /// Fails as [`connect`](Self::connect) does, if this user may not make or change tables, or if a
    /// transaction has locked a table for 5 s. Then nothing has changed.
    ///
    /// # Panics
    ///
    /// Panics outside of a Tourbillon runtime.
    pub async fn migrate(config: &str) -> Result<(), StoreError> {
        let config = Config::from_str(config).map_err(failed)?;
        let link = Link::new(config, "", None);
        // Later versions have other functions, which must stay.
        if version(&link)
            .await?
            .is_none_or(|version| version <= StoreError::TABLES)
        {
            // To read a large table takes long.
            link.execute_at_length(&rows::tables()).await?;
        }
        check_version(&link).await
    }
}
