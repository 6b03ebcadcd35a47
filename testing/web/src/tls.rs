//! The certificate of a server for `localhost`, and a client that trusts it.

use futures_rustls::{
    TlsAcceptor,
    rustls::{ClientConfig, RootCertStore, pki_types::CertificateDer},
};

#[path = "../../../examples/common/tls.rs"]
mod identity;

/// Returns the acceptor of a server for `localhost`, and its certificate, as text and as bytes.
pub fn identity() -> (TlsAcceptor, String, CertificateDer<'static>) {
    let (acceptor, cert) = identity::self_signed(&["localhost"]).unwrap();
    (acceptor, cert.pem(), cert.der().clone())
}

/// Returns the configuration of a client that trusts a certificate.
pub fn trusting(cert: Option<CertificateDer<'static>>) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(cert);
    ClientConfig::builder()
        .with_root_certificates(roots)
        .with_no_client_auth()
}
