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

/// The type of user IDs, as in [`UCred::uid`].
#[expect(
    non_camel_case_types,
    reason = "the name that the system and tokio have"
)]
pub type uid_t = u32;

/// The type of group IDs, as in [`UCred::gid`].
#[expect(
    non_camel_case_types,
    reason = "the name that the system and tokio have"
)]
pub type gid_t = u32;

/// The type of process IDs, as in [`UCred::pid`].
#[expect(
    non_camel_case_types,
    reason = "the name that the system and tokio have"
)]
pub type pid_t = i32;
