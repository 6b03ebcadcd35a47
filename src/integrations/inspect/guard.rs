//! Checks which requests may be answered: those from the page itself, or from no page at all.
//!
//! The page shows what a program does. It needs no password, on an address that only its user
//! should reach. But any other page that the user has open may send requests there, too. That page
//! cannot read the answers, because no header allows it. The exception is a page whose own name
//! resolves to our address (DNS rebinding); the check of `Host` refuses it.
//!
//! The checks of `Origin` and `Sec-Fetch-Site` refuse requests of other pages before they cause any
//! work. Browsers send the latter only to addresses of this machine, and over TLS. So on other
//! addresses over plain HTTP, a request of another page for an image or a script is answered. The
//! headers of the answer keep its content from that page.

use ::hyper::{
    HeaderMap, Method, StatusCode, Uri,
    header::{HOST, HeaderName, ORIGIN},
};

use super::hosts::Hosts;

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const SEC_FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");
const SEC_FETCH_DEST: HeaderName = HeaderName::from_static("sec-fetch-dest");

/// The reason why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// The method is neither `GET` nor `HEAD`.
    Method,
    /// The host name is missing or not allowed.
    Host,
    /// The request comes from another page.
    Origin,
}

impl Refused {
    pub(crate) fn status(self) -> StatusCode {
        match self {
            Self::Method => StatusCode::METHOD_NOT_ALLOWED,
            Self::Host => StatusCode::MISDIRECTED_REQUEST,
            Self::Origin => StatusCode::FORBIDDEN,
        }
    }

    /// Returns the text of the answer.
    pub(crate) fn why(self) -> &'static str {
        match self {
            Self::Method => "only GET and HEAD are answered\n",
            Self::Host => {
                "this name is not one of the inspector's: use an IP address or localhost, or \
                 allow the name\n"
            }
            Self::Origin => "another page may not ask here\n",
        }
    }
}

impl Hosts {
    /// Checks a request.
    pub(crate) fn check(
        &self,
        method: &Method,
        uri: &Uri,
        headers: &HeaderMap,
    ) -> Result<(), Refused> {
        // The page only reads, so anything else is not from it.
        if !matches!(*method, Method::GET | Method::HEAD) {
            return Err(Refused::Method);
        }
        let host = only(headers, HOST).ok_or(Refused::Host)?;
        // A request to a proxy has the host in the URI, too.
        let named = uri
            .authority()
            .is_none_or(|named| named.as_str().eq_ignore_ascii_case(host));
        if !named || !self.is_ours(host) {
            return Err(Refused::Host);
        }
        let is_own = |origin: &str| {
            let origin = origin.strip_prefix("http://");
            origin.is_some_and(|origin| origin.eq_ignore_ascii_case(host))
        };
        // A browser without `Sec-Fetch-Site` is accepted: the check of `Host` protects the answers.
        let is_here = |site: &str| matches!(site, "same-origin" | "none");
        let is_here = all(headers, SEC_FETCH_SITE, is_here) || follows_link(uri, headers);
        if all(headers, ORIGIN, is_own) && is_here {
            Ok(())
        } else {
            Err(Refused::Origin)
        }
    }
}

/// Returns whether the request follows a link on another page to ours, in a tab and not in a frame.
/// The other page then sees nothing of the answer.
fn follows_link(uri: &Uri, headers: &HeaderMap) -> bool {
    uri.path() == "/"
        && only(headers, SEC_FETCH_MODE) == Some("navigate")
        && only(headers, SEC_FETCH_DEST) == Some("document")
}

/// Returns the value of a header that occurs exactly once.
fn only(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?.to_str().ok()?;
    values.next().is_none().then_some(value)
}

