//! Reads a configuration: the servers, and what it says of TLS. The driver reads the rest.

use std::{
    fmt,
    net::IpAddr,
    path::PathBuf,
    str::FromStr,
    sync::{Arc, atomic::AtomicUsize},
    time::Duration,
};

use tokio_postgres::{
    Config,
    config::{Host, SslMode, SslNegotiation},
};

use super::connection::failed;
#[cfg(feature = "tls")]
use super::secure::PROTOCOL;
#[cfg(feature = "tls")]
use crate::tls::Client;
use crate::{
    remote::lost,
    store::StoreError,
    tls::{Mode, Roots, Tls, TlsError},
};

/// The options that the driver does not know, or not with all values.
const OWN: [&str; 6] = [
    "sslmode",
    "sslrootcert",
    "sslcert",
    "sslkey",
    "sslnegotiation",
    "target_session_attrs",
];

/// What is needed to connect.
#[derive(Clone)]
pub(super) struct Servers {
    /// The driver's configuration. It has no TLS, and no question for it, which `secure.rs` asks.
    pub(super) driver: Config,
    pub(super) tls: Tls,
    /// Whether a connection begins with TLS, without asking the server first.
    #[cfg(feature = "tls")]
    pub(super) is_direct: bool,
    pub(super) places: Vec<Place>,
    /// The number of the place that a connection has reached last. All connections meet there.
    pub(super) last: Arc<AtomicUsize>,
}

/// How a connection is made.
pub(super) enum How {
    Plain,
    #[cfg(feature = "tls")]
    Secure(Client),
}

/// The address of a server.
#[derive(Clone)]
pub(super) enum Place {
    Tcp {
        /// The name that the configuration has, for which the server's certificate is.
        name: String,
        /// The address, if the configuration has it.
        addr: Option<IpAddr>,
        port: u16,
    },
    Unix(PathBuf),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { name, port, .. } => write!(f, "{name} port {port}"),
            Self::Unix(path) => path.display().fmt(f),
        }
    }
}

impl Servers {
    /// Returns the time limit of a connect to one of the servers, if the configuration has one.
    pub(super) fn limit(&self) -> Option<Duration> {
        self.driver.get_connect_timeout().copied()
    }

    /// Returns how to connect to a server by TCP. Each way but the first is tried if the server
    /// refuses the one before for TLS.
    pub(super) async fn ways(&self) -> Result<Vec<How>, StoreError> {
        self.tls.check()?;
        #[cfg(feature = "tls")]
        if self.tls.mode > Mode::Disable {
            let secure = How::Secure(Client::new(&self.tls, Some(PROTOCOL)).await?);
            return Ok(match self.tls.mode {
                Mode::Allow => vec![How::Plain, secure],
                Mode::Prefer => vec![secure, How::Plain],
                _ => vec![secure],
            });
        }
        Ok(vec![How::Plain])
    }
}

impl FromStr for Servers {
    type Err = StoreError;

    fn from_str(text: &str) -> Result<Self, StoreError> {
        let (rest, own) = divide(text);
        let mut driver = Config::from_str(&rest).map_err(failed)?;
        let value = |name: &str| {
            // The last one counts. As in libpq, an empty value is none only for a file.
            let found = own.iter().rev().find(|(known, _)| known == name);
            let is_file = ["sslrootcert", "sslcert", "sslkey"].contains(&name);
            found
                .map(|(_, value)| value.clone())
                .filter(|value| !is_file || !value.is_empty())
        };
        let tls = tls(value)?;
        tls.check()?;
        match value("sslnegotiation").as_deref() {
            None | Some("postgres") => {}
            Some("direct") if tls.mode >= Mode::Require => {}
            Some("direct") => {
                let why = "`direct` needs an `sslmode` of `require` or more";
                return Err(TlsError::option("sslnegotiation", why).into());
            }
            Some(_) => return Err(unknown("sslnegotiation", "`postgres` or `direct`")),
        }
        match value("target_session_attrs").as_deref() {
            // The store needs a server that takes writes in any case.
            None | Some("any" | "read-write" | "primary") => {}
            Some(_) => {
                let known = "`any`, `read-write` or `primary`, as jobs need writes";
                return Err(unknown("target_session_attrs", known));
            }
        }
        // What is not understood here must not be lost.
        if driver.get_ssl_mode() != SslMode::Prefer {
            return Err(TlsError::option("sslmode", "is at a place where it means nothing").into());
        }
        driver
            .ssl_mode(SslMode::Disable)
            .ssl_negotiation(SslNegotiation::Direct);
        Ok(Self {
            places: places(&driver)?,
            last: Arc::default(),
            driver,
            tls,
            #[cfg(feature = "tls")]
            is_direct: value("sslnegotiation").as_deref() == Some("direct"),
        })
    }
}

fn unknown(name: &'static str, known: &str) -> StoreError {
    lost(&format!(
        "the option `{name}` has an unknown value; it has {known}"
    ))
}

