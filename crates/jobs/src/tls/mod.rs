//! TLS to servers.

#[cfg(all(feature = "tls", feature = "postgres"))]
mod binding;
#[cfg(all(feature = "tls", any(feature = "postgres", feature = "redis")))]
mod certificates;
#[cfg(all(feature = "tls", any(feature = "postgres", feature = "redis")))]
mod client;
mod error;

use std::path::PathBuf;

#[cfg(all(feature = "tls", feature = "postgres"))]
pub(crate) use self::binding::binding;
#[cfg(all(feature = "tls", any(feature = "postgres", feature = "redis")))]
pub(crate) use self::client::{Client, Encrypted};
pub use self::error::TlsError;
pub(crate) use self::error::find;

/// Whether a connection has TLS, and what is demanded of the server's certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Mode {
    /// No TLS.
    Disable,
    /// TLS if the server refuses to go on without.
    Allow,
    /// TLS if the server has it.
    Prefer,
    /// TLS with any certificate.
    Require,
    /// TLS with a certificate of a trusted authority.
    VerifyCa,
    /// Likewise, and the certificate is for the name of the server.
    VerifyFull,
}

/// The authorities that are trusted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Roots {
    /// Those that the machine trusts.
    System,
    /// Those of a file.
    File(PathBuf),
}

/// What a configuration says of TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tls {
    pub(crate) mode: Mode,
    pub(crate) roots: Option<Roots>,
    /// The files of the client's certificate and of its key.
    pub(crate) identity: Option<(PathBuf, PathBuf)>,
}

impl Tls {
    /// Returns the files of the client's certificate and of its key, of which both or none are
    /// given.
    pub(crate) fn pair(
        certificate: (&'static str, Option<String>),
        key: (&'static str, Option<String>),
    ) -> Result<Option<(PathBuf, PathBuf)>, TlsError> {
        match (certificate.1, key.1) {
            (Some(certificate), Some(key)) => Ok(Some((certificate.into(), key.into()))),
            (None, None) => Ok(None),
            (Some(_), None) => Err(TlsError::option(
                certificate.0,
                format!("needs `{}`, the file of its key", key.0),
            )),
            (None, Some(_)) => Err(TlsError::option(
                key.0,
                format!("needs `{}`, the file of its certificate", certificate.0),
            )),
        }
    }

    /// Fails if TLS is demanded, or described, and this program has none.
    pub(crate) fn check(&self) -> Result<(), TlsError> {
        let is_described = self.roots.is_some() || self.identity.is_some();
        let is_demanded = self.mode >= Mode::Require || is_described;
        match cfg!(feature = "tls") || self.mode == Mode::Disable || !is_demanded {
            true => Ok(()),
            false => Err(TlsError::NoFeature),
        }
    }
}
