//! The handshake of a WebSocket, over HTTP/1 and HTTP/2.

use async_tungstenite::tungstenite::handshake::derive_accept_key;
use axum::{
    extract::Request,
    http::{Method, StatusCode, header},
    response::{IntoResponse, Response},
};
use hyper::ext::Protocol;

// `crates/axum/GUIDE.md` shows this function.
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