fn tls(value: impl Fn(&str) -> Option<String>) -> Result<Tls, StoreError> {
    let roots = value("sslrootcert").map(|given| match given.as_str() {
        "system" => Roots::System,
        file => Roots::File(file.into()),
    });
    let mode = match (value("sslmode").as_deref(), &roots) {
        (None, Some(Roots::System)) => Mode::VerifyFull,
        (None, _) | (Some("prefer"), _) => Mode::Prefer,
        (Some("disable"), _) => Mode::Disable,
        (Some("allow"), _) => Mode::Allow,
        // As in libpq, so that an old configuration is not weaker than it seems.
        (Some("require"), Some(Roots::File(_))) => Mode::VerifyCa,
        (Some("require"), _) => Mode::Require,
        (Some("verify-ca"), _) => Mode::VerifyCa,
        (Some("verify-full"), _) => Mode::VerifyFull,
        (Some(_), _) => {
            let known = "`disable`, `allow`, `prefer`, `require`, `verify-ca` or `verify-full`";
            return Err(unknown("sslmode", known));
        }
    };
    // Anybody can have a certificate of an authority that all machines trust.
    if roots == Some(Roots::System) && mode < Mode::VerifyFull {
        let why = "`system` needs `sslmode=verify-full`";
        return Err(TlsError::option("sslrootcert", why).into());
    }
    if roots.is_none() && mode == Mode::VerifyCa {
        let why = "`verify-ca` needs `sslrootcert`, the file of the authority; `verify-full` does \
                   without it, for servers of an authority that this machine trusts";
        return Err(TlsError::option("sslmode", why).into());
    }
    let identity = Tls::pair(("sslcert", value("sslcert")), ("sslkey", value("sslkey")))?;
    Ok(Tls {
        mode,
        roots,
        identity,
    })
}

/// Takes the options of [`OWN`] out of a configuration. Returns what is left, and their values.
/// What is no configuration is left to the driver, which says what is wrong.
fn divide(text: &str) -> (String, Vec<(String, String)>) {
    match text.starts_with("postgres://") || text.starts_with("postgresql://") {
        true => divide_url(text),
        false => divide_words(text),
    }
}

fn divide_url(text: &str) -> (String, Vec<(String, String)>) {
    // A password may have any character but this one, as for the driver.
    let host = text.find('@').unwrap_or(0);
    let Some(query) = text[host..].find('?').map(|at| host + at) else {
        return (text.to_owned(), Vec::new());
    };
    let (mut rest, mut own) = (Vec::new(), Vec::new());
    for pair in text[query + 1..].split('&') {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        match (decode(name), decode(value)) {
            (Some(name), Some(value)) if OWN.contains(&name.as_str()) => own.push((name, value)),
            _ => rest.push(pair),
        }
    }
    match rest.is_empty() {
        true => (text[..query].to_owned(), own),
        false => (format!("{}?{}", &text[..query], rest.join("&")), own),
    }
}

/// Decodes a part of a URL.
fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut parts = text.split('%');
    bytes.extend(parts.next()?.as_bytes());
    for part in parts {
        let digits = part.get(..2).filter(|two| !two.contains(['+', '-']))?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        bytes.extend(&part.as_bytes()[2..]);
    }
    String::from_utf8(bytes).ok()
}

fn divide_words(text: &str) -> (String, Vec<(String, String)>) {
    let (mut rest, mut own) = (String::new(), Vec::new());
    let mut left = text;
    while let Some((name, after)) = left.split_once('=') {
        let (value, next) = word(after.trim_start());
        let name = name.trim();
        if OWN.contains(&name) {
            own.push((name.to_owned(), value));
            // What follows is apart from what was before.
            rest.push(' ');
        } else {
            rest.push_str(&left[..left.len() - next.len()]);
        }
        left = next;
    }
    rest.push_str(left);
    (rest, own)
}

