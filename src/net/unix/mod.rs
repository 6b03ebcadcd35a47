//! Unix sockets: types that belong to [`UnixStream`](super::UnixStream) and its siblings.

pub(crate) mod cred;
pub(super) mod datagram;
pub(super) mod listener;
pub(super) mod socket;
pub(crate) mod split;
pub(super) mod stream;

pub use std::os::unix::net::SocketAddr;

pub use self::{
    cred::UCred,
    split::{OwnedReadHalf, OwnedWriteHalf, ReadHalf, ReuniteError, WriteHalf},
};
