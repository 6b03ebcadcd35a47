//! HTTPS: hyper-rustls around our connector.

use axum::{Router, extract::Request, http::Version, routing::get};
use http_body_util::BodyExt;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use tourbillon::{Runtime, time::timeout};
use tourbillon_axum::{ListenerExt, serve};
use tourbillon_hyper::{FuturesIo, HttpConnector, HttpInfo};

use crate::{
    Body, builder,
    common::{PATIENCE, alarm, runtime},
    web::{
        Site,
        tls::{identity, trusting},
        without_tokio,
    },
};

/// Starts a server for `localhost`. Returns it, and the connector of a client that trusts it.
fn start(
    runtime: &Runtime,
) -> (
    Site,
    HttpsConnectorBuilder<hyper_rustls::builderstates::WantsSchemes>,
) {
    let (acceptor, _, cert) = identity();
    let version = |request: Request| async move { format!("{:?}", request.version()) };
    let router = without_tokio(Router::new().route("/", get(version)));
    let site = Site::with(runtime, |listener, stop| {
        let listener = listener.handshake(move |stream| {
            let accepted = acceptor.accept(stream);
            async { Ok(FuturesIo::new(accepted.await?)) }
        });
        serve(listener, router).with_graceful_shutdown(stop)
    });
    let builder = HttpsConnectorBuilder::new().with_tls_config(trusting(Some(cert)));
    (site, builder)
}

fn http() -> HttpConnector {
    let mut connector = HttpConnector::new();
    connector.enforce_http(false);
    connector
}

async fn ask(
    client: &Client<HttpsConnector<HttpConnector>, Body>,
    site: &Site,
) -> (Version, String) {
    let uri = format!("https://localhost:{}/", site.addr.port());
    let response = timeout(PATIENCE, client.get(uri.parse().unwrap()));
    let response = response.await.unwrap().unwrap();
    let info = response.extensions().get::<HttpInfo>().unwrap();
    assert_eq!(info.remote_addr(), site.addr);
    let version = response.version();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (version, String::from_utf8(body.to_vec()).unwrap())
}

#[test]
fn the_version_is_chosen_by_alpn() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let (site, connector) = start(&runtime);
    let connector = connector.https_only().enable_all_versions();
    let client = builder().build(connector.wrap_connector(http()));
    runtime.block_on(async {
        let answer = ask(&client, &site).await;
        assert_eq!(answer, (Version::HTTP_2, "HTTP/2.0".to_owned()));
    });
    let (site, connector) = start(&runtime);
    let connector = connector.https_only().enable_http1();
    let client = builder().build(connector.wrap_connector(http()));
    runtime.block_on(async {
        let answer = ask(&client, &site).await;
        assert_eq!(answer, (Version::HTTP_11, "HTTP/1.1".to_owned()));
    });
}

#[test]
fn a_certificate_that_is_not_trusted_is_an_error() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let (site, _) = start(&runtime);
    let connector = HttpsConnectorBuilder::new().with_tls_config(trusting(None));
    let connector = connector.https_only().enable_all_versions();
    let client = builder().build::<_, Body>(connector.wrap_connector(http()));
    runtime.block_on(async {
        let uri = format!("https://localhost:{}/", site.addr.port());
        let response = timeout(PATIENCE, client.get(uri.parse().unwrap()));
        let error = response.await.unwrap().unwrap_err();
        assert!(error.is_connect(), "{error:?}");
        assert!(format!("{error:?}").contains("UnknownIssuer"), "{error:?}");
    });
}
