//! The errors of TLS.

use std::{error::Error, fmt, io, path::PathBuf, sync::Arc};

/// A connection with TLS was not made.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum TlsError {
    /// The configuration asks for TLS, and this program was built without the feature `tls`.
    NoFeature,
    /// An option of the configuration does not fit.
    Option {
        /// The name of the option.
        name: &'static str,
        /// What is wrong, and what would be right.
        why: String,
    },
    /// A file of certificates or of a key cannot be used.
    File {
        /// The path of the file.
        path: PathBuf,
        /// Why it cannot be used.
        why: String,
    },
    /// The server has no TLS. Nothing was sent to it without.
    NotOffered,
    /// No trusted authority has signed the server's certificate.
    Untrusted,
    /// The server's certificate is not for the name or the address that the configuration has.
    WrongName {
        /// The name or address of the configuration.
        name: String,
        /// Those that the certificate is for.
        valid: Vec<String>,
    },
    /// The time of the server's certificate is over, or has not begun.
    Expired,
    /// The server refused the client's certificate, or demands one.
    Refused(Arc<dyn Error + Send + Sync>),
    /// Something else went wrong between the two.
    Failed(Arc<dyn Error + Send + Sync>),
}

impl TlsError {
    pub(crate) fn option(name: &'static str, why: impl Into<String>) -> Self {
        let why = why.into();
        Self::Option { name, why }
    }
}

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoFeature => f.write_str(
                "the configuration asks for TLS, and this program was built without it; build it \
                 with the feature `tls`",
            ),
            Self::Option { name, why } => write!(f, "the option `{name}` {why}"),
            Self::File { path, why } => write!(f, "{}: {why}", path.display()),
            Self::NotOffered => f.write_str(
                "the server has no TLS, which the configuration demands; turn it on there",
            ),
            Self::Untrusted => f.write_str(
                "no trusted authority has signed the server's certificate; name the file of its \
                 authority (`sslrootcert` for PostgreSQL, `ssl_ca_certs` for Redis)",
            ),
            Self::WrongName { name, valid } if valid.is_empty() => write!(
                f,
                "the server's certificate is not for `{name}`, as it has no names \
                 (subjectAltName); make one that has this name"
            ),
            Self::WrongName { name, valid } => write!(
                f,
                "the server's certificate is not for `{name}`, but for {}; connect to the server \
                 by such a name, or make a certificate that has this one",
                valid.join(", ")
            ),
            Self::Expired => f.write_str(
                "the time of the server's certificate is over, or has not begun; renew the \
                 certificate, or set the clock of this machine",
            ),
            Self::Refused(error) => write!(
                f,
                "the server refused the certificate of this client, or demands one; give it one \
                 that the server trusts (`sslcert` and `sslkey` for PostgreSQL, `ssl_certfile` and \
                 `ssl_keyfile` for Redis): {error}"
            ),
            Self::Failed(error) => write!(f, "there is no TLS with the server: {error}"),
        }
    }
}

impl Error for TlsError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Refused(error) | Self::Failed(error) => Some(error.as_ref()),
            _ => None,
        }
    }
}

/// Returns the error of TLS that another error has as its cause.
pub(crate) fn find(error: &(dyn Error + 'static)) -> Option<TlsError> {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(found) = error.downcast_ref::<TlsError>() {
            return Some(found.clone());
        }
        #[cfg(all(feature = "tls", any(feature = "postgres", feature = "redis")))]
        if let Some(found) = error.downcast_ref::<tokio_rustls::rustls::Error>() {
            return Some(found.clone().into());
        }
        // The source of such errors is that of the one within.
        let shared = error.downcast_ref::<Arc<dyn Error + Send + Sync>>();
        let within = match error.downcast_ref::<io::Error>() {
            Some(error) => error.get_ref(),
            None => shared.map(Arc::as_ref),
        };
        cause = match within {
            Some(within) => Some(within as &(dyn Error + 'static)),
            None => error.source(),
        };
    }
    None
}
