//! Resolution of socket addresses.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6},
    sync::Arc,
    vec,
};

use self::sealed::{Addrs, Lookup, Sealed};
use crate::{
    engine::context::placement::{Choice, with_home},
    error::ArmError,
    metrics::spawned::Spawned,
    task::blocking::spawn_blocking_at,
};

/// Types that are socket addresses, or that name a host and a port.
///
/// A string, alone or with a port, may have a host name, as in `"example.org:80"` and
/// `("example.org", 80)`. The system resolves it on a [thread for blocking
/// jobs](crate::task::spawn_blocking). The system is not asked for any other address, nor for a
/// string that is an IP address.
///
/// It is an argument of methods such as [`TcpStream::connect`](crate::net::TcpStream::connect). Use
/// [`lookup_host`] to resolve a name. Other crates cannot implement this trait.
pub trait ToSocketAddrs: Sealed {}

pub(crate) mod sealed {
    use std::{net::SocketAddr, option, vec};

    /// The private part of [`ToSocketAddrs`](super::ToSocketAddrs).
    pub trait Sealed {
        fn lookup(&self) -> Lookup;
    }

    /// The addresses, or what is needed to find them.
    #[derive(Debug)]
    pub enum Lookup {
        Known(Addrs),
        /// A host name with a port, as one string.
        Name(String),
        /// A host name and a port.
        NameAndPort(String, u16),
    }

    /// An iterator over one address, or over any number.
    #[derive(Debug)]
    pub enum Addrs {
        One(option::IntoIter<SocketAddr>),
        Many(vec::IntoIter<SocketAddr>),
    }

    impl Iterator for Addrs {
        type Item = SocketAddr;

        fn next(&mut self) -> Option<SocketAddr> {
            match self {
                Self::One(addrs) => addrs.next(),
                Self::Many(addrs) => addrs.next(),
            }
        }

        fn size_hint(&self) -> (usize, Option<usize>) {
            match self {
                Self::One(addrs) => addrs.size_hint(),
                Self::Many(addrs) => addrs.size_hint(),
            }
        }
    }
}

fn known(addr: impl Into<SocketAddr>) -> Lookup {
    Lookup::Known(Addrs::One(Some(addr.into()).into_iter()))
}

macro_rules! to_socket_addrs {
    ($($Type:ty: |$it:ident| $lookup:expr;)*) => {$(
        impl ToSocketAddrs for $Type {}

        impl Sealed for $Type {
            fn lookup(&self) -> Lookup {
                let $it = self;
                $lookup
            }
        }
    )*};
}

to_socket_addrs! {
    SocketAddr: |addr| known(*addr);
    SocketAddrV4: |addr| known(*addr);
    SocketAddrV6: |addr| known(*addr);
    (IpAddr, u16): |addr| known(*addr);
    (Ipv4Addr, u16): |addr| known(*addr);
    (Ipv6Addr, u16): |addr| known(*addr);
    &[SocketAddr]: |addrs| Lookup::Known(Addrs::Many(Vec::from(*addrs).into_iter()));
    str: |addr| match addr.parse::<SocketAddr>() {
        Ok(addr) => known(addr),
        Err(_) => Lookup::Name(addr.to_owned()),
    };
    (&str, u16): |addr| match addr.0.parse::<IpAddr>() {
        Ok(ip) => known((ip, addr.1)),
        Err(_) => Lookup::NameAndPort(addr.0.to_owned(), addr.1),
    };
    String: |addr| addr.as_str().lookup();
    (String, u16): |addr| (addr.0.as_str(), addr.1).lookup();
}

impl<T: ToSocketAddrs + ?Sized> ToSocketAddrs for &T {}

impl<T: Sealed + ?Sized> Sealed for &T {
    fn lookup(&self) -> Lookup {
        (**self).lookup()
    }
}

/// Resolves a host name and a port to socket addresses, which may be none.
///
/// A name is resolved on a [thread for blocking jobs](crate::task::spawn_blocking). Dropping the
/// future does not stop this thread, which the system cannot interrupt.
///
/// # Errors
///
/// Returns the resolver's error. Returns `InvalidInput` for a string without a port. For a name,
/// also fails if there is no runtime, or if it has been shut down.
///
/// ```
/// use tourbillon::net::lookup_host;
///
/// # tourbillon::Runtime::new()?.block_on(async {
/// for addr in lookup_host("localhost:3000").await? {
///     assert!(addr.ip().is_loopback() && addr.port() == 3000);
/// }
/// # std::io::Result::Ok(())
/// # })?;
/// # std::io::Result::Ok(())
/// ```
pub async fn lookup_host<T: ToSocketAddrs>(
    host: T,
) -> io::Result<impl Iterator<Item = SocketAddr>> {
    resolve(host).await
}

/// Returns the addresses that `addr` resolves to.
async fn resolve(addr: impl ToSocketAddrs) -> io::Result<Addrs> {
    match addr.lookup() {
        Lookup::Known(addrs) => Ok(addrs),
        Lookup::Name(name) => on_pool(name).await,
        Lookup::NameAndPort(name, port) => on_pool((name, port)).await,
    }
}

/// Calls the resolver, which may block, on a thread for blocking jobs.
async fn on_pool(
    name: impl std::net::ToSocketAddrs<Iter = vec::IntoIter<SocketAddr>> + Send + 'static,
) -> io::Result<Addrs> {
    let home = with_home(Choice::InTurn, Arc::clone)
        .map_err(|error| io::Error::other(ArmError::from(error)))?;
    let addrs = spawn_blocking_at(&home, Spawned::here(), move || name.to_socket_addrs()).await??;
    Ok(Addrs::Many(addrs))
}

/// Calls `attempt` with each address that `addr` resolves to, until one succeeds. If all fail,
/// returns the last error.
// Not an `AsyncFn`: the compiler could not see that the future of one that borrows is `Send`.
pub(super) async fn try_each<T, F>(
    addr: impl ToSocketAddrs,
    attempt: impl Fn(SocketAddr) -> F,
) -> io::Result<T>
where
    F: Future<Output = io::Result<T>>,
{
    let mut last = None;
    for addr in resolve(addr).await? {
        match attempt(addr).await {
            Ok(done) => return Ok(done),
            // The caller gets the last address's error, as from the standard library.
            Err(error) => last = Some(error),
        }
    }
    Err(last.unwrap_or_else(no_address))
}

/// Returns the first address that `addr` resolves to.
pub(super) async fn first(addr: impl ToSocketAddrs) -> io::Result<SocketAddr> {
    resolve(addr).await?.next().ok_or_else(no_address)
}

fn no_address() -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidInput,
        "the name resolves to no address; give a host and a port that can be reached",
    )
}
