//! compio, glommio and monoio: one thread each, which is the main thread.
//!
//! They have no `yield_now` but the one of futures-lite (glommio's own is that): the task wakes itself. monoio
//! then puts it in front of the others.
//!
//! Their timers are not `Send`. [`SendWrapper`] makes them so, and looks whether they are where they were made.

use std::time::Instant;

use futures_lite::future::yield_now;
use send_wrapper::SendWrapper;

use super::{Runtime, refuse};

pub struct Compio(compio::runtime::Runtime);

impl Compio {
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

pub struct Glommio(glommio::LocalExecutor);

impl Glommio {
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

    /// Its timers take no deadline, but from now.
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

/// With io_uring, or with epoll where the kernel refuses that: monoio itself sees to it.
type MonoioRuntime = monoio::FusionRuntime<
    monoio::time::TimeDriver<monoio::IoUringDriver>,
    monoio::time::TimeDriver<monoio::LegacyDriver>,
>;

pub struct Monoio(std::cell::RefCell<MonoioRuntime>);

impl Monoio {
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
