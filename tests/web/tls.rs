//! The certificate of a server for `localhost`, and a client that trusts it.

use std::sync::Arc;

use futures_rustls::{
    TlsAcceptor,
    rustls::{
        ClientConfig, RootCertStore, ServerConfig,
        pki_types::{CertificateDer, PrivatePkcs8KeyDer},
    },
};
use rcgen::{CertifiedKey, generate_simple_self_signed};

/// The acceptor of a server for `localhost`, and its certificate, as text and as bytes.
pub fn identity() -> (TlsAcceptor, String, CertificateDer<'static>) {
    let CertifiedKey { cert, signing_key } =
        generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let key = PrivatePkcs8KeyDer::from(signing_key.serialize_der());
    let mut config = ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![cert.der().clone()], key.into())
        .unwrap();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let acceptor = TlsAcceptor::from(Arc::new(config));
    (acceptor, cert.pem(), cert.der().clone())
}

/// The configuration of a client that trusts a certificate.
pub fn trusting(cert: Option<CertificateDer<'static>>) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(cert);
    ClientConfig::builder()
        .with_root_certificates(roots)
        .with_no_client_auth()
}
