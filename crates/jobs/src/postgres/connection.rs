//! A connection that is made again when it is lost.

use std::{
    collections::HashMap,
    fmt,
    future::poll_fn,
    net::IpAddr,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
};

use tokio_postgres::{
    AsyncMessage, Client, Config, Connection, NoTls, Row, SimpleQueryMessage, Statement,
    config::Host, error::SqlState, tls::NoTlsStream, types::ToSql,
};
use tourbillon::time::timeout;

use crate::{
    remote::{self, Aborts, LIMIT, Listener, Slot, Stream, lost, tcp, unix},
    store::{Changed, StoreError},
};

/// Settings that let the server end the connection of a client that vanished, within 20 s. Such a
/// connection may hold locks.
const KEEP_ALIVE: &str = "SET tcp_keepalives_idle = 10; SET tcp_keepalives_interval = 3;
    SET tcp_keepalives_count = 3;";

/// Sets what the store relies on, whatever the defaults of the server, the database and the user
/// are. An older server may not have all of these limits of time.
const SESSION: &str = "
    SET default_transaction_isolation = 'read committed';
    SET default_transaction_read_only = off;
    SELECT set_config('synchronous_commit', 'on', false)
        WHERE current_setting('synchronous_commit') = 'off';
    SELECT set_config(name, '0', false) FROM pg_settings
        WHERE name IN ('lock_timeout', 'transaction_timeout',
            'idle_in_transaction_session_timeout', 'idle_session_timeout');
    SET statement_timeout = 8000;";

// A statement that takes too long ends alone: before the connection does, which others use.
const _: () = assert!(LIMIT.as_millis() > 8000);

pub(super) type Parameters<'a> = &'a [&'a (dyn ToSql + Sync)];

struct Live {
    /// The task that moves the connection's data. Dropped first: an end of `client` would have the
    /// task send what waits, and wait for answers.
    driving: Aborts<()>,
    client: Client,
    statements: Mutex<HashMap<&'static str, Statement>>,
}

impl remote::Connection for Live {
    fn is_usable(&self) -> bool {
        !self.client.is_closed()
    }

    fn close(&self) {
        self.driving.0.abort();
    }
}

impl Live {
    /// Prepares a statement, unless it is prepared.
    async fn prepare(&self, text: &'static str) -> Result<Statement, tokio_postgres::Error> {
        let statements = || {
            self.statements
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
        };
        let known = statements().get(text).cloned();
        if let Some(statement) = known {
            return Ok(statement);
        }
        let made = self.client.prepare(text).await?;
        statements().insert(text, made.clone());
        Ok(made)
    }
}

/// What is needed to make a connection.
struct Way {
    config: Config,
    /// Runs after each connect.
    setup: &'static str,
    /// The receivers to tell of each notification, and of each connect.
    changed: Option<Arc<Changed>>,
}

/// A connection, or what is needed to make it.
pub(super) struct Link {
    way: Arc<Way>,
    slot: Slot<Live>,
}

pub(super) fn failed(error: tokio_postgres::Error) -> StoreError {
    match error.code() {
        Some(code) if *code == SqlState::DISK_FULL => StoreError::Full,
        Some(code) if *code == SqlState::LOCK_NOT_AVAILABLE => StoreError::Locked,
        // The classes of wrong data, of constraints, and of the server's limits.
        Some(code) if ["22", "23", "54"].contains(&&code.code()[..2]) => {
            match error.as_db_error() {
                Some(said) => StoreError::Refused(Arc::new(said.clone())),
                None => StoreError::Refused(Arc::new(error)),
            }
        }
        _ => StoreError::failed(error),
    }
}

/// Returns whether the server has undone a statement because of others that ran at the same time.
fn is_undone(error: &tokio_postgres::Error) -> bool {
    let undone = [
        SqlState::T_R_DEADLOCK_DETECTED,
        SqlState::T_R_SERIALIZATION_FAILURE,
    ];
    error.code().is_some_and(|code| undone.contains(code))
}

/// The address of a server.
enum Place {
    Tcp(String, u16),
    Ip(IpAddr, u16),
    Unix(PathBuf),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(host, port) => write!(f, "{host} port {port}"),
            Self::Ip(host, port) => write!(f, "{host} port {port}"),
            Self::Unix(path) => path.display().fmt(f),
        }
    }
}

/// Returns the addresses that a configuration names, in its order.
fn places(config: &Config) -> Result<Vec<Place>, StoreError> {
    let (hosts, addrs, ports) = (
        config.get_hosts(),
        config.get_hostaddrs(),
        config.get_ports(),
    );
    let count = hosts.len().max(addrs.len());
    let is_matched = |len| len == 0 || len == count;
    if !is_matched(hosts.len()) || !is_matched(addrs.len()) {
        return Err(lost("the configuration needs as many `hostaddr` as `host`"));
    }
    if ports.len() > 1 && ports.len() != count {
        return Err(lost(
            "the configuration needs one `port`, or as many as `host`",
        ));
    }
    let place = |number: usize| {
        let port = ports.get(number).or(ports.first()).copied().unwrap_or(5432);
        match (addrs.get(number), hosts.get(number)) {
            (Some(addr), _) => Some(Place::Ip(*addr, port)),
            (None, Some(Host::Tcp(name))) => Some(Place::Tcp(name.clone(), port)),
            (None, Some(Host::Unix(dir))) => {
                Some(Place::Unix(dir.join(format!(".s.PGSQL.{port}"))))
            }
            (None, None) => None,
        }
    };
    let places: Vec<_> = (0..count).filter_map(place).collect();
    if places.is_empty() {
        return Err(lost("the configuration names no `host`"));
    }
    Ok(places)
}

