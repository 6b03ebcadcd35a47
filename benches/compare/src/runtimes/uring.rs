//! compio, glommio and monoio. Each runs on one thread, which is the main thread.
//!
//! All three use the `yield_now` of futures-lite, in which the task wakes itself. compio and
//! monoio have none of their own, and glommio's own is the same function. monoio puts a task that
//! wakes itself in front of the other tasks.
//!
//! The timers of these runtimes are not `Send`. [`SendWrapper`] makes them `Send`, and checks at
//! each use that they are on the thread that made them.

use std::time::Instant;

use futures_lite::future::yield_now;
use send_wrapper::SendWrapper;

use super::{Runtime, refuse};

/// A runtime of compio.
pub struct Compio(compio::runtime::Runtime);

impl Compio {
    /// Builds a runtime.
    ///
    /// Calls [`refuse`] if the runtime cannot be built.
    pub fn new() -> Self {
        let built = compio::runtime::Runtime::new();
        Self(built.unwrap_or_else(|error| refuse(format_args!("compio: {error}"))))
    }
}

impl Runtime for Compio {
    fn run<T: Send + 'static>(&self, task: impl Future<Output = T> + Send + 'static) -> T {
        self.0.block_on(task)
    }

    fn spawn(task: impl Future<Output = ()> + Send + 'static) {
        compio::runtime::spawn(task).detach();
    }

    fn sleep_until(deadline: Instant) -> impl Future<Output = ()> + Send + 'static {
        SendWrapper::new(compio::time::sleep_until(deadline))
    }

    fn yield_now() -> impl Future<Output = ()> + Send {
        yield_now()
    }
}

/// A runtime of glommio.
pub struct Glommio(glommio::LocalExecutor);

impl Glommio {
    /// Builds a runtime.
    ///
    /// Calls [`refuse`] if the runtime cannot be built.
    pub fn new() -> Self {
        let built = glommio::LocalExecutorBuilder::default().make();
        Self(built.unwrap_or_else(|error| refuse(format_args!("glommio: {error}"))))
    }
}

impl Runtime for Glommio {
    fn run<T: Send + 'static>(&self, task: impl Future<Output = T> + Send + 'static) -> T {
        self.0.run(task)
    }

    fn spawn(task: impl Future<Output = ()> + Send + 'static) {
        glommio::spawn_local(task).detach();
    }

    /// Returns a future that completes at `deadline`.
    ///
    /// glommio's timers take a delay and no deadline. The first poll computes this delay and
    /// creates the timer.
    fn sleep_until(deadline: Instant) -> impl Future<Output = ()> + Send + 'static {
        SendWrapper::new(async move {
            let left = deadline.saturating_duration_since(Instant::now());
            glommio::timer::Timer::new(left).await;
        })
    }

    fn yield_now() -> impl Future<Output = ()> + Send {
        yield_now()
    }
}

/// A runtime on io_uring, or on epoll if the kernel refuses io_uring. monoio itself chooses.
type MonoioRuntime = monoio::FusionRuntime<
    monoio::time::TimeDriver<monoio::IoUringDriver>,
    monoio::time::TimeDriver<monoio::LegacyDriver>,
>;

/// A runtime of monoio. `block_on` needs exclusive access, hence the `RefCell`.
pub struct Monoio(std::cell::RefCell<MonoioRuntime>);

impl Monoio {
    /// Builds a runtime.
    ///
    /// Calls [`refuse`] if the runtime cannot be built.
    pub fn new() -> Self {
        let built = monoio::RuntimeBuilder::<monoio::FusionDriver>::new()
            .enable_timer()
            .build();
        let built = built.unwrap_or_else(|error| refuse(format_args!("monoio: {error}")));
        Self(std::cell::RefCell::new(built))
    }
}

impl Runtime for Monoio {
    fn run<T: Send + 'static>(&self, task: impl Future<Output = T> + Send + 'static) -> T {
        self.0.borrow_mut().block_on(task)
    }

    fn spawn(task: impl Future<Output = ()> + Send + 'static) {
        drop(monoio::spawn(task));
    }

    fn sleep_until(deadline: Instant) -> impl Future<Output = ()> + Send + 'static {
        let deadline = monoio::time::Instant::from_std(deadline);
        SendWrapper::new(monoio::time::sleep_until(deadline))
    }

    fn yield_now() -> impl Future<Output = ()> + Send {
        yield_now()
    }
}
