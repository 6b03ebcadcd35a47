//! Threads that come and go: their numbers, and how they are joined.

use std::{collections::BTreeMap, io};

use crate::{engine::config::Config, sys::sync::thread};

/// The threads of one kind. One that ends joins the one that ended before it, so that at most one that
/// has ended is ever left to be joined.
#[derive(Debug, Default)]
pub(crate) struct Threads {
    /// How many were ever started: their numbers.
    started: u64,
    handles: BTreeMap<u64, thread::JoinHandle<()>>,
    /// The thread that ended last.
    last: Option<thread::JoinHandle<()>>,
}

impl Threads {
    /// Starts a thread with the next number. Under the lock that this stands under: the thread finds its
    /// handle.
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
        let handle = thread.spawn(move || main(number))?;
        self.started += 1;
        self.handles.insert(number, handle);
        Ok(())
    }

    /// How many were ever started.
    pub(crate) fn started(&self) -> u64 {
        self.started
    }

    /// A thread is about to end; it joins what this answers, under no lock.
    #[must_use]
    pub(crate) fn leave(&mut self, number: u64) -> Option<thread::JoinHandle<()>> {
        let own = self.handles.remove(&number);
        std::mem::replace(&mut self.last, own)
    }

    /// All that have not been joined.
    #[must_use]
    pub(crate) fn take(&mut self) -> Vec<thread::JoinHandle<()>> {
        let handles = std::mem::take(&mut self.handles).into_values();
        self.last.take().into_iter().chain(handles).collect()
    }
}

/// Joins threads that have left: what remains of them is the way out of their main function.
pub(crate) fn join(threads: impl IntoIterator<Item = thread::JoinHandle<()>>) {
    for thread in threads {
        let _ = thread.join();
    }
}
