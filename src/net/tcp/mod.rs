//! TCP: types that belong to [`TcpStream`](super::TcpStream) and
//! [`TcpListener`](super::TcpListener).

pub(super) mod listener;
pub(super) mod per_core;
pub(super) mod socket;
pub(super) mod split;
pub(super) mod stream;

pub use self::{
    per_core::PerCoreError,
    split::{OwnedReadHalf, OwnedWriteHalf, ReadHalf, ReuniteError, WriteHalf},
};
