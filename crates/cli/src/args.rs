//! Command-line arguments that several commands share, and the runtime that they configure.

use std::{
    fmt, io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs},
    time::Duration,
};

use clap::{Args, ValueEnum, error::ErrorKind};
use tourbillon::{
    Runtime,
    runtime::{Builder, StoreKind},
};
use tourbillon_inspect::Inspector;

use crate::{complain, record::RecordArgs, server::raise_descriptor_limit};

/// Runtime options, common to all commands.
#[derive(Clone, Debug, Args)]
pub struct RuntimeArgs {
    /// Number of worker threads [default: one per usable core].
    #[arg(long, value_name = "N", value_parser = workers)]
    workers: Option<usize>,
    /// Data structure that holds each worker's timers.
    #[arg(long, value_enum, default_value_t = Store::Wheel)]
    store: Store,
    /// Wake for each timer, whatever that costs.
    #[arg(long, conflicts_with = "budget")]
    exact: bool,
    /// Share of its core that each worker spends on waking for timers [default: 0.025].
    ///
    /// The share is above 0 and at most 1. As long as it suffices, timers are exact to a few us.
    /// When they come faster, one wake-up serves several of them, at most 1 ms later.
    #[arg(long, value_name = "SHARE", value_parser = share)]
    budget: Option<f64>,
    /// Serve a live dashboard of the runtime at this address.
    ///
    /// Port 0 picks a free port. The address is printed to stderr.
    #[arg(long, value_name = "HOST:PORT", value_parser = Addrs::parse)]
    inspect: Option<Addrs>,
    /// Additional host name for the dashboard, such as a proxy's name. Can be given several times.
    #[arg(long, value_name = "NAME", requires = "inspect")]
    inspect_host: Vec<String>,
    #[command(flatten)]
    record: RecordArgs,
}

/// The timer store: see [`StoreKind`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Store {
    /// 4-ary heap.
    Heap,
    /// Hierarchical timing wheel.
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

/// Address of the dashboard.
#[derive(Clone, Copy, Debug)]
pub struct Page(SocketAddr);

impl Page {
    /// Returns a local address for a browser if the dashboard listens on all addresses (0.0.0.0 or
    /// `[::]`).
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
            Some(here) => write!(f, " (on this machine http://{here}/)"),
            None => Ok(()),
        }
    }
}

impl RuntimeArgs {
    /// Returns a builder with these options.
    pub fn builder(&self) -> Builder {
        let mut builder = Builder::new();
        builder.timer_store(self.store.into());
        self.record.configure(&mut builder);
        if let Some(workers) = self.workers {
            builder.worker_threads(workers);
        }
        if self.exact {
            builder.exact();
        }
        if let Some(share) = self.budget {
            builder.timer_budget(share);
        }
        builder
    }

    /// Returns what these options say about waking for timers: `exact` or `budget SHARE`. Returns
    /// `None` for the runtime's default.
    pub fn waking(&self) -> Option<String> {
        let budget = || self.budget.map(|share| format!("budget {share:?}"));
        self.exact.then(|| "exact".to_owned()).or_else(budget)
    }

