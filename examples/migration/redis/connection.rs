//! A connection: frames in both directions over a byte stream.

use std::io;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufWriter};

use crate::{
    frame::{self, Frame, ProtocolError},
    rt::net::TcpStream,
};

/// A stream with a buffer for each direction.
#[derive(Debug)]
pub struct Connection {
    stream: BufWriter<TcpStream>,
    arrived: BytesMut,
    /// The bytes of one frame, kept for its memory.
    scratch: Vec<u8>,
}

/// Why a connection cannot go on.
#[derive(Debug)]
pub enum ConnectionError {
    Io(io::Error),
    /// The peer does not keep to the protocol.
    Protocol(ProtocolError),
}

impl From<io::Error> for ConnectionError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<ProtocolError> for ConnectionError {
    fn from(error: ProtocolError) -> Self {
        Self::Protocol(error)
    }
}

impl std::fmt::Display for ConnectionError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Io(error) => error.fmt(f),
            Self::Protocol(error) => write!(f, "Protocol error: {error}"),
        }
    }
}

impl std::error::Error for ConnectionError {}

impl Connection {
    /// Makes a connection of a stream.
    pub fn new(stream: TcpStream) -> Self {
        // Without it a reply may wait for the acknowledgement of the one before.
        let _ = stream.set_nodelay(true);
        Self {
            stream: BufWriter::new(stream),
            arrived: BytesMut::with_capacity(4 * 1024),
            scratch: Vec::new(),
        }
    }

    /// Reads a request. Returns `None` at the end of the stream. Safe to cancel.
    pub async fn read_request(&mut self) -> Result<Option<Vec<Bytes>>, ConnectionError> {
        loop {
            if let Some(request) = self.buffered_request()? {
                return Ok(Some(request));
            }
            if !self.fill().await? {
                return Ok(None);
            }
        }
    }

    /// Returns a request that has already arrived.
    pub fn buffered_request(&mut self) -> Result<Option<Vec<Bytes>>, ProtocolError> {
        frame::take_request(&mut self.arrived)
    }

    /// Reads a reply. Returns `None` at the end of the stream. Safe to cancel.
    pub async fn read_frame(&mut self) -> Result<Option<Frame>, ConnectionError> {
        loop {
            if let Some(frame) = Frame::take(&mut self.arrived)? {
                return Ok(Some(frame));
            }
            if !self.fill().await? {
                return Ok(None);
            }
        }
    }

    /// Reads more bytes. Returns `false` at the end of the stream.
    async fn fill(&mut self) -> io::Result<bool> {
        if self.stream.read_buf(&mut self.arrived).await? > 0 {
            return Ok(true);
        }
        if self.arrived.is_empty() {
            Ok(false)
        } else {
            Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "the peer closed the connection within a frame",
            ))
        }
    }

    /// Writes a frame into the buffer.
    pub async fn write_frame(&mut self, frame: &Frame) -> io::Result<()> {
        self.scratch.clear();
        frame.encode(&mut self.scratch);
        self.stream.write_all(&self.scratch).await
    }

    /// Sends what the buffer holds.
    pub async fn flush(&mut self) -> io::Result<()> {
        self.stream.flush().await
    }

    /// Sends what the buffer holds, and closes the direction to the peer.
    pub async fn close(&mut self) -> io::Result<()> {
        self.stream.shutdown().await
    }
}
