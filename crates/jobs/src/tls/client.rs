//! Encrypts connections.

use std::{fs, io, path::Path, sync::Arc};

use rustls_native_certs::load_native_certs;
use tokio_rustls::{
    TlsConnector,
    client::TlsStream,
    rustls::{
        self, ClientConfig, RootCertStore,
        client::Resumption,
        crypto::ring,
        pki_types::{
            CertificateDer, PrivateKeyDer, ServerName,
            pem::{self, PemObject},
        },
    },
};
use tourbillon::{net::TcpStream, task::spawn_blocking};

use super::{
    Mode, Roots, Tls, TlsError,
    certificates::{Judge, Trusted},
    find,
};
use crate::store::StoreError;

/// A connection with TLS.
pub(crate) type Encrypted = TlsStream<TcpStream>;

/// Encrypts connections, with the files as they are when it is made.
#[derive(Clone)]
pub(crate) struct Client(Arc<ClientConfig>);

impl Client {
    /// Reads the files, which may take long. A client is made for each connect, so that files which
    /// have been replaced count from then on.
    ///
    /// `protocol` is the name of what goes over the connections, if servers ask for it.
    pub(crate) async fn new(
        tls: &Tls,
        protocol: Option<&'static [u8]>,
    ) -> Result<Self, StoreError> {
        let tls = tls.clone();
        let read = spawn_blocking(move || read(&tls, protocol)).await;
        Ok(Self(Arc::new(read.map_err(StoreError::failed)??)))
    }

    /// Encrypts a connection to a server of this name.
    pub(crate) async fn encrypt(
        &self,
        name: &str,
        stream: TcpStream,
    ) -> Result<Encrypted, TlsError> {
        let server = ServerName::try_from(name.to_owned()).map_err(|_| {
            TlsError::option(
                "host",
                format!("has no name that a server can have: `{name}`"),
            )
        })?;
        let made = TlsConnector::from(self.0.clone()).connect(server, stream);
        made.await.map_err(|error| {
            // Keep what the library or the system says.
            find(&error).unwrap_or_else(|| TlsError::Failed(Arc::new(error)))
        })
    }
}

fn read(tls: &Tls, protocol: Option<&'static [u8]>) -> Result<ClientConfig, TlsError> {
    let provider = Arc::new(ring::default_provider());
    let algorithms = provider.signature_verification_algorithms;
    let trusted = match &tls.roots {
        Some(Roots::File(path)) => Some(of_file(path)?),
        Some(Roots::System) => Some(of_system()?),
        None if tls.mode >= Mode::VerifyFull => Some(of_system()?),
        None => None,
    };
    let judge = Judge {
        trusted,
        checks_name: tls.mode == Mode::VerifyFull,
        algorithms,
    };
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(TlsError::from)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(judge));
    let mut config = match &tls.identity {
        None => builder.with_no_client_auth(),
        Some((certificate, key)) => {
            let chain = certificates(certificate)?;
            let private = PrivateKeyDer::from_pem_slice(&contents(key)?).map_err(|error| {
                let none = "has no private key in the form PEM, or one with a passphrase, which \
                            you need to remove";
                file(key, unread(&error, none))
            })?;
            let made = builder.with_client_auth_cert(chain, private);
            made.map_err(|error| match error {
                rustls::Error::InconsistentKeys(_) => {
                    let of = certificate.display();
                    file(key, format!("is not the key of the certificate in {of}"))
                }
                other => file(key, other.to_string()),
            })?
        }
    };
    // Each connection is judged anew.
    config.resumption = Resumption::disabled();
    config.alpn_protocols = protocol.into_iter().map(<[u8]>::to_vec).collect();
    Ok(config)
}

fn file(path: &Path, why: impl Into<String>) -> TlsError {
    TlsError::File {
        path: path.to_owned(),
        why: why.into(),
    }
}

/// Returns why a file has not what it should have. The text has nothing of the file: that may be a
/// part of a private key, which the library's text of the error has.
fn unread(error: &pem::Error, none: &'static str) -> &'static str {
    match error {
        pem::Error::NoItemsFound => none,
        pem::Error::MissingSectionEnd { .. } => {
            "is not in the form PEM: a part has no line `-----END ...-----` of its own"
        }
        pem::Error::IllegalSectionStart { .. } => {
            "is not in the form PEM: a line begins with `-----BEGIN`, and does not end with `-----`"
        }
        pem::Error::Base64Decode(_) => "is not in the form PEM: a part of it is not base64",
        pem::Error::SectionTooLarge => "is not in the form PEM: a part of it is too large",
        _ => "is not in the form PEM",
    }
}

fn contents(path: &Path) -> Result<Vec<u8>, TlsError> {
    fs::read(path).map_err(|error| file(path, error.to_string()))
}

/// Returns the certificates of a file, of which there is at least one.
fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let contents = contents(path)?;
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&contents).collect();
    let none = "has no certificate in the form PEM";
    match read {
        Ok(found) if found.is_empty() => Err(file(path, none)),
        Ok(found) => Ok(found),
        Err(error) => Err(file(path, unread(&error, none))),
    }
}

fn of_file(path: &Path) -> Result<Trusted, TlsError> {
    let own = certificates(path)?;
    let mut roots = RootCertStore::empty();
    for certificate in &own {
        let added = roots.add(certificate.clone());
        added.map_err(|error| file(path, error.to_string()))?;
    }
    Ok(Trusted { roots, own })
}

fn of_system() -> Result<Trusted, TlsError> {
    let found = load_native_certs();
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        let errors: Vec<_> = found.errors.iter().map(ToString::to_string).collect();
        let why = format!("this machine trusts no authority: {}", errors.join("; "));
        return Err(TlsError::Failed(Arc::new(io::Error::other(why))));
    }
    let own = Vec::new();
    Ok(Trusted { roots, own })
}
