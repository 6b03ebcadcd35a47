//! What arguments may be, and the runtime that they ask for.

use std::{
    fmt, io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs},
    num::NonZeroUsize,
    time::Duration,
};

use clap::{Args, ValueEnum, error::ErrorKind};
use rustix::process::{Resource, getrlimit, setrlimit};
use tourbillon::{
    Runtime,
    inspect::Inspector,
    runtime::{Builder, StoreKind},
};

use crate::complain;

/// Options of the runtime, which all commands have.
#[derive(Clone, Debug, Args)]
pub(crate) struct RuntimeArgs {
    /// How many workers there are [default: one for each usable core].
    #[arg(long, value_name = "N")]
    workers: Option<NonZeroUsize>,
    /// In what each worker keeps its timers.
    #[arg(long, value_enum, default_value_t = Store::Wheel)]
    store: Store,
    /// Where to serve a page on which the runtime is watched live; port 0 is one that the system chooses. Says on
    /// stderr which it is.
    #[arg(long, value_name = "HOST:PORT", value_parser = Addrs::parse)]
    inspect: Option<Addrs>,
    /// A name, besides that of --inspect, by which browsers may ask for the page, such as a proxy's; may be given
    /// several times.
    #[arg(long, value_name = "NAME", requires = "inspect")]
    inspect_host: Vec<String>,
}

/// What timers are kept in: see [`StoreKind`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Store {
    /// A 4-ary heap.
    Heap,
    /// A hierarchical wheel.
    Wheel,
}

impl From<Store> for StoreKind {
    fn from(store: Store) -> Self {
        match store {
            Store::Heap => StoreKind::Heap,
            Store::Wheel => StoreKind::Wheel,
        }
    }
}

/// Where the page is served.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Page(SocketAddr);

impl Page {
    /// Where a browser on this machine finds it, if its address does not say that: it stands for all that there are.
    fn here(self) -> Option<SocketAddr> {
        let loopback: IpAddr = match self.0.ip() {
            ip if !ip.is_unspecified() => return None,
            IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        };
        Some(SocketAddr::new(loopback, self.0.port()))
    }
}

impl fmt::Display for Page {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}/", self.0)?;
        match self.here() {
            Some(here) => write!(f, ", which is here http://{here}/"),
            None => Ok(()),
        }
    }
}

impl RuntimeArgs {
    /// A runtime's options.
    pub(crate) fn builder(&self) -> Builder {
        let builder = Builder::new().timer_store(self.store.into());
        match self.workers {
            Some(workers) => builder.worker_threads(workers.get()),
            None => builder,
        }
    }

    /// What timers are kept in, as it is asked for.
    pub(crate) fn store(&self) -> String {
        let value = self.store.to_possible_value();
        value.map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// Serves the live page of the runtime, if that was asked for, until the runtime ends.
    pub(crate) fn inspect(&self, runtime: &Runtime) -> Result<Option<Page>, String> {
        let Some(addrs) = &self.inspect else {
            return Ok(None);
        };
        raise_descriptor_limit();
        let mut builder = Inspector::builder(runtime.handle());
        // What was looked up is what will be typed into the browser. What the system knows and browsers do not
        // cannot be.
        if let Ok(named) = builder.clone().allow_host(&addrs.name) {
            builder = named;
        }
        for name in &self.inspect_host {
            let allowed = builder.allow_host(name);
            builder =
                allowed.unwrap_or_else(|error| usage_error(&format!("--inspect-host: {error}")));
        }
        let inspector = builder
            .serve(&*addrs.addrs)
            .map_err(|error| addrs.cannot_listen("--inspect", &error, None))?;
        let page = Page(inspector.local_addr());
        complain(format_args!("inspect: {page}"));
        Ok(Some(page))
    }
}

/// The addresses that a name and a port stand for.
#[derive(Clone, Debug)]
pub(crate) struct Addrs {
    name: String,
    pub(crate) addrs: Vec<SocketAddr>,
}

impl Addrs {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let addrs = text.to_socket_addrs().map_err(|error| {
            format!("{error}; an address and a port are wanted, such as 127.0.0.1:8080 or [::1]:0")
        })?;
        Ok(Self {
            name: text.to_owned(),
            addrs: addrs.collect(),
        })
    }

