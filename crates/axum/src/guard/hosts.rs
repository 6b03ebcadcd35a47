//! The host names that requests may use.

use std::{
    error::Error,
    fmt, io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    sync::Arc,
};

/// The maximum length of a name, and of a label between its dots.
const MAX_NAME: usize = 253;
const MAX_LABEL: usize = 63;

/// The error of a host name that is not valid in a browser. See
/// [`SameOrigin::allow_host`](crate::SameOrigin::allow_host).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidHost(String);

impl fmt::Display for InvalidHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(name) = self;
        write!(
            f,
            "{name:?} is not a valid host name: write it as browsers send it, such as box or \
             box.example, without a scheme, a path or a wildcard, and in ASCII letters \
             (xn--bcher-kva.example)"
        )
    }
}

impl Error for InvalidHost {}

impl From<InvalidHost> for io::Error {
    fn from(error: InvalidHost) -> Self {
        Self::new(io::ErrorKind::InvalidInput, error)
    }
}

/// The allowed names besides IP addresses and `localhost`, in lower case and without a dot at the
/// end. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Hosts(Arc<Vec<String>>);

impl Hosts {
    /// Allows a name. Ignores its port and a dot at its end. Addresses are always allowed.
    pub fn allow(&mut self, said: &str) -> Result<(), InvalidHost> {
        let name = match split_port(said) {
            Some((name, port)) if port.is_none_or(is_port) => name,
            // An IPv6 address without brackets contains colons.
            _ => said,
        };
        let bare = name
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'));
        let is_address = match bare {
            Some(bare) => bare.parse::<Ipv6Addr>().is_ok(),
            None => name.parse::<IpAddr>().is_ok(),
        };
        // Addresses are always allowed: DNS rebinding needs a name.
        if is_address {
            return Ok(());
        }
        let name = without_dot(name);
        if !is_name(name) {
            return Err(InvalidHost(said.to_owned()));
        }
        Arc::make_mut(&mut self.0).push(name.to_ascii_lowercase());
        Ok(())
    }

    /// Returns whether a host, with or without a port, cannot be a rebound name: it is an address,
    /// `localhost`, or an allowed name.
    pub fn is_ours(&self, host: &str) -> bool {
        let Some((name, port)) = split_port(host) else {
            return false;
        };
        if !port.is_none_or(is_port) {
            return false;
        }
        if let Some(rest) = name.strip_prefix('[') {
            let address = rest.strip_suffix(']');
            return address.is_some_and(|address| address.parse::<Ipv6Addr>().is_ok());
        }
        let is_allowed = |known: &String| known.eq_ignore_ascii_case(without_dot(name));
        name.parse::<Ipv4Addr>().is_ok()
            || name.eq_ignore_ascii_case("localhost")
            || self.0.iter().any(is_allowed)
    }
}

/// Splits a host into the name or address and the port, if there is one. An IPv6 address must be in
/// brackets. Returns `None` if there are further colons.
fn split_port(host: &str) -> Option<(&str, Option<&str>)> {
    // Colons within brackets belong to an IPv6 address.
    let end = host.rfind(']').map_or(0, |at| at + 1);
    let (name, port) = match host[end..].find(':') {
        Some(at) => (&host[..end + at], Some(&host[end + at + 1..])),
        None => (host, None),
    };
    port.is_none_or(|port| !port.contains(':'))
        .then_some((name, port))
}

/// Removes the dot at the end of an absolute DNS name.
fn without_dot(name: &str) -> &str {
    name.strip_suffix('.').unwrap_or(name)
}

fn is_name(name: &str) -> bool {
    let is_label = |label: &str| {
        let is_part = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        matches!(label.len(), 1..=MAX_LABEL) && label.bytes().all(is_part)
    };
    name.len() <= MAX_NAME && name.split('.').all(is_label)
}

fn is_port(text: &str) -> bool {
    text.parse::<u16>().is_ok() && text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed(said: &str) -> Hosts {
        let mut hosts = Hosts::default();
        hosts.allow(said).unwrap();
        hosts
    }

    #[test]
    fn a_name_is_allowed_in_every_spelling() {
        for said in ["box.example", "Box.Example.", "box.example:9000"] {
            let hosts = allowed(said);
            for host in [
                "box.example",
                "box.example:9000",
                "BOX.example.",
                "box.example.:80",
            ] {
                assert!(hosts.is_ours(host), "{said} {host}");
            }
            for other in [
                "box",
                "example",
                "evil.example",
                "box.example..",
                "box.example:x",
                "",
            ] {
                assert!(!hosts.is_ours(other), "{said} {other}");
            }
        }
        assert!(allowed("my_box-7").is_ours("my_box-7:1"));
    }

    #[test]
    fn addresses_are_allowed_anyway() {
        for said in ["127.0.0.1", "10.0.0.1:80", "[::1]", "[::1]:9000", "::1"] {
            assert!(allowed(said).0.is_empty(), "{said}");
        }
    }

    #[test]
    fn invalid_names_are_refused_with_a_hint() {
        for wrong in [
            "",
            ".",
            ":9000",
            "box:nine",
            "box:",
            "box:1:2",
            "http://box",
            "http://box:9000/",
            "box/page",
            "*.example",
            "a..b",
            "user@box",
            "two words",
            "bücher.example",
            "[box]",
            "[::1",
            &"x".repeat(64),
        ] {
            let refused = Hosts::default().allow(wrong);
            assert_eq!(refused, Err(InvalidHost(wrong.to_owned())), "{wrong}");
        }
        let said = InvalidHost("http://box/".to_owned()).to_string();
        assert!(
            said.starts_with("\"http://box/\" is not a valid host name"),
            "{said}"
        );
        assert!(said.contains("such as box or box.example"), "{said}");
    }
}
