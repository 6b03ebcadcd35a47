//! The certificate of a server for `localhost`, and a client that trusts it.

use futures_rustls::{
    TlsAcceptor,
    rustls::{ClientConfig, RootCertStore, pki_types::CertificateDer},
};
use tourbillon_examples::tls::self_signed;

/// Returns the acceptor of a server for `localhost`, and its certificate, as text and as bytes.
pub fn identity() -> (TlsAcceptor, String, CertificateDer<'static>) {
    let (acceptor, cert) = self_signed(&["localhost"]).unwrap();
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
