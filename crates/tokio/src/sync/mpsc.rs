//! tokio's channel for many senders and one receiver. The sender wraps tokio's, whose method with a
//! time limit would wait by tokio's timers.

use std::{fmt, time::Duration};

use real::sync::mpsc as inner;
pub use real::sync::mpsc::{
    Permit, PermitIterator, Receiver, UnboundedReceiver, UnboundedSender, WeakUnboundedSender,
    unbounded_channel,
};

use self::error::{SendError, SendTimeoutError, TrySendError};
use crate::time::timeout;

/// Creates a channel with room for `buffer` values.
///
/// # Panics
///
/// Panics if `buffer` is zero, or too large.
#[track_caller]
pub fn channel<T>(buffer: usize) -> (Sender<T>, Receiver<T>) {
    let (sender, receiver) = inner::channel(buffer);
    (Sender(sender), receiver)
}

/// Sends values to a [`Receiver`].
pub struct Sender<T>(inner::Sender<T>);

impl<T> Sender<T> {
    /// Waits for room, and sends a value.
    ///
    /// # Errors
    ///
    /// Returns the value if the receiver is closed.
    pub async fn send(&self, value: T) -> Result<(), SendError<T>> {
        self.0.send(value).await
    }

    /// Waits until the receiver is closed.
    pub async fn closed(&self) {
        self.0.closed().await;
    }

    /// Sends a value without waiting.
    ///
    /// # Errors
    ///
    /// Returns the value if there is no room, or if the receiver is closed.
    pub fn try_send(&self, value: T) -> Result<(), TrySendError<T>> {
        self.0.try_send(value)
    }

    /// Waits for room, for at most `limit`, and sends a value.
    ///
    /// # Errors
    ///
    /// Returns the value if the time is over, or if the receiver is closed.
    ///
    /// # Panics
    ///
    /// Panics outside of a runtime, and in one without timers.
    pub async fn send_timeout(&self, value: T, limit: Duration) -> Result<(), SendTimeoutError<T>> {
        match timeout(limit, self.0.reserve()).await {
            Ok(Ok(permit)) => {
                permit.send(value);
                Ok(())
            }
            Ok(Err(_)) => Err(SendTimeoutError::Closed(value)),
            Err(_) => Err(SendTimeoutError::Timeout(value)),
        }
    }

    /// Waits for room by blocking the thread, and sends a value.
    ///
    /// # Errors
    ///
    /// Returns the value if the receiver is closed.
    #[track_caller]
    pub fn blocking_send(&self, value: T) -> Result<(), SendError<T>> {
        self.0.blocking_send(value)
    }

    /// Returns whether the receiver is closed.
    pub fn is_closed(&self) -> bool {
        self.0.is_closed()
    }

    /// Waits for room for one value.
    ///
    /// # Errors
    ///
    /// Fails if the receiver is closed.
    pub async fn reserve(&self) -> Result<Permit<'_, T>, SendError<()>> {
        self.0.reserve().await
    }

    /// Waits for room for `n` values.
    ///
    /// # Errors
    ///
    /// Fails if the receiver is closed, or if the channel never has that much room.
    pub async fn reserve_many(&self, n: usize) -> Result<PermitIterator<'_, T>, SendError<()>> {
        self.0.reserve_many(n).await
    }

    /// Waits for room for one value, and keeps it in the sender.
    ///
    /// # Errors
    ///
    /// Fails if the receiver is closed.
    pub async fn reserve_owned(self) -> Result<OwnedPermit<T>, SendError<()>> {
        self.0.reserve_owned().await.map(OwnedPermit)
    }

    /// Takes room for one value without waiting.
    ///
    /// # Errors
    ///
    /// Fails if there is none, or if the receiver is closed.
    pub fn try_reserve(&self) -> Result<Permit<'_, T>, TrySendError<()>> {
        self.0.try_reserve()
    }

    /// Takes room for `n` values without waiting.
    ///
    /// # Errors
    ///
    /// Fails if there is none, or if the receiver is closed.
    pub fn try_reserve_many(&self, n: usize) -> Result<PermitIterator<'_, T>, TrySendError<()>> {
        self.0.try_reserve_many(n)
    }

    /// Takes room for one value without waiting, and keeps it in the sender.
    ///
    /// # Errors
    ///
    /// Returns the sender if there is none, or if the receiver is closed.
    pub fn try_reserve_owned(self) -> Result<OwnedPermit<T>, TrySendError<Self>> {
        match self.0.try_reserve_owned() {
            Ok(permit) => Ok(OwnedPermit(permit)),
            Err(TrySendError::Full(sender)) => Err(TrySendError::Full(Self(sender))),
            Err(TrySendError::Closed(sender)) => Err(TrySendError::Closed(Self(sender))),
        }
    }

    /// Returns whether both send to one channel.
    pub fn same_channel(&self, other: &Self) -> bool {
        self.0.same_channel(&other.0)
    }

    /// Returns for how many values there is room.
    pub fn capacity(&self) -> usize {
        self.0.capacity()
    }

    /// Returns a sender that does not keep the channel open.
    #[must_use = "without a use of it there is no weak sender"]
    pub fn downgrade(&self) -> WeakSender<T> {
        WeakSender(self.0.downgrade())
    }

    /// Returns for how many values the empty channel has room.
    pub fn max_capacity(&self) -> usize {
        self.0.max_capacity()
    }

    /// Returns the number of senders that keep the channel open.
    pub fn strong_count(&self) -> usize {
        self.0.strong_count()
    }

    /// Returns the number of senders that do not keep the channel open.
    pub fn weak_count(&self) -> usize {
        self.0.weak_count()
    }
}

