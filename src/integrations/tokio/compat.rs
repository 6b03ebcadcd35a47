//! A future that enters the companion around each poll.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use crate::{
    engine::{context::entered, shared::Shared},
    error::NO_RUNTIME,
};

/// Runs a future that needs tokio's runtime, by entering the companion around each poll.
///
/// The companion belongs to the runtime that first polls the future. If that runtime has none yet,
/// the poll starts it. The future is dropped in the companion's context, too.
///
/// With [`enable_tokio`](crate::runtime::Builder::enable_tokio), nothing needs this type.
///
/// ```
/// use tourbillon::tokio::Compat;
///
/// tourbillon::Runtime::new().unwrap().block_on(async {
///     let sum = Compat::new(async {
///         // Without `Compat`, this call panics: no tokio runtime is there.
///         tokio::spawn(async { 1 + 1 }).await.unwrap()
///     });
///     assert_eq!(sum.await, 2);
/// });
/// ```
///
/// # Panics
///
/// The first poll panics outside of a runtime, if the runtime has been shut down, if its clock is
/// paused, and if the system refuses the companion a thread or a descriptor.
#[must_use = "futures do nothing unless polled"]
pub struct Compat<F> {
    /// `None` only while it is dropped.
    future: Option<F>,
    /// The runtime whose companion is entered. Set by the first poll.
    runtime: Option<Arc<Shared>>,
}

impl<F> Compat<F> {
    /// Wraps `future`.
    pub fn new(future: F) -> Self {
        Self {
            future: Some(future),
            runtime: None,
        }
    }
}

impl<F: Future> Future for Compat<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        // SAFETY: nothing is moved out of `this`. `future` is pinned with it: it is only polled
        // here, and dropped in place.
        let this = unsafe { self.get_unchecked_mut() };
        let runtime = this.runtime.get_or_insert_with(|| {
            let Some(shared) = entered::current() else {
                panic!("{NO_RUNTIME}");
            };
            if let Err(error) = shared.companion.start(&shared) {
                panic!("the companion of the runtime could not be started: {error}");
            }
            shared
        });
        let _entered = runtime.companion.enter();
        // SAFETY: `future` is pinned whenever `self` is: see above.
        let future = this
            .future
            .as_mut()
            .map(|future| unsafe { Pin::new_unchecked(future) });
        future.expect("it is `Some` until the drop").poll(cx)
    }
}

impl<F> Drop for Compat<F> {
    fn drop(&mut self) {
        // The destructors of sockets and of other parts of tokio may look for its context.
        let _entered = self
            .runtime
            .as_ref()
            .and_then(|shared| shared.companion.enter());
        // This drops the future in place: an assignment does not move the old value.
        self.future = None;
    }
}

impl<F> fmt::Debug for Compat<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Compat").finish_non_exhaustive()
    }
}
