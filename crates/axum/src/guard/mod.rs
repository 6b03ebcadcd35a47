//! Checks which requests may be answered: those of the server's own pages, or of no page at all.
//!
//! A server without passwords listens on an address that only its user should reach. But any page
//! that the user has open may send requests there, too. Such a page cannot read the answers,
//! because no header allows it. The exception is a page whose own name resolves to our address (DNS
//! rebinding); the check of `Host` refuses it.
//!
//! The checks of `Origin` and `Sec-Fetch-Site` refuse requests of other pages before they cause any
//! work. Browsers send the latter only to addresses of this machine, and over TLS. So on other
//! addresses over plain HTTP, a request of another page for an image or a script is answered. The
//! page can then show it, but a script of the page cannot read it. What costs much, such as a
//! profile, therefore needs a header that such a request cannot have.
//!
//! Hidden, because only the live page uses it. Users have the layer
//! [`SameOrigin`](crate::SameOrigin).

pub(crate) mod hosts;

use hyper::{
    HeaderMap, Method, Request, StatusCode, Version,
    header::{HOST, HeaderName, ORIGIN},
};

pub use self::hosts::Hosts;

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const SEC_FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");
const SEC_FETCH_DEST: HeaderName = HeaderName::from_static("sec-fetch-dest");

/// The reason why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The host name is missing or not allowed.
    Host,
    /// The request comes from another page.
    Origin,
}

impl Refused {
    /// Returns the status of the answer.
    pub fn status(self) -> StatusCode {
        match self {
            Self::Host => StatusCode::MISDIRECTED_REQUEST,
            Self::Origin => StatusCode::FORBIDDEN,
        }
    }

    /// Returns the text of the answer.
    pub fn why(self) -> &'static str {
        match self {
            Self::Host => {
                "this name is not one of this server's: use an IP address or localhost, or allow \
                 the name\n"
            }
            Self::Origin => "another page may not ask here\n",
        }
    }
}

/// Where an accepted request comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// A page of this server, the user, or a client that is no browser.
    Own,
    /// A link on another page, which the user followed.
    Link,
}

impl Hosts {
    /// Checks a request. `schemes` are those that the server's own pages may have, each with `://`.
    pub fn check<B>(&self, request: &Request<B>, schemes: &[&str]) -> Result<Source, Refused> {
        let headers = request.headers();
        let host = host(request).filter(|host| self.is_ours(host));
        let host = host.ok_or(Refused::Host)?;
        let is_own = |origin: &str| {
            let mut rests = schemes
                .iter()
                .filter_map(|scheme| origin.strip_prefix(scheme));
            rests.any(|rest| rest.eq_ignore_ascii_case(host))
        };
        let mut origins = headers.get_all(ORIGIN).iter();
        let origin = origins
            .next()
            .map(|origin| origin.to_str().is_ok_and(is_own));
        if origin == Some(false) || origins.next().is_some() {
            return Err(Refused::Origin);
        }
        // A browser without `Sec-Fetch-Site` is accepted: the check of `Host` protects the answers.
        let is_here = |site: &str| matches!(site, "same-origin" | "none");
        if all(headers, SEC_FETCH_SITE, is_here) {
            Ok(Source::Own)
        } else if follows_link(request.method(), headers) {
            Ok(Source::Link)
        } else {
            Err(Refused::Origin)
        }
    }
}

/// Returns the host that a request names, if it names exactly one.
fn host<B>(request: &Request<B>) -> Option<&str> {
    let headers = request.headers();
    // A request to a proxy has the host in the URI, too.
    let named = request.uri().authority().map(|named| named.as_str());
    if request.version() >= Version::HTTP_2 && !headers.contains_key(HOST) {
        // HTTP/2 has it there in place of the header. HTTP/1.1 requires the header.
        return named;
    }
    let host = only(headers, HOST)?;
    let is_one = named.is_none_or(|named| named.eq_ignore_ascii_case(host));
    is_one.then_some(host)
}

