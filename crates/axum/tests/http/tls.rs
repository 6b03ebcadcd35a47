//! HTTPS: rustls on our sockets, at both ends, and curl.

use std::{
    fs,
    io::ErrorKind,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use axum::{
    Router,
    body::Bytes,
    extract::{ConnectInfo, Request, connect_info::Connected},
    http::{StatusCode, Version},
    routing::{get, post},
};
use futures_lite::{AsyncReadExt, AsyncWriteExt};
use futures_rustls::{
    TlsConnector,
    client::TlsStream,
    rustls::pki_types::{CertificateDer, ServerName},
    server,
};
use http_body_util::{BodyExt, Full};
use tourbillon::{
    Runtime,
    net::TcpStream,
    time::{sleep, timeout},
};
use tourbillon_axum::{IncomingStream, Listener, ListenerExt, serve};
use tourbillon_hyper::{FuturesIo, TourbillonExecutor, TourbillonIo};

use crate::{
    common::{PATIENCE, alarm, installed::have, net::pattern, runtime},
    web::{
        Site, curl,
        tls::{identity, trusting},
        without_tokio,
    },
};

/// The server's information about a connection.
#[derive(Clone, Debug)]
struct Peer {
    addr: SocketAddr,
    protocol: String,
}

/// Any listener whose handshake makes a connection of TLS.
impl<L> Connected<IncomingStream<'_, L>> for Peer
where
    L: Listener<Io = FuturesIo<server::TlsStream<TourbillonIo<TcpStream>>>, Addr = SocketAddr>,
{
    fn connect_info(stream: IncomingStream<'_, L>) -> Self {
        let (_, session) = stream.io().get_ref().get_ref();
        let protocol = session.alpn_protocol().unwrap_or_default();
        Self {
            addr: *stream.remote_addr(),
            protocol: String::from_utf8_lossy(protocol).into_owned(),
        }
    }
}

async fn about(ConnectInfo(peer): ConnectInfo<Peer>, request: Request) -> String {
    assert!(peer.addr.ip().is_loopback());
    format!("{:?} {}", request.version(), peer.protocol)
}

/// Starts a server for `localhost`. Returns it, and its certificate as text and as bytes.
pub fn site(
    runtime: &Runtime,
    router: Router,
    vectored: bool,
) -> (Site, String, CertificateDer<'static>) {
    let (acceptor, pem, cert) = identity();
    let service = router.into_make_service_with_connect_info::<Peer>();
    let site = Site::with(runtime, |listener, stop| {
        let listener = listener.handshake(move |stream| {
            let accepted = acceptor.accept(stream);
            async move { Ok(FuturesIo::new(accepted.await?).with_write_vectored(vectored)) }
        });
        serve(listener, service).with_graceful_shutdown(stop)
    });
    (site, pem, cert)
}

/// Starts a server whose routes describe the connection. Returns it, and its certificate.
fn start(runtime: &Runtime, vectored: bool) -> (Site, String, CertificateDer<'static>) {
    let router = Router::new()
        .route("/", get(about))
        .route("/echo", post(|body: Bytes| async { body }))
        .layer(axum::extract::DefaultBodyLimit::disable());
    site(runtime, without_tokio(router), vectored)
}

#[test]
fn curl_chooses_the_version_by_alpn() {
    if !have("curl") {
        return;
    }
    let _alarm = alarm();
    let runtime = runtime(2);
    let (site, pem, _) = start(&runtime, false);
    let file = std::env::temp_dir().join(format!("tourbillon-tls-{}.pem", std::process::id()));
    fs::write(&file, pem).unwrap();
    let port = site.addr.port();
    let resolve = format!("localhost:{port}:127.0.0.1");
    let url = format!("https://localhost:{port}/");
    for (option, about) in [
        ("--http2", "HTTP/2.0 h2"),
        ("--http1.1", "HTTP/1.1 http/1.1"),
        ("--no-alpn", "HTTP/1.1 "),
    ] {
        let cacert = file.to_str().unwrap();
        let printed = curl(&[option, "--cacert", cacert, "--resolve", &resolve, &url]);
        assert_eq!(printed, about);
    }
    fs::remove_file(file).unwrap();
    runtime.block_on(site.stop()).unwrap().unwrap();
}

/// Connects as a client that trusts a certificate, and offers protocols.
pub async fn connect(
    addr: SocketAddr,
    trusted: Option<CertificateDer<'static>>,
    protocols: &[&[u8]],
) -> std::io::Result<TlsStream<TcpStream>> {
    let mut config = trusting(trusted);
    config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
    let stream = TcpStream::connect(addr).await?;
    let name = ServerName::try_from("localhost").unwrap();
    TlsConnector::from(Arc::new(config))
        .connect(name, stream)
        .await
}

#[test]
fn megabytes_pass_both_ways_by_either_version() {
    let _alarm = alarm();
    let runtime = runtime(2);
    for vectored in [false, true] {
        let (site, _, cert) = start(&runtime, vectored);
        let body = Bytes::from(pattern(3_000_000, 7));
        let request = |uri: String| {
            let body = Full::new(body.clone());
            Request::post(uri).body(body).unwrap()
        };
        let addr = site.addr;
        runtime.block_on(async {
            let stream = connect(addr, Some(cert.clone()), &[b"h2"]).await.unwrap();
            let stream = FuturesIo::new(stream).with_write_vectored(vectored);
            let (mut sender, connection) =
                hyper::client::conn::http2::handshake(TourbillonExecutor::new(), stream)
                    .await
                    .unwrap();
            tourbillon::spawn(connection);
            let echo = async {
                let sent = sender.send_request(request("https://localhost/echo".into()));
                let response = sent.await.unwrap();
                assert_eq!(response.version(), Version::HTTP_2);
                response.into_body().collect().await.unwrap().to_bytes()
            };
            assert!(timeout(PATIENCE, echo).await.unwrap() == body);

            let stream = connect(addr, Some(cert), &[b"http/1.1"]).await.unwrap();
            let stream = FuturesIo::new(stream).with_write_vectored(vectored);
            let (mut sender, connection) =
                hyper::client::conn::http1::handshake(stream).await.unwrap();
            tourbillon::spawn(connection);
            for _ in 0..2 {
                sender.ready().await.unwrap();
                let echo = async {
                    let response = sender.send_request(request("/echo".into())).await.unwrap();
                    assert_eq!(response.status(), StatusCode::OK);
                    assert_eq!(response.version(), Version::HTTP_11);
                    response.into_body().collect().await.unwrap().to_bytes()
                };
                assert!(timeout(PATIENCE, echo).await.unwrap() == body);
            }
        });
        runtime.block_on(site.stop()).unwrap().unwrap();
    }
}

#[test]
fn a_response_over_tls_may_be_read_slowly() {
    /// More than the buffers of the system and of TLS hold.
    const LEN: usize = 8 << 20;
    const LIMIT: Duration = Duration::from_secs(4);
    let _alarm = alarm();
    let runtime = runtime(2);
    let (acceptor, _, cert) = identity();
    let site = Site::with(&runtime, |listener, stop| {
        let listener = listener.handshake(move |stream| {
            let accepted = acceptor.accept(stream);
            async move { Ok(FuturesIo::new(accepted.await?)) }
        });
        serve(
            listener,
            Router::new().route("/", get(|| async { vec![7; LEN] })),
        )
        .with_graceful_shutdown(stop)
        .write_timeout(LIMIT)
    });
    let addr = site.addr;
    runtime.block_on(async {
        let mut stream = connect(addr, Some(cert), &[]).await.unwrap();
        let request = b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        stream.write_all(request).await.unwrap();
        let start = Instant::now();
        let (mut taken, mut part) = (0, vec![0; 16 * 1024]);
        // An error means that the server has cut the connection.
        while let Ok(n @ 1..) = stream.read(&mut part).await {
            taken += n;
            if start.elapsed() < 4 * LIMIT {
                sleep(LIMIT / 20).await;
            }
        }
        assert!(taken > LEN, "{taken} bytes");
    });
}

#[test]
fn a_failed_handshake_delays_no_other_client() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let (site, _, cert) = start(&runtime, false);
    // This client sends nothing, all the time.
    let silent = site.connect();
    // This client speaks plain HTTP. At most, it gets an alert of TLS.
    let mut plain = site.connect();
    plain.send("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert!(!plain.end().contains("HTTP"));
    let addr = site.addr;
    runtime.block_on(async {
        let error = connect(addr, None, &[]).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidData, "{error}");
        let stream = connect(addr, Some(cert), &[b"h2"]).await.unwrap();
        let (_, session) = stream.get_ref();
        assert_eq!(session.alpn_protocol(), Some(&b"h2"[..]));
    });
    runtime.block_on(site.stop()).unwrap().unwrap();
    assert_eq!(silent.end(), "");
}
