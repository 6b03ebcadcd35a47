//! The server: it accepts clients, serves each in a task, and ends gracefully.

use std::{
    future::{Future, poll_fn},
    io,
    pin::Pin,
    sync::Arc,
    task::Poll,
};

use bytes::Bytes;
use tokio::{
    select,
    sync::{
        OwnedSemaphorePermit, Semaphore,
        broadcast::{self, error::RecvError},
        mpsc,
    },
};

use crate::{
    cmd::Command,
    connection::{Connection, ConnectionError},
    db::Db,
    frame::Frame,
    rt::{
        net::{TcpListener, TcpStream},
        spawn,
        time::{Duration, sleep, timeout},
    },
};

/// The shortest and the longest wait after an error of `accept`.
const BACK_OFF: (Duration, Duration) = (Duration::from_millis(1), Duration::from_secs(1));

/// What a server allows.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// How many clients it serves at a time. Others wait.
    pub clients: usize,
    /// How long clients may take to end on shutdown.
    pub drain: Duration,
}

/// Serves clients until `shutdown` is ready. Returns when all of them have ended.
pub async fn serve(
    listener: TcpListener,
    limits: Limits,
    shutdown: impl Future<Output = ()>,
) -> io::Result<()> {
    let (db, purging) = Db::open();
    let (stop, _) = broadcast::channel(1);
    let (running, mut ended) = mpsc::channel(1);
    let server = Server {
        listener,
        db: db.clone(),
        clients: Arc::new(Semaphore::new(limits.clients)),
        stop,
        running,
    };
    let result = select! {
        result = server.accept_clients() => result,
        () = shutdown => Ok(()),
    };
    // This drops the listener, the sender that stops the clients, and a sender that each of them
    // has a clone of: the channel `ended` ends with the last client.
    drop(server);
    if timeout(limits.drain, ended.recv()).await.is_err() {
        eprintln!("clients are still busy after {:?}", limits.drain);
    }
    db.close();
    purging.await?;
    result
}

struct Server {
    listener: TcpListener,
    db: Db,
    clients: Arc<Semaphore>,
    stop: broadcast::Sender<()>,
    running: mpsc::Sender<()>,
}

impl Server {
    async fn accept_clients(&self) -> io::Result<()> {
        loop {
            let permit = self.clients.clone().acquire_owned().await;
            let permit = permit.map_err(io::Error::other)?;
            let stream = self.accept().await?;
            let mut client = Client {
                connection: Connection::new(stream),
                db: self.db.clone(),
                subscriptions: Subscriptions::default(),
                stopping: self.stop.subscribe(),
                _running: self.running.clone(),
                _permit: permit,
            };
            spawn(async move {
                match client.run().await {
                    Ok(()) => {}
                    // A client that is gone is no fault of the server.
                    Err(ConnectionError::Io(_)) => {}
                    Err(error @ ConnectionError::Protocol(_)) => {
                        let reply = Frame::Error(format!("ERR {error}"));
                        if client.connection.write_frame(&reply).await.is_ok() {
                            let _ = client.connection.close().await;
                        }
                    }
                }
            });
        }
    }

    /// Accepts a client. Tries again after errors, each time later, and gives up at last.
    async fn accept(&self) -> io::Result<TcpStream> {
        let (mut wait, longest) = BACK_OFF;
        loop {
            match self.listener.accept().await {
                Ok((stream, _)) => return Ok(stream),
                Err(error) if wait > longest => return Err(error),
                // The process may have no descriptors left: some clients have to end first.
                Err(error) => eprintln!("cannot accept a client: {error}"),
            }
            sleep(wait).await;
            wait *= 2;
        }
    }
}

/// A client, as its task knows it.
struct Client {
    connection: Connection,
    db: Db,
    subscriptions: Subscriptions,
    stopping: broadcast::Receiver<()>,
    _running: mpsc::Sender<()>,
    _permit: OwnedSemaphorePermit,
}

impl Client {
    /// Serves the client until it leaves or the server stops.
    async fn run(&mut self) -> Result<(), ConnectionError> {
        loop {
            select! {
                request = self.connection.read_request() => {
                    let mut next = request?;
                    if next.is_none() {
                        return Ok(());
                    }
                    // Replies to requests that arrived together leave together.
                    while let Some(request) = next {
                        if !self.handle(&request).await? {
                            return Ok(self.connection.close().await?);
                        }
                        next = self.connection.buffered_request()?;
                    }
                }
                message = self.subscriptions.next() => match message {
                    Ok((channel, message)) => {
                        let parts = [Bytes::from_static(b"message"), channel, message];
                        let frame = Frame::Array(parts.map(Frame::Bulk).into());
                        self.connection.write_frame(&frame).await?;
                    }
                    // The client reads too slowly, or the server ends.
                    Err(RecvError::Lagged(_) | RecvError::Closed) => return Ok(()),
                },
                _ = self.stopping.recv() => return Ok(self.connection.close().await?),
            }
            self.connection.flush().await?;
        }
    }

