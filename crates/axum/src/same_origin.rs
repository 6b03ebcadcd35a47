//! A layer that refuses requests which pages of other sites cause.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use axum::{
    extract::Request,
    http::{HeaderValue, Version, header::CONNECTION},
    response::{IntoResponse, Response},
};
use tower_layer::Layer;
use tower_service::Service;

use crate::guard::{Hosts, Refused, hosts::InvalidHost};

/// The schemes of a server's own pages. Both, because a proxy in front of it may add TLS.
const SCHEMES: [&str; 2] = ["http://", "https://"];

/// A [layer](Layer) for servers that only their own pages should use: it refuses requests which
/// pages of other sites cause.
///
/// Any page that is open in a browser can send requests to `127.0.0.1`, and to other addresses that
/// only this browser reaches. A server there needs no password, but without this layer it obeys
/// such pages, too. They can even read its answers, if their own name resolves to its address (DNS
/// rebinding). The layer refuses:
///
/// - with 421, a request whose `Host` is neither an IP address, nor `localhost`, nor
///   [allowed](Self::allow_host): any other name can be made to resolve to this address;
/// - with 403, a request with an `Origin` that is not this server's, or with more than one, such as
///   that of a form, a script or a WebSocket of another page;
/// - with 403, a request with a cross-site `Sec-Fetch-Site`, except when the user follows a link. A
///   `GET` should change nothing.
///
/// Clients that are no browsers send neither `Origin` nor `Sec-Fetch-Site`, and are accepted if
/// they name an allowed host. A proxy in front of the server has to pass the client's `Host` on.
///
/// Add the layer after all routes, since `Router::layer` is only for those before it:
///
/// ```
/// use axum::{Router, routing::{get, post}};
/// use tourbillon_axum::SameOrigin;
///
/// async fn show() -> &'static str { "on" }
/// async fn switch() { /* turn it off */ }
///
/// # fn example() -> Result<Router, tourbillon_axum::InvalidHost> {
/// Ok(Router::new()
///     .route("/", get(show))
///     .route("/switch", post(switch))
///     .layer(SameOrigin::new().allow_host("lamp.example")?))
/// # }
/// # example().unwrap();
/// ```
#[must_use]
#[derive(Clone, Debug, Default)]
pub struct SameOrigin(Hosts);

impl SameOrigin {
    /// Makes a layer that allows IP addresses and `localhost`.
    pub fn new() -> Self {
        Self::default()
    }

    /// Allows a host name in requests: the one under which a browser opens the server's pages.
    ///
    /// The port, upper case, and a dot at the end are ignored. IP addresses are always allowed,
    /// because no other page has one for a name.
    ///
    /// # Errors
    ///
    /// Fails if the name is not valid in a browser: it is empty, a URL or a pattern, or has letters
    /// that browsers encode (`xn--…`).
    pub fn allow_host(mut self, name: impl AsRef<str>) -> Result<Self, InvalidHost> {
        self.0.allow(name.as_ref())?;
        Ok(self)
    }
}

impl<S> Layer<S> for SameOrigin {
    type Service = SameOriginService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        SameOriginService {
            inner,
            hosts: self.0.clone(),
        }
    }
}

/// The service of [`SameOrigin`].
#[derive(Clone, Debug)]
pub struct SameOriginService<S> {
    inner: S,
    hosts: Hosts,
}

impl<S> Service<Request> for SameOriginService<S>
where
    S: Service<Request, Response: IntoResponse, Future: Send + 'static>,
{
    type Response = Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request) -> Self::Future {
        if let Err(refused) = self.hosts.check(&request, &SCHEMES) {
            let response = refuse(refused, request.version());
            return Box::pin(async { Ok(response) });
        }
        let answer = self.inner.call(request);
        Box::pin(async { Ok(answer.await?.into_response()) })
    }
}

fn refuse(refused: Refused, version: Version) -> Response {
    let mut response = (refused.status(), refused.why()).into_response();
    if version < Version::HTTP_2 {
        // Do not read a body that the request may have.
        let close = HeaderValue::from_static("close");
        response.headers_mut().insert(CONNECTION, close);
    }
    response
}
