//! A connection that is made again when it is lost.

use std::{
    collections::HashMap,
    future::poll_fn,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use tokio_postgres::{
    AsyncMessage, Client, Config, Connection, NoTls, Row, SimpleQueryMessage, Statement,
    error::SqlState,
    tls::{TlsConnect, TlsStream},
    types::ToSql,
};
use tourbillon::{net::TcpStream, time::timeout};

#[cfg(feature = "tls")]
use tokio_postgres::config::SslMode;

#[cfg(feature = "tls")]
use super::secure::Secure;
use super::servers::{How, Place, Servers};
#[cfg(feature = "tls")]
use crate::tls::Mode;
use crate::{
    remote::{self, Aborts, LIMIT, Listener, Slot, Stream, lost, tcp, unix},
    store::{Changed, StoreError},
    tls,
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

/// A client, and the task that moves its data.
type Started = (Client, Aborts<()>);

struct Live {
    /// The task that moves the connection's data. Dropped first: an end of `client` would have the
    /// task send what waits, and wait for answers.
    driving: Aborts<()>,
    client: Client,
    /// The number of the place that it leads to, and of that which the store has reached last.
    place: usize,
    last: Arc<AtomicUsize>,
    statements: Mutex<HashMap<&'static str, Statement>>,
}

impl remote::Connection for Live {
    fn is_usable(&self) -> bool {
        // The store's other connections may lead to another server, which takes writes, too.
        !self.client.is_closed() && self.last.load(Ordering::Relaxed) == self.place
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
    servers: Servers,
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
    if let Some(tls) = tls::find(&error) {
        return tls.into();
    }
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

/// Returns whether a connection failed because it had TLS, or had none.
fn is_for_tls(error: &tokio_postgres::Error) -> bool {
    // The server may have a rule for connections of one kind only.
    error.code() == Some(&SqlState::INVALID_AUTHORIZATION_SPECIFICATION)
        || tls::find(error).is_some()
}

/// Returns whether the server has undone a statement because of others that ran at the same time.
fn is_undone(error: &tokio_postgres::Error) -> bool {
    let undone = [
        SqlState::T_R_DEADLOCK_DETECTED,
        SqlState::T_R_SERIALIZATION_FAILURE,
    ];
    error.code().is_some_and(|code| undone.contains(code))
}

impl Way {
    /// Connects to the first server that takes writes, beginning with the one that the store has
    /// reached last. Its other connections follow to the server that this one reaches: each is
    /// made again before its next use. So they meet at one server, also if an earlier primary is
    /// back.
    async fn connect(&self) -> Result<Live, StoreError> {
        let servers = &self.servers;
        let ways = servers.ways().await?;
        let length = servers.places.len();
        let count = u32::try_from(length).unwrap_or(u32::MAX);
        // A server that does not answer leaves time for the others.
        let share = LIMIT / count;
        let limit = servers.limit().map_or(share, |limit| share.min(limit));
        let first = servers.last.load(Ordering::Relaxed);
        let mut errors = Vec::new();
        for number in (first..length).chain(0..first) {
            let place = &servers.places[number];
            let made = match timeout(limit, self.connect_to(number, place, &ways)).await {
                Ok(made) => made,
                Err(_) => Err(lost("the server does not answer")),
            };
            match made {
                Ok(live) => {
                    servers.last.store(number, Ordering::Relaxed);
                    return Ok(live);
                }
                Err(error) if count == 1 => return Err(error),
                Err(error) => errors.push(format!("{place}: {error}")),
            }
        }
        Err(lost(&errors.join("; ")))
    }

    async fn connect_to(
        &self,
        number: usize,
        place: &Place,
        ways: &[How],
    ) -> Result<Live, StoreError> {
        let (client, driving) = match place {
            Place::Tcp { name, addr, port } => {
                let mut last = Err(StoreError::Closed);
                for (at, how) in ways.iter().enumerate() {
                    let stream = match addr {
                        Some(addr) => tcp((*addr, *port)).await?,
                        None => tcp((name.as_str(), *port)).await?,
                    };
                    let made = self.start_by(how, name, stream).await;
                    let is_last = at + 1 == ways.len();
                    let goes_on = !is_last && made.as_ref().is_err_and(is_for_tls);
                    last = made.map_err(failed);
                    if !goes_on {
                        break;
                    }
                }
                last?
            }
            // As in libpq, what stays on this machine needs no TLS.
            Place::Unix(path) => {
                let driver = &self.servers.driver;
                let made = self.start(driver, unix(path).await?, NoTls).await;
                made.map_err(failed)?
            }
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
            place: number,
            last: self.servers.last.clone(),
            statements: Mutex::default(),
            driving,
        })
    }

    async fn start_by(
        &self,
        how: &How,
        #[cfg_attr(not(feature = "tls"), expect(unused_variables))] name: &str,
        stream: TcpStream,
    ) -> Result<Started, tokio_postgres::Error> {
        match how {
            How::Plain => self.start(&self.servers.driver, stream, NoTls).await,
            #[cfg(feature = "tls")]
            How::Secure(client) => {
                let tls = Secure {
                    client: client.clone(),
                    name: name.to_owned(),
                    is_direct: self.servers.is_direct,
                    is_optional: self.servers.tls.mode < Mode::Require,
                };
                let mut driver = self.servers.driver.clone();
                driver.ssl_mode(SslMode::Require);
                self.start(&driver, stream, tls).await
            }
        }
    }

    /// Logs in.
    async fn start<S, T>(
        &self,
        driver: &Config,
        stream: S,
        tls: T,
    ) -> Result<Started, tokio_postgres::Error>
    where
        S: Stream,
        T: TlsConnect<S, Stream: Send + 'static>,
    {
        let (client, connection) = driver.connect_raw(stream, tls).await?;
        Ok((client, self.serve(connection)))
    }

    /// Spawns the task that moves a connection's data.
    fn serve<S, T>(&self, mut connection: Connection<S, T>) -> Aborts<()>
    where
        S: Stream,
        T: TlsStream + Unpin + Send + 'static,
    {
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
    pub(super) fn new(
        servers: Servers,
        setup: &'static str,
        changed: Option<Arc<Changed>>,
    ) -> Self {
        let way = Way {
            servers,
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
