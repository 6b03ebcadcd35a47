//! A connection that is made again when it is lost.

#[cfg(feature = "tls")]
use std::time::Duration;
use std::{collections::HashMap, sync::Arc};

use redis::{
    AsyncConnectionConfig, ConnectionAddr, ErrorKind, PushInfo, RedisError, ScriptInvocation,
    ServerErrorKind, Value, aio::MultiplexedConnection,
};
#[cfg(feature = "tls")]
use tourbillon::time::timeout;

use super::address::Address;
#[cfg(feature = "tls")]
use crate::tls::{Client, Mode};
use crate::{
    remote::{self, Aborts, Listener, Slot, Stream, lost, tcp, unix},
    store::{Changed, StoreError},
    tls,
};

/// The settings without which the server could lose what it has acknowledged.
const SETTINGS: [(&str, &str); 4] = [
    ("appendonly", "yes"),
    ("appendfsync", "always"),
    ("no-appendfsync-on-rewrite", "no"),
    ("maxmemory-policy", "noeviction"),
];

/// Time limit of the greeting by TLS, which is within that of a connect.
#[cfg(feature = "tls")]
const GREETING: Duration = Duration::from_secs(8);

#[cfg(feature = "tls")]
const _: () = assert!(GREETING.as_millis() < remote::LIMIT.as_millis());

struct Live {
    /// The task that moves the connection's data. Dropped first: an end of `connection` would have
    /// the task send what waits, and wait for answers.
    driving: Aborts<()>,
    connection: MultiplexedConnection,
}

impl remote::Connection for Live {
    fn is_usable(&self) -> bool {
        !self.driving.0.is_finished()
    }

    fn close(&self) {
        self.driving.0.abort();
    }
}

/// A channel, and the receivers to tell of its messages and of each connect.
pub(super) struct Listens {
    pub(super) channel: String,
    pub(super) changed: Arc<Changed>,
}

/// What is needed to make a connection.
struct Way {
    address: Address,
    /// Whether the server's settings are checked after each connect.
    checks: bool,
    listens: Option<Listens>,
}

/// A connection, or what is needed to make it.
pub(super) struct Link {
    way: Arc<Way>,
    slot: Slot<Live>,
}

pub(super) fn failed(error: RedisError) -> StoreError {
    if let Some(tls) = tls::find(&error) {
        return tls.into();
    }
    match error.code() {
        Some("OOM") => StoreError::Full,
        _ => StoreError::failed(error),
    }
}

/// Returns whether a new connection may succeed where this one failed.
fn ends_connection(error: &RedisError) -> bool {
    error.is_unrecoverable_error()
        // The server has become a replica. The address may lead to the new primary by now.
        || error.kind() == ErrorKind::Server(ServerErrorKind::ReadOnly)
}

impl Way {
    async fn connect(&self) -> Result<Live, StoreError> {
        let live = match self.address.addr() {
            ConnectionAddr::Tcp(name, port) => self.start_tcp(name, *port).await?,
            ConnectionAddr::Unix(path) => self.start(unix(path).await?).await?,
            _ => return Err(lost("this address is of no known kind")),
        };
        let mut connection = live.connection.clone();
        if self.checks {
            check(&mut connection).await?;
        }
        if let Some(Listens { channel, changed }) = &self.listens {
            connection.subscribe(channel).await.map_err(failed)?;
            // Messages may have been missed until now.
            changed.tell();
        }
        Ok(live)
    }

    /// Connects by TCP, with TLS if the URL says so.
    async fn start_tcp(&self, name: &str, port: u16) -> Result<Live, StoreError> {
        let tls = &self.address.tls;
        tls.check()?;
        #[cfg(feature = "tls")]
        if tls.mode > Mode::Disable {
            let client = Client::new(tls, None).await?;
            let stream = tcp((name, port)).await?;
            // A server without TLS may wait for the end of a command, without end.
            let made = timeout(GREETING, client.encrypt(name, stream)).await;
            let stream = made.map_err(|_| {
                lost("the server does not answer to a greeting by TLS; this port may have none")
            })??;
            return self.start(stream).await;
        }
        self.start(tcp((name, port)).await?).await
    }

    /// Greets the server, and spawns the task that moves the connection's data.
    async fn start(&self, stream: impl Stream) -> Result<Live, StoreError> {
        // Turn off the driver's time limits, which need tokio's timers. The callers have their own.
        let mut config = AsyncConnectionConfig::new()
            .set_connection_timeout(None)
            .set_response_timeout(None);
        if let Some(Listens { changed, .. }) = &self.listens {
            let changed = changed.clone();
            config = config.set_push_sender(move |_: PushInfo| {
                changed.tell();
                Ok::<(), ()>(())
            });
        }
        let settings = self.address.info.redis_settings();
        let made = MultiplexedConnection::new_with_config(settings, stream, config).await;
        let (connection, driver) = made.map_err(failed)?;
        Ok(Live {
            connection,
            driving: Aborts(tourbillon::spawn(driver)),
        })
    }
}

impl Listener for Link {
    async fn ping(&self) -> Result<(), StoreError> {
        let live = self.live().await?;
        let mut connection = live.connection.clone();
        let ping = redis::cmd("PING");
        let answer = ping.exec_async(&mut connection);
        self.answer(&live, answer).await
    }
}

impl Link {
    pub(super) fn new(address: &Address, checks: bool, listens: Option<Listens>) -> Self {
        let way = Way {
            address: address.clone(),
            checks,
            listens,
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

    /// Runs a script.
    pub(super) async fn run(&self, script: &ScriptInvocation<'_>) -> Result<Value, StoreError> {
        let live = self.live().await?;
        let mut connection = live.connection.clone();
        let answer = script.invoke_async(&mut connection);
        self.answer(&live, answer).await
    }

    async fn answer<A>(
        &self,
        live: &Arc<Live>,
        answer: impl Future<Output = Result<A, RedisError>>,
    ) -> Result<A, StoreError> {
        let answer = self.slot.answer(live, answer).await?;
        if answer.as_ref().is_err_and(ends_connection) {
            self.slot.give_up(live);
        }
        answer.map_err(failed)
    }
}

/// Checks the server's settings.
async fn check(connection: &mut MultiplexedConnection) -> Result<(), StoreError> {
    let mut ask = redis::pipe();
    for (name, _) in SETTINGS {
        ask.cmd("CONFIG").arg("GET").arg(name);
    }
    let found: Vec<HashMap<String, String>> =
        ask.query_async(connection).await.map_err(|error| {
            lost(&format!(
                "the server does not show its settings, which `connect_unchecked` does not need: \
             {error}"
            ))
        })?;
    for ((name, needed), mut found) in SETTINGS.into_iter().zip(found) {
        let value = found.remove(name).unwrap_or_default();
        if value != needed {
            return Err(StoreError::Setting {
                name,
                value,
                needed,
            });
        }
    }
    Ok(())
}
