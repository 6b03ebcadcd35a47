//! The handle of a runtime.

use std::ops::Deref;

pub use real::runtime::TryCurrentError;
use tourbillon::task::JoinHandle;

use super::{EnterGuard, Id, RuntimeFlavor, RuntimeMetrics};

/// Tourbillon's handle, with the live metrics that tokio's has. It dereferences to Tourbillon's.
#[derive(Clone, Debug)]
pub struct Handle(tourbillon::Handle);

impl Handle {
    pub(super) fn new(handle: tourbillon::Handle) -> Self {
        Self(handle)
    }

    /// Returns the handle of the runtime that the calling thread is in.
    ///
    /// # Panics
    ///
    /// Panics outside of a runtime.
    #[track_caller]
    pub fn current() -> Self {
        match Self::try_current() {
            Ok(handle) => handle,
            Err(error) => panic!("{error}"),
        }
    }

    /// Returns the handle of the runtime that the calling thread is in.
    ///
    /// # Errors
    ///
    /// Fails outside of a runtime.
    pub fn try_current() -> Result<Self, TryCurrentError> {
        let handle = tourbillon::Handle::try_current();
        handle.map(Self).map_err(|_| crate::context::missing())
    }

    /// Returns `true`. A program asks by this name which runtime it was built with. A trait of its
    /// own answers on tokio, which has no such method: of two methods with one name Rust calls that
    /// of the type.
    ///
    /// ```
    /// #[allow(dead_code)] // It is not called here.
    /// trait WhichRuntime {
    ///     fn is_tourbillon(&self) -> bool {
    ///         false
    ///     }
    /// }
    /// impl WhichRuntime for tokio::runtime::Handle {}
    ///
    /// let runtime = tokio::runtime::Runtime::new().unwrap();
    /// assert!(runtime.handle().is_tourbillon());
    /// ```
    pub fn is_tourbillon(&self) -> bool {
        true
    }

    /// Returns the number of the runtime.
    pub fn id(&self) -> Id {
        self.0.id()
    }

    /// Returns the name of the runtime, if it has one.
    pub fn name(&self) -> Option<&str> {
        self.0.name()
    }

    /// Returns which threads run the tasks.
    pub fn runtime_flavor(&self) -> RuntimeFlavor {
        self.0.runtime_flavor()
    }

    /// Enters the runtime's context.
    pub fn enter(&self) -> EnterGuard<'_> {
        crate::context::note_thread();
        self.0.enter()
    }

    /// Starts a task.
    #[track_caller]
    pub fn spawn<F>(&self, future: F) -> JoinHandle<F::Output>
    where
        F: Future<Output: Send + 'static> + Send + 'static,
    {
        self.0.spawn(future)
    }

    /// Runs a function on a thread that may block.
    #[track_caller]
    pub fn spawn_blocking<F, R>(&self, f: F) -> JoinHandle<R>
    where
        F: FnOnce() -> R + Send + 'static,
        R: Send + 'static,
    {
        self.0.spawn_blocking(f)
    }

    /// Runs a future to completion on the calling thread.
    ///
    /// # Panics
    ///
    /// Panics in a task, or if the future panics.
    #[track_caller]
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        #[cfg(all(tokio_unstable, feature = "tracing"))]
        let future = tourbillon::facade::trace_block_on(future, std::panic::Location::caller());
        self.0.block_on(future)
    }

    /// Returns the runtime's metrics.
    pub fn metrics(&self) -> RuntimeMetrics {
        RuntimeMetrics::of(&self.0)
    }
}

impl Deref for Handle {
    type Target = tourbillon::Handle;

    fn deref(&self) -> &tourbillon::Handle {
        &self.0
    }
}
