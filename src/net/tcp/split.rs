//! The owned halves of a TCP connection.

use std::{
    error::Error,
    fmt,
    io::{self, IoSlice, IoSliceMut},
    net::{Shutdown, SocketAddr},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use futures_io::{AsyncRead, AsyncWrite};

use super::super::{TcpStream, split::halves};
use crate::io::{Interest, Ready};

halves!(TcpStream, SocketAddr);
