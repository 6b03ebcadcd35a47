//! The handshake of a WebSocket, over HTTP/1 and HTTP/2, and the check that its page is of this
//! server.

use async_tungstenite::tungstenite::handshake::derive_accept_key;
use axum::{
    extract::Request,
    http::{HeaderValue, Method, StatusCode, header},
    response::{IntoResponse, Response},
};
use hyper::ext::Protocol;

// `docs/guide/server.md` shows this function.
/// Returns the answer to a handshake, or `None` if the request is not one.
pub fn accept(request: &Request) -> Option<Response> {
    // HTTP/2 has no key: the stream begins after the answer 200.
    if request.method() == Method::CONNECT {
        let protocol = request.extensions().get::<Protocol>()?;
        return (protocol.as_str() == "websocket").then(|| StatusCode::OK.into_response());
    }
    let get = |name| request.headers().get(name)?.to_str().ok();
    let is_upgrade = get(header::UPGRADE)?.eq_ignore_ascii_case("websocket");
    if !is_upgrade || get(header::SEC_WEBSOCKET_VERSION)? != "13" {
        return None;
    }
    let key = derive_accept_key(get(header::SEC_WEBSOCKET_KEY)?.as_bytes());
    let headers = [
        (header::CONNECTION, "upgrade"),
        (header::UPGRADE, "websocket"),
        (header::SEC_WEBSOCKET_ACCEPT, &key),
    ];
    Some((StatusCode::SWITCHING_PROTOCOLS, headers).into_response())
}

/// Returns whether a request comes from a page of this server, or from a client that is no browser.
///
/// Browsers let a page of any site open a WebSocket, but always send the page's origin.
pub fn is_same_origin(request: &Request) -> bool {
    let Some(origin) = request.headers().get(header::ORIGIN) else {
        return true;
    };
    // HTTP/2 has the authority in place of the header `Host`.
    let host = match request.uri().authority() {
        Some(authority) => Some(authority.as_str()),
        None => request.headers().get(header::HOST).and_then(as_text),
    };
    // The scheme is not compared: a proxy in front of the server may add TLS.
    let origin = as_text(origin).and_then(|origin| origin.split_once("://"));
    match (origin, host) {
        (Some((_, origin)), Some(host)) => origin.eq_ignore_ascii_case(host),
        _ => false,
    }
}

fn as_text(value: &HeaderValue) -> Option<&str> {
    value.to_str().ok()
}
