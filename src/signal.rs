//! Unix signals as futures.

use std::{future::poll_fn, io, os::fd::OwnedFd};

use crate::{
    reactor::{Direction, Registration},
    sys,
};

/// A series of one signal: see [`signal`].
#[derive(Debug)]
pub struct Signal {
    number: i32,
    seen: u32,
    events: Registration<OwnedFd>,
}

/// Listens for a signal, by its number, from now on: it does no more what it does by default, not
/// even when the [`Signal`] is dropped.
///
/// # Errors
///
/// If there is no runtime, no such signal, or it cannot be handled (`SIGKILL`, `SIGSTOP`).
pub fn signal(number: i32) -> io::Result<Signal> {
    let events = Registration::new(sys::signal::events()?)?;
    sys::signal::listen(number)?;
    Ok(Signal {
        number,
        seen: sys::signal::count(number),
        events,
    })
}

impl Signal {
    /// Waits until the signal has come since this last answered, once or more often.
    ///
    /// # Errors
    ///
    /// If the runtime is shut down.
    pub async fn recv(&mut self) -> io::Result<()> {
        poll_fn(|cx| {
            let (number, seen) = (self.number, &mut self.seen);
            self.events.poll_io(
                cx,
                Direction::Read,
                |_| match sys::signal::count(number) {
                    count if count == *seen => Err(io::ErrorKind::WouldBlock.into()),
                    count => {
                        *seen = count;
                        Ok(())
                    }
                },
                |()| false,
            )
        })
        .await
    }
}

/// Waits for Ctrl-C (`SIGINT`), which from the first call on does not end the process any more.
///
/// # Errors
///
/// As for [`signal`].
pub async fn ctrl_c() -> io::Result<()> {
    signal(libc::SIGINT)?.recv().await
}