/// A [`Sender`] that does not keep the channel open.
pub struct WeakSender<T>(inner::WeakSender<T>);

impl<T> WeakSender<T> {
    /// Returns a sender that keeps the channel open, if there is another one.
    pub fn upgrade(&self) -> Option<Sender<T>> {
        self.0.upgrade().map(Sender)
    }

    /// Returns the number of senders that keep the channel open.
    pub fn strong_count(&self) -> usize {
        self.0.strong_count()
    }

    /// Returns the number of senders that do not keep the channel open.
    pub fn weak_count(&self) -> usize {
        self.0.weak_count()
    }
}

/// Room for one value, with the sender.
pub struct OwnedPermit<T>(inner::OwnedPermit<T>);

impl<T> OwnedPermit<T> {
    /// Sends a value, and returns the sender.
    pub fn send(self, value: T) -> Sender<T> {
        Sender(self.0.send(value))
    }

    /// Gives the room back, and returns the sender.
    pub fn release(self) -> Sender<T> {
        Sender(self.0.release())
    }

    /// Returns whether both are of one channel.
    pub fn same_channel(&self, other: &Self) -> bool {
        self.0.same_channel(&other.0)
    }

    /// Returns whether both are of one channel.
    pub fn same_channel_as_sender(&self, sender: &Sender<T>) -> bool {
        self.0.same_channel_as_sender(&sender.0)
    }
}

/// Implements `Clone` by that of what is wrapped.
macro_rules! clones {
    ($($Sender:ident),*) => {$(
        impl<T> Clone for $Sender<T> {
            fn clone(&self) -> Self {
                Self(self.0.clone())
            }
        }
    )*};
}

/// Implements `Debug` by that of what is wrapped.
macro_rules! debugs {
    ($($Type:ident),*) => {$(
        impl<T> fmt::Debug for $Type<T> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    )*};
}

clones!(Sender, WeakSender);
debugs!(Sender, WeakSender, OwnedPermit);

/// The errors of the channel.
pub mod error {
    use std::{error::Error, fmt};

    pub use real::sync::mpsc::error::{SendError, TryRecvError, TrySendError};

    /// A value that was not sent within the time limit.
    #[derive(Clone, Copy, PartialEq, Eq)]
    pub enum SendTimeoutError<T> {
        /// The time was over before there was room.
        Timeout(T),
        /// The receiver is closed.
        Closed(T),
    }

    impl<T> SendTimeoutError<T> {
        /// Returns the value.
        pub fn into_inner(self) -> T {
            match self {
                Self::Timeout(value) | Self::Closed(value) => value,
            }
        }
    }

    impl<T> fmt::Debug for SendTimeoutError<T> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            let name = match self {
                Self::Timeout(_) => "Timeout(..)",
                Self::Closed(_) => "Closed(..)",
            };
            // In quotes, as tokio's.
            fmt::Debug::fmt(name, f)
        }
    }

    impl<T> fmt::Display for SendTimeoutError<T> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(match self {
                Self::Timeout(_) => "timed out waiting on send operation",
                Self::Closed(_) => "channel closed",
            })
        }
    }

    impl<T> Error for SendTimeoutError<T> {}
}
