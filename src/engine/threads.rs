//! Threads that the runtime starts and ends while it runs: their numbers, and how they are joined.

use std::{collections::BTreeMap, io};

use crate::{engine::config::Config, sys::sync::thread};

/// The threads of one kind. A thread that ends joins the one that ended before it, so at most one
/// ended thread is not yet joined.
#[derive(Debug, Default)]
pub(crate) struct Threads {
    /// How many threads were ever started. The number of the next thread.
    started: u64,
    handles: BTreeMap<u64, thread::JoinHandle<()>>,
    /// The thread that ended last. It is not joined yet.
    last: Option<thread::JoinHandle<()>>,
}

impl Threads {
    /// Starts a thread with the next number. The caller holds the lock around `self`, so that the
    /// thread, which takes that lock when it ends, finds its own handle.
    pub(crate) fn start(
        &mut self,
        config: &Config,
        kind: &str,
        main: impl FnOnce(u64) + Send + 'static,
    ) -> io::Result<()> {
        let number = self.started;
        let mut thread = thread::Builder::new().name(format!("tourbillon-{kind}-{number}"));
        if let Some(bytes) = config.thread_stack_size {
            thread = thread.stack_size(bytes);
        }
        // Use up the number only if the thread has started.
        let handle = thread.spawn(move || main(number))?;
        self.started += 1;
        self.handles.insert(number, handle);
        Ok(())
    }

    /// Returns how many threads were ever started.
    pub(crate) fn started(&self) -> u64 {
        self.started
    }

    /// Removes a thread that is about to end. Returns the thread that it must join, after
    /// unlocking.
    #[must_use]
    pub(crate) fn leave(&mut self, number: u64) -> Option<thread::JoinHandle<()>> {
        // A thread cannot join itself. So it leaves its handle to the next thread that ends.
        let own = self.handles.remove(&number);
        std::mem::replace(&mut self.last, own)
    }

    /// Takes all threads that have not been joined.
    #[must_use]
    pub(crate) fn take(&mut self) -> Vec<thread::JoinHandle<()>> {
        let handles = std::mem::take(&mut self.handles).into_values();
        self.last.take().into_iter().chain(handles).collect()
    }
}

/// Joins threads that have left. They only have to return from their main function, so this is
/// short.
pub(crate) fn join(threads: impl IntoIterator<Item = thread::JoinHandle<()>>) {
    for thread in threads {
        let _ = thread.join();
    }
}
