//! One TCP listener for each worker, at one address.

use std::{
    error::Error,
    fmt, io,
    net::{SocketAddr, ToSocketAddrs},
    ops::Deref,
    slice,
    sync::Arc,
    vec,
};

use crate::{
    engine::context::placement::{Choice, with_home},
    error::ArmError,
    net::{
        addr::try_each,
        tcp::{listener::TcpListener, socket::TcpSocket},
    },
    sys::socket,
};

/// Listeners at one address (`SO_REUSEPORT`), as many as the runtime has workers, the first for the first
/// worker: each is watched by its own worker. Made by [`TcpListener::bind_per_core`] and
/// [`bind_with`](PerCoreListeners::bind_with).
///
/// The kernel gives each connection to one of them, by a hash of its addresses or
/// [by the core](PerCoreListeners::steer_by_cpu). Who waits for it is woken on the worker of that
/// listener, accepts it there, and there the connection belongs to. So workers share no queue of
/// connections. With one [`TcpListener`] for all, connections come to the worker that the task which
/// accepts them happens to be on.
///
/// The usual server has a loop for each listener:
///
/// ```
/// use futures_lite::{AsyncReadExt, AsyncWriteExt};
/// use tourbillon::net::{TcpListener, TcpStream};
///
/// # tourbillon::Runtime::builder().worker_threads(2).build().unwrap().block_on(async {
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
/// A connection that the kernel has given to a listener stays with it. While its worker is stuck in a
/// job, a peer looks after its sockets, and so the loop is woken there and accepts there: as late as
/// [any socket of a stuck worker](crate::runtime::Builder::rescue_grace). Where nobody looks after it, they
/// wait until the worker is back, however idle the others are.
///
/// # When the runtime is shut down
///
/// Its tasks are dropped, and with them the listeners that they own. For who waits elsewhere, `accept` fails
/// then and ever after.
///
/// # When one is dropped
///
/// Connections that it has not accepted are reset, unless the system moves them
/// (`net.ipv4.tcp_migrate_req`). The last of the group takes its place, which matters to
/// [`steer_by_cpu`](PerCoreListeners::steer_by_cpu) alone.
///
/// # Who else may listen
///
/// Any process of the same user may join at this address, with `SO_REUSEPORT`, and gets its share. So a
/// port that such a process has is not told as an error, as it is by [`TcpListener::bind`].
#[derive(Debug)]
pub struct PerCoreListeners {
    listeners: Vec<TcpListener>,
    /// Where the workers are pinned to, in their order.
    cores: Option<Vec<usize>>,
}

impl PerCoreListeners {
    /// As [`TcpListener::bind_per_core`], with room for so many connections at each listener that nobody
    /// has accepted yet (see [`TcpSocket::listen`]), and with sockets that `prepare` may set options of
    /// before they are bound. `SO_REUSEADDR` and `SO_REUSEPORT` are set already.
    ///
    /// Port 0 is one that the system chooses, the same for all.
    ///
    /// # Errors
    ///
    /// What the system says of the first socket that fails, inside of a [`PerCoreError`] that says whose it
    /// was (the last address's, if there were several): it is all of them or none. And if there is no
    /// runtime, or it has been shut down.
    ///
    /// ```
    /// use tourbillon::net::PerCoreListeners;
    ///
    /// # tourbillon::Runtime::builder().worker_threads(2).build().unwrap().block_on(async {
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
        try_each(addr, async |addr| Self::at(addr, backlog, &prepare)).await
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
        // In the order of the workers: their places in the group are those of `listen`.
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
            // What the system chose for port 0.
            addr.set_port(bound.port());
        }
        let cores = shared.config.pins.clone();
        Ok(Self { listeners, cores })
    }

    /// The address that all of them listen at.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        // There is no runtime without a worker.
        self.listeners[0].local_addr()
    }

    /// Gives each connection to the worker that is pinned to the core which has handled its first packet
    /// (`SO_ATTACH_REUSEPORT_CBPF`): with network cards whose queues are bound to cores, or clients of the
    /// same machine, it stays on that core.
    ///
    /// Connections of cores that have no worker are spread by the hash, as all are without this. Where
    /// several workers are pinned to one core, the first gets them all. It holds for as long as none of the
    /// listeners is dropped, and nobody else listens at the address; where it does not hold, connections
    /// come to other workers, and none is lost.
    ///
    /// # Errors
    ///
    /// [`PerCoreError::NotPinned`], inside of an error of kind `Unsupported`, if the workers are
    /// [not pinned](crate::runtime::Builder::pin); and what the system says, which takes programs for at
    /// most 2,047 workers unless worker `n` is pinned to core `n`.
    ///
    /// ```
    /// use tourbillon::{Runtime, net::{TcpListener, tcp::PerCoreError}};
    ///
    /// # fn main() -> std::io::Result<()> {
    /// let runtime = Runtime::builder().worker_threads(2).pin(false).build()?;
    /// runtime.block_on(async {
    ///     let listeners = TcpListener::bind_per_core("127.0.0.1:0").await?;
    ///     let error = listeners.steer_by_cpu().unwrap_err(); // which may be ignored: they work
    ///     let inner = error.get_ref().and_then(|inner| inner.downcast_ref());
    ///     assert!(matches!(inner, Some(PerCoreError::NotPinned)));
    ///     Ok(())
    /// })
    /// # }
    /// ```
    pub fn steer_by_cpu(&self) -> io::Result<()> {
        let cores = self.cores.as_ref().ok_or(PerCoreError::NotPinned)?;
        // The program is the group's, whichever of its sockets it is attached by.
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

/// What is wrong with [`PerCoreListeners`]: inside of an [`io::Error`], whose kind is that of the source.
#[derive(Debug)]
#[non_exhaustive]
pub enum PerCoreError {
    /// The listener of a worker could not be made, and so there is none.
    Worker {
        /// The number of the worker.
        worker: usize,
        /// What the system said.
        source: io::Error,
    },
    /// Connections cannot go by cores: the workers are not pinned to any.
    NotPinned,
}

impl fmt::Display for PerCoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Worker { worker, source } => {
                write!(f, "no listener for worker {worker}: {source}")
            }
            Self::NotPinned => f.write_str(
                "connections cannot be steered by cores: the workers are not pinned to any \
                 (by `Builder::pin`, a CPU quota, or since they are more than the cores)",
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
