//! One TCP listener per worker, all at one address.

use std::{
    error::Error, fmt, future::ready, io, net::SocketAddr, ops::Deref, slice, sync::Arc, vec,
};

use crate::{
    engine::context::placement::{Choice, with_home},
    error::ArmError,
    net::{
        addr::{ToSocketAddrs, try_each},
        tcp::{listener::TcpListener, socket::TcpSocket},
    },
    sys::socket,
};

/// One listener per worker, all at one address (`SO_REUSEPORT`). Listener `n` is watched by worker
/// `n`.
///
/// Create them with [`TcpListener::bind_per_core`] or [`bind_with`](PerCoreListeners::bind_with).
///
/// The kernel assigns each connection to one listener, by a hash of its addresses or [by the
/// core](PerCoreListeners::steer_by_cpu). A task that waits for a connection is woken on the
/// listener's worker. It accepts the connection there, and this worker owns it. So workers share no
/// queue of connections. With a single [`TcpListener`], a connection belongs to whichever worker
/// happens to run the accepting task.
///
/// The usual server has a loop for each listener:
///
/// ```
/// use futures_lite::{AsyncReadExt, AsyncWriteExt};
/// use tourbillon::net::{TcpListener, TcpStream};
///
/// # tourbillon::runtime::Builder::new().worker_threads(2).build().unwrap().block_on(async {
/// let listeners = TcpListener::bind_per_core("127.0.0.1:0").await?;
/// let addr = listeners.local_addr()?;
/// for listener in listeners {
///     tourbillon::spawn(async move {
///         loop {
///             let Ok((mut stream, _peer)) = listener.accept().await else {
///                 // No descriptors left, or the runtime is shut down: see `TcpListener::accept`.
///                 tourbillon::time::sleep(std::time::Duration::from_millis(100)).await;
///                 continue;
///             };
///             tourbillon::spawn(async move { stream.write_all(b"hello").await });
///         }
///     });
/// }
/// let mut greeting = String::new();
/// TcpStream::connect(addr).await?.read_to_string(&mut greeting).await?;
/// assert_eq!(greeting, "hello");
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
///
/// # When a worker is stuck
///
/// A connection stays with the listener that the kernel chose. While a worker is stuck in a job, a
/// peer rescues its sockets: the peer wakes the accepting task and accepts there. This takes as
/// long as for [any socket of a stuck worker](crate::runtime::Builder::rescue_latency). Without a
/// rescue, the connections wait until the worker returns, even if other workers are idle.
///
/// # When the runtime is shut down
///
/// The runtime drops its tasks, and the listeners that they own. On a listener that something else
/// owns, `accept` fails from then on.
///
/// # When one is dropped
///
/// The system resets connections that the dropped listener has not accepted, unless it migrates
/// them (`net.ipv4.tcp_migrate_req`). The last listener of the group takes the place of the dropped
/// one. Only [`steer_by_cpu`](PerCoreListeners::steer_by_cpu) depends on these places.
///
/// # Other processes
///
/// Any process of the same user may listen at this address with `SO_REUSEPORT`, and then receives
/// its share of the connections. So a port that such a process uses is not reported as an error,
/// unlike in [`TcpListener::bind`].
#[derive(Debug)]
pub struct PerCoreListeners {
    listeners: Vec<TcpListener>,
    /// The core of each worker, if the workers are pinned.
    cores: Option<Vec<usize>>,
}

impl PerCoreListeners {
    /// Listens at an address with one socket for each worker. See [`TcpListener::bind_per_core`].
    ///
    /// `backlog` is the number of connections that may wait at each listener (see
    /// [`TcpSocket::listen`]). `prepare` can set options of each socket before it is bound.
    /// `SO_REUSEADDR` and `SO_REUSEPORT` are set already. With port 0 the system chooses one port
    /// for all.
    ///
    /// # Errors
    ///
    /// If any socket fails, returns its error inside of a [`PerCoreError`] that names the worker,
    /// and no listener stays open. If every address fails, this is the error of the last one. Also
    /// fails if there is no runtime, or if it has been shut down.
    ///
    /// ```
    /// use tourbillon::net::PerCoreListeners;
    ///
    /// # tourbillon::runtime::Builder::new().worker_threads(2).build().unwrap().block_on(async {
    /// let listeners = PerCoreListeners::bind_with("127.0.0.1:0", 1024, |socket| {
    ///     socket.set_recv_buffer_size(256 * 1024)?;
    ///     socket.set_nodelay(true)
    /// })
    /// .await?;
    /// assert_eq!(listeners.len(), 2); // the workers
    /// assert_eq!(listeners[0].local_addr()?, listeners[1].local_addr()?);
    /// # std::io::Result::Ok(())
    /// # }).unwrap();
    /// ```
    pub async fn bind_with(
        addr: impl ToSocketAddrs,
        backlog: u32,
        prepare: impl Fn(&TcpSocket) -> io::Result<()>,
    ) -> io::Result<Self> {
        try_each(addr, |addr| ready(Self::at(addr, backlog, &prepare))).await
    }

