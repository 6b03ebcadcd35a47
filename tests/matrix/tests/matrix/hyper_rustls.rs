use std::sync::Arc;

use http_body_util::{BodyExt, Empty};
use hyper::{Response, Version, body::Bytes, service::service_fn};
use hyper_rustls::HttpsConnectorBuilder;
use hyper_util::{client::legacy::Client, rt::TokioIo, server::conn::auto};
use quinn::rustls::{
    ClientConfig, RootCertStore, ServerConfig,
    pki_types::{CertificateDer, PrivatePkcs8KeyDer},
};
use tokio_rustls::TlsAcceptor;
use tourbillon::hyper::{HttpConnector, TourbillonExecutor};
use tourbillon_matrix::Case;

use crate::common;

pub fn cases() -> Vec<Case> {
    vec![
        Case::new(
            "hyper-rustls",
            "`HttpsConnector` around `tourbillon::hyper::HttpConnector`, HTTP/2",
            |_| exchange(),
        )
        .because("with the feature `client`"),
    ]
}

async fn exchange() {
    let (port, cert) = serve().await;
    let mut roots = RootCertStore::empty();
    roots.add(cert).unwrap();
    let config = ClientConfig::builder()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let mut connector = HttpConnector::new();
    connector.enforce_http(false);
    let connector = HttpsConnectorBuilder::new()
        .with_tls_config(config)
        .https_only()
        .enable_http2()
        .wrap_connector(connector);
    let client = Client::builder(TourbillonExecutor::new()).build::<_, Empty<Bytes>>(connector);
    let uri = format!("https://localhost:{port}/").parse().unwrap();
    let response = client.get(uri).await.unwrap();
    assert_eq!(response.version(), Version::HTTP_2);
    let body = response.into_body().collect().await.unwrap();
    assert_eq!(body.to_bytes(), "hello");
}

/// Serves one connection of TLS. Returns its port and the server's certificate.
async fn serve() -> (u16, CertificateDer<'static>) {
    let rcgen::CertifiedKey { cert, signing_key } =
        rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let key = PrivatePkcs8KeyDer::from(signing_key.serialize_der());
    let mut config = ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![cert.der().clone()], key.into())
        .unwrap();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let (listener, addr) = common::listen().await;
    tourbillon::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let stream = TokioIo::new(acceptor.accept(stream).await.unwrap());
        let hello = |_| async { hyper::Result::Ok(Response::new("hello".to_owned())) };
        let server = auto::Builder::new(TourbillonExecutor::new());
        let _ = server.serve_connection(stream, service_fn(hello)).await;
    });
    (addr.port(), cert.der().clone())
}