    /// Returns the store's name, as given on the command line.
    pub fn store(&self) -> String {
        let value = self.store.to_possible_value();
        value.map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// Serves the dashboard until the runtime ends, if `--inspect` was given.
    pub fn inspect(&self, runtime: &Runtime) -> Result<Option<Page>, String> {
        let Some(addrs) = &self.inspect else {
            return Ok(None);
        };
        raise_descriptor_limit();
        let mut builder = Inspector::builder(runtime.handle());
        // Allow the name that the user typed, because the browser sends it as `Host`. A name that
        // the resolver accepts but browsers cannot send is skipped.
        if let Ok(named) = builder.clone().allow_host(&addrs.name) {
            builder = named;
        }
        // The other names come from the user: a wrong one is a usage error.
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

/// A host name with a port, and the addresses that it resolves to.
#[derive(Clone, Debug)]
pub struct Addrs {
    name: String,
    /// All that the name resolves to.
    pub addrs: Vec<SocketAddr>,
}

impl Addrs {
    /// Resolves a host name or an address, with a port.
    pub fn parse(text: &str) -> Result<Self, String> {
        let addrs = text.to_socket_addrs().map_err(|error| {
            format!("{error}; expected an address and a port, such as 127.0.0.1:8080 or [::1]:0")
        })?;
        Ok(Self {
            name: text.to_owned(),
            addrs: addrs.collect(),
        })
    }

    /// Explains why listening failed, with a hint. `option` is the option that set the address;
    /// `page` is the dashboard's address.
    pub fn cannot_listen(&self, option: &str, error: &io::Error, page: Option<Page>) -> String {
        let is_page = |addr: &SocketAddr| page.is_some_and(|page| addr.port() == page.0.port());
        let hint = match error.kind() {
            io::ErrorKind::AddrInUse if self.addrs.iter().any(is_page) => {
                format!("; --inspect uses this port: choose another one with {option}")
            }
            io::ErrorKind::AddrInUse => format!(
                "; another program uses this port: choose another one with {option}, or port 0 \
                 for any free port"
            ),
            io::ErrorKind::PermissionDenied => "; ports below 1024 need root privileges".to_owned(),
            io::ErrorKind::AddrNotAvailable => {
                "; this machine does not have that address".to_owned()
            }
            _ => String::new(),
        };
        format!("cannot listen on {}: {error}{hint}", self.name)
    }
}

/// Exits with a usage error, in the style of clap's own errors.
pub fn usage_error(message: &str) -> ! {
    let message = format!("{message}\n\nFor more information, try '--help'.\n");
    clap::Error::raw(ErrorKind::ValueValidation, message).exit()
}

/// Parses a duration, such as `100ms` or `1m 30s`.
pub fn duration(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text)
        .map_err(|error| format!("{error}; expected a number and a unit, such as 250ms or 1s"))
}

/// Parses a duration above zero.
pub fn positive_duration(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        Duration::ZERO => Err("must be more than zero, for example 1ms".to_owned()),
        duration => Ok(duration),
    }
}

/// Parses a count of at least 1. The suffix `k` means thousand, `M` means million.
pub fn count(text: &str) -> Result<u32, String> {
    let (digits, unit) = match text.char_indices().last() {
        Some((at, 'k' | 'K')) => (&text[..at], 1_000),
        Some((at, 'm' | 'M')) => (&text[..at], 1_000_000),
        _ => (text, 1_u64),
    };
    let number: u64 = digits
        .replace('_', "")
        .parse()
        .map_err(|_| "expected a whole number, such as 20000, 20k or 1M".to_owned())?;
    match number.checked_mul(unit).map(u32::try_from) {
        Some(Ok(0)) => Err("must be at least 1".to_owned()),
        Some(Ok(count)) => Ok(count),
        _ => Err(format!("must be at most {}", u32::MAX)),
    }
}

/// Parses a whole number, 0 included.
pub fn number(text: &str) -> Result<u64, String> {
    text.replace('_', "")
        .parse()
        .map_err(|_| format!("expected a whole number from 0 to {}", u64::MAX))
}

/// Parses a number of workers.
fn workers(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) => Err("at least 1 worker is required".to_owned()),
        Ok(workers) => Ok(workers),
        Err(_) => Err("expected a whole number of at least 1".to_owned()),
    }
}

/// Parses a share of a core.
fn share(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(share) if share > 0.0 && share <= 1.0 => Ok(share),
        _ => Err("expected a number above 0 and at most 1, such as 0.025".to_owned()),
    }
}

/// Converts a duration to ns.
pub fn nanos(duration: Duration) -> Result<u64, String> {
    // Below 2^60 ns (36 years), sums of a few durations do not overflow.
    u64::try_from(duration.as_nanos())
        .ok()
        .filter(|&nanos| nanos < 1 << 60)
        .ok_or_else(|| format!("{duration:?} is too long: the maximum is about 36 years"))
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
    fn a_page_on_all_addresses_shows_a_local_address() {
        let says = |addr: &str| Page(addr.parse().unwrap()).to_string();
        assert_eq!(says("127.0.0.1:80"), "http://127.0.0.1:80/");
        assert_eq!(says("[::1]:9"), "http://[::1]:9/");
        for (addr, here) in [("0.0.0.0:9", "127.0.0.1:9"), ("[::]:9", "[::1]:9")] {
            let wanted = format!("http://{addr}/ (on this machine http://{here}/)");
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

    #[test]
    fn errors_say_what_is_allowed() {
        assert_eq!(workers("3"), Ok(3));
        assert_eq!(workers("0").unwrap_err(), "at least 1 worker is required");
        for wrong in ["-1", "many", ""] {
            assert!(workers(wrong).unwrap_err().contains("at least 1"));
            assert!(number(wrong).unwrap_err().contains("from 0"));
        }
        assert_eq!((share("0.025"), share("1")), (Ok(0.025), Ok(1.0)));
        for wrong in ["0", "-0.1", "1.01", "NaN", "inf", "5%", ""] {
            assert!(share(wrong).unwrap_err().contains("above 0 and at most 1"));
        }
        assert_eq!(number("0"), Ok(0));
        assert_eq!(number("1_000"), Ok(1_000));
    }
}
