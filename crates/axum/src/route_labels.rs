//! A layer that labels the job in which a handler runs by the request's method and route.

use std::{
    any::Any,
    future::Future,
    mem,
    pin::Pin,
    sync::{Arc, OnceLock},
    task::{Context, Poll},
};

use axum::{
    Router,
    extract::{MatchedPath, Request},
    http::Method,
};
use tourbillon::task::{self, Label};
use tower_layer::Layer;
use tower_service::Service;

/// A [layer](Layer) that [labels](tourbillon::task::label) the job of each request by its method
/// and route, such as `GET /orders/{id}`. A stall report then names the handler to repair.
///
/// [`serve`](crate::serve) adds it to a router. Add it yourself to a router that becomes something
/// else, after all routes:
///
/// ```
/// use std::net::SocketAddr;
/// use axum::{Router, routing::get};
/// use tourbillon_axum::RouteLabels;
///
/// let router: Router = Router::new().route("/", get(|| async { "hello" })).layer(RouteLabels);
/// let make_service = router.into_make_service_with_connect_info::<SocketAddr>();
/// # drop(make_service);
/// ```
///
/// A request whose method is not a standard one is labelled by its route alone. A request without a
/// route, such as one to a fallback, has no label. Nor has a job that runs handlers of two routes,
/// or a handler that labels the job itself.
#[derive(Clone, Copy, Debug, Default)]
pub struct RouteLabels;

impl<S> Layer<S> for RouteLabels {
    type Service = RouteLabelsService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        RouteLabelsService {
            inner,
            last: Arc::default(),
        }
    }
}

/// The service of [`RouteLabels`].
#[derive(Clone, Debug)]
pub struct RouteLabelsService<S> {
    inner: S,
    /// The label of the first request of a standard method. The router has a service for each
    /// method of a route, so it is nearly always that of all others.
    last: Arc<OnceLock<Label>>,
}

impl<S> RouteLabelsService<S> {
    fn label(&self, request: &Request) -> Option<Label> {
        let route = request.extensions().get::<MatchedPath>()?.as_str();
        let method = request.method();
        if !is_standard(method) {
            // Labels are kept for good, and a client can make up any number of methods.
            return Some(Label::new(route));
        }
        let method = method.as_str();
        let new = || Label::new(&format!("{method} {route}"));
        let label = *self.last.get_or_init(new);
        let is_it = label.text().split_once(' ') == Some((method, route));
        Some(if is_it { label } else { new() })
    }
}

/// Whether this is one of the methods that HTTP itself defines.
fn is_standard(method: &Method) -> bool {
    matches!(
        *method,
        Method::GET
            | Method::HEAD
            | Method::POST
            | Method::PUT
            | Method::DELETE
            | Method::CONNECT
            | Method::OPTIONS
            | Method::TRACE
            | Method::PATCH
    )
}

impl<S: Service<Request>> Service<Request> for RouteLabelsService<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = Labelled<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request) -> Self::Future {
        let label = self.label(&request);
        label.into_iter().for_each(task::label);
        Labelled {
            inner: self.inner.call(request),
            label,
        }
    }
}

/// The future of [`RouteLabelsService`].
#[derive(Debug)]
pub struct Labelled<F> {
    inner: F,
    label: Option<Label>,
}

impl<F: Future> Future for Labelled<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        self.label.into_iter().for_each(task::label);
        // SAFETY: `inner` is never moved out of `self`, and there is no `Drop`. It is the only
        // field that is pinned.
        unsafe { self.map_unchecked_mut(|this| &mut this.inner) }.poll(cx)
    }
}

/// Adds the layer to `make_service` if that is a router.
pub(crate) fn label_routes<M: 'static>(make_service: &mut M) {
    if let Some(router) = (make_service as &mut dyn Any).downcast_mut::<Router>() {
        *router = mem::take(router).layer(RouteLabels);
    }
}
