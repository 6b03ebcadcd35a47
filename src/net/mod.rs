//! Sockets, on the epoll instance of the worker that they were made on.
//!
//! The traits are futures-io's; a stream is also read and written through a shared reference, by
//! one task in each direction at a time.

mod addr;
mod listener;
mod split;
mod stream;

pub use self::{
    listener::TcpListener,
    split::{OwnedReadHalf, OwnedWriteHalf, ReuniteError},
    stream::TcpStream,
};
