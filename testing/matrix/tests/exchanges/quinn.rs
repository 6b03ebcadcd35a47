use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
};

use quinn::{
    ClientConfig, Endpoint, ServerConfig,
    rustls::{RootCertStore, pki_types::PrivatePkcs8KeyDer},
};
use tourbillon_matrix::Case;

pub const ANY_PORT: (Ipv4Addr, u16) = (Ipv4Addr::LOCALHOST, 0);

pub fn cases() -> Vec<Case> {
    vec![Case::new(
        "quinn",
        "a server and a client: a stream in both directions",
        |_| exchange(by_tokio),
    )]
}

/// Creates an endpoint as most programs do.
fn by_tokio(server: Option<ServerConfig>) -> io::Result<Endpoint> {
    let addr = SocketAddr::from(ANY_PORT);
    match server {
        Some(config) => Endpoint::server(config, addr),
        None => Endpoint::client(addr),
    }
}

pub async fn exchange(endpoint: impl Fn(Option<ServerConfig>) -> io::Result<Endpoint>) {
    let rcgen::CertifiedKey { cert, signing_key } =
        rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let key = PrivatePkcs8KeyDer::from(signing_key.serialize_der());
    let server = ServerConfig::with_single_cert(vec![cert.der().clone()], key.into()).unwrap();
    let server = endpoint(Some(server)).unwrap();
    let addr = server.local_addr().unwrap();
    let serving = tokio::spawn(async move {
        let connection = server.accept().await.unwrap().await.unwrap();
        let (mut send, mut receive) = connection.accept_bi().await.unwrap();
        let request = receive.read_to_end(100).await.unwrap();
        send.write_all(&request).await.unwrap();
        send.finish().unwrap();
        connection.closed().await;
    });

    let mut roots = RootCertStore::empty();
    roots.add(cert.der().clone()).unwrap();
    let mut client = endpoint(None).unwrap();
    client
        .set_default_client_config(ClientConfig::with_root_certificates(Arc::new(roots)).unwrap());
    let connection = client.connect(addr, "localhost").unwrap().await.unwrap();
    let (mut send, mut receive) = connection.open_bi().await.unwrap();
    send.write_all(b"hello").await.unwrap();
    send.finish().unwrap();
    assert_eq!(receive.read_to_end(100).await.unwrap(), b"hello");
    connection.close(0_u32.into(), b"done");
    client.wait_idle().await;
    serving.await.unwrap();
}
