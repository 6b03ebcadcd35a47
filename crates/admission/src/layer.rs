use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use http::{Request, Response};
use tower_layer::Layer;
use tower_service::Service;

use crate::{Admission, Priority, Shed, admission::Shared};

/// The [layer](Layer) of an [`Admission`], from [`Admission::layer`].
///
/// It is for axum's routers, and for any other service of HTTP requests whose response has a body
/// that can be made from a text.
#[derive(Clone, Debug)]
pub struct AdmissionLayer(pub(crate) Admission);

impl<S> Layer<S> for AdmissionLayer {
    type Service = AdmissionService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        AdmissionService {
            inner,
            shared: self.0.shared.clone(),
        }
    }
}

/// The service of [`AdmissionLayer`].
#[derive(Clone)]
pub struct AdmissionService<S> {
    inner: S,
    shared: Arc<Shared>,
}

impl<S: fmt::Debug> fmt::Debug for AdmissionService<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AdmissionService")
            .field(&self.inner)
            .finish()
    }
}

impl<S, Q, R> Service<Request<Q>> for AdmissionService<S>
where
    S: Service<Request<Q>, Response = Response<R>>,
    R: From<String>,
{
    type Response = Response<R>;
    type Error = S::Error;
    type Future = Admitted<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Q>) -> Self::Future {
        let (parts, body) = request.into_parts();
        let priority = (self.shared.priority)(&parts);
        if !self.shared.admit(priority) {
            return Admitted(State::Refused(
                Some(self.shared.shed(priority)),
                self.shared.clone(),
            ));
        }
        let counts = (priority != Priority::Always).then(|| self.shared.clone());
        Admitted(State::Admitted {
            inner: self.inner.call(Request::from_parts(parts, body)),
            counts,
        })
    }
}

/// The future of [`AdmissionService`].
#[must_use = "futures do nothing unless polled"]
pub struct Admitted<F>(State<F>);

enum State<F> {
    Admitted {
        inner: F,
        counts: Option<Arc<Shared>>,
    },
    Refused(Option<Shed>, Arc<Shared>),
}

impl<F> fmt::Debug for Admitted<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Admitted").finish_non_exhaustive()
    }
}

impl<F, R, E> Future for Admitted<F>
where
    F: Future<Output = Result<Response<R>, E>>,
    R: From<String>,
{
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        // SAFETY: `inner` is pinned with `self`: it is not moved below, and there is no `Drop`. The
        // other fields are not pinned.
        match unsafe { &mut self.get_unchecked_mut().0 } {
            State::Admitted { inner, counts } => {
                // SAFETY: see above.
                let polled = unsafe { Pin::new_unchecked(inner) }.poll(cx);
                // A request whose client has gone was not done: the future is dropped.
                if polled.is_ready() {
                    if let Some(shared) = counts.take() {
                        shared.end();
                    }
                }
                polled
            }
            State::Refused(shed, shared) => {
                let shed = shed.take().expect("a future is not polled after its end");
                Poll::Ready(Ok((shared.answer)(shed).map(R::from)))
            }
        }
    }
}