/// Returns whether every value of a header, if there are any, satisfies `is`.
fn all(headers: &HeaderMap, name: HeaderName, is: impl Fn(&str) -> bool) -> bool {
    let mut values = headers.get_all(name).iter();
    values.all(|value| value.to_str().is_ok_and(&is))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts() -> Hosts {
        let mut hosts = Hosts::default();
        hosts.allow("Box.example").unwrap();
        hosts
    }

    fn check(uri: &str, headers: &[(&str, &str)]) -> Result<(), Refused> {
        let headers = headers.iter().map(|(name, value)| {
            let name: HeaderName = name.parse().unwrap();
            (name, value.parse().unwrap())
        });
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(name, value);
        }
        hosts().check(&Method::GET, &uri.parse().unwrap(), &map)
    }

    #[test]
    fn only_addresses_and_allowed_names_are_accepted() {
        for ours in [
            "127.0.0.1",
            "127.0.0.1:8080",
            "10.1.2.3:1",
            "[::1]",
            "[::1]:8080",
            "[fe80::1]:65535",
            "localhost",
            "LocalHost:80",
            "box.example:9",
            "BOX.EXAMPLE",
        ] {
            assert_eq!(check("/", &[("host", ours)]), Ok(()), "{ours}");
        }
        for other in [
            "",
            ":80",
            "evil.example",
            "evil.example:8080",
            "127.0.0.1.evil.example",
            "localhost.evil.example",
            "box.example.evil.example",
            "evil-box.example",
            "localhost.",
            "127.0.0.1:",
            "127.0.0.1:port",
            "127.0.0.1:65536",
            "127.0.0.1:+80",
            "127.0.0.1:80:80",
            "127.1",
            "0x7f000001",
            "2130706433",
            "::1",
            "[::1",
            "[::1]8080",
            "[::1]:",
            "[localhost]",
            "user@localhost",
        ] {
            let checked = check("/", &[("host", other)]);
            assert_eq!(checked, Err(Refused::Host), "{other}");
        }
        assert_eq!(check("/", &[]), Err(Refused::Host));
        let twice = [("host", "localhost"), ("host", "localhost")];
        assert_eq!(check("/", &twice), Err(Refused::Host));
    }

    #[test]
    fn a_request_to_a_proxy_must_name_one_host() {
        let host = [("host", "127.0.0.1:80")];
        assert_eq!(check("http://127.0.0.1:80/", &host), Ok(()));
        assert_eq!(check("http://evil.example/", &host), Err(Refused::Host));
        let evil = [("host", "evil.example")];
        assert_eq!(check("http://127.0.0.1:80/", &evil), Err(Refused::Host));
    }

    #[test]
    fn only_the_own_origin_is_accepted() {
        let with = |name, value| check("/", &[("host", "127.0.0.1:80"), (name, value)]);
        assert_eq!(with("origin", "http://127.0.0.1:80"), Ok(()));
        for other in [
            "null",
            "",
            "http://127.0.0.1",
            "http://127.0.0.1:81",
            "https://127.0.0.1:80",
            "http://evil.example",
            "http://127.0.0.1:80.evil.example",
        ] {
            assert_eq!(with("origin", other), Err(Refused::Origin), "{other}");
        }
        for here in ["none", "same-origin"] {
            assert_eq!(with("sec-fetch-site", here), Ok(()));
        }
        for other in ["cross-site", "same-site", "", "None"] {
            let checked = with("sec-fetch-site", other);
            assert_eq!(checked, Err(Refused::Origin), "{other}");
        }
        let link = |path, mode, dest| {
            let headers = [
                ("host", "localhost"),
                ("sec-fetch-site", "cross-site"),
                ("sec-fetch-mode", mode),
                ("sec-fetch-dest", dest),
            ];
            check(path, &headers)
        };
        assert_eq!(link("/", "navigate", "document"), Ok(()));
        for (path, mode, dest) in [
            ("/snapshot.json", "navigate", "document"),
            ("/metrics", "navigate", "document"),
            ("/", "navigate", "iframe"),
            ("/", "navigate", "object"),
            ("/", "no-cors", "document"),
            ("/", "cors", "empty"),
        ] {
            let checked = link(path, mode, dest);
            assert_eq!(checked, Err(Refused::Origin), "{path} {mode} {dest}");
        }
        let both = [
            ("host", "localhost"),
            ("origin", "http://localhost"),
            ("origin", "http://evil.example"),
        ];
        assert_eq!(check("/", &both), Err(Refused::Origin));
    }

    #[test]
    fn only_get_and_head_are_accepted() {
        let mut headers = HeaderMap::new();
        headers.insert(HOST, "localhost".parse().unwrap());
        let check = |method| hosts().check(&method, &Uri::from_static("/"), &headers);
        assert_eq!(check(Method::GET), Ok(()));
        assert_eq!(check(Method::HEAD), Ok(()));
        for method in [Method::POST, Method::PUT, Method::DELETE, Method::OPTIONS] {
            assert_eq!(check(method), Err(Refused::Method));
        }
    }
}
