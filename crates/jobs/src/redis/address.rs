//! Reads a URL: the address of the server, and what it says of TLS. The driver reads the rest.

use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo, ProtocolVersion, parse_redis_url};

use super::connection::failed;
use crate::{
    remote::lost,
    store::StoreError,
    tls::{Mode, Roots, Tls, TlsError},
};

/// The options of a URL with TLS, by the names that clients of Python have for them.
const CERTIFICATES: &str = "ssl_ca_certs";
const CERTIFICATE: &str = "ssl_certfile";
const KEY: &str = "ssl_keyfile";

/// What is needed to connect.
#[derive(Clone)]
pub(super) struct Address {
    /// The driver's, which has no TLS: [`Address::tls`] has.
    pub(super) info: ConnectionInfo,
    pub(super) tls: Tls,
}

impl Address {
    pub(super) fn parse(text: &str) -> Result<Self, StoreError> {
        let Some(mut url) = parse_redis_url(text) else {
            // The driver says what is wrong.
            let info: ConnectionInfo = text.into_connection_info().map_err(failed)?;
            return Ok(Self::plain(info));
        };
        let (mut roots, mut certificate, mut key, mut rest) = (None, None, None, Vec::new());
        for (name, value) in url.query_pairs() {
            let value = value.into_owned();
            match &*name {
                CERTIFICATES => roots = Some(Roots::File(value.into())),
                CERTIFICATE => certificate = Some(value),
                KEY => key = Some(value),
                _ => rest.push((name.into_owned(), value)),
            }
        }
        let is_described = roots.is_some() || certificate.is_some() || key.is_some();
        let other = match url.scheme() {
            "rediss" => "redis",
            "valkeys" => "valkey",
            _ if is_described => {
                let name = match (&roots, &certificate) {
                    (Some(_), _) => CERTIFICATES,
                    (_, Some(_)) => CERTIFICATE,
                    _ => KEY,
                };
                let why = "needs a URL that begins with `rediss://`, as the others have no TLS";
                return Err(TlsError::option(name, why).into());
            }
            _ => {
                let info = url.into_connection_info().map_err(failed)?;
                return Ok(Self::plain(info));
            }
        };
        let mode = match url.fragment() {
            None | Some("") => Mode::VerifyFull,
            Some("insecure") if roots.is_none() => Mode::Require,
            Some("insecure") => {
                let why = "means nothing with `#insecure`; leave one of them out";
                return Err(TlsError::option(CERTIFICATES, why).into());
            }
            Some(_) => return Err(lost("the URL may only end with `#insecure`")),
        };
        let tls = Tls {
            mode,
            roots,
            identity: Tls::pair((CERTIFICATE, certificate), (KEY, key))?,
        };
        tls.check()?;
        url.set_fragment(None);
        url.query_pairs_mut().clear().extend_pairs(rest);
        url.set_scheme(other)
            .map_err(|()| lost("the URL has an unknown scheme"))?;
        let info = url.into_connection_info().map_err(failed)?;
        Ok(Self {
            info: resp3(info),
            tls,
        })
    }

    fn plain(info: ConnectionInfo) -> Self {
        let tls = Tls {
            mode: Mode::Disable,
            roots: None,
            identity: None,
        };
        let info = resp3(info);
        Self { info, tls }
    }

    /// Returns the address of the server.
    pub(super) fn addr(&self) -> &ConnectionAddr {
        self.info.addr()
    }
}

/// Chooses the protocol by which messages and answers may come over one connection.
fn resp3(info: ConnectionInfo) -> ConnectionInfo {
    let settings = info.redis_settings().clone();
    info.set_redis_settings(settings.set_protocol(ProtocolVersion::RESP3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(feature = "tls")]
    #[test]
    fn a_url_says_what_is_trusted_and_which_certificate_the_client_has() {
        let url = "rediss://u:p%20w@example.com:7000/3?ssl_ca_certs=%2Fa%20b&ssl_certfile=c\
                   &ssl_keyfile=k";
        let Address { info, tls } = Address::parse(url).unwrap();
        assert_eq!(
            *info.addr(),
            ConnectionAddr::Tcp("example.com".into(), 7000)
        );
        let settings = info.redis_settings();
        assert_eq!((settings.db(), settings.password()), (3, Some("p w")));
        let expected = Tls {
            mode: Mode::VerifyFull,
            roots: Some(Roots::File("/a b".into())),
            identity: Some(("c".into(), "k".into())),
        };
        assert_eq!(tls, expected);
        let mode = |url| Address::parse(url).unwrap().tls.mode;
        assert_eq!(mode("valkeys://[::1]/"), Mode::VerifyFull);
        assert_eq!(mode("rediss://h#insecure"), Mode::Require);
        assert_eq!(mode("redis://h"), Mode::Disable);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        for (url, told) in [
            ("redis://h?ssl_ca_certs=a", "`ssl_ca_certs` needs"),
            ("redis+unix:///s?ssl_keyfile=a", "`ssl_keyfile` needs"),
            ("rediss://h?ssl_certfile=a", "`ssl_certfile` needs"),
            ("rediss://h#other", "#insecure"),
            ("rediss://h?ssl_ca_certs=a#insecure", "#insecure"),
        ] {
            let error = Address::parse(url).err().unwrap().to_string();
            assert!(error.contains(told), "{url}: {error}");
        }
    }

    #[cfg(not(feature = "tls"))]
    #[test]
    fn what_asks_for_tls_is_refused_without_the_feature() {
        for url in ["rediss://h", "valkeys://h", "rediss://h#insecure"] {
            let refused = Address::parse(url).err();
            assert!(matches!(
                refused,
                Some(StoreError::Tls(TlsError::NoFeature))
            ));
        }
    }
}
