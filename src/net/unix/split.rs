//! The halves of a Unix stream.

use std::{
    error::Error,
    fmt,
    io::{self, IoSlice, IoSliceMut},
    net::Shutdown,
    os::unix::net::SocketAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use futures_io::{AsyncRead, AsyncWrite};

use super::super::{UnixStream, split::halves};
use crate::io::{Interest, Ready};

halves!(UnixStream, SocketAddr);
