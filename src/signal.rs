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

/// A kind of signals, under tokio's names; or any, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SignalKind(i32);

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident = $number:ident,)*) => {
        impl SignalKind {
            $($(#[$doc])* pub const fn $name() -> Self { Self(libc::$number) })*
        }
    };
}

kinds! {
    /// `SIGALRM`: a timer of the system's has expired.
    alarm = SIGALRM,
    /// `SIGCHLD`: a child has ended, or was stopped or continued.
    child = SIGCHLD,
    /// `SIGHUP`: the terminal is gone; daemons read their configuration again.
    hangup = SIGHUP,
    /// `SIGINT`: Ctrl-C.
    interrupt = SIGINT,
    /// `SIGIO`: a descriptor is ready, where that was asked for.
    io = SIGIO,
    /// `SIGPIPE`: nobody reads what was written. Programs in Rust ignore it.
    pipe = SIGPIPE,
    /// `SIGQUIT`: Ctrl and the backslash.
    quit = SIGQUIT,
    /// `SIGTERM`: what service managers send to end a process.
    terminate = SIGTERM,
    /// `SIGUSR1`.
    user_defined1 = SIGUSR1,
    /// `SIGUSR2`.
    user_defined2 = SIGUSR2,
    /// `SIGWINCH`: the terminal has another size.
    window_change = SIGWINCH,
}

impl SignalKind {
    /// The kind of this number.
    pub const fn from_raw(number: i32) -> Self {
        Self(number)
    }

    /// Its number.
    pub const fn as_raw_value(&self) -> i32 {
        self.0
    }
}

impl From<i32> for SignalKind {
    fn from(number: i32) -> Self {
        Self(number)
    }
}

impl From<SignalKind> for i32 {
    fn from(kind: SignalKind) -> Self {
        kind.0
    }
}

/// Listens for a signal, by its kind or number, from now on: it does no more what it does by default, not
/// even when the [`Signal`] is dropped.
///
/// ```
/// use tourbillon::signal::{SignalKind, signal};
///
/// # tourbillon::Runtime::new().unwrap().block_on(async {
/// let mut terminate = signal(SignalKind::terminate())?;
/// tourbillon::spawn(async move {
///     if terminate.recv().await.is_ok() {
///         println!("ending");
///     }
/// });
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
///
/// # Errors
///
/// If there is no runtime, no such signal, or it cannot be handled (`SIGKILL`, `SIGSTOP`).
pub fn signal(kind: impl Into<SignalKind>) -> io::Result<Signal> {
    let SignalKind(number) = kind.into();
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
    signal(SignalKind::interrupt())?.recv().await
}
