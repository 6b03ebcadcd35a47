//! TLS with a certificate that the server signs itself.

use std::{error::Error, sync::Arc};

use futures_rustls::{
    TlsAcceptor,
    rustls::{ServerConfig, pki_types::PrivatePkcs8KeyDer},
};
use rcgen::{Certificate, CertifiedKey, generate_simple_self_signed};

/// Returns an acceptor that speaks HTTP/2 and HTTP/1, and its new certificate for these names.
pub fn self_signed(names: &[&str]) -> Result<(TlsAcceptor, Certificate), Box<dyn Error>> {
    let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
    let CertifiedKey { cert, signing_key } = generate_simple_self_signed(names)?;
    let key = PrivatePkcs8KeyDer::from(signing_key.serialize_der());
    let mut config = ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![cert.der().clone()], key.into())?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok((TlsAcceptor::from(Arc::new(config)), cert))
}
