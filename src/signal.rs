//! Unix signals as futures.

use std::{future::poll_fn, io, os::fd::OwnedFd};

use crate::{engine::registration::Registration, reactor::Direction, sys};

/// A stream of notifications of one signal. See [`signal`].
#[derive(Debug)]
pub struct Signal {
    number: i32,
    seen: u32,
    events: Registration<OwnedFd>,
}

/// The kind of a signal: a constructor with tokio's name, or any signal number.
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
    /// `SIGALRM`: a timer of the operating system expired.
    alarm = SIGALRM,
    /// `SIGCHLD`: a child process ended, stopped or continued.
    child = SIGCHLD,
    /// `SIGHUP`: the terminal was closed. Daemons usually reload their configuration.
    hangup = SIGHUP,
    /// `SIGINT`: Ctrl-C.
    interrupt = SIGINT,
    /// `SIGIO`: a descriptor became ready, if the process asked for this signal.
    io = SIGIO,
    /// `SIGPIPE`: the process wrote to a pipe without readers. Rust programs ignore it by default.
    pipe = SIGPIPE,
    /// `SIGQUIT`: Ctrl-\\.
    quit = SIGQUIT,
    /// `SIGTERM`: service managers send it to end a process.
    terminate = SIGTERM,
    /// `SIGUSR1`: the application defines its meaning.
    user_defined1 = SIGUSR1,
    /// `SIGUSR2`: the application defines its meaning.
    user_defined2 = SIGUSR2,
    /// `SIGWINCH`: the size of the terminal changed.
    window_change = SIGWINCH,
}

impl SignalKind {
    /// Returns the kind with this signal number.
    pub const fn from_raw(number: i32) -> Self {
        Self(number)
    }

    /// Returns the signal number.
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

/// Starts to listen for a signal, given by its kind or number.
///
/// From the first call on, the signal no longer has its default effect, even after the [`Signal`]
/// is dropped. Each call replaces the handler of the signal that another library has set: unlike
/// tokio's, this one does not call it.
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
/// Fails if there is no runtime, if the signal does not exist, if it cannot be handled (`SIGKILL`,
/// `SIGSTOP`), or if it reports a fault of the program (`SIGSEGV`, `SIGBUS`, `SIGFPE`, `SIGILL`).
pub fn signal(kind: impl Into<SignalKind>) -> io::Result<Signal> {
    let SignalKind(number) = kind.into();
    // Register first: a failure here must leave the signal's default effect in place.
    let events = Registration::new(sys::signal::events()?)?;
    sys::signal::listen(number)?;
    Ok(Signal {
        number,
        seen: sys::signal::count(number),
        events,
    })
}

impl Signal {
    /// Waits until the signal arrives. Several signals since the last call count as one.
    ///
    /// # Errors
    ///
    /// Fails if the runtime is shut down.
    pub async fn recv(&mut self) -> io::Result<()> {
        // The handler counts signals and writes to the descriptor. Comparing counts tells whether
        // this signal arrived, since all signals share the descriptor's event.
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

/// Waits for Ctrl-C (`SIGINT`). Once this was polled for the first time, `SIGINT` does not end the
/// process.
///
/// # Errors
///
/// See [`signal`].
pub async fn ctrl_c() -> io::Result<()> {
    signal(SignalKind::interrupt())?.recv().await
}