    fn at(
        mut addr: SocketAddr,
        backlog: u32,
        prepare: &impl Fn(&TcpSocket) -> io::Result<()>,
    ) -> io::Result<Self> {
        let shared = with_home(Choice::InTurn, |home| home.owner().shared.clone())
            .map_err(|error| io::Error::other(ArmError::from(error)))?;
        let workers = shared.workers();
        if workers.is_empty() {
            return Err(io::Error::other(ArmError::Shutdown));
        }
        let mut listeners = Vec::with_capacity(workers.len());
        // Listener `n` has place `n` in the group, because `listen` assigns places in order.
        // `steer_by_cpu` relies on this.
        for (worker, home) in workers.iter().enumerate() {
            let listen = || {
                let socket = match addr {
                    SocketAddr::V4(_) => TcpSocket::new_v4()?,
                    SocketAddr::V6(_) => TcpSocket::new_v6()?,
                };
                socket.set_reuseaddr(true)?;
                socket.set_reuseport(true)?;
                prepare(&socket)?;
                socket.bind(addr)?;
                let listener = socket.listen_on(Arc::clone(home), backlog)?;
                let addr = listener.local_addr()?;
                io::Result::Ok((listener, addr))
            };
            let (listener, bound) =
                listen().map_err(|source| PerCoreError::Worker { worker, source })?;
            listeners.push(listener);
            // If the port was 0, the other sockets need the port that the system chose.
            addr.set_port(bound.port());
        }
        let cores = shared.config.pins.clone();
        Ok(Self { listeners, cores })
    }

    /// Returns the address that all of them listen at.
    ///
    /// # Errors
    ///
    /// Returns the operating system's error.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        // A runtime has at least one worker, and so the list has at least one listener.
        self.listeners[0].local_addr()
    }

    /// Assigns each connection to the worker pinned to the core that handled its first packet
    /// (`SO_ATTACH_REUSEPORT_CBPF`).
    ///
    /// This keeps a connection on one core if the queues of the network card are bound to cores, or
    /// if the client is on the same machine.
    ///
    /// Connections of cores without a worker are spread by the hash, as all are without this
    /// method. If several workers are pinned to one core, the first of them gets all its
    /// connections. The assignment holds as long as no listener is dropped and no other process
    /// listens at the address. If it no longer holds, connections go to other workers, but none is
    /// lost.
    ///
    /// # Errors
    ///
    /// Returns [`PerCoreError::NotPinned`], inside of an error of kind `Unsupported`, if the
    /// workers are [not pinned](crate::runtime::Builder::pin). Otherwise returns the operating
    /// system's error. The system limits the program to 2,047 workers, unless worker `n` is pinned
    /// to core `n` for each `n`.
    ///
    /// ```
    /// use tourbillon::{net::{TcpListener, tcp::PerCoreError}, runtime::Builder};
    ///
    /// # fn main() -> std::io::Result<()> {
    /// let runtime = Builder::new().worker_threads(2).pin(false).build()?;
    /// runtime.block_on(async {
    ///     let listeners = TcpListener::bind_per_core("127.0.0.1:0").await?;
    ///     let error = listeners.steer_by_cpu().unwrap_err(); // may be ignored: the listeners work
    ///     let inner = error.get_ref().and_then(|inner| inner.downcast_ref());
    ///     assert!(matches!(inner, Some(PerCoreError::NotPinned)));
    ///     Ok(())
    /// })
    /// # }
    /// ```
    pub fn steer_by_cpu(&self) -> io::Result<()> {
        let cores = self.cores.as_ref().ok_or(PerCoreError::NotPinned)?;
        // The program belongs to the whole group, so any of its sockets can attach it.
        socket::steer_by_core(&self.listeners[0], cores)
    }
}

impl Deref for PerCoreListeners {
    type Target = [TcpListener];

    fn deref(&self) -> &[TcpListener] {
        &self.listeners
    }
}

impl IntoIterator for PerCoreListeners {
    type Item = TcpListener;
    type IntoIter = vec::IntoIter<TcpListener>;

    fn into_iter(self) -> Self::IntoIter {
        self.listeners.into_iter()
    }
}

impl<'a> IntoIterator for &'a PerCoreListeners {
    type Item = &'a TcpListener;
    type IntoIter = slice::Iter<'a, TcpListener>;

    fn into_iter(self) -> Self::IntoIter {
        self.listeners.iter()
    }
}

/// An error of [`PerCoreListeners`]. It is inside of an [`io::Error`] with the same kind as the
/// source.
#[derive(Debug)]
#[non_exhaustive]
pub enum PerCoreError {
    /// The listener of a worker could not be created. No listener exists.
    Worker {
        /// The number of the worker.
        worker: usize,
        /// The operating system's error.
        source: io::Error,
    },
    /// The workers are not pinned to cores, so connections cannot be assigned by core.
    NotPinned,
}

impl fmt::Display for PerCoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Worker { worker, source } => {
                write!(f, "no listener for worker {worker}: {source}")
            }
            Self::NotPinned => f.write_str(
                "connections cannot be assigned by core: the workers are not pinned to cores \
                 (because of `Builder::pin`, a CPU quota, or too few cores)",
            ),
        }
    }
}

impl Error for PerCoreError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Worker { source, .. } => Some(source),
            Self::NotPinned => None,
        }
    }
}

impl From<PerCoreError> for io::Error {
    fn from(error: PerCoreError) -> Self {
        let kind = match &error {
            PerCoreError::Worker { source, .. } => source.kind(),
            PerCoreError::NotPinned => io::ErrorKind::Unsupported,
        };
        io::Error::new(kind, error)
    }
}
