//! A connection that is made again when it is lost.

use std::{
    collections::HashMap,
    future::poll_fn,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use tokio_postgres::{
    AsyncMessage, Client, Config, Connection, NoTls, Row, Statement, config::Host, error::SqlState,
    tls::NoTlsStream, types::ToSql,
};
use tourbillon::{
    net::{TcpStream, UnixStream},
    task::JoinHandle,
};

use crate::{
    remote::{self, Slot, lost},
    store::{Changed, StoreError},
};

/// Settings that let the server end the connection of a client that vanished, within 20 s. Such a
/// connection may hold locks.
const KEEP_ALIVE: &str = "SET tcp_keepalives_idle = 10; SET tcp_keepalives_interval = 3;
    SET tcp_keepalives_count = 3;";

pub(super) type Parameters<'a> = &'a [&'a (dyn ToSql + Sync)];

struct Live {
    /// Dropped first: an end of `client` would have the task send what waits.
    driving: Driving,
    client: Client,
    statements: Mutex<HashMap<&'static str, Statement>>,
}

/// The task that moves a connection's data.
struct Driving(JoinHandle<()>);

impl Drop for Driving {
    fn drop(&mut self) {
        // Stop the task: it would still send what waits, and wait for answers.
        self.0.abort();
    }
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

/// A connection, or what is needed to make it.
pub(super) struct Link {
    config: Config,
    /// Runs after each connect.
    setup: &'static str,
    /// The receivers to tell of each notification, and of each connect.
    changed: Option<Arc<Changed>>,
    slot: Slot<Live>,
    is_over: Arc<AtomicBool>,
}

pub(super) fn failed(error: tokio_postgres::Error) -> StoreError {
    match error.code() {
        Some(code) if *code == SqlState::DISK_FULL => StoreError::Full,
        _ => StoreError::failed(error),
    }
}

impl Link {
    pub(super) fn new(config: Config, setup: &'static str, changed: Option<Arc<Changed>>) -> Self {
        Self {
            config,
            setup,
            changed,
            slot: Slot::new(),
            is_over: Arc::new(AtomicBool::new(false)),
        }
    }

    /// Returns the connection, and makes it if there is none.
    async fn live(&self) -> Result<Arc<Live>, StoreError> {
        self.slot.get(self.connect()).await
    }

    async fn connect(&self) -> Result<Live, StoreError> {
        let port = self.config.get_ports().first().copied().unwrap_or(5432);
        let (client, driving) = match self.config.get_hosts().first() {
            Some(Host::Tcp(name)) => {
                let stream = TcpStream::connect((name.as_str(), port))
                    .await
                    .map_err(StoreError::failed)?;
                stream.set_nodelay(true).map_err(StoreError::failed)?;
                // A connection that is given up discards what it has not sent.
                stream.set_zero_linger().map_err(StoreError::failed)?;
                let made = self.config.connect_raw(stream, NoTls).await;
                let (client, connection) = made.map_err(failed)?;
                (client, self.serve(connection))
            }
            Some(Host::Unix(dir)) => {
                let stream = UnixStream::connect(dir.join(format!(".s.PGSQL.{port}")))
                    .await
                    .map_err(StoreError::failed)?;
                let made = self.config.connect_raw(stream, NoTls).await;
                let (client, connection) = made.map_err(failed)?;
                (client, self.serve(connection))
            }
            None => return Err(lost("the configuration names no `host`")),
        };
        let setup = format!("{KEEP_ALIVE} {}", self.setup);
        client.batch_execute(&setup).await.map_err(failed)?;
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

    /// Spawns the task that moves a connection's data.
    fn serve<S>(&self, mut connection: Connection<S, NoTlsStream>) -> Driving
    where
        S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
    {
        let changed = self.changed.clone();
        Driving(tourbillon::spawn(async move {
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

    /// Makes sure that the connection is alive.
    pub(super) async fn ping(&self) -> Result<(), StoreError> {
        self.execute("").await
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
                    // The server has undone the statement because of a deadlock. Run it again.
                    Err(error) if error.code() == Some(&SqlState::T_R_DEADLOCK_DETECTED) => {}
                    ended => return ended,
                }
            }
        };
        self.slot.answer(&live, run).await?.map_err(failed)
    }

    /// Runs statements without parameters.
    pub(super) async fn execute(&self, text: &str) -> Result<(), StoreError> {
        let live = self.live().await?;
        let run = live.client.batch_execute(text);
        self.slot.answer(&live, run).await?.map_err(failed)
    }

    /// Lets [`is_over`](Self::is_over) return `true`.
    pub(super) fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }
}