/// Reads a value, which may be in quotes. Returns it, and what follows.
fn word(text: &str) -> (String, &str) {
    let is_quoted = text.starts_with('\'');
    let mut value = String::new();
    let mut rest = text.char_indices().skip(usize::from(is_quoted));
    while let Some((at, character)) = rest.next() {
        match character {
            '\\' => value.extend(rest.next().map(|(_, escaped)| escaped)),
            '\'' if is_quoted => return (value, &text[at + 1..]),
            other if !is_quoted && other.is_whitespace() => return (value, &text[at..]),
            other => value.push(other),
        }
    }
    (value, "")
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
        let addr = addrs.get(number).copied();
        let tcp = |name| Some(Place::Tcp { name, addr, port });
        match (addr, hosts.get(number)) {
            (_, Some(Host::Tcp(name))) => tcp(name.clone()),
            (Some(addr), _) => tcp(addr.to_string()),
            (None, Some(Host::Unix(dir))) => {
                Some(Place::Unix(dir.join(format!(".s.PGSQL.{port}"))))
            }
            (None, None) => None,
        }
    };
    let places: Vec<_> = (0..count).filter_map(place).collect();
    match places.is_empty() {
        true => Err(lost("the configuration names no `host`")),
        false => Ok(places),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own(text: &str) -> (String, Vec<(String, String)>) {
        let (rest, own) = divide(text);
        let rest: Vec<_> = rest.split_whitespace().collect();
        (rest.join(" "), own)
    }

    #[test]
    fn options_are_taken_out_of_both_forms() {
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let (rest, found) = own("sslmode=verify-full host=a sslrootcert = '/a b/\\'c' port=1");
        assert_eq!(rest, "host=a port=1");
        let file = pair("sslrootcert", "/a b/'c");
        assert_eq!(found, [pair("sslmode", "verify-full"), file]);
        // Values keep what looks like an option.
        let (rest, found) = own("host=a password='x sslmode=disable' sslkey=a\\ b");
        assert_eq!(rest, "host=a password='x sslmode=disable'");
        assert_eq!(found, [pair("sslkey", "a b")]);
        let url = "postgres://u:p?sslmode=no@a,b/d?sslmode=require&user=x&sslcert=%2Fa%20b";
        let (rest, found) = own(url);
        assert_eq!(rest, "postgres://u:p?sslmode=no@a,b/d?user=x");
        assert_eq!(found, [pair("sslmode", "require"), pair("sslcert", "/a b")]);
        let (rest, found) = own("postgresql://a/d?sslmode=prefer");
        assert_eq!((&*rest, found.len()), ("postgresql://a/d", 1));
    }

    #[test]
    fn what_is_no_configuration_is_left_to_the_driver() {
        for text in [
            "",
            "host",
            "host=a port",
            "=",
            "host='a",
            "postgres://a/d?%zz=1&x",
        ] {
            let (rest, found) = divide(text);
            assert_eq!(rest.trim(), text);
            assert!(found.is_empty());
        }
    }

    #[cfg(feature = "tls")]
    #[test]
    fn the_modes_are_those_of_libpq() {
        let mode = |options: &str| {
            let made = Servers::from_str(&format!("host=a user=b {options}"));
            made.map(|servers| servers.tls.mode)
                .map_err(|error| error.to_string())
        };
        assert_eq!(mode(""), Ok(Mode::Prefer));
        assert_eq!(mode("sslmode=disable sslrootcert=f"), Ok(Mode::Disable));
        assert_eq!(mode("sslmode=allow"), Ok(Mode::Allow));
        assert_eq!(mode("sslmode=require"), Ok(Mode::Require));
        assert_eq!(mode("sslmode=require sslrootcert=f"), Ok(Mode::VerifyCa));
        assert_eq!(
            mode("sslmode=prefer sslmode=verify-full"),
            Ok(Mode::VerifyFull)
        );
        assert_eq!(mode("sslrootcert=system"), Ok(Mode::VerifyFull));
        let without_files = "sslmode=require sslrootcert='' sslcert='' sslkey=''";
        assert_eq!(mode(without_files), Ok(Mode::Require));
        let url = Servers::from_str("postgres://b@a/c?sslmode=").map(|_| ());
        let url = url.unwrap_err().to_string();
        assert!(url.contains("`sslmode` has an unknown value"), "{url}");
        for (wrong, told) in [
            ("sslmode=verify-ca", "needs `sslrootcert`"),
            (
                "sslmode=require sslrootcert=system",
                "needs `sslmode=verify-full`",
            ),
            ("sslmode=REQUIRE", "unknown value"),
            ("sslmode=''", "`sslmode` has an unknown value"),
            ("sslnegotiation=''", "`sslnegotiation` has an unknown value"),
            (
                "target_session_attrs=''",
                "`target_session_attrs` has an unknown value",
            ),
            ("sslcert=f", "needs `sslkey`"),
            ("sslkey=f", "needs `sslcert`"),
            ("sslnegotiation=direct", "needs an `sslmode`"),
            ("target_session_attrs=standby", "`read-write`"),
        ] {
            let error = mode(wrong).unwrap_err();
            assert!(error.contains(told), "{wrong}: {error}");
        }
    }

    #[cfg(not(feature = "tls"))]
    #[test]
    fn what_asks_for_tls_is_refused_without_the_feature() {
        let refused = |options: &str| {
            let made = Servers::from_str(&format!("host=a user=b {options}"));
            matches!(made.err(), Some(StoreError::Tls(TlsError::NoFeature)))
        };
        for options in ["sslmode=require", "sslmode=verify-full", "sslrootcert=f"] {
            assert!(refused(options), "{options}");
        }
        for options in ["", "sslmode=prefer", "sslmode=disable sslrootcert=f"] {
            assert!(!refused(options), "{options}");
        }
    }
}
