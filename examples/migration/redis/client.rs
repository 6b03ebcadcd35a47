//! Clients: an async one, one that subscribes, and one for code without a runtime.

use std::io;

use bytes::Bytes;

use crate::{
    connection::{Connection, ConnectionError},
    frame::Frame,
    rt::{
        net::{TcpStream, ToSocketAddrs},
        runtime::{Builder, Runtime},
    },
};

/// A client that waits for each reply.
#[derive(Debug)]
pub struct Client {
    connection: Connection,
}

impl Client {
    /// Connects to a server.
    pub async fn connect(address: impl ToSocketAddrs) -> io::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        Ok(Self {
            connection: Connection::new(stream),
        })
    }

    /// Sends a command, and returns its reply, which may be [`Frame::Error`].
    pub async fn ask(&mut self, words: &[Bytes]) -> Result<Frame, ConnectionError> {
        self.send(words).await?;
        let reply = self.connection.read_frame().await?;
        reply.ok_or_else(|| {
            let error = io::Error::new(io::ErrorKind::UnexpectedEof, "the server ended");
            ConnectionError::Io(error)
        })
    }

    async fn send(&mut self, words: &[Bytes]) -> io::Result<()> {
        let request = Frame::Array(words.iter().cloned().map(Frame::Bulk).collect());
        self.connection.write_frame(&request).await?;
        self.connection.flush().await
    }

    /// Subscribes to channels. The client cannot do anything else then.
    pub async fn subscribe(mut self, channels: &[Bytes]) -> io::Result<Subscriber> {
        let mut words = vec![Bytes::from_static(b"SUBSCRIBE")];
        words.extend_from_slice(channels);
        self.send(&words).await?;
        Ok(Subscriber { client: self })
    }
}

/// A client that receives the messages of channels.
#[derive(Debug)]
pub struct Subscriber {
    client: Client,
}

/// What a subscriber receives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The server has subscribed it to this channel.
    Subscribed(Bytes),
    /// A message of a channel.
    Message { channel: Bytes, message: Bytes },
}

impl Subscriber {
    /// Waits for the next event. Returns `None` when the server ends the connection.
    pub async fn recv(&mut self) -> Result<Option<Event>, ConnectionError> {
        let Some(frame) = self.client.connection.read_frame().await? else {
            return Ok(None);
        };
        if let Frame::Array(parts) = &frame {
            match &parts[..] {
                [
                    Frame::Bulk(kind),
                    Frame::Bulk(channel),
                    Frame::Bulk(message),
                ] if kind == "message" => {
                    return Ok(Some(Event::Message {
                        channel: channel.clone(),
                        message: message.clone(),
                    }));
                }
                [Frame::Bulk(kind), Frame::Bulk(channel), Frame::Integer(_)]
                    if kind == "subscribe" =>
                {
                    return Ok(Some(Event::Subscribed(channel.clone())));
                }
                _ => {}
            }
        }
        let text = format!("no message of a channel: {frame}");
        Err(io::Error::new(io::ErrorKind::InvalidData, text).into())
    }
}

/// A client for code without a runtime. It has one of its own, on the calling thread.
#[derive(Debug)]
pub struct BlockingClient {
    client: Client,
    runtime: Runtime,
}

impl BlockingClient {
    /// Connects to a server.
    pub fn connect(address: impl ToSocketAddrs) -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let client = runtime.block_on(Client::connect(address))?;
        Ok(Self { client, runtime })
    }

    /// Sends a command, and returns its reply.
    pub fn ask(&mut self, words: &[Bytes]) -> Result<Frame, ConnectionError> {
        self.runtime.block_on(self.client.ask(words))
    }
}