    /// Why nobody listens there, and what to do about it; `option` is the one that names it, and `page` is what this
    /// program listens for already.
    pub(crate) fn cannot_listen(
        &self,
        option: &str,
        error: &io::Error,
        page: Option<Page>,
    ) -> String {
        let is_page = |addr: &SocketAddr| page.is_some_and(|page| addr.port() == page.0.port());
        let hint = match error.kind() {
            io::ErrorKind::AddrInUse if self.addrs.iter().any(is_page) => {
                format!("; that is where --inspect listens: choose another port with {option}")
            }
            io::ErrorKind::AddrInUse => format!(
                "; another program listens there: choose another port with {option}, or port 0 for any"
            ),
            io::ErrorKind::PermissionDenied => {
                "; ports below 1024 are the administrator's".to_owned()
            }
            io::ErrorKind::AddrNotAvailable => "; it is no address of this machine".to_owned(),
            _ => String::new(),
        };
        format!("cannot listen on {}: {error}{hint}", self.name)
    }
}

/// A connection costs a descriptor: takes as many as the system lets us, of which it grants 1024
/// unasked, for the sake of programs that use `select`.
pub(crate) fn raise_descriptor_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // Refused, the limit stays as it is; the acceptor tells if that is too few.
    let _ = setrlimit(Resource::Nofile, limit);
}

/// How many descriptors the process may have open; none if there is no limit.
pub(crate) fn descriptor_limit() -> Option<u64> {
    getrlimit(Resource::Nofile).current
}

/// Ends the program as it ends for any other argument that cannot be.
pub(crate) fn usage_error(message: &str) -> ! {
    let message = format!("{message}\n\nFor more information, try '--help'.\n");
    clap::Error::raw(ErrorKind::ValueValidation, message).exit()
}

/// A duration, such as `100ms` or `1m 30s`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text)
        .map_err(|error| format!("{error}; a number and a unit are wanted, such as 250ms or 1s"))
}

/// A duration that is not zero.
pub(crate) fn positive_duration(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        Duration::ZERO => Err("it must be more than zero, 1ms for example".to_owned()),
        duration => Ok(duration),
    }
}

/// A count of at least 1, in which `k` stands for a thousand and `M` for a million.
pub(crate) fn count(text: &str) -> Result<u32, String> {
    let (digits, unit) = match text.char_indices().last() {
        Some((at, 'k' | 'K')) => (&text[..at], 1_000),
        Some((at, 'm' | 'M')) => (&text[..at], 1_000_000),
        _ => (text, 1_u64),
    };
    let number: u64 = digits
        .replace('_', "")
        .parse()
        .map_err(|_| "a whole number is wanted, such as 20000, 20k or 1M".to_owned())?;
    match number.checked_mul(unit).map(u32::try_from) {
        Some(Ok(0)) => Err("there must be at least 1".to_owned()),
        Some(Ok(count)) => Ok(count),
        _ => Err(format!("there may be at most {}", u32::MAX)),
    }
}

/// A duration in ns.
pub(crate) fn nanos(duration: Duration) -> Result<u64, String> {
    // So far ahead, sums of a few of them do not overflow.
    u64::try_from(duration.as_nanos())
        .ok()
        .filter(|&nanos| nanos < 1 << 60)
        .ok_or_else(|| format!("{duration:?} is too long: nothing here lasts for years"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_have_suffixes_and_bounds() {
        assert_eq!(count("20000"), Ok(20_000));
        assert_eq!(count("20_000"), Ok(20_000));
        assert_eq!(count("20k"), Ok(20_000));
        assert_eq!(count("10M"), Ok(10_000_000));
        for wrong in [
            "",
            "k",
            "0",
            "-1",
            "1.5M",
            "10G",
            "5000M",
            "99999999999999999999M",
        ] {
            assert!(count(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_page_on_all_addresses_says_one_that_can_be_opened() {
        let says = |addr: &str| Page(addr.parse().unwrap()).to_string();
        assert_eq!(says("127.0.0.1:80"), "http://127.0.0.1:80/");
        assert_eq!(says("[::1]:9"), "http://[::1]:9/");
        for (addr, here) in [("0.0.0.0:9", "127.0.0.1:9"), ("[::]:9", "[::1]:9")] {
            let wanted = format!("http://{addr}/, which is here http://{here}/");
            assert_eq!(says(addr), wanted);
        }
    }

    #[test]
    fn durations_have_units() {
        assert_eq!(duration("100ms"), Ok(Duration::from_millis(100)));
        assert_eq!(duration("0s"), Ok(Duration::ZERO));
        assert!(duration("100").is_err());
        assert!(positive_duration("0s").is_err());
    }
}
