//! What belongs to [`TcpStream`](super::TcpStream).

pub(super) mod listener;
pub(super) mod socket;
pub(super) mod split;
pub(super) mod stream;

pub use self::split::{OwnedReadHalf, OwnedWriteHalf, ReuniteError};
