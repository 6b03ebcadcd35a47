//! Threads, as in [`std::thread`]. The simulator learns of each before it starts.

use std::io;

pub use std::thread::{JoinHandle, Thread, current, sleep, spawn};

pub use super::yield_now;

/// Waits for a token, as [`std::thread::park`] does. Returns without one now and then.
pub fn park() {
    if let Some(hook) = super::here() {
        hook.step();
        if hook.unparks() {
            return;
        }
    }
    std::thread::park();
}

/// See [`std::thread::Builder`].
#[derive(Debug, Default)]
pub struct Builder {
    name: Option<String>,
    stack_size: Option<usize>,
}

impl Builder {
    /// See [`std::thread::Builder::new`].
    pub fn new() -> Self {
        Self::default()
    }

    /// See [`std::thread::Builder::name`].
    pub fn name(mut self, name: String) -> Self {
        self.name = Some(name);
        self
    }

    /// See [`std::thread::Builder::stack_size`].
    pub fn stack_size(mut self, bytes: usize) -> Self {
        self.stack_size = Some(bytes);
        self
    }

    /// See [`std::thread::Builder::spawn`]. The simulator may refuse the thread.
    pub fn spawn<F, T>(self, f: F) -> io::Result<JoinHandle<T>>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        let mut builder = std::thread::Builder::new();
        if let Some(bytes) = self.stack_size {
            builder = builder.stack_size(bytes);
        }
        if let Some(hook) = super::here() {
            if !hook.starts(self.name.as_deref().unwrap_or("a thread")) {
                return Err(io::ErrorKind::WouldBlock.into());
            }
        }
        if let Some(name) = self.name {
            builder = builder.name(name);
        }
        builder.spawn(f)
    }
}