/// Returns whether the request follows a link on another page to ours, in a tab and not in a frame.
/// The other page then sees nothing of the answer.
fn follows_link(method: &Method, headers: &HeaderMap) -> bool {
    matches!(*method, Method::GET | Method::HEAD)
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

    const BOTH: [&str; 2] = ["http://", "https://"];

    fn check(uri: &str, headers: &[(&str, &str)]) -> Result<Source, Refused> {
        check_by(&Method::GET, uri, headers, &BOTH)
    }

    fn request(method: &Method, uri: &str, headers: &[(&str, &str)]) -> Request<()> {
        let mut request = Request::builder().method(method).uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap()
    }

    fn check_by(
        method: &Method,
        uri: &str,
        headers: &[(&str, &str)],
        schemes: &[&str],
    ) -> Result<Source, Refused> {
        hosts().check(&request(method, uri, headers), schemes)
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
            assert_eq!(check("/", &[("host", ours)]), Ok(Source::Own), "{ours}");
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
        assert_eq!(check("http://127.0.0.1:80/", &host), Ok(Source::Own));
        assert_eq!(check("http://evil.example/", &host), Err(Refused::Host));
        let evil = [("host", "evil.example")];
        assert_eq!(check("http://127.0.0.1:80/", &evil), Err(Refused::Host));
    }

    #[test]
    fn only_http_2_may_have_the_host_in_the_uri_alone() {
        let check_2 = |uri: &str, headers: &[(&str, &str)]| {
            let mut request = request(&Method::GET, uri, headers);
            *request.version_mut() = Version::HTTP_2;
            hosts().check(&request, &BOTH)
        };
        assert_eq!(check_2("https://127.0.0.1:80/", &[]), Ok(Source::Own));
        let own = [("origin", "https://127.0.0.1:80")];
        assert_eq!(check_2("https://127.0.0.1:80/", &own), Ok(Source::Own));
        assert_eq!(check_2("https://127.0.0.1/", &own), Err(Refused::Origin));
        for other in ["evil.example", "user@localhost"] {
            let uri = format!("https://{other}/");
            assert_eq!(check_2(&uri, &[]), Err(Refused::Host), "{other}");
        }
        assert_eq!(check("https://127.0.0.1:80/", &[]), Err(Refused::Host));
    }

    #[test]
    fn only_the_own_origin_is_accepted() {
        let with = |name, value| check("/", &[("host", "127.0.0.1:80"), (name, value)]);
        assert_eq!(with("origin", "http://127.0.0.1:80"), Ok(Source::Own));
        for other in [
            "null",
            "",
            "http://127.0.0.1",
            "http://127.0.0.1:81",
            "ws://127.0.0.1:80",
            "HTTP://127.0.0.1:80",
            "http://evil.example",
            "http://127.0.0.1:80.evil.example",
        ] {
            assert_eq!(with("origin", other), Err(Refused::Origin), "{other}");
        }
        for here in ["none", "same-origin"] {
            assert_eq!(with("sec-fetch-site", here), Ok(Source::Own));
        }
        for other in ["cross-site", "same-site", "", "None"] {
            let checked = with("sec-fetch-site", other);
            assert_eq!(checked, Err(Refused::Origin), "{other}");
        }
        let schemes = |origin| {
            let headers = [("host", "127.0.0.1:80"), ("origin", origin)];
            check_by(&Method::GET, "/", &headers, &["http://"])
        };
        assert_eq!(schemes("http://127.0.0.1:80"), Ok(Source::Own));
        assert_eq!(schemes("https://127.0.0.1:80"), Err(Refused::Origin));
        assert_eq!(with("origin", "https://127.0.0.1:80"), Ok(Source::Own));
        let link = |method, mode, dest| {
            let headers = [
                ("host", "localhost"),
                ("sec-fetch-site", "cross-site"),
                ("sec-fetch-mode", mode),
                ("sec-fetch-dest", dest),
            ];
            check_by(&method, "/", &headers, &BOTH)
        };
        for method in [Method::GET, Method::HEAD] {
            let linked = link(method, "navigate", "document");
            assert_eq!(linked, Ok(Source::Link));
        }
        for (method, mode, dest) in [
            (Method::POST, "navigate", "document"),
            (Method::GET, "navigate", "iframe"),
            (Method::GET, "navigate", "object"),
            (Method::GET, "no-cors", "document"),
            (Method::GET, "cors", "empty"),
        ] {
            let checked = link(method.clone(), mode, dest);
            assert_eq!(checked, Err(Refused::Origin), "{method} {mode} {dest}");
        }
        for second in ["http://evil.example", "http://localhost"] {
            let both = [
                ("host", "localhost"),
                ("origin", "http://localhost"),
                ("origin", second),
            ];
            assert_eq!(check("/", &both), Err(Refused::Origin), "{second}");
        }
    }
}
