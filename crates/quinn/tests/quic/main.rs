//! QUIC by quinn on this runtime, without tokio's.

mod ending;
mod paused;
mod transfers;

use std::{
    net::{SocketAddr, UdpSocket},
    sync::Arc,
    time::Duration,
};

use quinn::{
    ClientConfig, Connection, Endpoint, EndpointConfig, IdleTimeout, ServerConfig, TransportConfig,
    rustls::{
        RootCertStore,
        pki_types::{CertificateDer, PrivatePkcs8KeyDer},
    },
};
use rcgen::{CertifiedKey, generate_simple_self_signed};
use tourbillon_quinn::TourbillonRuntime;
use tourbillon_support::net::ANY_PORT;

/// Creates an endpoint in the current runtime.
fn endpoint(server: Option<ServerConfig>) -> Endpoint {
    let socket = UdpSocket::bind(ANY_PORT).unwrap();
    let runtime = Arc::new(TourbillonRuntime::new());
    Endpoint::new(EndpointConfig::default(), server, socket, runtime).unwrap()
}

/// The two sides of connections for `localhost`.
struct Configs {
    server: ServerConfig,
    client: ClientConfig,
}

impl Configs {
    /// Returns configurations whose connections end after `idle` without a packet.
    fn new(idle: Duration) -> Self {
        let CertifiedKey { cert, signing_key } =
            generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let key = PrivatePkcs8KeyDer::from(signing_key.serialize_der());
        let chain = vec![cert.der().clone()];
        let mut transport = TransportConfig::default();
        transport
            .max_idle_timeout(Some(IdleTimeout::try_from(idle).unwrap()))
            .max_concurrent_bidi_streams(1000_u32.into());
        let transport = Arc::new(transport);
        let mut server = ServerConfig::with_single_cert(chain, key.into()).unwrap();
        server.transport_config(transport.clone());
        let mut client = trusting(cert.der().clone());
        client.transport_config(transport);
        Self { server, client }
    }
}

fn trusting(cert: CertificateDer<'static>) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    roots.add(cert).unwrap();
    ClientConfig::with_root_certificates(Arc::new(roots)).unwrap()
}

/// Starts a server that sends each stream back. Returns its endpoint and address.
fn serve_echo(config: ServerConfig) -> (Endpoint, SocketAddr) {
    let server = endpoint(Some(config));
    let addr = server.local_addr().unwrap();
    let accepting = server.clone();
    tourbillon::spawn(async move {
        while let Some(incoming) = accepting.accept().await {
            tourbillon::spawn(async move {
                // The connection may fail, which its client sees.
                if let Ok(connection) = incoming.await {
                    echo_streams(connection).await;
                }
            });
        }
    });
    (server, addr)
}

/// Sends each stream of a connection back, each in a task of its own.
async fn echo_streams(connection: Connection) {
    assert!(tokio::runtime::Handle::try_current().is_err());
    while let Ok((mut send, mut receive)) = connection.accept_bi().await {
        tourbillon::spawn(async move {
            let mut buf = vec![0; 64 << 10];
            while let Ok(Some(n)) = receive.read(&mut buf).await {
                if send.write_all(&buf[..n]).await.is_err() {
                    return;
                }
            }
            let _ = send.finish();
        });
    }
}

/// Connects from a new endpoint.
async fn connect(config: ClientConfig, addr: SocketAddr) -> (Endpoint, Connection) {
    let client = endpoint(None);
    let connecting = client.connect_with(config, addr, "localhost").unwrap();
    let connection = connecting.await.unwrap();
    (client, connection)
}

/// Sends data over a new stream. Returns what comes back.
async fn echoed(connection: &Connection, data: Vec<u8>) -> Vec<u8> {
    let (mut send, mut receive) = connection.open_bi().await.unwrap();
    let len = data.len();
    let sending = async move {
        send.write_all(&data).await.unwrap();
        send.finish().unwrap();
    };
    let receiving = receive.read_to_end(len + 1);
    futures_lite::future::zip(sending, receiving)
        .await
        .1
        .unwrap()
}