impl Way {
    /// Connects to the first server of the configuration that takes writes.
    async fn connect(&self) -> Result<Live, StoreError> {
        let places = places(&self.config)?;
        let count = u32::try_from(places.len()).unwrap_or(u32::MAX);
        // A server that does not answer leaves time for the others.
        let share = LIMIT / count;
        let limit = self.config.get_connect_timeout();
        let limit = limit.map_or(share, |limit| share.min(*limit));
        let mut errors = Vec::new();
        for place in &places {
            let made = match timeout(limit, self.connect_to(place)).await {
                Ok(made) => made,
                Err(_) => Err(lost("the server does not answer")),
            };
            match made {
                Ok(live) => return Ok(live),
                Err(error) if count == 1 => return Err(error),
                Err(error) => errors.push(format!("{place}: {error}")),
            }
        }
        Err(lost(&errors.join("; ")))
    }

    async fn connect_to(&self, place: &Place) -> Result<Live, StoreError> {
        let (client, driving) = match place {
            Place::Tcp(name, port) => self.start(tcp((name.as_str(), *port)).await?).await?,
            Place::Ip(addr, port) => self.start(tcp((*addr, *port)).await?).await?,
            Place::Unix(path) => self.start(unix(path).await?).await?,
        };
        let setup = format!(
            "{KEEP_ALIVE} {SESSION} {}; SELECT pg_is_in_recovery()",
            self.setup
        );
        let answers = client.simple_query(&setup).await.map_err(failed)?;
        let mut rows = answers.iter().filter_map(|answer| match answer {
            SimpleQueryMessage::Row(row) => Some(row),
            _ => None,
        });
        if rows.next_back().and_then(|row| row.get(0)) == Some("t") {
            return Err(lost(
                "the server is a standby, which takes no writes; name the primary",
            ));
        }
        // Notifications may have been missed until now.
        if let Some(changed) = &self.changed {
            changed.tell();
        }
        Ok(Live {
            client,
            statements: Mutex::default(),
            driving,
        })
    }

    /// Logs in.
    async fn start(&self, stream: impl Stream) -> Result<(Client, Aborts<()>), StoreError> {
        let made = self.config.connect_raw(stream, NoTls).await;
        let (client, connection) = made.map_err(failed)?;
        Ok((client, self.serve(connection)))
    }

    /// Spawns the task that moves a connection's data.
    fn serve(&self, mut connection: Connection<impl Stream, NoTlsStream>) -> Aborts<()> {
        let changed = self.changed.clone();
        Aborts(tourbillon::spawn(async move {
            loop {
                match poll_fn(|cx| connection.poll_message(cx)).await {
                    Some(Ok(AsyncMessage::Notification(_))) => {
                        if let Some(changed) = &changed {
                            changed.tell();
                        }
                    }
                    Some(Ok(_)) => {}
                    Some(Err(_)) | None => break,
                }
            }
        }))
    }
}

impl Listener for Link {
    async fn ping(&self) -> Result<(), StoreError> {
        self.execute("").await
    }
}

impl Link {
    pub(super) fn new(config: Config, setup: &'static str, changed: Option<Arc<Changed>>) -> Self {
        let way = Way {
            config,
            setup,
            changed,
        };
        Self {
            way: Arc::new(way),
            slot: Slot::new(),
        }
    }

    /// Returns the connection, and makes it if there is none.
    async fn live(&self) -> Result<Arc<Live>, StoreError> {
        let way = self.way.clone();
        self.slot.get(async move { way.connect().await }).await
    }

    /// Runs a statement, which is prepared once for each connection.
    pub(super) async fn query(
        &self,
        text: &'static str,
        parameters: Parameters<'_>,
    ) -> Result<Vec<Row>, StoreError> {
        let live = self.live().await?;
        let run = async {
            let statement = live.prepare(text).await?;
            loop {
                match live.client.query(&statement, parameters).await {
                    Err(error) if is_undone(&error) => {}
                    ended => return ended,
                }
            }
        };
        self.slot.answer(&live, run).await?.map_err(|error| {
            if error.code() == Some(&SqlState::READ_ONLY_SQL_TRANSACTION) {
                // The server has become a standby. Look for the new primary.
                self.slot.give_up(&live);
            }
            failed(error)
        })
    }

    /// Runs a statement that answers with one row.
    pub(super) async fn query_one(
        &self,
        text: &'static str,
        parameters: Parameters<'_>,
    ) -> Result<Row, StoreError> {
        let mut found = self.query(text, parameters).await?;
        found.pop().ok_or(StoreError::Closed)
    }

    /// Runs statements without parameters.
    pub(super) async fn execute(&self, text: &str) -> Result<(), StoreError> {
        let live = self.live().await?;
        let run = live.client.batch_execute(text);
        self.slot.answer(&live, run).await?.map_err(failed)
    }

    /// Returns the present connection, for statements that have to be in one session.
    pub(super) async fn session(&self) -> Result<Session, StoreError> {
        Ok(Session(self.live().await?))
    }
}

/// One connection, which is not made again. It ends with its [`Link`].
pub(super) struct Session(Arc<Live>);

impl Session {
    /// Runs a statement without parameters, for as long as it takes. Repeats it if the server has
    /// undone it because of others.
    pub(super) async fn execute(&self, text: &str) -> Result<(), StoreError> {
        loop {
            match self.0.client.batch_execute(text).await {
                Err(error) if is_undone(&error) => {}
                ended => return ended.map_err(failed),
            }
        }
    }

    /// Runs a statement that takes no time.
    pub(super) async fn query(&self, text: &str) -> Result<Vec<Row>, StoreError> {
        match timeout(LIMIT, self.0.client.query(text, &[])).await {
            Ok(found) => found.map_err(failed),
            Err(_) => Err(lost("the server does not answer")),
        }
    }
}