    /// Handles a request. Returns `false` if it is the last.
    async fn handle(&mut self, request: &[Bytes]) -> io::Result<bool> {
        // Redis ignores an empty request.
        if request.is_empty() {
            return Ok(true);
        }
        let subscribing = !self.subscriptions.is_empty();
        let reply = match Command::parse(request, subscribing) {
            Ok(command) => match command.apply(&self.db) {
                Ok(reply) => reply,
                Err(Command::Subscribe(channels)) => return self.subscribe(channels).await,
                Err(Command::Unsubscribe(channels)) => return self.unsubscribe(channels).await,
                Err(Command::Ping(text)) if subscribing => Frame::Array(vec![
                    Frame::bulk("pong"),
                    Frame::Bulk(text.unwrap_or_default()),
                ]),
                Err(Command::Ping(Some(text))) => Frame::Bulk(text),
                Err(Command::Ping(None)) => Frame::Simple("PONG".into()),
                Err(_) => {
                    self.connection.write_frame(&Frame::OK).await?;
                    return Ok(false);
                }
            },
            Err(error) => error.into(),
        };
        self.connection.write_frame(&reply).await?;
        Ok(true)
    }

    async fn subscribe(&mut self, channels: Vec<Bytes>) -> io::Result<bool> {
        for channel in channels {
            self.subscriptions.add(&self.db, &channel);
            self.confirm("subscribe", Frame::Bulk(channel)).await?;
        }
        Ok(true)
    }

    /// Leaves these channels, or all.
    async fn unsubscribe(&mut self, mut channels: Vec<Bytes>) -> io::Result<bool> {
        if channels.is_empty() {
            channels = self.subscriptions.channels();
            if channels.is_empty() {
                self.confirm("unsubscribe", Frame::Null).await?;
            }
        }
        for channel in channels {
            self.subscriptions.remove(&channel);
            self.confirm("unsubscribe", Frame::Bulk(channel)).await?;
        }
        Ok(true)
    }

    async fn confirm(&mut self, what: &'static str, channel: Frame) -> io::Result<()> {
        let count = i64::try_from(self.subscriptions.0.len()).unwrap_or(i64::MAX);
        let parts = vec![Frame::bulk(what), channel, Frame::Integer(count)];
        self.connection.write_frame(&Frame::Array(parts)).await
    }
}

/// The next message of a channel, and the receiver for those after it.
type Receiving =
    Pin<Box<dyn Future<Output = (Result<Bytes, RecvError>, broadcast::Receiver<Bytes>)> + Send>>;

/// The channels of a client, in the order of their turns.
#[derive(Default)]
struct Subscriptions(Vec<(Bytes, Receiving)>);

/// Waits for a message. The future keeps the receiver, and with it the place of its waker.
fn receive(mut receiver: broadcast::Receiver<Bytes>) -> Receiving {
    Box::pin(async move { (receiver.recv().await, receiver) })
}

impl Subscriptions {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn channels(&self) -> Vec<Bytes> {
        self.0.iter().map(|(channel, _)| channel.clone()).collect()
    }

    fn add(&mut self, db: &Db, channel: &Bytes) {
        if self.0.iter().all(|(known, _)| known != channel) {
            let receiving = receive(db.subscribe(channel));
            self.0.push((Bytes::copy_from_slice(channel), receiving));
        }
    }

    fn remove(&mut self, channel: &Bytes) {
        self.0.retain(|(known, _)| known != channel);
    }

    /// Waits for a message of any channel; for ever, if there is none. Safe to cancel.
    async fn next(&mut self) -> Result<(Bytes, Bytes), RecvError> {
        poll_fn(|context| {
            for index in 0..self.0.len() {
                let (channel, receiving) = &mut self.0[index];
                if let Poll::Ready((message, receiver)) = receiving.as_mut().poll(context) {
                    *receiving = receive(receiver);
                    let channel = channel.clone();
                    // The others are first next time.
                    self.0.rotate_left(index + 1);
                    return Poll::Ready(message.map(|message| (channel, message)));
                }
            }
            Poll::Pending
        })
        .await
    }
}
